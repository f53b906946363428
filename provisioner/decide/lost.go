package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// declaredLost is what is wrong with a volume that was given up.
const declaredLost = "DeclaredLost"

// givenUp says whether a user declared a volume lost whose data is in a remote
// cluster. Volumes are written by administrators alone, so no tenant can say so.
// Data at home is never given up: whoever can declare that can delete it.
func givenUp(volume *corev1.PersistentVolume, ref backing.Ref) bool {
	return ref.Cluster != keys.Home && volume.Annotations[keys.Lost] != ""
}

// abandon is the step for a released volume that was given up. It goes whether or
// not its cluster answers, and what is there is never touched: it may be all that
// is left of the data.
func abandon(ref backing.Ref) Step {
	return Step{Verb: Finish, Cluster: keys.Home, Tell: note(declaredLost, fmt.Sprintf(
		"the volume was declared lost, so nothing is deleted in %s: if real claim %s is there after all, it stays there with its data", where(ref.Cluster), ref.Key()))}
}

// lostStep is the step for a volume that was given up and is not released: it is
// held in step, should its cluster be back, and its user is told.
func lostStep(o Observation, ref backing.Ref, step Step) Step {
	if step.Verb != Idle {
		return step
	}
	step.Trouble = declaredLost
	if b := findRef(o, ref); b != nil && o.Cluster(ref.Cluster).Usable {
		step.Tell = warn(declaredLost, fmt.Sprintf(
			"the volume was declared lost, but %s is back and has real claim %s: its administrator takes the declaration back with kubectl lodestone lose pv %s --undo; if this claim is deleted before, the data stays there",
			where(ref.Cluster), ref.Key(), o.Volume.Name))
		return showing(step)
	}
	step.Tell = warn(declaredLost, fmt.Sprintf(
		"the volume was declared lost with %s: delete this claim and the pods that use it; nothing in that cluster is touched", where(ref.Cluster)))
	return showing(step)
}

// leftBehind returns a backing claim that may hold data and whose claim and
// volume at home are gone: policy Retain kept it, or its volume was declared lost
// or forgotten. Nil if there is none.
func leftBehind(o Observation) *Backing {
	if o.Claim != nil || o.Volume != nil || o.HandedOut {
		return nil
	}
	for i, b := range o.Backings {
		if !backing.Unpublished(b.Claim) {
			return &o.Backings[i]
		}
	}
	return nil
}
