package decide

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

const (
	// often is how soon to look again while pods cannot use the claims, soon while a
	// mover works, seldom while only time passes.
	often  = 100 * time.Millisecond
	soon   = time.Second
	seldom = 5 * time.Second
	// graceful is how long a move that goes back waits for pods that it has stopped.
	graceful = 30 * time.Second
	// startTimeout is how long a mover may take to run before anything was stopped for it.
	startTimeout = 10 * time.Minute
)

// Next returns the next step of a move.
func Next(o Observation) Step {
	step := next(o)
	if step.Verb != Save || step.Record.Phase == v1alpha1.MoveRollBack || !record.Before(o.Record.Phase, v1alpha1.MoveCommit) || step.Record.Fits() {
		return step
	}
	// Others' words are in it: those of a remote cluster, or of a mover there. What it was
	// before has room for all that going back adds.
	return back(o, "more is to be remembered of the move than there is room for, as of pods and nodes that use the volumes: scale the owners of the pods down, or move fewer claims at once", record.TooMuch)
}

func next(o Observation) Step {
	r := o.Record
	switch {
	case r == nil && o.Move == nil:
		return Step{Verb: Idle}
	case r == nil && o.Move.DeletionTimestamp != nil:
		return Step{Verb: Leave}
	case r == nil && !held(o.Move):
		return Step{Verb: Adopt}
	case r == nil:
		return Step{Verb: Inspect}
	case r.Over():
		return over(o)
	}
	if record.Before(r.Phase, v1alpha1.MoveCommit) {
		if why, cause := unwanted(o); why != "" {
			return back(o, why, cause)
		}
		if step, ok := followed(o); ok {
			return step
		}
		if step, ok := stalled(o); ok {
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
	default: // those that are over were dealt with
	}
	return Step{Verb: Idle, Say: "the record of the move names a phase that this version does not know: start the version that wrote it", After: seldom}
}

// unwanted says why a move that is not committed must go back; empty if it goes on.
func unwanted(o Observation) (why string, cause record.Cause) {
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
	return "", ""
}

// back begins to go back.
func back(o Observation, why string, cause record.Cause) Step {
	next := o.Record.Enter(v1alpha1.MoveRollBack, o.Now)
	// Others' words are in it, and a record that is too large could not be written.
	next.Why, next.Refused, next.Cause = brief(why), !cause.Wished(), cause
	return Step{Verb: Save, Record: next, Say: next.Why}
}

// longest is how many bytes of words a record has in one place.
const longest = 4 << 10

// brief is a text of which no more is kept than people read.
func brief(text string) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}

// enter goes on to a phase.
func enter(o Observation, phase v1alpha1.MovePhase) Step {
	return Step{Verb: Save, Record: o.Record.Enter(phase, o.Now)}
}

// change returns the step that records a change of one claim.
func change(o Observation, i int, change func(*record.Claim)) Step {
	next := o.Record.Clone()
	change(&next.Claims[i])
	return Step{Verb: Save, Record: next}
}

// all is one step that has all of some taken; false where there are none.
func all(steps []Step) (Step, bool) {
	if len(steps) == 0 {
		return Step{}, false
	}
	step := steps[0]
	step.Also = steps[1:]
	return step, true
}

func wait(after time.Duration, say string) Step { return Step{Verb: Idle, Say: say, After: after} }

// needs is wait for what may never come unless somebody sees to it.
func needs(need Need, after time.Duration, say string) Step {
	return Step{Verb: Idle, Say: say, After: after, Need: need}
}

// over is the step for a move of which nothing is left to do.
func over(o Observation) Step {
	r := o.Record
	switch {
	case o.Move == nil || o.Move.DeletionTimestamp != nil:
		return Step{Verb: Forget}
	case o.Move.Spec.TTLSecondsAfterFinished == nil:
		return Step{Verb: Idle}
	}
	left := r.Began[r.Phase].Add(time.Duration(*o.Move.Spec.TTLSecondsAfterFinished) * time.Second).Sub(o.Now)
	if left > 0 {
		return Step{Verb: Idle, After: left}
	}
	return Step{Verb: DeleteMove}
}

func held(o metav1.Object) bool { return has(o.GetFinalizers()) }
