// Package decide has the decisions of a move as pure functions: the record and the
// observation go in, the one next step comes out. Each step is one write and safe to
// repeat; a process that is stopped anywhere resumes by observing again. All that is
// observed was just read from API servers, never from caches. Next is the entry point.
// What goes in and comes out, and the words in which steps are written, is package steps. Start
// with this file; the phases are in begin.go, copy.go, stop.go, end.go and back.go.
package decide

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// Next returns the next step of a move. It is a pure function of the observation.
func Next(o steps.Observation) steps.Step {
	step := next(o)
	saved := step.Saved()
	if saved == nil || saved.Phase == v1alpha1.MoveRollBack || !record.Before(o.Record.Phase, v1alpha1.MoveCommit) || saved.Fits() {
		return step
	}
	// It contains texts of remote clusters and of movers there. The record before the
	// change has room for all that a rollback adds.
	return steps.GoBack(o, "more is to be remembered of the move than there is room for, as of pods and nodes that use the volumes: scale "+
		"the "+
		"owners of the pods down, or move fewer claims at once", record.TooMuch)
}

// GoesOn says whether the step after one that has written the record may be decided on the same observation: pods wait, and nothing
// but the record has changed. When a move goes back, clusters are seen in another way.
func GoesOn(o steps.Observation, saved *record.Record) bool {
	if saved == nil || o.Record == nil {
		return false
	}
	switch saved.Phase {
	case v1alpha1.MoveFence, v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying, v1alpha1.MoveCommit, v1alpha1.MoveResume:
		return true
	default:
		return false
	}
}

func next(o steps.Observation) steps.Step {
	r := o.Record
	switch {
	case r == nil && o.Move == nil:
		return steps.Step{}
	case r == nil && o.Move.DeletionTimestamp != nil:
		return steps.Step{Action: steps.Leave{}}
	case r == nil && IsFinished(o.Move):
		return withoutRecord(o)
	case r == nil && AwaitsTurn(o.Move) && !o.MayBegin:
		return steps.Step{}
	case r == nil && !slices.Contains(o.Move.Finalizers, keys.MoveFinalizer):
		return steps.Step{Action: steps.Adopt{}}
	case r == nil:
		return steps.Step{Action: steps.Inspect{}}
	case r.Over():
		return afterEnd(o)
	case r.Phase == v1alpha1.MovePrepare && o.Move != nil && IsFinished(o.Move):
		// A request to write the first record came when the move had ended.
		return steps.Step{Action: steps.Forget{}}
	}
	if record.Before(r.Phase, v1alpha1.MoveCommit) {
		if why, cause := whyGoBack(o); why != "" {
			return steps.GoBack(o, why, cause)
		}
		if step, ok := recordUsers(o); ok {
			return step
		}
		if step, ok := goBackIfStalled(o); ok {
			return step
		}
	}
	switch r.Phase {
	case v1alpha1.MovePrepare:
		return prepare(o)
	case v1alpha1.MoveProvision:
		return provision(o)
	case v1alpha1.MovePreCopy:
		return preCopy(o)
	case v1alpha1.MoveQuiesce:
		return quiesce(o)
	case v1alpha1.MoveFence:
		return fence(o)
	case v1alpha1.MoveFinalSync:
		return finalSync(o)
	case v1alpha1.MoveVerifying:
		return verify(o)
	case v1alpha1.MoveCommit:
		return commit(o)
	case v1alpha1.MoveResume:
		return resume(o)
	case v1alpha1.MoveRetain:
		return retain(o)
	case v1alpha1.MoveFinalize:
		return finalize(o)
	case v1alpha1.MoveRollBack:
		return rollBack(o)
	default: // finished phases are handled above
	}
	return steps.Step{Say: "the record of the move names a phase that this version does not know: start the version that wrote it",
		After: steps.Seldom}
}

