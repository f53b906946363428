package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// healable says whether a backing claim at home that somebody deleted can be recreated.
// That of a released volume is not: deleting it is how retained data is disposed of.
func healable(o steps.Observation, ref backing.Ref, b steps.Backing) bool {
	return ref.Cluster == keys.Home && !o.StorageLeaving && o.Volume.Status.Phase != corev1.VolumeReleased && !backing.Unpublished(b.Claim) &&
		b.Volume != nil && b.Volume.DeletionTimestamp == nil &&
		b.Claim.Status.Phase == corev1.ClaimBound && o.Volume.Annotations[keys.BackingVolume] == b.Volume.Name
}

// heal is the next step of a healing that has begun; false if the real volume cannot be
// healed: it is gone, going or bound to another claim.
func heal(o steps.Observation, ref backing.Ref) (steps.Step, bool) {
	real := o.Real
	if real == nil || real.DeletionTimestamp != nil || real.Spec.ClaimRef == nil {
		return steps.Step{}, false
	}
	cure := func(cure steps.Cure) (steps.Step, bool) {
		return steps.Step{Action: steps.HealBacking{Cure: cure, Ref: ref, Backing: steps.Backing{Cluster: keys.Home, Claim: twinOf(o),
			Volume: real}}}, true
	}
	wait := func(what string) (steps.Step, bool) {
		step := steps.Step{After: steps.Slow}
		if twin := twinOf(o); twin != nil {
			step.Tell = steps.IfSlow(o, twin,
				steps.Note("WaitingForBacking", fmt.Sprintf("waiting until real claim %s in %s %s", ref.Key(), steps.Where(keys.Home), what)))
		}
		return step, true
	}
	twin := twinOf(o)
	bound := real.Spec.ClaimRef.UID
	switch {
	case bound == ref.UID && twin != nil && twin.UID == ref.UID && twin.DeletionTimestamp == nil:
		return conclude(o, real, cure)
	case bound == ref.UID && real.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		return cure(steps.Retain)
	case bound == ref.UID && twin != nil && twin.UID == ref.UID && backing.Protected(twin):
		return cure(steps.LetGo)
	case twin != nil && (twin.UID == ref.UID || twin.DeletionTimestamp != nil && bound != twin.UID):
		return wait("is gone: another finalizer or a pod holds it")
	case bound == ref.UID && twin == nil:
		return cure(steps.Free)
	case bound == "" && twin == nil:
		return cure(steps.Rebuild)
	case bound != "" && twin != nil && bound == twin.UID:
		return cure(steps.Adopt)
	case bound == "" && twin != nil:
		return wait("is bound to its volume again: see its events")
	}
	return steps.Step{}, false
}

// conclude ends a healing once the new claim is bound to the real volume.
func conclude(o steps.Observation, real *corev1.PersistentVolume, cure func(steps.Cure) (steps.Step, bool)) (steps.Step, bool) {
	if real.Status.Phase != corev1.VolumeBound {
		return steps.Step{After: steps.Slow}, true
	}
	if before := o.Volume.Annotations[keys.Healing]; string(real.Spec.PersistentVolumeReclaimPolicy) != before {
		return cure(steps.Restore)
	}
	return cure(steps.End)
}

// twinOf returns our claim at home that has the backing claim's name.
func twinOf(o steps.Observation) *corev1.PersistentVolumeClaim {
	if b := o.BackingIn(keys.Home); b != nil {
		return b.Claim
	}
	return nil
}

// unhealed reports a healing that cannot continue.
func unhealed(o steps.Observation, ref backing.Ref) steps.Step {
	return whenMissedLong(o, steps.ShownAsTold(steps.Step{After: steps.Slow, Trouble: "BackingMissing", Tell: steps.Warn("BackingMissing",
		fmt.Sprintf(
			"somebody deleted real claim %s in %s, and its real volume %q is gone, going or given to another: restore the claim from a "+
				"backup, or delete it", ref.Key(), steps.Where(ref.Cluster), o.Volume.Annotations[keys.BackingVolume]))}))
}

// madeAnew is the step for a volume whose remote backing claim is being, or was, recreated
// in its cluster: by the remote agent there or by an administrator. It is false for any
// other volume.
func madeAnew(o steps.Observation, ref backing.Ref) (steps.Step, bool) {
	cluster := o.Cluster(ref.Cluster)
	switch {
	case ref.Cluster == keys.Home || !cluster.Usable:
		return steps.Step{}, false
	case o.Real != nil && o.Real.Labels[keys.Healing] != "":
		return healing(o, ref), true
	}
	b := o.BackingIn(ref.Cluster)
	if b == nil || b.Claim.UID == ref.UID || !TakesThePlace(b.Claim, ref, o.Volume.Annotations[keys.BackingVolume]) || b.Volume == nil {
		return steps.Step{}, false
	}
	return steps.Step{Action: steps.HealBacking{Cure: steps.Adopt, Ref: ref, Backing: *b}, Tell: steps.Note("BackingHealed", fmt.Sprintf(
		"real claim %s in %s was made anew and has its volume %s with all data", ref.Key(), steps.Where(ref.Cluster), b.Volume.Name))}, true
}

