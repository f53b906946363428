package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Cure is the action of a step of healing: the backing claim at home that somebody deleted
// goes, and a new one is bound to the same real volume. At every moment the real volume has
// a backing claim with our finalizer or the policy Retain.
type Cure string

// The cures, in order.
const (
	// Begin records on the virtual volume that its backing claim is being healed, and the
	// reclaim policy that the real volume must have afterwards.
	Begin Cure = "Begin"
	// Retain sets policy Retain, so that the real volume outlives its claim.
	Retain Cure = "Retain"
	// LetGo removes our finalizer from the deleted claim.
	LetGo Cure = "LetGo"
	// Free clears the UID in the real volume's claimRef, so that it waits for a new claim
	// of the same name.
	Free Cure = "Free"
	// Rebuild creates that claim.
	Rebuild Cure = "Rebuild"
	// Adopt makes the virtual volume name the new backing claim: the one created at home,
	// or one that was recreated in a remote cluster.
	Adopt Cure = "Adopt"
	// Restore gives the real volume its own reclaim policy back.
	Restore Cure = "Restore"
	// End removes the record.
	End Cure = "End"
)

// healable says whether a backing claim at home that somebody deleted can be recreated.
// That of a released volume is not: deleting it is how retained data is disposed of.
func healable(o Observation, ref backing.Ref, b Backing) bool {
	return ref.Cluster == keys.Home && !o.StorageLeaving && o.Volume.Status.Phase != corev1.VolumeReleased && !backing.Unpublished(b.Claim) &&
		b.Volume != nil && b.Volume.DeletionTimestamp == nil &&
		b.Claim.Status.Phase == corev1.ClaimBound && o.Volume.Annotations[keys.BackingVolume] == b.Volume.Name
}

