package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// Cure is what a step of healing does: the twin that somebody deleted goes, and
// another one is bound to the same real volume. The real volume is never without
// either a twin that holds it or the policy Retain.
type Cure string

// The cures, in their order.
const (
	// Begin records on the virtual volume that its twin is being healed, with the
	// reclaim policy that the real volume is to have afterwards.
	Begin Cure = "Begin"
	// Retain has the real volume outlive its twin.
	Retain Cure = "Retain"
	// LetGo takes our finalizer off the deleted twin.
	LetGo Cure = "LetGo"
	// Free makes the real volume wait for another claim of the twin's name.
	Free Cure = "Free"
	// Rebuild creates that claim.
	Rebuild Cure = "Rebuild"
	// Adopt has the virtual volume name the new twin, or the new shadow: those are
	// made anew in their cluster.
	Adopt Cure = "Adopt"
	// Restore gives the real volume its own reclaim policy back.
	Restore Cure = "Restore"
	// End takes the record off.
	End Cure = "End"
)

// healable says whether a twin that somebody deleted can be made anew. That of a
// released volume is not: to delete it is how what was kept is got rid of.
func healable(o Observation, ref backing.Ref, b Backing) bool {
	return ref.Cluster == keys.Home && !o.StorageLeaving && o.Volume.Status.Phase != corev1.VolumeReleased && !backing.Unpublished(b.Claim) && b.Volume != nil && b.Volume.DeletionTimestamp == nil &&
		b.Claim.Status.Phase == corev1.ClaimBound && o.Volume.Annotations[keys.BackingVolume] == b.Volume.Name
}

// heal is the next step of a healing that has begun; false where there is nothing
// to heal with.
func heal(o Observation, ref backing.Ref) (Step, bool) {
	real := o.Real
	if real == nil || real.DeletionTimestamp != nil || real.Spec.ClaimRef == nil {
		return Step{}, false
	}
	cure := func(cure Cure) (Step, bool) {
		return Step{Verb: Heal, Cluster: keys.Home, Cure: cure, Ref: ref, Backing: Backing{Cluster: keys.Home, Claim: twinOf(o), Volume: real}}, true
	}
	wait := func(what string) (Step, bool) {
		step := Step{Verb: Idle, After: slow}
		if twin := twinOf(o); twin != nil {
			step.Tell = later(o, twin, note("WaitingForBacking", fmt.Sprintf("waiting until real claim %s in %s %s", ref.Key(), where(keys.Home), what)))
		}
		return step, true
	}
	twin := twinOf(o)
	bound := real.Spec.ClaimRef.UID
	switch {
	case bound == ref.UID && twin != nil && twin.UID == ref.UID && twin.DeletionTimestamp == nil:
		return conclude(o, real, cure)
	case bound == ref.UID && real.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		return cure(Retain)
	case bound == ref.UID && twin != nil && twin.UID == ref.UID && backing.Protected(twin):
		return cure(LetGo)
	case twin != nil && (twin.UID == ref.UID || twin.DeletionTimestamp != nil && bound != twin.UID):
		return wait("is gone: another finalizer or a pod holds it")
	case bound == ref.UID && twin == nil:
		return cure(Free)
	case bound == "" && twin == nil:
		return cure(Rebuild)
	case bound != "" && twin != nil && bound == twin.UID:
		return cure(Adopt)
	case bound == "" && twin != nil:
		return wait("is bound to its volume again: see its events")
	}
	return Step{}, false
}

// conclude ends a healing once the new twin holds the real volume.
func conclude(o Observation, real *corev1.PersistentVolume, cure func(Cure) (Step, bool)) (Step, bool) {
	if real.Status.Phase != corev1.VolumeBound {
		return Step{Verb: Idle, After: slow}, true
	}
	if before := o.Volume.Annotations[keys.Healing]; string(real.Spec.PersistentVolumeReclaimPolicy) != before {
		return cure(Restore)
	}
	return cure(End)
}

// twinOf returns the claim that has the twin's name at home and is ours.
func twinOf(o Observation) *corev1.PersistentVolumeClaim {
	if b := find(o, keys.Home); b != nil {
		return b.Claim
	}
	return nil
}

// unhealed is what there is to tell of a healing that cannot go on.
func unhealed(o Observation, ref backing.Ref) Step {
	return patiently(o, showing(Step{Verb: Idle, After: slow, Trouble: "BackingMissing", Tell: warn("BackingMissing", fmt.Sprintf(
		"somebody deleted real claim %s in %s, and its real volume %q is gone, going or given to another: restore the claim from a backup, or delete it",
		ref.Key(), where(ref.Cluster), o.Volume.Annotations[keys.BackingVolume]))}))
}
