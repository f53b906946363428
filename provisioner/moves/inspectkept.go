// This file inspects a move that goes back into the copies that an earlier one keeps.

package moves

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
	"github.com/lodestone-storage/lodestone/provisioner/witness"
)

// wayWhole is what to do where a copy that an earlier move keeps cannot be taken.
const wayWhole = "move all data back, with kubectl lodestone move rollback --whole"

// keeper returns the record of the move into whose copies the claims are to go back.
func (c *Controller) keeper(r *record.Record, move *v1alpha1.VolumeMove) (*record.Record, error) {
	into := move.Spec.Into
	switch from := c.Records.named(r.Namespace, into); {
	case from != nil && record.Before(from.Phase, v1alpha1.MoveRetain):
		return nil, refuse("VolumeMove %s is in phase %s: wait until it keeps the copy at its source (phase Retain), and move again", into,
			from.Phase)
	case from == nil || from.Phase != v1alpha1.MoveRetain || from.HandedTo != "" || from.Adopts:
		return nil, refuse("VolumeMove %s keeps no copy at its source that data could go back into: %s", into, wayWhole)
	case len(from.Claims) != len(move.Spec.Claims) || from.ClusterOf(record.Source) != r.Target.Cluster:
		return nil, refuse("spec.into has the claims of VolumeMove %s go back to cluster %s, all together: name these, and that", into,
			from.ClusterOf(record.Source))
	default:
		return from, nil
	}
}

// inspectKept inspects the copy of a claim that an earlier move keeps. The claim must be allowed to go there as a new one.
func (c *Controller) inspectKept(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume,
	node *corev1.Node, now backing.Ref, earlier *record.Record) (*record.Copy, *record.Kept, error) {
	i := slices.IndexFunc(earlier.Claims, func(known record.Claim) bool { return known.UID == claim.UID })
	if i < 0 || earlier.Claims[i].Target.Ref.UID != now.UID {
		return nil, nil, refuse("the data of claim %q is not where VolumeMove %s brought it: %s", claim.Name, earlier.Name, wayWhole)
	}
	if _, err := c.routeTo(claim, "", node); err != nil {
		return nil, nil, err
	}
	target := earlier.Claims[i].Source
	at, why := c.sites.Reach(target.Ref.Cluster)
	if why != "" {
		return nil, nil, refuse("%s: wait until it is ready, and move again", why)
	}
	if !at.Home && at.Remote == nil {
		return nil, nil, refuse("cluster %s runs no remote agent, which makes the movers there: install deploy/remote in it, and move again",
			target.Ref.Cluster)
	}
	b, err := at.Claim(ctx, target.Ref.Namespace, target.Ref.Name)
	if err != nil {
		return nil, nil, err
	}
	if b == nil || b.UID != target.Ref.UID || b.DeletionTimestamp != nil || b.Labels[keys.MoveOf] != string(earlier.UID) ||
		b.Status.Phase != corev1.ClaimBound {
		return nil, nil, refuse("the copy of claim %q that VolumeMove %s kept, real claim %s, is gone or is not that move's any more: %s",
			claim.Name, earlier.Name, target.Ref.Key(), wayWhole)
	}
	if has := b.Status.Capacity[corev1.ResourceStorage]; has.Cmp(volume.Spec.Capacity[corev1.ResourceStorage]) < 0 {
		return nil, nil, refuse("claim %q has grown since VolumeMove %s, and the copy that was kept has not: %s", claim.Name, earlier.Name,
			wayWhole)
	}
	if err := requireNoUser(ctx, at, target.Ref, earlier); err != nil {
		return nil, nil, err
	}
	kept := &record.Kept{By: earlier.UID, Name: earlier.Name, UID: target.Ref.UID}
	target.Ref.UID, target.Real = "", ""
	return &target, kept, nil
}

// requireNoUser refuses a copy that an earlier move keeps and that a pod uses, other than the movers of that move: it would
// write beside the move.
func requireNoUser(ctx context.Context, at site.Site, ref backing.Ref, earlier *record.Record) error {
	user := ""
	err := site.EachPage(ctx, metav1.ListOptions{}, at.Client.CoreV1().Pods(ref.Namespace).List, func(page *corev1.PodList) {
		for i := range page.Items {
			pod := &page.Items[i]
			if !finished(pod) && witness.Uses(&pod.Spec, ref.Name) && pod.Labels[keys.MoveOf] != string(earlier.UID) {
				user = pod.Name
			}
		}
	})
	switch {
	case err != nil:
		return fmt.Errorf("list pods in namespace %s of cluster %s: %w", ref.Namespace, ref.Cluster, err)
	case user != "":
		return refuse("pod %s/%s in cluster %s uses real claim %s, the copy that VolumeMove %s keeps: stop it there, and move again",
			ref.Namespace, user, ref.Cluster, ref.Name, earlier.Name)
	}
	return nil
}
