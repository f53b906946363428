package moves

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/pkg/virtualvolume"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// volumeFor builds the virtual volume of a claim for its target.
func (c *Controller) volumeFor(known *record.Claim, seen decide.Claim) (*corev1.PersistentVolume, error) {
	if seen.Target.Backing == nil || seen.Target.Real == nil {
		return nil, fmt.Errorf("real claim %s is not bound", known.Target.Ref.Key())
	}
	class, err := c.classOf(seen.Claim)
	if err != nil {
		return nil, err
	}
	pv, err := virtualvolume.New(virtualvolume.Input{
		Name: known.Volume.Name, Claim: seen.Claim, Class: class,
		Cluster: known.Target.Ref.Cluster, Backing: seen.Target.Backing, Real: seen.Target.Real,
	})
	if err != nil {
		return nil, err
	}
	return succeed(pv, known.Volume), nil
}

// succeed makes a volume the successor of another one: what its administrator chose,
// and what is not about the place, stays.
func succeed(next, before *corev1.PersistentVolume) *corev1.PersistentVolume {
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
		if _, ours := next.Annotations[key]; !ours && !slices.Contains(ofThePlace, key) {
			next.Annotations[key] = value
		}
	}
	return next
}

// ofThePlace are annotations of a virtual volume that say something of its data's place.
var ofThePlace = []string{keys.Backing, keys.BackingVolume, keys.Healing, keys.Lost}

func claimRef(ref *corev1.ObjectReference) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
}

// remembered is what a record keeps of a volume.
func remembered(volume *corev1.PersistentVolume) *corev1.PersistentVolume {
	kept := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume.Name, UID: volume.UID, Labels: maps.Clone(volume.Labels), Annotations: maps.Clone(volume.Annotations)},
		Spec:       *volume.Spec.DeepCopy(),
	}
	for _, finalizer := range volume.Finalizers {
		// The API server adds its own, and an attacher that of each attachment.
		if record.Ours(finalizer) && finalizer != "kubernetes.io/pv-protection" {
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
		return virtualclass.Class{}, fmt.Errorf("storage class %q of claim %s is not a virtual one, or is gone: create it again", name, claim.Name)
	}
	return virtualclass.Parse(class)
}
