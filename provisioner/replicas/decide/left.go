package decide

import (
	"fmt"
	"slices"

	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has what becomes of a point whose source is lost while the data of its claim is elsewhere by now, as after a failover to
// another copy. What it has left in the lost cluster is a snapshot, a claim that was made of it, and a mover that reads that and reaches
// nobody: the one that it sent to has ended, and keys are of one point. So the next point need not wait until all that is removed. It is
// written down, and goes when the cluster is back. And it has what points that home does not know have left at the standby.

// mostLeft limits how many such points are remembered, with several lost clusters one each.
const mostLeft = 4

// mayLeave says whether the point may be left to be cleaned up later, given the step by which it would be now.
func mayLeave(o Observation, step Step) bool {
	if _, busy := cleanStandby(o); busy {
		return false
	}
	return step.Reason == ClusterAway && o.At != "" && o.At != o.Record.Point.Source.Cluster && len(o.Record.Left) < mostLeft
}

// cleanLeft is the step by which what a point has left goes, now that its cluster is back, or it is no longer known, for that is gone;
// false if nothing was left.
func cleanLeft(o Observation) (Step, bool) {
	if o.Left == nil {
		return Step{}, false
	}
	switch step, ok := cleanSource(*o.Left); {
	case !ok:
		next := o.Record.Clone()
		next.Left = slices.DeleteFunc(slices.Clone(next.Left), func(p record.Point) bool { return p.Number == o.Left.Record.Point.Number })
		return Step{Action: Save{next}}, true
	case step.Action != nil:
		step.Action = CleanLeft{o.Left, step.Action}
		return step, true
	case step.Reason == ClusterAway:
		// Somebody says when it comes back, and nobody waits for it.
		step.After = turnAgain
		return step, true
	default:
		return step, true
	}
}

// Stray is a mover at the standby that no point has, and that none is begun beside: home was restored from a backup of before it was made,
// or a request to make it came late. It may write to a head, or keep that on a node, and the head cannot go before it.
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
