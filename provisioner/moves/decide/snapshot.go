package decide

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

const (
	// snapshotTimeout is how long it may take until a claim created from a snapshot can be
	// copied. No pod is stopped meanwhile, and some storage is slow.
	snapshotTimeout = time.Hour
	// removalTimeout is how long the deletion of a snapshot is awaited before pods are
	// stopped. What is left then is awaited at the end of the move.
	removalTimeout = 5 * time.Minute
)

// makeSnapshots is the next step to create claims from snapshots and to delete those that
// were copied; false if there is nothing to do or to wait for.
func makeSnapshots(o steps.Observation) (steps.Step, bool) {
	if step, ok := groupStep(o); ok {
		return step, true
	}
	var waiting *steps.Step
	for i := range o.Record.Claims {
		step, ok := snapshotStep(o, i)
		switch {
		case !ok:
		case step.Action != nil:
			return step, true
		default:
			waiting = &step
		}
	}
	if waiting == nil {
		return steps.Step{}, false
	}
	return *waiting, true
}

// snapshotStep is makeSnapshots for one claim.
func snapshotStep(o steps.Observation, i int) (steps.Step, bool) {
	known := o.Record.Claims[i]
	switch s := known.Snapshot; {
	case s == nil || s.Gone:
		return steps.Step{}, false
	case s.Since.IsZero():
		if noUsers(o) {
			return steps.Step{}, false
		}
		step := steps.ChangeClaim(o, i, func(c *record.Claim) { c.Snapshot.Since = o.Now })
		step.Say = fmt.Sprintf("a snapshot is taken of claim %s, which nothing can read beside its pod", known.Name)
		return step, true
	case o.Source.Unusable != "":
		return steps.Wait(steps.Soon, o.Source.Unusable), true
	case s.Over.IsZero():
		return makeClone(o, i)
	}
	step, ok := removeSnapshot(o, i)
	switch {
	case !ok:
		return steps.ChangeClaim(o, i, func(c *record.Claim) { c.Snapshot.Gone = true }), true
	case step.Action == nil && !o.Claims[i].Snapshot.Mover.Exists && o.Now.Sub(known.Snapshot.Over) > removalTimeout:
		return steps.Step{}, false
	}
	return step, true
}

// makeClone is the next step to create a claim from a snapshot; false once it exists.
func makeClone(o steps.Observation, i int) (steps.Step, bool) {
	known, seen := o.Record.Claims[i], o.Claims[i].Snapshot
	taking := o.Now.Sub(known.Snapshot.Since)
	problem := cmp.Or(seen.Problem, seen.Mover.Problem)
	switch late := taking > snapshotTimeout || seen.Problem != "" && taking > startTimeout; {
	case seen.Refused:
		return giveUpSnapshot(o, i, seen.Problem), true
	case late && !known.Snapshot.Prepared:
		return giveUpSnapshot(o, i, fmt.Sprintf("it could not be copied within %s: %s", taking.Round(time.Second),
			cmp.Or(problem, "it was not ready"))), true
	case seen.Backing != nil && seen.Backing.DeletionTimestamp != nil || seen.Exists && seen.Leaving && seen.Backing == nil:
		return giveUpSnapshot(o, i, "somebody deleted it"), true
	case seen.Backing != nil:
		return steps.Step{}, false
	case !seen.Exists && known.Snapshot.Taken != "":
		return giveUpSnapshot(o, i, "somebody deleted it"), true
	case !seen.Exists:
		return steps.Step{Action: steps.MakeSnapshot{Claim: i}}, true
	case !seen.Ready:
		return steps.Wait(steps.Soon, fmt.Sprintf("waiting until the snapshot of claim %s is ready%s", known.Name, sentence.Prefixed(": ",
			problem))), true
	}
	return steps.Step{Action: steps.MakeClone{Claim: i}}, true
}

