package decide

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// small is how much may have changed in a pass, in bytes, for the application to be
// stopped: copying that again takes about a second.
const small = 32 << 20

// run has the mover of a claim do a task. ok: it is done, and its state is returned;
// else step is what to do or to wait for.
func run(o Observation, i int, task movecontrol.Task) (state *movecontrol.TaskStatus, step Step, ok bool) {
	name, status := o.Record.Claims[i].Name, o.Claims[i].Copy
	task.BytesPerSecond, task.Expect = o.Record.Limit, o.Record.Claims[i].Expect
	switch {
	case status == nil:
		return nil, wait(soon, fmt.Sprintf("waiting until the mover of claim %s answers: %s", name, o.Claims[i].CopyError)), false
	case status.Task == nil || status.Task.ID != task.ID || status.Task.State == movecontrol.Cancelled:
		return nil, Step{Verb: Start, Claim: i, Task: task}, false
	case status.Task.State == movecontrol.Failed:
		return nil, back(o, fmt.Sprintf("the mover of claim %s gave up: %s; the source stays in use: mend that, and move again", name, status.Task.Error), record.MoverFailed), false
	case status.Task.State == movecontrol.Done:
		return status.Task, Step{}, true
	}
	doing := status.Task.Progress.Step
	if doing == "" {
		doing = "at work"
	}
	return nil, wait(soon, fmt.Sprintf("claim %s: the mover is %s", name, doing)), false
}

// preCopy copies while the application runs, until little changes or it was done often
// enough.
func preCopy(o Observation) Step {
	making, unready := snapshots(o)
	if unready && making.Verb != Idle {
		return making
	}
	if step, ok := movers(o); ok {
		return step
	}
	var waiting *Step
	for i, claim := range o.Record.Claims {
		if claim.Settled || claim.Offline {
			if step, ok := copied(o, i); ok && step.Verb != Idle {
				return step
			} else if ok {
				waiting = &step
			}
			continue
		}
		if claim.Pass == 0 && (unused(o) || o.Record.Passes == 0) {
			return change(o, i, func(c *record.Claim) { c.Settled = true })
		}
		if claim.Pass == 0 {
			return change(o, i, func(c *record.Claim) { c.Pass = 1 })
		}
		task, step, ok := run(o, i, movecontrol.Task{ID: fmt.Sprintf("pass-%d", claim.Pass), Kind: movecontrol.Pass})
		switch {
		case !ok && step.Verb != Idle:
			return step
		case !ok:
			waiting = &step
			continue
		}
		enough := claim.Pass >= o.Record.Passes || claim.Pass > 1 && task.Passed != nil && task.Passed.ChangedBytes < small
		return change(o, i, func(c *record.Claim) {
			travelled(c, task)
			if c.Settled = enough; !enough {
				c.Pass++
			}
		})
	}
	switch {
	case waiting != nil:
		return *waiting
	case unready:
		return making
	}
	if why := unagreed(o); why != "" {
		return back(o, why, record.PodsInTheWay)
	}
	if step, ok := working(o); ok {
		return step
	}
	if len(lingering(o)) > 0 {
		// No pod stands still for this wait.
		if step, ok := unsure(o); ok {
			return step
		}
	}
	next := o.Record.Enter(v1alpha1.MoveQuiesce, o.Now)
	next.Down = o.Now
	return Step{Verb: Save, Record: next, Say: "the pods that use the claims are stopped for " + stopFor(o)}
}

// travelled counts what a task that is done has sent.
func travelled(c *record.Claim, task *movecontrol.TaskStatus) {
	c.Sent, c.Stored, c.Counted = c.Sent+task.Progress.BytesSent, c.Stored+task.Progress.BytesStored, task.ID
}

