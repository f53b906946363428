package decide

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// The volume that a real provisioner makes for a twin names the twin from the start, and then
// kube-controller-manager binds the twin to it. The virtual volume is made of it meanwhile. The
// annotation that marks the twin as unpublished stays until the twin is bound: while the virtual
// volume exists, it says that nobody has seen yet to which volume.

// promised says whether a twin that is not bound yet will be bound to the real volume that was made
// for it. Its class must bind late: kube-controller-manager gives a claim of such a class no volume but
// one that names it, and the one that fits is taken. Of another class it may choose any that is free.
func promised(b steps.Backing, to route.Route) bool {
	claim, real := b.Claim, realOf(b)
	if real == nil || real.Spec.ClaimRef == nil || !to.Deferred() || to.Class.Provisioner == "" || className(claim) != to.Class.Name ||
		!backing.Unpublished(claim) || backing.CopyOf(claim) != "" {
		return false
	}
	have, want := real.Spec.Capacity[corev1.ResourceStorage], requested(claim)
	lacks := func(mode corev1.PersistentVolumeAccessMode) bool {
		return !slices.Contains(real.Spec.AccessModes, mode)
	}
	of := real.Spec.ClaimRef
	return of.UID == claim.UID && of.Namespace == claim.Namespace && of.Name == claim.Name &&
		real.DeletionTimestamp == nil && real.Status.Phase != corev1.VolumeReleased && real.Status.Phase != corev1.VolumeFailed &&
		real.Annotations[provisionedBy] == to.Class.Provisioner &&
		real.Spec.StorageClassName == to.Class.Name &&
		ptr.Deref(real.Spec.VolumeAttributesClassName, "") == backing.Attributes(claim) &&
		ptr.Deref(real.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == mode(claim) &&
		have.Cmp(want) >= 0 && !slices.ContainsFunc(claim.Spec.AccessModes, lacks)
}

// realOf is the real volume of a twin: the one that it is bound to, or the one that was made for it.
func realOf(b steps.Backing) *corev1.PersistentVolume { return cmp.Or(b.Volume, b.Made) }

// unsettled says whether a virtual volume at home was made before its twin was bound, and the twin is
// not bound to the same real volume.
func unsettled(o steps.Observation, ref backing.Ref, b steps.Backing) bool {
	return ref.Cluster == keys.Home && backing.Unpublished(b.Claim) &&
		(b.Claim.Status.Phase == corev1.ClaimPending || backing.Misbound(o.Volume, b.Claim))
}

// backingMisbound is the reason of a claim whose twin was bound to another real volume than its virtual
// volume was made of.
const backingMisbound = "BackingMisbound"

// settle waits until a twin is bound. If it is bound to another volume, new pods of the claim wait: the
// one that they would use may be deleted, since nothing is bound to it.
func settle(o steps.Observation, ref backing.Ref, b steps.Backing) steps.Step {
	if !backing.Misbound(o.Volume, b.Claim) {
		return pending(o, ref, b)
	}
	step := steps.ShownAsTold(steps.Step{Trouble: backingMisbound, Tell: steps.Warn(backingMisbound, fmt.Sprintf(
		"real claim %s in %s was bound to volume %q, but this claim's volume is %q, which may be deleted now: new pods wait; save what "+
			"running pods have written, then delete this claim and create it anew",
		ref.Key(), steps.Where(ref.Cluster), b.Claim.Spec.VolumeName, o.Volume.Annotations[keys.BackingVolume]))})
	if o.Claim == nil || o.Claim.DeletionTimestamp != nil || o.Claim.Spec.VolumeName != o.Volume.Name {
		return step
	}
	return lock(o, step)
}
