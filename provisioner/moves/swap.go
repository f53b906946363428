package moves

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// bindCompleted is the annotation by which kube-controller-manager knows a claim that was bound. Without a volume such a
// claim is Lost for it, and its data, too; one without the annotation that names a volume waits for that.
const bindCompleted = "pv.kubernetes.io/bind-completed"

// deleteVolume deletes a virtual volume, and has it name a claim that does not exist: see decide.isUnclaimed. Who holds the
// volume goes by the UID, which stays. Whoever sees a volume without its claim leaves the data as it is, because of the policy.
func (c *Controller) deleteVolume(ctx context.Context, r *record.Record, volume *corev1.PersistentVolume) error {
	if r.Phase != v1alpha1.MoveFence {
		return fmt.Errorf("a volume is deleted in phase %s only", v1alpha1.MoveFence)
	}
	volumes := c.Client.CoreV1().PersistentVolumes()
	if err := site.IgnoreGone(volumes.Delete(ctx, volume.Name, only(volume.UID)), "delete volume "+volume.Name); err != nil {
		return err
	}
	// Only then: a claim that asks for a volume by name does not get one of another claim, but others would get one of none.
	_, err := volumes.Patch(ctx, volume.Name, types.MergePatchType, fmt.Appendf(nil,
		`{"metadata":{"uid":%q},"spec":{"claimRef":{"name":%q},"persistentVolumeReclaimPolicy":%q}}`, volume.UID, record.SecretName(r.UID),
		corev1.PersistentVolumeReclaimRetain), metav1.PatchOptions{})
	return site.IgnoreGone(err, "take volume "+volume.Name+" from its claim")
}

// freeVolume removes those finalizers of a virtual volume that nobody else needs. Kubernetes may remove one at the same time, and an
// attacher put one on.
func (c *Controller) freeVolume(ctx context.Context, volume *corev1.PersistentVolume) error {
	own, err := json.Marshal(record.OwnFinalizers)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = c.Client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":%s}}`, volume.UID, own), metav1.PatchOptions{})
	return site.IgnoreGone(err, "free volume "+volume.Name)
}

// makeVolume creates a virtual volume.
func (c *Controller) makeVolume(ctx context.Context, volume *corev1.PersistentVolume) error {
	made := volume.DeepCopy()
	made.UID, made.ResourceVersion = "", ""
	_, err := c.Client.CoreV1().PersistentVolumes().Create(ctx, made, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make volume %s: %w", made.Name, err)
	}
	return nil
}

// targetVolume builds the virtual volume of a claim for its target.
func (c *Controller) targetVolume(known *record.Claim, seen steps.Claim) (*corev1.PersistentVolume, error) {
	if seen.Target.Backing == nil || seen.Target.Real == nil {
		return nil, fmt.Errorf("real claim %s is not bound", known.Target.Ref.Key())
	}
	class, err := c.classOf(seen.Claim)
	if err != nil {
		return nil, err
	}
	at, _ := c.sites.Reach(known.Target.Ref.Cluster)
	pv, err := backing.NewVolume(backing.VolumeInput{
		Name: known.Volume.Name, Claim: seen.Claim, Class: class,
		Cluster: known.Target.Ref.Cluster, ClusterUID: at.UID, Backing: seen.Target.Backing, Real: seen.Target.Real,
	})
	if err != nil {
		return nil, err
	}
	return inherit(pv, known.Volume), nil
}

// inherit copies to a new volume what an administrator chose for the one before, and what
// does not depend on where the data is.
func inherit(next, before *corev1.PersistentVolume) *corev1.PersistentVolume {
	next.Finalizers = slices.Clone(before.Finalizers)
	next.Spec.PersistentVolumeReclaimPolicy = before.Spec.PersistentVolumeReclaimPolicy
	next.Spec.StorageClassName = before.Spec.StorageClassName
	next.Spec.ClaimRef = claimRef(before.Spec.ClaimRef)
	for key, value := range before.Labels {
		if _, ours := next.Labels[key]; !ours {
			next.Labels[key] = value
		}
	}
	for key, value := range before.Annotations {
		if _, ours := next.Annotations[key]; !ours && !slices.Contains(locationAnnotations, key) {
			next.Annotations[key] = value
		}
	}
	return next
}

// locationAnnotations are the annotations of a virtual volume that depend on where its data
// is.
var locationAnnotations = []string{keys.Backing, keys.BackingVolume, keys.ClusterUID, keys.Healing, keys.Lost}

func claimRef(ref *corev1.ObjectReference) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
}

// volumeForRecord returns the part of a volume that is kept in a record.
func volumeForRecord(volume *corev1.PersistentVolume) *corev1.PersistentVolume {
	kept := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume.Name, UID: volume.UID, Labels: maps.Clone(volume.Labels),
			Annotations: maps.Clone(volume.Annotations)},
		Spec: *volume.Spec.DeepCopy(),
	}
	for _, finalizer := range volume.Finalizers {
		// The API server adds its own finalizer, and an attacher adds its own with each
		// attachment.
		if record.IsOwnFinalizer(finalizer) && finalizer != "kubernetes.io/pv-protection" {
			kept.Finalizers = append(kept.Finalizers, finalizer)
		}
	}
	kept.Spec.ClaimRef = claimRef(volume.Spec.ClaimRef)
	return kept
}

// classOf returns the virtual class of a claim.
func (c *Controller) classOf(claim *corev1.PersistentVolumeClaim) (virtualclass.Class, error) {
	name := ""
	if claim.Spec.StorageClassName != nil {
		name = *claim.Spec.StorageClassName
	}
	class := c.Class(name)
	if class == nil || !virtualclass.Is(class) {
		return virtualclass.Class{}, fmt.Errorf("storage class %q of claim %s is not a virtual one, or is gone: create it again", name,
			claim.Name)
	}
	return virtualclass.Parse(class)
}
