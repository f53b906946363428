package decide

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// This file has how a head begins with what lies at the standby already: the newest version there, or the volume that a move of the claim
// keeps there, as after a failover whose old cluster is back. The head is made of a snapshot of that, and so all that differs is what
// travels. Where that does not serve the next point begins with an empty head.

// findBasis has the snapshot be ready that a head is made from; false if it is, or the head begins empty.
func findBasis(o Observation, i int) (Step, bool) {
	basis, seen := o.Record.Point.At(i).Basis, o.Claims[i]
	if basis == nil {
		return Step{}, false
	}
	s, late := seen.Basis, o.Now.Sub(o.Record.Point.Since)
	switch {
	case s.Wrong:
		return beginWhole(o, i, s.Problem), true
	case late > snapshotPatience || s.Problem != "" && late > patience:
		return beginWhole(o, i, fmt.Sprintf("it was not ready within %s: %s", late.Round(time.Second), cmp.Or(s.Problem,
			"no reason is given"))), true
	case s.Leaving, !s.Exists && !basis.IsTaken():
		return beginWhole(o, i, "somebody deleted it"), true
	case !s.Exists && (seen.Kept == nil || seen.Kept.UID != basis.Of.UID):
		return beginWhole(o, i, fmt.Sprintf("real claim %s is gone, or another", basis.Of.Key())), true
	case !s.Exists:
		return Step{Action: TakeBasis{i}}, true
	case !s.Ready:
		return wait("waiting until the snapshot is ready that the copy begins with%s", sentence.Prefixed(": ", s.Problem)), true
	}
	return Step{}, false
}

// beginWhole gives up a point because of what a head was to be made from. The next one copies all.
func beginWhole(o Observation, i int, why string) Step {
	step := giveUp(o, fmt.Sprintf("the copy of claim %q cannot begin with snapshot %s at the standby: %s; the next point copies all",
		o.Record.At(i).Claim, o.Record.Point.At(i).Basis.Name, why))
	step.Action.(Save).Record.At(i).Whole = true
	return step
}

// basisFailed says whether a head that was to begin with something did not come to be.
func basisFailed(o Observation, i int) bool {
	return o.Record.At(i).Whole && o.Record.Point.At(i).Basis != nil && o.Claims[i].HeadVolume == nil
}

// dropBasis is the step by which what a head was made from goes, if the point has taken it, and the head if nothing came of it.
func dropBasis(o Observation, i int) (Step, bool) {
	basis, seen := o.Record.Point.At(i).Basis, o.Claims[i]
	switch {
	case basis == nil || o.Standby.Gone:
		return Step{}, false
	case basisFailed(o, i) && isHead(o, i) && seen.Head.DeletionTimestamp == nil:
		return Step{Action: DropHead{i}}, true
	case basisFailed(o, i) && isHead(o, i):
		return wait("waiting until real claim %s at the standby is gone", o.Record.At(i).Head.Key()), true
	case !basis.IsTaken() || !seen.Basis.Exists:
		return Step{}, false
	case !seen.Basis.Leaving:
		return Step{Action: DropBasis{i}}, true
	}
	return wait("waiting until the snapshot is gone that the copy began with%s", sentence.Prefixed(": ", seen.Basis.Problem)), true
}

// missHeads is the step by which heads are no longer counted that somebody deleted between two points; false if there is none. The point
// that begins now makes them anew. Slots are looked at with their versions.
func missHeads(o Observation) (Step, bool) {
	if o.Record.Slots || o.Sealed == nil || o.Standby.Unusable != "" || o.Standby.Gone {
		return Step{}, false
	}
	return each(o, func(i int) (Step, bool) {
		known := o.Record.At(i).Head
		if known.UID == "" || o.Claims[i].Head != nil {
			return Step{}, false
		}
		next := o.Record.Clone()
		next.At(i).Head.UID = ""
		return Step{Action: Save{next}, Reason: PointFailed,
			Say: fmt.Sprintf("somebody deleted real claim %s at the standby: the next point makes it anew", known.Key())}, true
	})
}
