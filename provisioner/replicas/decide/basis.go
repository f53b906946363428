package decide

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

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
	s, late := seen.Basis, o.Now.Sub(since(o))
	switch {
	case s.Wrong:
		return beginWhole(o, i, s.Problem), true
	case !basis.IsTaken() && (s.Leaving || !s.Exists):
		// It counts no more once the point is over, and the next one begins with another version, or with what is kept.
		return giveUp(o, fmt.Sprintf("somebody deleted VolumeSnapshot %s/%s at the standby, which the copy of claim %q was to begin with",
			o.Record.Head.Namespace, basis.Name, o.Record.At(i).Claim)), true
	case late > snapshotPatience || s.Problem != "" && late > patience:
		return beginWhole(o, i, fmt.Sprintf("it was not ready within %s: %s", late.Round(time.Second), cmp.Or(s.Problem,
			"no reason is given"))), true
	case s.Leaving:
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
		o.Record.At(i).Claim, cmp.Or(madeFrom(o.Claims[i].Head), basisName(o, i)), why))
	step.Action.(Save).Record.At(i).Whole = true
	return step
}

// basisName is the name of what the point has a head begin with, empty for nothing.
func basisName(o Observation, i int) string {
	if basis := o.Record.Point.At(i).Basis; basis != nil {
		return basis.Name
	}
	return ""
}

// madeFrom is the snapshot that a real claim is to be made from, empty for none.
func madeFrom(b *corev1.PersistentVolumeClaim) string {
	if b == nil || b.Spec.DataSource == nil {
		return ""
	}
	return b.Spec.DataSource.Name
}

// isUnmade says whether the head of a claim is to be made from a snapshot, and has no volume yet.
func isUnmade(o Observation, i int) bool {
	return isHead(o, i) && o.Claims[i].HeadVolume == nil && madeFrom(o.Claims[i].Head) != ""
}

// dropUnmade is the step by which the head of a claim goes that nothing will come of, for what it is to be made from goes.
func dropUnmade(o Observation, i int) Step {
	if o.Claims[i].Head.DeletionTimestamp == nil {
		return Step{Action: DropHead{i}}
	}
	return wait("waiting until real claim %s at the standby is gone", o.Record.At(i).Head.Key())
}

// dropBasis is the step by which what a head was made from goes, if the point has taken it, and the head if nothing came of it: whatever
// the point failed for, the next one begins anew.
func dropBasis(o Observation, i int) (Step, bool) {
	basis, seen := o.Record.Point.At(i).Basis, o.Claims[i]
	switch {
	case o.Record.Point.Why != "" && isUnmade(o, i):
		return dropUnmade(o, i), true
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
