package decide

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// Reasons of volumes whose data is on a node that is gone, or not ready.
const (
	BackingNodeGone     = "BackingNodeGone"
	BackingNodeNotReady = "BackingNodeNotReady"
)

// Reasons of real volumes that are themselves in trouble.
const (
	backingLost          = "BackingLost"
	backingVolumeDeleted = "BackingVolumeDeleted"
	backingVolumeFailed  = "BackingVolumeFailed"
)

// lostVolume is the step for a backing claim whose real volume is gone. Nothing is
// made anew: where the data is, and whether it is there, only its storage knows.
func lostVolume(o Observation, ref backing.Ref) Step {
	real := "its real volume"
	if name := o.Volume.Annotations[keys.BackingVolume]; name != "" {
		real = fmt.Sprintf("its real volume %q", name)
	}
	return showing(Step{Verb: Idle, Trouble: backingLost, Tell: warn(backingLost, fmt.Sprintf(
		"real claim %s in %s has lost %s, which somebody deleted there: let its administrator make that volume again as it was if the storage has the data, or restore the data from a backup to a new claim",
		ref.Key(), where(ref.Cluster), real))})
}

// impaired adds to a step what is wrong with a real volume that its backing claim
// has.
func impaired(step Step, ref backing.Ref, b Backing) Step {
	real := fmt.Sprintf("real volume %q in %s", b.Volume.Name, where(b.Cluster))
	switch {
	case b.Volume.Status.Phase == corev1.VolumeFailed:
		said := ""
		if b.Volume.Status.Message != "" {
			said = ": it says " + strconv.Quote(cut(b.Volume.Status.Message, maxWords))
		}
		return troubled(step, backingVolumeFailed, fmt.Sprintf("%s has failed: let its administrator see its events there%s", real, said))
	case b.Volume.DeletionTimestamp != nil && b.Claim.DeletionTimestamp == nil:
		return troubled(step, backingVolumeDeleted, fmt.Sprintf(
			"somebody deleted %s: it stays with the data only as long as real claim %s is there, so copy the data to a new claim", real, ref.Key()))
	case b.NodesGone != "":
		on, who := nodes(b, b.NodesGone, "bring the node back")
		return troubled(step, BackingNodeGone, fmt.Sprintf("%s can be used on no node that is left there%s: %s, or restore the data from a backup to a new claim", real, on, who))
	case b.NodesDown != "":
		// All nodes may be so at once, when a cluster is cut off from them, and then all
		// volumes on them: so there is an event only when the condition is written.
		on, who := nodes(b, b.NodesDown, "see what the node lacks")
		step.Trouble, step.Shows = BackingNodeNotReady, fmt.Sprintf("%s can be used on no node that is ready there%s: %s", real, on, who)
	}
	return step
}

// nodes names the nodes of home on which a real volume could be used, and says who
// does what. What remote nodes are called is not said at home.
func nodes(b Backing, names, what string) (on, who string) {
	if b.Cluster != keys.Home {
		return "", "let its administrator " + what
	}
	return fmt.Sprintf(" (only on %s)", cut(names, maxWords)), what
}

// troubled adds a trouble to a step. An event that is to be told already is told
// instead; the condition says it all the same.
func troubled(step Step, reason, text string) Step {
	step.Trouble, step.Shows = reason, text
	if step.After == 0 || step.After > troubleAgain {
		step.After = troubleAgain
	}
	if step.Tell == nil {
		step.Tell = warn(reason, text)
	}
	return step
}
