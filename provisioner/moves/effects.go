package moves

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// policy gives a real volume at home a reclaim policy, if it is as it was seen.
func (c *Controller) policy(ctx context.Context, real *corev1.PersistentVolume, policy corev1.PersistentVolumeReclaimPolicy) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": real.UID, "resourceVersion": real.ResourceVersion},
		"spec":     map[string]any{"persistentVolumeReclaimPolicy": policy},
	})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := c.Client.CoreV1().PersistentVolumes().Patch(ctx, real.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("give volume %s the reclaim policy %s: %w", real.Name, policy, err)
	}
	return nil
}

// makeTarget makes the backing claim at the target. Nothing but this move takes it for
// anything until it is published.
func (c *Controller) makeTarget(ctx context.Context, r *record.Record, i int, seen decide.Claim) error {
	ref := r.Claims[i].Target.Ref
	at, err := c.must(ref.Cluster)
	if err != nil {
		return err
	}
	b, err := c.targetClaim(r, i, seen.Claim)
	if err != nil {
		return err
	}
	if !at.home {
		if err := c.Clusters.Get(ref.Cluster).RecordNamespace(ctx, ref.Namespace); err != nil {
			return err
		}
	}
	if _, err := at.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Create(ctx, b, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make real claim %s at the target: %w", ref.Key(), err)
	}
	return nil
}

// targetClaim is the backing claim of a virtual claim at the target.
func (c *Controller) targetClaim(r *record.Record, i int, virtual *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	ref := r.Claims[i].Target.Ref
	to := route.Route{Cluster: ref.Cluster, Node: r.Claims[i].Target.Node}
	for _, class := range c.View(ref.Cluster, r.Namespace).Offered {
		if class.Name == r.Claims[i].Target.Class {
			to.Class = class
		}
	}
	if to.Class.Name == "" {
		return nil, fmt.Errorf("storage class %s is gone at the target: create it again, or abort the move", r.Claims[i].Target.Class)
	}
	claim := virtual.DeepCopy()
	claim.Spec.DataSource, claim.Spec.DataSourceRef = nil, nil
	b := backing.New(claim, to, ref.Key(), c.Place.HomeID)
	b.Labels[keys.MoveOf] = string(r.UID)
	if have := r.Claims[i].Volume.Spec.Capacity[corev1.ResourceStorage]; have.Cmp(b.Spec.Resources.Requests[corev1.ResourceStorage]) > 0 {
		// More than was asked for may be in use.
		b.Spec.Resources.Requests[corev1.ResourceStorage] = have
	}
	if to.Deferred() && to.Node == "" {
		// Its node is that of the mover.
		for _, key := range []string{keys.SelectedNode, keys.StorageProvisioner, keys.BetaStorageProvisioner} {
			delete(b.Annotations, key)
		}
	}
	return b, nil
}

// backing changes or removes the backing claim of an end.
func (c *Controller) backing(ctx context.Context, o decide.Observation, step decide.Step) error {
	b, end, known := o.Claims[step.Claim].Target.Backing, record.Target, &o.Record.Claims[step.Claim]
	if step.Verb == decide.Shelve || step.End == record.Source {
		b, end = o.Claims[step.Claim].Source.Backing, record.Source
	}
	at, err := c.must(known.At(end).Ref.Cluster)
	if err != nil {
		return err
	}
	claims := at.Client.CoreV1().PersistentVolumeClaims(b.Namespace)
	patch := func(kind types.PatchType, body string) error {
		_, err := claims.Patch(ctx, b.Name, kind, []byte(body), metav1.PatchOptions{})
		return ignoreGone(err, fmt.Sprintf("change real claim %s/%s", b.Namespace, b.Name))
	}
	switch step.Verb {
	case decide.Publish:
		return patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"uid":%q,"labels":{%q:null},"annotations":{%q:null}}}`, b.UID, keys.MoveOf, keys.Unpublished))
	case decide.Shelve:
		return patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"uid":%q,"labels":{%q:%q}}}`, b.UID, keys.MoveOf, o.Record.UID))
	default: // DropBacking, below
	}
	if err := c.unused(ctx, o, b); err != nil {
		return err
	}
	// First our finalizer: the remote agent makes those anew that somebody deletes and
	// that it holds.
	if backing.Protected(b) {
		if err := patch(types.StrategicMergePatchType, fmt.Sprintf(`{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, b.UID, keys.BackingFinalizer)); err != nil {
			return err
		}
	}
	return ignoreGone(claims.Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &b.UID}}), "delete real claim "+b.Name)
}

// unused asks once more, last of all, whether a virtual volume stands for a copy that is
// about to be removed.
func (c *Controller) unused(ctx context.Context, o decide.Observation, b *corev1.PersistentVolumeClaim) error {
	for i := range o.Record.Claims {
		live, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, o.Record.Claims[i].Volume.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at volume %s: %w", o.Record.Claims[i].Volume.Name, err)
		}
		if ref, err := backing.RefOf(live); err != nil || ref.UID == b.UID {
			return fmt.Errorf("volume %s may stand for real claim %s/%s, which is not removed", live.Name, b.Namespace, b.Name)
		}
	}
	return nil
}

// volume deletes, frees or makes a virtual volume.
func (c *Controller) volume(ctx context.Context, o decide.Observation, step decide.Step) error {
	volumes, seen := c.Client.CoreV1().PersistentVolumes(), o.Claims[step.Claim].Volume
	switch step.Verb {
	case decide.DeleteVolume:
		if o.Record.Phase != v1alpha1.MoveFence {
			return fmt.Errorf("a volume is deleted in phase %s only", v1alpha1.MoveFence)
		}
		return ignoreGone(volumes.Delete(ctx, seen.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &seen.UID}}), "delete volume "+seen.Name)
	case decide.FreeVolume:
		_, err := volumes.Patch(ctx, seen.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q,"finalizers":null}}`, seen.UID, seen.ResourceVersion), metav1.PatchOptions{})
		return ignoreGone(err, "free volume "+seen.Name)
	default: // MakeVolume, below
	}
	made := step.Volume.DeepCopy()
	made.UID, made.ResourceVersion = "", ""
	if _, err := volumes.Create(ctx, made, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make volume %s: %w", made.Name, err)
	}
	return nil
}
