package decide

import (
	"fmt"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// BackingNodeGone is the reason of a volume whose data is on a node that is gone.
const BackingNodeGone = "BackingNodeGone"

// stranded adds to a step that the real volume can be used on no node that is left.
// What remote nodes are called is not said at home.
func stranded(step Step, b Backing) Step {
	step.Trouble = BackingNodeGone
	if step.After == 0 || step.After > troubleAgain {
		step.After = troubleAgain
	}
	if step.Tell != nil {
		return step
	}
	on, who := "", "let its administrator bring the node back"
	if b.Cluster == keys.Home {
		on, who = fmt.Sprintf(" (only on %s)", cut(b.NodesGone, maxWords)), "bring the node back"
	}
	step.Tell = warn(BackingNodeGone, fmt.Sprintf("real volume %q in %s can be used on no node that is left there%s: %s, or restore the data from a backup to a new claim",
		b.Volume.Name, where(b.Cluster), on, who))
	return step
}
