package decide

import "fmt"

// This file has movers at the standby that no point has, and that none is begun beside: home was restored from a backup of before they
// were made, or a request to make them came late. They may write to a head, or keep it on a node, and it cannot go before them.

// Stray is such a mover.
type Stray struct {
	Name    string
	Leaving bool
}

// dropStrays is the step by which they end; false if there are none.
func dropStrays(o Observation) (Step, bool) {
	for _, stray := range o.Strays {
		if !stray.Leaving {
			return Step{Action: DropStray{stray.Name}}, true
		}
	}
	if len(o.Strays) == 0 {
		return Step{}, false
	}
	return Step{Reason: Waiting, After: seldom, Say: fmt.Sprintf("waiting until mover %s/%s at the standby has ended, which is of a point "+
		"that home does not know, as after it was restored from a backup: see its pod there", o.Record.Head.Namespace, o.Strays[0].Name)}, true
}
