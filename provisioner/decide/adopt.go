package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// mended is the step for a volume whose shadow is being, or was, made anew in its
// cluster: by the remote agent there, or by an administrator. It is false for any
// other volume.
func mended(o Observation, ref backing.Ref) (Step, bool) {
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
	return Step{Verb: Heal, Cluster: keys.Home, Cure: Adopt, Ref: ref, Backing: *b, Tell: note("BackingHealed", fmt.Sprintf(
		"real claim %s in %s was made anew and has its volume %s with all data", ref.Key(), where(ref.Cluster), b.Volume.Name))}, true
}

// healing tells of a shadow that the remote agent makes anew.
func healing(o Observation, ref backing.Ref) Step {
	what := fmt.Sprintf("somebody deleted real claim %s in %s; its data is safe, ", ref.Key(), where(ref.Cluster))
	last := ""
	if toDelete(o.Volume) {
		last = "; then it is deleted"
	}
	if stalled(o, ref) {
		return showing(Step{Verb: Idle, Trouble: "BackingDeleted", Tell: warn("BackingDeleted", fmt.Sprintf(
			"%sbut the remote agent there does not get on with making the claim anew: see the events NotHealed and NameTaken of the claim and of volume %s there, and whether the agent runs%s", what, o.Real.Name, last))})
	}
	return Step{Verb: Idle, After: slow, Tell: note("BackingHealing", what+"and the remote agent there makes the claim anew once no pod uses it"+last)}
}

// stalled reports whether the remote agent has taken longer over a shadow than
// its steps take. As long as a pod there uses the old one it has to wait: then
// that one has lost our finalizer and the real volume is still bound.
func stalled(o Observation, ref backing.Ref) bool {
	b := find(o, ref.Cluster)
	switch {
	case o.Real.Status.Phase == corev1.VolumeReleased:
		return long(o)
	case b == nil:
		return false
	case b.Claim.DeletionTimestamp != nil:
		return backing.Protected(b.Claim) && long(o)
	}
	return b.Claim.UID != ref.UID && long(o)
}

// TakesThePlace says whether b, a backing claim of the same virtual claim, holds
// the real volume of the one that a virtual volume refers to. real is the name of
// that real volume, empty while it was never seen. A claim that says that it was
// never published may have been made anew from a copy that said so: it counts if
// it holds just that volume or, in a remote cluster, if a pod there used it.
func TakesThePlace(b *corev1.PersistentVolumeClaim, ref backing.Ref, real string) bool {
	if b.Namespace != ref.Namespace || b.Name != ref.Name || !backing.Protected(b) || b.Status.Phase != corev1.ClaimBound {
		return false
	}
	if real != "" {
		return b.Spec.VolumeName == real
	}
	return !backing.Unpublished(b) || used(Backing{Cluster: ref.Cluster, Claim: b})
}

// Holds says whether a backing claim has, or asks for, the very real volume that a
// virtual volume names: then it is the way to that volume's data, whatever its UID
// is and whatever it says of itself.
func Holds(b Backing, virtual *corev1.PersistentVolume) bool {
	ref, err := backing.RefOf(virtual)
	real := virtual.Annotations[keys.BackingVolume]
	return err == nil && ref.Cluster == b.Cluster && real != "" && b.Claim.Spec.VolumeName == real
}

// deleted tells of a backing claim that somebody deleted and that this program
// does not make anew.
func deleted(o Observation, ref backing.Ref, b Backing) Step {
	step := Step{Verb: Idle, Trouble: "BackingDeleted"}
	what := fmt.Sprintf("somebody deleted real claim %s in %s", ref.Key(), where(ref.Cluster))
	safe := fmt.Sprintf("%s; its data is safe, for finalizer %s holds the claim", what, keys.BackingFinalizer)
	const instead = "move the data to a new claim, then delete this one"
	remote := ref.Cluster != keys.Home
	switch {
	case remote && b.Claim.Status.Phase == corev1.ClaimPending:
		step.Tell = warn("BackingDeleted", what+"; it had no volume yet and cannot get one any more: delete this claim, and create it again")
	case remote && o.Cluster(ref.Cluster).Mapped.Asked && !long(o):
		step.Trouble, step.After = "", slow
		step.Tell = note("BackingHealing", what+"; its data is safe, and the remote agent there makes the claim anew")
	case remote && o.Volume.Status.Phase == corev1.VolumeReleased:
		step.Tell = warn("BackingDeleted", safe+": let an administrator there take that off if the data is not needed")
	case remote && o.Cluster(ref.Cluster).Mapped.Asked:
		step.Tell = warn("BackingDeleted", safe+", but the remote agent does not make it anew, and no new pod there can use it: see its events there, and whether the agent runs; or "+instead)
	case remote:
		step.Tell = warn("BackingDeleted", safe+", but no new pod there can use it: let an administrator there make it anew, as docs/lifecycle.md says, or "+instead)
	case o.StorageLeaving:
		step.Tell = warn("BackingDeleted", fmt.Sprintf(
			"%s, and pods go on, but namespace %s is being deleted, so that it cannot be made anew: let an administrator have that namespace again as docs/lifecycle.md says", safe, ref.Namespace))
	default:
		step.Tell = warn("BackingDeleted", safe+", but "+consequence(o)+": "+instead)
	}
	return showing(step)
}

// consequence says why a twin that is being deleted cannot be made anew by this
// program.
func consequence(o Observation) string {
	if o.Volume.Status.Phase == corev1.VolumeReleased {
		return "it is not made anew, for its volume is released"
	}
	return "it cannot be made anew, for its real volume is going or gone, too"
}
