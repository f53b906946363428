// Package decide has the decisions of a move as pure functions: the record and the
// observation go in, the one next step comes out. Each step is one write and safe to
// repeat; a process that is stopped anywhere resumes by observing again. All that is
// observed was just read from API servers, never from caches. Next is the entry point.
// Start with this file, then observation.go, step.go and action.go for the types; the phases
// are in begin.go, copy.go, stop.go, end.go and back.go.
package decide

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// Next returns the next step of a move. It is a pure function of the observation.
func Next(o Observation) Step {
	step := next(o)
	saved := step.Saved()
	if saved == nil || saved.Phase == v1alpha1.MoveRollBack || !record.Before(o.Record.Phase, v1alpha1.MoveCommit) || saved.Fits() {
		return step
	}
	// It contains texts of remote clusters and of movers there. The record before the
	// change has room for all that a rollback adds.
	return goBack(o, "more is to be remembered of the move than there is room for, as of pods and nodes that use the volumes: scale the "+
		"owners of the pods down, or move fewer claims at once", record.TooMuch)
}

func next(o Observation) Step {
	r := o.Record
	switch {
	case r == nil && o.Move == nil:
		return Step{}
	case r == nil && o.Move.DeletionTimestamp != nil:
		return Step{Action: Leave{}}
	case r == nil && !hasMoveFinalizer(o.Move):
		return Step{Action: Adopt{}}
	case r == nil:
		return Step{Action: Inspect{}}
	case r.Over():
		return afterEnd(o)
	}
	if record.Before(r.Phase, v1alpha1.MoveCommit) {
		if why, cause := whyGoBack(o); why != "" {
			return goBack(o, why, cause)
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
	return Step{Say: "the record of the move names a phase that this version does not know: start the version that wrote it",
		After: seldom}
}

// whyGoBack says why a move that is not committed must be rolled back; empty if it
// continues.
func whyGoBack(o Observation) (why string, cause record.Cause) {
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
	return "", ""
}

// afterEnd is the step for a finished move.
func afterEnd(o Observation) Step {
	r := o.Record
	switch {
	case o.Move == nil || o.Move.DeletionTimestamp != nil:
		return Step{Action: Forget{}}
	case o.Move.Spec.TTLSecondsAfterFinished == nil:
		return Step{}
	}
	left := r.Began[r.Phase].Add(time.Duration(*o.Move.Spec.TTLSecondsAfterFinished) * time.Second).Sub(o.Now)
	if left > 0 {
		return Step{After: left}
	}
	return Step{Action: DeleteMove{}}
}

func hasMoveFinalizer(o metav1.Object) bool { return hasFinalizer(o.GetFinalizers()) }

func hasFinalizer(finalizers []string) bool { return slices.Contains(finalizers, keys.MoveFinalizer) }

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// joined joins two sentences, either of which may be empty. The result is bounded whatever they say.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return brief(a + "; " + b)
}

// prefixed returns a text with a prefix; empty for an empty text.
func prefixed(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}