// heal is the next step of a healing that has begun; false if the real volume cannot be
// healed: it is gone, going or bound to another claim.
func heal(o Observation, ref backing.Ref) (Step, bool) {
	real := o.Real
	if real == nil || real.DeletionTimestamp != nil || real.Spec.ClaimRef == nil {
		return Step{}, false
	}
	cure := func(cure Cure) (Step, bool) {
		return Step{Action: HealBacking{Cure: cure, Ref: ref, Backing: Backing{Cluster: keys.Home, Claim: twinOf(o), Volume: real}}}, true
	}
	wait := func(what string) (Step, bool) {
		step := Step{After: slow}
		if twin := twinOf(o); twin != nil {
			step.Tell = ifSlow(o, twin,
				note("WaitingForBacking", fmt.Sprintf("waiting until real claim %s in %s %s", ref.Key(), where(keys.Home), what)))
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

// conclude ends a healing once the new claim is bound to the real volume.
func conclude(o Observation, real *corev1.PersistentVolume, cure func(Cure) (Step, bool)) (Step, bool) {
	if real.Status.Phase != corev1.VolumeBound {
		return Step{After: slow}, true
	}
	if before := o.Volume.Annotations[keys.Healing]; string(real.Spec.PersistentVolumeReclaimPolicy) != before {
		return cure(Restore)
	}
	return cure(End)
}

// twinOf returns our claim at home that has the backing claim's name.
func twinOf(o Observation) *corev1.PersistentVolumeClaim {
	if b := find(o, keys.Home); b != nil {
		return b.Claim
	}
	return nil
}

// unhealed reports a healing that cannot continue.
func unhealed(o Observation, ref backing.Ref) Step {
	return whenMissedLong(o, shownAsTold(Step{After: slow, Trouble: "BackingMissing", Tell: warn("BackingMissing", fmt.Sprintf(
		"somebody deleted real claim %s in %s, and its real volume %q is gone, going or given to another: restore the claim from a "+
			"backup, or delete it",
		ref.Key(), where(ref.Cluster), o.Volume.Annotations[keys.BackingVolume]))}))
}

// madeAnew is the step for a volume whose remote backing claim is being, or was, recreated
// in its cluster: by the remote agent there or by an administrator. It is false for any
// other volume.
func madeAnew(o Observation, ref backing.Ref) (Step, bool) {
	cluster := o.Cluster(ref.Cluster)
	switch {
	case ref.Cluster == keys.Home || !cluster.Usable:
		return Step{}, false
	case o.Real != nil && o.Real.Labels[keys.Healing] != "":
		return healing(o, ref), true
	}
	b := find(o, ref.Cluster)
	if b == nil || b.Claim.UID == ref.UID || !TakesThePlace(b.Claim, ref, o.Volume.Annotations[keys.BackingVolume]) || b.Volume == nil {
		return Step{}, false
	}
	return Step{Action: HealBacking{Cure: Adopt, Ref: ref, Backing: *b}, Tell: note("BackingHealed", fmt.Sprintf(
		"real claim %s in %s was made anew and has its volume %s with all data", ref.Key(), where(ref.Cluster), b.Volume.Name))}, true
}

// healing reports a backing claim that the remote agent recreates.
func healing(o Observation, ref backing.Ref) Step {
	what := fmt.Sprintf("somebody deleted real claim %s in %s; its data is safe, ", ref.Key(), where(ref.Cluster))
	last := ""
	if toDelete(o.Volume) {
		last = "; then it is deleted"
	}
	if stalled(o, ref) {
		return shownAsTold(Step{Trouble: "BackingDeleted", Tell: warn("BackingDeleted", fmt.Sprintf(
			"%sbut the remote agent there does not get on with making the claim anew: see the events NotHealed and NameTaken of the claim and of "+
				"volume %s there, and whether the agent runs%s", what, o.Real.Name, last))})
	}
	return Step{After: slow, Tell: note("BackingHealing", what+"and the remote agent there makes the claim anew once no pod uses it"+last)}
}

// stalled says whether the remote agent takes longer to recreate a claim than its steps
// need. It has to wait as long as a pod there uses the old claim: that has lost our
// finalizer by then, and the real volume is still bound.
func stalled(o Observation, ref backing.Ref) bool {
	b := find(o, ref.Cluster)
	switch {
	case o.Real.Status.Phase == corev1.VolumeReleased:
		return waitsLong(o)
	case b == nil:
		return false
	case b.Claim.DeletionTimestamp != nil:
		return backing.Protected(b.Claim) && waitsLong(o)
	}
	return b.Claim.UID != ref.UID && waitsLong(o)
}

// TakesThePlace says whether b, a backing claim of the same virtual claim, has the real
// volume of the backing claim that a virtual volume refers to. real is the name of that
// real volume, empty if it was never observed. A claim marked as unpublished may have been
// recreated from a copy with that mark: it counts if it is bound to just that volume or, in
// a remote cluster, if a pod there used it.
func TakesThePlace(b *corev1.PersistentVolumeClaim, ref backing.Ref, real string) bool {
	if b.Namespace != ref.Namespace || b.Name != ref.Name || !backing.Protected(b) || b.Status.Phase != corev1.ClaimBound {
		return false
	}
	if real != "" {
		return b.Spec.VolumeName == real
	}
	return !backing.Unpublished(b) || used(Backing{Cluster: ref.Cluster, Claim: b})
}

// Holds says whether a backing claim is bound to, or requests by name, the real volume that
// a virtual volume names. Then it leads to that volume's data, whatever its UID and its
// annotations.
func Holds(b Backing, virtual *corev1.PersistentVolume) bool {
	ref, err := backing.RefOf(virtual)
	real := virtual.Annotations[keys.BackingVolume]
	return err == nil && ref.Cluster == b.Cluster && real != "" && b.Claim.Spec.VolumeName == real
}

// deleted reports a backing claim that somebody deleted and that this program does not
// recreate.
func deleted(o Observation, ref backing.Ref, b Backing) Step {
	step := Step{Trouble: "BackingDeleted"}
	what := fmt.Sprintf("somebody deleted real claim %s in %s", ref.Key(), where(ref.Cluster))
	safe := fmt.Sprintf("%s; its data is safe, for finalizer %s holds the claim", what, keys.BackingFinalizer)
	const instead = "move the data to a new claim, then delete this one"
	remote := ref.Cluster != keys.Home
	switch {
	case remote && b.Claim.Status.Phase == corev1.ClaimPending:
		step.Tell = warn("BackingDeleted", what+"; it had no volume yet and cannot get one any more: delete this claim, and create it again")
	case remote && o.Cluster(ref.Cluster).Mapped.Asked && !waitsLong(o):
		step.Trouble, step.After = "", slow
		step.Tell = note("BackingHealing", what+"; its data is safe, and the remote agent there makes the claim anew")
	case remote && o.Volume.Status.Phase == corev1.VolumeReleased:
		step.Tell = warn("BackingDeleted", safe+": let an administrator there take that off if the data is not needed")
	case remote && o.Cluster(ref.Cluster).Mapped.Asked:
		step.Tell = warn("BackingDeleted", safe+", but the remote agent does not make it anew, and no new pod there can use it: see its events "+
			"there, and whether the agent runs; or "+instead)
	case remote:
		step.Tell = warn("BackingDeleted", safe+", but no new pod there can use it: let an administrator there make it anew, as "+
			"docs/lifecycle.md says, or "+instead)
	case o.StorageLeaving:
		step.Tell = warn("BackingDeleted", fmt.Sprintf(
			"%s, and pods go on, but namespace %s is being deleted, so that it cannot be made anew: let an administrator have that namespace "+
				"again as docs/lifecycle.md says", safe, ref.Namespace))
	default:
		step.Tell = warn("BackingDeleted", safe+", but "+consequence(o)+": "+instead)
	}
	return shownAsTold(step)
}

// consequence says why this program cannot recreate a backing claim at home that is being
// deleted.
func consequence(o Observation) string {
	if o.Volume.Status.Phase == corev1.VolumeReleased {
		return "it is not made anew, for its volume is released"
	}
	return "it cannot be made anew, for its real volume is going or gone, too"
}