// whyGoBack says why a move that is not committed must be rolled back; empty if it
// continues.
func whyGoBack(o steps.Observation) (why string, cause record.Cause) {
	switch {
	case o.Move == nil || o.Move.DeletionTimestamp != nil:
		return "the VolumeMove was deleted", record.MoveDeleted
	case o.Move.Spec.Action == v1alpha1.ActionAbort:
		return "the move was aborted", record.Aborted
	case o.Move.Spec.Action == v1alpha1.ActionGiveUp:
		return "the move was given up", record.GivenUp
	}
	for i, claim := range o.Claims {
		if claim.Claim == nil || claim.Claim.DeletionTimestamp != nil {
			return "claim " + o.Record.Claims[i].Name + " was deleted", record.ClaimDeleted
		}
	}
	if why := whyNotOurTarget(o); why != "" {
		return why, record.TargetChanged
	}
	for i, claim := range o.Claims {
		known, s := &o.Record.Claims[i], claim.Source.Backing
		if !o.Record.Adopts && s != nil && s.UID == known.Source.Ref.UID && wasTaken(known, s) {
			// What this move would make of it would count as older.
			return fmt.Sprintf("real claim %s, the source of claim %s, is of a later move than this one, as after a restore from a backup: move "+
				"again", known.Source.Ref.Key(), known.Name), record.TargetChanged
		}
	}
	return "", ""
}

// afterEnd is the step for a finished move that has a record. The record goes when nothing of the
// move is left to look up in it, but not before the status says that the move is over: from then
// on it is that which keeps the move from beginning anew.
func afterEnd(o steps.Observation) steps.Step {
	r := o.Record
	switch {
	case o.Move == nil || o.Move.DeletionTimestamp != nil:
		return steps.Step{Action: steps.Forget{}}
	case !IsFinished(o.Move) || o.Move.Status.Phase != r.Phase:
		return steps.Step{After: steps.Soon}
	case r.LeftBehind() == "" && r.KeptVolumes() == "":
		return steps.Step{Action: steps.Forget{}}
	}
	return deleteAfter(o, r.Began[r.Phase])
}

// withoutRecord is the step for a finished move whose record is gone.
func withoutRecord(o steps.Observation) steps.Step {
	if slices.Contains(o.Move.Finalizers, keys.MoveFinalizer) {
		return steps.Step{Action: steps.Leave{}}
	}
	for _, phase := range o.Move.Status.Phases {
		if phase.Phase == o.Move.Status.Phase {
			return deleteAfter(o, phase.Since.Time)
		}
	}
	return steps.Step{}
}

// deleteAfter is the step that deletes the VolumeMove some time after its end, if that is wanted.
func deleteAfter(o steps.Observation, end time.Time) steps.Step {
	if o.Move.Spec.TTLSecondsAfterFinished == nil {
		return steps.Step{}
	}
	left := end.Add(time.Duration(*o.Move.Spec.TTLSecondsAfterFinished) * time.Second).Sub(o.Now)
	if left > 0 {
		return steps.Step{After: left}
	}
	return steps.Step{Action: steps.DeleteMove{}}
}

// AwaitsTurn says whether a move that has no record has to wait for its turn. One that nobody
// wants any more has nothing to wait for.
func AwaitsTurn(move *v1alpha1.VolumeMove) bool {
	return move.DeletionTimestamp == nil && !IsAborted(move) && !IsFinished(move)
}

// IsFinished says whether the status of a move says that it is over. Users cannot write it.
func IsFinished(move *v1alpha1.VolumeMove) bool {
	return meta.IsStatusConditionTrue(move.Status.Conditions, v1alpha1.MoveFinished)
}

// IsAborted says whether a move that is not committed is to end.
func IsAborted(move *v1alpha1.VolumeMove) bool {
	return move.Spec.Action == v1alpha1.ActionAbort || move.Spec.Action == v1alpha1.ActionGiveUp
}

const (
	// rare is the interval between steps while an event ends the wait: it matters only if one
	// is missed.
	rare = 10 * time.Minute
	// stillAfter is for how long a move may wait for the same thing before it is observed
	// seldom, and stillStopped that if pods cannot use the claims meanwhile: a stop that has
	// lasted long is hardly longer by a second. Each observation is load for API servers, and
	// events end most waits.
	stillAfter   = 10 * time.Second
	stillStopped = time.Minute
)

// Pace is the time until the next observation after a step without an action. Since is since when
// the move has waited for the same thing, zero if it does not.
func Pace(o steps.Observation, step steps.Step, since time.Time) time.Duration {
	if since.IsZero() || step.After == 0 {
		return step.After
	}
	if o.Advanced.After(since) {
		since = o.Advanced
	}
	still, stopped := o.Now.Sub(since), o.Record != nil && !o.Record.Down.IsZero() && o.Record.Up.IsZero()
	switch {
	case stopped && still > stillStopped:
		return max(step.After, steps.Soon)
	case !stopped && still > stillAfter:
		return max(step.After, steps.Seldom)
	}
	return step.After
}
