package decide

import (
	"fmt"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has which point has changed an abnormal share: what was there before is overwritten or removed, as when an application
// scrambles its files, or an empty volume is mounted in place of the real one. The versions from before it are pinned then, once: what
// changes later pins no more, until somebody says that it is in order.

const (
	// pinAbove is the share in percent where spec.versions.pinAbove is not given.
	pinAbove = 50
	// leastPinned is how much claims must have had: what has little is soon all written anew.
	leastPinned = 1 << 20
)

// PinAbove is the share of changes that pins versions, in percent; 0: none does.
func PinAbove(versions v1alpha1.ReplicaVersions) int64 {
	if versions.PinAbove == nil {
		return pinAbove
	}
	return int64(*versions.PinAbove)
}

// isMuch says whether so much is gone that versions are pinned.
func isMuch(change record.Change, above int64) bool {
	return above > 0 && change.Had >= leastPinned && float64(change.Gone)*100 > float64(change.Had)*float64(above)
}

// changeOf returns the abnormal share that the point of a record has changed, which is about to be sealed; nil: it has not. Claims of which
// the head never had a version, as the first one, do not count.
func changeOf(r *record.Record, version string, above int64) *record.Change {
	all := record.Change{Version: version, Number: r.Point.Number}
	for i := range r.Len() {
		held, now := r.At(i).HeldBy(r.At(i).Head.UID), r.Point.At(i)
		if held == nil {
			continue
		}
		all.Had += held.Bytes
		all.Gone += min(held.Bytes, max(0, held.Bytes+held.Wrote+now.Wrote-now.Bytes))
		// Of several claims one may be empty and the others as they were.
		its := record.Change{Version: version, Number: r.Point.Number, Claim: r.At(i).Claim, Had: held.Bytes, Gone: held.Bytes - now.Bytes}
		if isMuch(its, above) {
			return &its
		}
	}
	if !isMuch(all, above) {
		return nil
	}
	return &all
}

// wroteOf is how much of a head a pass has written, at most. Of files what travelled has the names of all, too, so it is no more than the
// size of those that changed.
func wroteOf(s *record.Session, done *moverapi.TaskStatus) int64 {
	wrote := max(0, done.Progress.BytesSent)
	if !s.Block && done.Passed != nil {
		wrote = min(wrote, max(0, done.Passed.ChangedBytes))
	}
	return wrote
}

// noteWritten notes in a record whose point is given up what its movers have written so far, as far as that is known.
func noteWritten(o Observation, next *record.Record) {
	for i := range next.Len() {
		if seen, its := o.Claims[i].Copy, next.Point.At(i); !its.Copied && seen != nil && seen.Task != nil && seen.Task.Kind == moverapi.Final {
			its.Wrote = wroteOf(its, seen.Task)
		}
	}
}

// isAccepted says whether versions that are pinned may go as others do.
func isAccepted(o Observation) bool {
	change, want := o.Record.Change, o.Replica.Spec.Versions
	return change != nil && (want.Accepted == change.Version || PinAbove(want) == 0)
}

// SayChange says what was changed, and what to do, in one sentence; empty: nothing abnormal was.
func SayChange(r *record.Record) string {
	c := r.Change
	if c == nil {
		return ""
	}
	whose, were := fmt.Sprintf("%s of the %s that there were", sentence.Size(c.Gone), sentence.Size(c.Had)), "overwritten or removed"
	if c.Claim != "" {
		whose = fmt.Sprintf("claim %q has shrunk: %s of the %s that it had", c.Claim, sentence.Size(c.Gone), sentence.Size(c.Had))
		were = "removed"
	}
	pinned := 0
	for i := range r.Sealed {
		if r.Sealed[i].Pinned && r.Sealed[i].Counts() {
			pinned++
		}
	}
	return fmt.Sprintf("point %d found that %s are %s at once; the versions from before it (%d) stay: if the data is spoiled, "+
		"kubectl lodestone failover %s -n %s --version has the claim use one of them, which kubectl lodestone replicate status -o yaml names; "+
		"if it is in order, kubectl lodestone replicate accept volumereplica/%s -n %s lets them go", c.Number, whose, were, pinned, r.Claim,
		r.Namespace, r.Name, r.Namespace)
}