// healing reports a backing claim that the remote agent recreates.
func healing(o steps.Observation, ref backing.Ref) steps.Step {
	what := fmt.Sprintf("somebody deleted real claim %s in %s; its data is safe, ", ref.Key(), steps.Where(ref.Cluster))
	last := ""
	if toDelete(o.Volume) {
		last = "; then it is deleted"
	}
	if stalled(o, ref) {
		return steps.ShownAsTold(steps.Step{Trouble: "BackingDeleted", Tell: steps.Warn("BackingDeleted", fmt.Sprintf(
			"%sbut the remote agent there does not get on with making the claim anew: see the events NotHealed and NameTaken of the claim and of "+
				"volume %s there, and whether the agent runs%s", what, o.Real.Name, last))})
	}
	return steps.Step{After: steps.Slow, Tell: steps.Note("BackingHealing", what+"and the remote agent there makes the claim anew once no "+
		"pod uses it"+last)}
}

// stalled says whether the remote agent takes longer to recreate a claim than its steps
// need. It has to wait as long as a pod there uses the old claim: that has lost our
// finalizer by then, and the real volume is still bound.
func stalled(o steps.Observation, ref backing.Ref) bool {
	b := o.BackingIn(ref.Cluster)
	switch {
	case o.Real.Status.Phase == corev1.VolumeReleased:
		return o.WaitsLong()
	case b == nil:
		return false
	case b.Claim.DeletionTimestamp != nil:
		return backing.Protected(b.Claim) && o.WaitsLong()
	}
	return b.Claim.UID != ref.UID && o.WaitsLong()
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
	return !backing.Unpublished(b) || used(steps.Backing{Cluster: ref.Cluster, Claim: b})
}

// Holds says whether a backing claim is bound to, or requests by name, the real volume that
// a virtual volume names. Then it leads to that volume's data, whatever its UID and its
// annotations.
func Holds(b steps.Backing, virtual *corev1.PersistentVolume) bool {
	ref, err := backing.RefOf(virtual)
	real := virtual.Annotations[keys.BackingVolume]
	return err == nil && ref.Cluster == b.Cluster && real != "" && b.Claim.Spec.VolumeName == real
}

// deleted reports a backing claim that somebody deleted and that this program does not
// recreate.
func deleted(o steps.Observation, ref backing.Ref, b steps.Backing) steps.Step {
	step := steps.Step{Trouble: "BackingDeleted"}
	what := fmt.Sprintf("somebody deleted real claim %s in %s", ref.Key(), steps.Where(ref.Cluster))
	safe := fmt.Sprintf("%s; its data is safe, for finalizer %s holds the claim", what, keys.BackingFinalizer)
	const instead = "move the data to a new claim, then delete this one"
	remote := ref.Cluster != keys.Home
	switch {
	case remote && b.Claim.Status.Phase == corev1.ClaimPending:
		step.Tell = steps.Warn("BackingDeleted", what+"; it had no volume yet and cannot get one any more: delete this claim, and create it "+
			"again")
	case remote && o.Cluster(ref.Cluster).Mapped.Asked && !o.WaitsLong():
		step.Trouble, step.After = "", steps.Slow
		step.Tell = steps.Note("BackingHealing", what+"; its data is safe, and the remote agent there makes the claim anew")
	case remote && o.Volume.Status.Phase == corev1.VolumeReleased:
		step.Tell = steps.Warn("BackingDeleted", safe+": let an administrator there take that off if the data is not needed")
	case remote && o.Cluster(ref.Cluster).Mapped.Asked:
		step.Tell = steps.Warn("BackingDeleted", safe+", but the remote agent does not make it anew, and no new pod there can use it: see its "+
			"events there, and whether the agent runs; or "+instead)
	case remote:
		step.Tell = steps.Warn("BackingDeleted", safe+", but no new pod there can use it: let an administrator there make it anew, as "+
			"docs/lifecycle.md says, or "+instead)
	case o.StorageLeaving:
		step.Tell = steps.Warn("BackingDeleted", fmt.Sprintf(
			"%s, and pods go on, but namespace %s is being deleted, so that it cannot be made anew: let an administrator have that namespace "+
				"again as docs/lifecycle.md says", safe, ref.Namespace))
	default:
		step.Tell = steps.Warn("BackingDeleted", safe+", but "+consequence(o)+": "+instead)
	}
	return steps.ShownAsTold(step)
}

// consequence says why this program cannot recreate a backing claim at home that is being
// deleted.
func consequence(o steps.Observation) string {
	if o.Volume.Status.Phase == corev1.VolumeReleased {
		return "it is not made anew, for its volume is released"
	}
	return "it cannot be made anew, for its real volume is going or gone, too"
}
