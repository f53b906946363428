package moves

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// fillAdoption completes the record of a move that copies nothing: the claim gets a real claim that is at the target already, and that a
// later move has made than the one that its volume stands for.
func (c *Controller) fillAdoption(ctx context.Context, r *record.Record, move *v1alpha1.VolumeMove) error {
	if len(move.Spec.Claims) != 1 {
		return refuse("spec.adopt is for one claim: name one")
	}
	name := move.Spec.Claims[0]
	claim, err := c.sites.Home().Claim(ctx, r.Namespace, name)
	if err != nil {
		return err
	}
	if claim == nil {
		return refuse("there is no claim %q in namespace %s: name one that exists", name, r.Namespace)
	}
	volume, err := c.sites.Home().Volume(ctx, "pvc-"+string(claim.UID))
	if err != nil {
		return err
	}
	if err := requireMovable(claim, volume); err != nil {
		return err
	}
	if other := c.Records.blocking(r.UID, claim.UID); other != nil {
		return busyWith(claim, other)
	}
	copies, unread, err := c.copiesOf(ctx, claim, volume)
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	standing := c.Place.Compare(volume, key, claim.UID, copies)
	i := slices.IndexFunc(standing.Newer, func(b backing.Copy) bool {
		return string(b.Claim.UID) == move.Spec.Adopt && b.Cluster == move.Spec.Target.Cluster
	})
	switch {
	case i < 0 && unread != "":
		return refuse("%s: move again when it answers", unread)
	case i < 0:
		return refuse("cluster %s has no real claim with the UID %s that has newer data of claim %q than its volume stands for: name one that "+
			"the events of the claim name", move.Spec.Target.Cluster, move.Spec.Adopt, name)
	case i > 0:
		newest := standing.Newer[0].Ref()
		return refuse("real claim %s in cluster %s (UID %s) is newer than that: choose it, or delete it there first", newest.Key(),
			newest.Cluster, newest.UID)
	}
	return c.adopt(ctx, r, claim, volume, standing)
}

// adopt completes the record with the claim, whose newest copy is the first of standing.Newer.
func (c *Controller) adopt(ctx context.Context, r *record.Record, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume,
	standing backing.Standing) error {
	newest, from := standing.Newer[0], standing.Current
	if newest.Claim.Status.Phase != corev1.ClaimBound || newest.Claim.DeletionTimestamp != nil {
		return refuse("real claim %s in cluster %s is not bound to a real volume, or is being deleted: see its events there",
			newest.Ref().Key(), newest.Cluster)
	}
	if standing.Current == (backing.Ref{}) {
		return refuse("volume %s of claim %q is not one that Lodestone made", volume.Name, claim.Name)
	}
	// Who uses the older copy must be known, even if that itself is gone.
	at, why := c.sites.Reach(from.Cluster)
	if why != "" {
		return refuse("%s: pods there may use the claim; move again when it answers", why)
	}
	if err := requireAttachmentsReadable(ctx, at, from.Cluster); err != nil {
		return err
	}
	r.Adopts, r.Passes = true, 0
	r.Target = v1alpha1.MovePlace{Cluster: newest.Cluster, Class: ptr.Deref(newest.Claim.Spec.StorageClassName, "")}
	r.Claims = []record.Claim{{
		Name: claim.Name, UID: claim.UID, Volume: volumeForRecord(volume), Source: record.Copy{Ref: from},
		Target:     record.Copy{Ref: newest.Ref(), Real: newest.Claim.Spec.VolumeName, Class: r.Target.Class},
		Generation: max(backing.GenerationOf(newest.Claim), standing.ReplacedBy),
	}}
	return c.requireOwnedPods(ctx, r)
}

// requireOwnedPods refuses pods that nobody would make anew once they are stopped, and those of Jobs.
func (c *Controller) requireOwnedPods(ctx context.Context, r *record.Record) error {
	pods, err := c.Client.CoreV1().Pods(r.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if finished(pod) || pod.DeletionTimestamp != nil || len(usedBy(pod, r)) == 0 {
			continue
		}
		if err := requireStoppable(r, pod); err != nil {
			return err
		}
	}
	return nil
}
