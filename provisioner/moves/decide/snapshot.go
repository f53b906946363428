package decide

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

const (
	// snapshotTimeout is how long it may take until a claim made of a snapshot can be
	// copied. Nothing stands still meanwhile, and some storage takes its time.
	snapshotTimeout = time.Hour
	// removalTimeout is how long it is waited for that a snapshot is gone before pods are
	// stopped. What is left then is waited for at the end of the move.
	removalTimeout = 5 * time.Minute
)

// Snapshot is what is there of a snapshot of a source: it, the claim that is made of it as
// Backing, and the mover of that. What is not this move's is not there.
type Snapshot struct {
	Side
	// Exists, Leaving, Ready and UID are of the VolumeSnapshot.
	Exists, Leaving, Ready bool
	UID                    types.UID
	// Problem is why it is not ready, in words, as far as known. Refused says that trying
	// on leads nowhere.
	Problem string
	Refused bool
}

// Reads returns the end at which a claim is read now by a mover; empty while nothing may
// be read.
func Reads(o Observation, i int) record.End {
	known := o.Record.Claims[i]
	switch {
	case !reserved(o, i):
		return record.Source
	case o.Record.Phase == v1alpha1.MovePreCopy && known.Snapshot.Reads() && o.Claims[i].Snapshot.Backing != nil && !o.Claims[i].Snapshot.Refused:
		return record.Snapped
	}
	return ""
}

// snapshots is the next step towards claims made of snapshots, and towards no more of
// those that were copied; false where there is nothing to do or to wait for.
func snapshots(o Observation) (Step, bool) {
	var waiting *Step
	for i := range o.Record.Claims {
		step, ok := snapshot(o, i)
		switch {
		case !ok:
		case step.Verb != Idle:
			return step, true
		default:
			waiting = &step
		}
	}
	if waiting == nil {
		return Step{}, false
	}
	return *waiting, true
}

// snapshot is snapshots for one claim.
func snapshot(o Observation, i int) (Step, bool) {
	known := o.Record.Claims[i]
	switch s := known.Snapshot; {
	case s == nil || s.Gone:
		return Step{}, false
	case s.Since.IsZero():
		if unused(o) {
			return Step{}, false
		}
		step := change(o, i, func(c *record.Claim) { c.Snapshot.Since = o.Now })
		step.Say = fmt.Sprintf("a snapshot is taken of claim %s, which nothing can read beside its pod", known.Name)
		return step, true
	case o.Unusable[record.Source] != "":
		return wait(soon, o.Unusable[record.Source]), true
	case s.Over.IsZero():
		return made(o, i)
	}
	step, ok := unsnapped(o, i)
	switch {
	case !ok:
		return change(o, i, func(c *record.Claim) { c.Snapshot.Gone = true }), true
	case step.Verb == Idle && !o.Claims[i].Snapshot.Mover.Exists && o.Now.Sub(known.Snapshot.Over) > removalTimeout:
		return Step{}, false
	}
	return step, true
}

// unused says whether no pod uses the claims.
func unused(o Observation) bool { return len(o.Pods) == 0 && len(o.Others) == 0 }

// made is the next step towards a claim made of a snapshot; false once there is one.
func made(o Observation, i int) (Step, bool) {
	known, seen := o.Record.Claims[i], o.Claims[i].Snapshot
	taking := o.Now.Sub(known.Snapshot.Since)
	problem := or(seen.Problem, seen.Mover.Problem)
	switch late := taking > snapshotTimeout || seen.Problem != "" && taking > startTimeout; {
	case seen.Refused:
		return forgo(o, i, seen.Problem), true
	case late && !known.Snapshot.Prepared:
		return forgo(o, i, fmt.Sprintf("it could not be copied within %s: %s", taking.Round(time.Second), or(problem, "it was not ready"))), true
	case seen.Backing != nil && seen.Backing.DeletionTimestamp != nil || seen.Exists && seen.Leaving && seen.Backing == nil:
		return forgo(o, i, "somebody deleted it"), true
	case seen.Backing != nil:
		return Step{}, false
	case !seen.Exists:
		return Step{Verb: MakeSnapshot, Claim: i, End: record.Snapped}, true
	case !seen.Ready:
		return wait(soon, fmt.Sprintf("waiting until the snapshot of claim %s is ready%s", known.Name, after(": ", problem))), true
	}
	return Step{Verb: MakeClone, Claim: i, End: record.Snapped}, true
}

