package decide

import (
	"fmt"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// patience is how long pods wait for a copy that stands still where the VolumeMove does
// not say.
const patience = 10 * time.Minute

// still is for how long movers that are connected may get no further before the copy
// counts as standing still: they sort and compare what they know without a word.
const still = time.Minute

// starting is how long the first mover at a source that waits for the pods to end may
// take to run, however short the patience: each such copy stands still until it does.
const starting = time.Minute

// stalled is the step for a move for which pods were stopped and whose copy stands still:
// after a time it goes back by itself, if the source can be used. False while the copy
// goes on.
func stalled(o Observation) (Step, bool) {
	why, since := standstill(o), o.Record.Stalled
	if why == "" && copying(o) && !since.IsZero() && !o.Advanced.IsZero() && !o.Advanced.After(since) {
		// Movers that find each other again and again, and get no further, help nobody.
		why = "it has not got further since"
	}
	switch {
	case why == "" && since.IsZero():
		return Step{}, false
	case why == "" || since.IsZero():
		next := o.Record.Clone()
		if next.Stalled = o.Now; why == "" {
			next.Stalled = time.Time{}
		}
		return Step{Verb: Save, Record: next, Say: why}, true
	}
	limit := patience
	if o.Move.Spec.RollBackAfter != nil {
		limit = o.Move.Spec.RollBackAfter.Duration
	}
	if unprepared(o) {
		limit = max(limit, starting)
	}
	if o.Now.Sub(since) < limit {
		return Step{}, false
	}
	return back(o, fmt.Sprintf("the pods have waited for %s (spec.rollBackAfter) and the copy stood still: %s; they go on at the source, so mend that and move again", limit, why), record.StoodStill), true
}

// standstill says why the copy cannot go on although pods wait for it; empty if it can.
// Nothing is gained by going back while the source cannot be used either.
func standstill(o Observation) string {
	switch {
	case o.Unusable[record.Source] != "":
		return ""
	case o.Record.Phase == v1alpha1.MoveQuiesce || o.Record.Phase == v1alpha1.MoveFence:
		// The movers are not asked then.
		return o.Unusable[record.Target]
	case copying(o):
		if step, ok := movers(o); ok && step.Verb == Idle {
			return step.Say
		} else if ok {
			return "a mover is made"
		}
		if quiet := o.Now.Sub(o.Advanced); !o.Advanced.IsZero() && quiet > still {
			return fmt.Sprintf("nothing was copied or compared for %s: see whether the storage of both places answers", quiet.Round(time.Second))
		}
	}
	return ""
}

// copying says whether movers work while pods wait.
func copying(o Observation) bool {
	return o.Record.Phase == v1alpha1.MoveFinalSync || o.Record.Phase == v1alpha1.MoveVerifying
}