// finalSync copies what changed last. Nobody writes any more.
func finalSync(o Observation) Step {
	if step, ok := disturbed(o); ok {
		return step
	}
	if step, ok := movers(o); ok {
		return hurryAt(o, step)
	}
	if step, ok := preparedLate(o); ok {
		return hurryAt(o, step)
	}
	ready := true
	step := Step{}
	for i, claim := range o.Record.Claims {
		if claim.Instance != "" {
			continue
		}
		task, next, ok := run(o, i, movecontrol.Task{ID: fmt.Sprintf("final-%d", claim.Try), Kind: movecontrol.Final})
		switch {
		case ok:
			return onward(o, i, func(c *record.Claim) {
				c.Instance = brief(o.Claims[i].Copy.Instance)
				travelled(c, task)
			})
		case next.Verb != Idle:
			return next
		}
		ready, step = false, next
	}
	if !ready {
		return hurryAt(o, step)
	}
	return enter(o, v1alpha1.MoveVerifying)
}

// onward is change, recorded at once with what follows from it: pods wait.
func onward(o Observation, i int, with func(*record.Claim)) Step {
	step := change(o, i, with)
	o.Record = step.Record
	if further := Next(o); further.Verb == Save && record.Before(further.Record.Phase, v1alpha1.MoveResume) {
		return further
	}
	return step
}

// verify compares both copies.
func verify(o Observation) Step {
	if step, ok := disturbed(o); ok {
		return step
	}
	if step, ok := movers(o); ok {
		return hurryAt(o, step)
	}
	for i, claim := range o.Record.Claims {
		if brief(o.Claims[i].Copy.Instance) != claim.Instance {
			// It knows nothing of what the last pass did.
			next := o.Record.Enter(v1alpha1.MoveFinalSync, o.Now)
			anew(&next.Claims[i])
			return Step{Verb: Save, Record: next, Say: "the mover of claim " + claim.Name + " was started anew: the last pass is made again"}
		}
	}
	step := Step{}
	for i, claim := range o.Record.Claims {
		if claim.SourceRoot != "" {
			continue
		}
		task, next, ok := run(o, i, movecontrol.Task{ID: fmt.Sprintf("verify-%d", claim.Try), Kind: movecontrol.Verify, Full: o.Record.Verify == v1alpha1.VerifyFull})
		if ok {
			return verified(o, i, task)
		}
		if step = next; step.Verb != Idle {
			return step
		}
	}
	if step.Verb == Idle {
		return hurryAt(o, step)
	}
	next := o.Record.Enter(v1alpha1.MoveCommit, o.Now)
	for i, claim := range o.Claims {
		if claim.New == nil {
			return back(o, fmt.Sprintf("the volume of claim %s at the target cannot be used: %s", next.Claims[i].Name, claim.NewError), record.TargetChanged)
		}
		next.Claims[i].New = claim.New
	}
	return Step{Verb: Save, Record: next, Say: "both copies are the same"}
}

// anew has the last pass over a claim, and the comparison, made once more.
func anew(c *record.Claim) {
	c.Try++
	c.Instance, c.SourceRoot, c.TargetRoot = "", "", ""
}

// verified judges a comparison.
func verified(o Observation, i int, task *movecontrol.TaskStatus) Step {
	name, v := o.Record.Claims[i].Name, task.Verified
	if v == nil || !v.Equal || len(v.SourceRoot) > longest || v.SourceRoot == "" || v.SourceRoot != v.TargetRoot || len(v.Differences) > 0 || v.DifferencesLeftOff > 0 {
		why := fmt.Sprintf("the copy of claim %s differs from its source, which stays in use", name)
		if v != nil && len(v.Differences) > 0 {
			why += fmt.Sprintf(": %s: %s", v.Differences[0].Path, v.Differences[0].What)
		}
		return back(o, why+"; look at the storage of both places before you move again", record.Differs)
	}
	return onward(o, i, func(c *record.Claim) { c.SourceRoot, c.TargetRoot = v.SourceRoot, v.TargetRoot })
}

// hurry looks again often: pods wait.
func hurry(step Step) Step {
	if step.Verb == Idle && step.After > often {
		step.After = often
	}
	return step
}

// hurryAt is hurry while the stop is short: a second more is nothing to one that has
// lasted long, and each look burdens the API servers.
func hurryAt(o Observation, step Step) Step {
	if o.Now.Sub(o.Record.Down) > time.Minute {
		return step
	}
	return hurry(step)
}

// lost says whether a claim is known to have no volume.
func lost(claim Claim) bool {
	return claim.Volume == nil && claim.Claim != nil && claim.Claim.Status.Phase != corev1.ClaimBound
}