// unsnapped is the step towards nothing left of a snapshot; false once nothing is.
func unsnapped(o Observation, i int) (Step, bool) {
	known, seen := o.Record.Claims[i], o.Claims[i].Snapshot
	switch m := seen.Mover; {
	case m.Exists && !m.Leaving:
		return Step{Verb: DropMover, Claim: i, End: record.Snapped}, true
	case m.Exists:
		return wait(soon, fmt.Sprintf("waiting until the mover of claim %s at the snapshot has ended", known.Name)), true
	case seen.Backing != nil && seen.Backing.DeletionTimestamp == nil:
		if step, ok := outlasting(o, i, record.Snapped, seen.Real); ok {
			return step, true
		}
		return Step{Verb: DropClone, Claim: i, End: record.Snapped}, true
	case seen.Backing != nil:
		return wait(soon, fmt.Sprintf("waiting until real claim %s/%s, which was made of a snapshot, is gone", known.Snapshot.Ref.Namespace, known.Snapshot.Ref.Name)), true
	case seen.Exists && !seen.Leaving:
		return Step{Verb: DropSnapshot, Claim: i, End: record.Snapped}, true
	case seen.Exists:
		return wait(soon, fmt.Sprintf("waiting until VolumeSnapshot %s/%s is gone%s", known.Snapshot.Ref.Namespace, known.Snapshot.Ref.Name, after(": ", seen.Problem))), true
	}
	return Step{}, false
}

// leftSnapshots is the step towards nothing left of any snapshot; false once nothing is.
func leftSnapshots(o Observation) (Step, bool) {
	for i, claim := range o.Record.Claims {
		if !claim.Snapshot.There() {
			continue
		}
		if o.Unusable[record.Source] != "" {
			return needs(ClusterAway, seldom, stuck(o, record.Source)), true
		}
		if step, ok := unsnapped(o, i); ok {
			return step, true
		}
	}
	return Step{}, false
}

// forgo gives up to copy a snapshot. Whether the move can go on without is decided once
// nothing of it is left.
func forgo(o Observation, i int, why string) Step {
	step := change(o, i, func(c *record.Claim) { c.Snapshot.Over, c.Snapshot.Why = o.Now, brief(why) })
	step.Say = fmt.Sprintf("the snapshot of claim %s is given up: %s", o.Record.Claims[i].Name, brief(why))
	return step
}

// copied is the next step of a copy of a claim made of a snapshot; false where there is
// none to copy.
func copied(o Observation, i int) (Step, bool) {
	known, status := o.Record.Claims[i], o.Claims[i].Copy
	if Reads(o, i) != record.Snapped {
		return Step{}, false
	}
	if status != nil && status.Task != nil && status.Task.State == movecontrol.Failed {
		return forgo(o, i, "its mover gave up: "+status.Task.Error), true
	}
	if !known.Snapshot.Prepared {
		task, step, ok := run(o, i, movecontrol.Task{ID: "prepare", Kind: movecontrol.Prepare})
		if !ok {
			return step, true
		}
		if why := unkept(known.Name, task.Prepared); why != "" {
			return back(o, why+"; nothing was stopped", record.NotKept), true
		}
		// It tells the source from an empty one, though not from others.
		return change(o, i, func(c *record.Claim) { c.Snapshot.Prepared, c.Expect, c.Pass = true, task.Prepared.Source, 1 }), true
	}
	task, step, ok := run(o, i, movecontrol.Task{ID: "pass-1", Kind: movecontrol.Pass})
	if !ok {
		return step, true
	}
	return change(o, i, func(c *record.Claim) {
		c.Sent, c.Counted = c.Sent+task.Progress.BytesSent, task.ID
		c.Snapshot.Copied, c.Snapshot.Over = true, o.Now
	}), true
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// after is a text with something before it; empty without a text.
func after(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}