// removeSnapshot is the step to delete everything of a snapshot; false once it is gone.
func removeSnapshot(o steps.Observation, i int) (steps.Step, bool) {
	known, seen := o.Record.Claims[i], o.Claims[i].Snapshot
	switch m := seen.Mover; {
	case m.Exists && !m.Leaving:
		return steps.Step{Action: steps.DropMover{Claim: i, End: record.Snapped}}, true
	case m.Exists:
		return steps.Wait(steps.Soon, fmt.Sprintf("waiting until the mover of claim %s at the snapshot has ended", known.Name)), true
	case seen.Backing != nil && seen.Backing.DeletionTimestamp == nil:
		if step, ok := recordKeptVolume(o, i, record.Snapped, seen.Real); ok {
			return step, true
		}
		return steps.Step{Action: steps.DropClone{Claim: i}}, true
	case seen.Backing != nil:
		return steps.Wait(steps.Soon, fmt.Sprintf("waiting until real claim %s/%s, which was made of a snapshot, is gone",
			known.Snapshot.Ref.Namespace,
			known.Snapshot.Ref.Name)), true
	case known.Snapshot.Taken != "":
		// It goes with the others that were taken at the same moment.
		return steps.Step{}, false
	case seen.Exists && !seen.Leaving:
		return steps.Step{Action: steps.DropSnapshot{Claim: i}}, true
	case seen.Exists:
		return steps.Wait(steps.Soon, fmt.Sprintf("waiting until VolumeSnapshot %s/%s is gone%s", known.Snapshot.Ref.Namespace,
			known.Snapshot.Ref.Name,
			sentence.Prefixed(": ", seen.Problem))), true
	}
	return steps.Step{}, false
}

// removeSnapshots is the step to delete everything of all snapshots; false once they are
// gone.
func removeSnapshots(o steps.Observation) (steps.Step, bool) {
	for i, claim := range o.Record.Claims {
		if !claim.Snapshot.MayExist() {
			continue
		}
		if o.Source.Unusable != "" {
			return steps.WaitForHelp(steps.ClusterAway, steps.Seldom, whyNotRemoved(o, record.Source)), true
		}
		if step, ok := removeSnapshot(o, i); ok {
			return step, true
		}
	}
	switch {
	case !o.Record.Group.MayExist():
		return steps.Step{}, false
	case o.Source.Unusable != "":
		return steps.WaitForHelp(steps.ClusterAway, steps.Seldom, whyNotRemoved(o, record.Source)), true
	}
	return removeGroup(o)
}

// giveUpSnapshot stops copying a snapshot. Once everything of it is deleted it is decided
// whether the move can continue without it.
func giveUpSnapshot(o steps.Observation, i int, why string) steps.Step {
	step := steps.ChangeClaim(o, i, func(c *record.Claim) { c.Snapshot.Over, c.Snapshot.Why = o.Now, steps.Brief(why) })
	step.Say = fmt.Sprintf("the snapshot of claim %s is given up: %s", o.Record.Claims[i].Name, steps.Brief(why))
	return step
}

// copySnapshot is the next step of copying a claim that was created from a snapshot; false
// if there is none to copy.
func copySnapshot(o steps.Observation, i int) (steps.Step, bool) {
	known, status := o.Record.Claims[i], o.Claims[i].Copy
	if ReadEnd(o, i) != record.Snapped {
		return steps.Step{}, false
	}
	if status != nil && status.Task != nil && status.Task.State == moverapi.Failed {
		return giveUpSnapshot(o, i, "its mover gave up: "+status.Task.Error), true
	}
	if !known.Snapshot.Prepared {
		task, step, ok := runTask(o, i, moverapi.Task{ID: "prepare", Kind: moverapi.Prepare})
		if !ok {
			return step, true
		}
		if why := whyNotWhole(known.Name, task.Prepared); why != "" {
			return steps.GoBack(o, why+"; nothing was stopped", record.NotKept), true
		}
		// It distinguishes the source from an empty one, though not from other volumes.
		return steps.ChangeClaim(o, i, func(c *record.Claim) { c.Snapshot.Prepared, c.Expect, c.Pass = true, task.Prepared.Source, 1 }), true
	}
	task, step, ok := runTask(o, i, moverapi.Task{ID: "pass-1", Kind: moverapi.Pass})
	if !ok {
		return step, true
	}
	return steps.ChangeClaim(o, i, func(c *record.Claim) {
		c.Sent, c.Counted = c.Sent+task.Progress.BytesSent, task.ID
		c.Snapshot.Copied, c.Snapshot.Over = true, o.Now
	}), true
}
