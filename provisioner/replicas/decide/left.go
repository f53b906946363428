package decide

import (
	"slices"

	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has what becomes of a point whose source is lost while the data of its claim is elsewhere by now, as after a failover to
// another copy. What it has left in the lost cluster is a snapshot, a claim that was made of it, and a mover that reads that and reaches
// nobody: the one that it sent to has ended, and keys are of one point. So the next point need not wait until all that is removed. It is
// written down, and goes when the cluster is back.

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
