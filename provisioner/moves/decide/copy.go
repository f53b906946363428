package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// smallPass is how much a pass may have copied, in bytes, for the application to be
// stopped: copying that again takes about a second.
const smallPass = 32 << 20

// preCopy copies while the application runs, until little changes between passes or the
// maximum of passes is reached.
func preCopy(o steps.Observation) steps.Step {
	making, unready := makeSnapshots(o)
	if unready && making.Action != nil {
		return making
	}
	if step, ok := runMovers(o); ok {
		return step
	}
	var waiting *steps.Step
	for i, claim := range o.Record.Claims {
		if claim.Settled || claim.Offline {
			if step, ok := copySnapshot(o, i); ok && step.Action != nil {
				return step
			} else if ok {
				waiting = &step
			}
			continue
		}
		if claim.Pass == 0 && (noUsers(o) || o.Record.Passes == 0) {
			return steps.ChangeClaim(o, i, func(c *record.Claim) { c.Settled = true })
		}
		if claim.Pass == 0 {
			return steps.ChangeClaim(o, i, func(c *record.Claim) { c.Pass = 1 })
		}
		task, step, ok := runTask(o, i, moverapi.Task{ID: fmt.Sprintf("pass-%d", claim.Pass), Kind: moverapi.Pass})
		switch {
		case !ok && step.Action != nil:
			return step
		case !ok:
			waiting = &step
			continue
		}
		enough := claim.Pass >= o.Record.Passes || claim.Pass > 1 && task.Passed != nil && task.Passed.ChangedBytes < smallPass
		return steps.ChangeClaim(o, i, func(c *record.Claim) {
			countSent(c, task)
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
	if why := whyNotStop(o); why != "" {
		return steps.GoBack(o, why, record.PodsInTheWay)
	}
	if step, ok := awaitJobs(o); ok {
		return step
	}
	if step, ok := awaitGoneWriters(o); ok {
		return step
	}
	next := o.Record.Enter(v1alpha1.MoveQuiesce, o.Now)
	next.Down = o.Now
	return steps.Step{Action: steps.Save{Record: next}, Say: "the pods that use the claims are stopped for " + stopFor(o)}
}

// noUsers says whether no pod uses the claims.
func noUsers(o steps.Observation) bool {
	return len(o.Pods) == 0 && len(o.Others) == 0 && len(o.Attachments) == 0
}

// whyNotStop says why pods may not be stopped: it would be for a whole copy that nobody
// agreed to, because a pod began to use the claim after the inspection, or no snapshot of
// it could be copied. Empty if they may.
func whyNotStop(o steps.Observation) string {
	names, why := copiedInStop(o)
	if o.Record.LongStop || len(names) == 0 {
		return ""
	}
	for _, pod := range o.Pods {
		if pod.Bound && !pod.Leaving && !pod.Finished {
			return fmt.Sprintf("pod %s would stand still while all of claim %s is copied, which is ReadWriteOncePod%s: allow that with "+
				"spec.offline Allow (--offline), or stop the pod, and move again; nothing was stopped",
				pod.Name, strings.Join(names, ", "), sentence.Prefixed(", and no snapshot of it could be copied: ", why))
		}
	}
	return ""
}

// copiedInStop returns the names of the claims of which all data is copied while pods are
// stopped, and why no snapshot was copied of the last of them, if known.
func copiedInStop(o steps.Observation) (names []string, why string) {
	for _, claim := range o.Record.Claims {
		if !claim.CopiedInStop() {
			continue
		}
		names, why = append(names, claim.Name), claim.NoSnapshot
		if claim.Snapshot != nil {
			why = claim.Snapshot.Why
		}
	}
	return names, why
}

// stopFor describes what pods are stopped for.
func stopFor(o steps.Observation) string {
	if names, _ := copiedInStop(o); len(names) > 0 {
		return "the copy of " + strings.Join(names, ", ") + ", which nothing can read beside a pod"
	}
	return "the last changes"
}

// runTask makes the mover of a claim run a task. With ok the task is done and its state is
// returned; otherwise step is the next step.
func runTask(o steps.Observation, i int, task moverapi.Task) (state *moverapi.TaskStatus, step steps.Step, ok bool) {
	name, status := o.Record.Claims[i].Name, o.Claims[i].Copy
	task.BytesPerSecond, task.Expect = o.Record.Limit, o.Record.Claims[i].Expect
	switch {
	case status == nil:
		return nil, steps.Wait(steps.Soon, fmt.Sprintf("waiting until the mover of claim %s answers: %s", name, o.Claims[i].CopyError)), false
	case status.Task == nil || status.Task.ID != task.ID || status.Task.State == moverapi.Cancelled:
		return nil, steps.Step{Action: steps.Start{Claim: i, Task: task}}, false
	case status.Task.State == moverapi.Failed:
		return nil, steps.GoBack(o, fmt.Sprintf("the mover of claim %s gave up: %s; the source stays in use: mend that, and move again", name,
			status.Task.Error), record.MoverFailed), false
	case status.Task.State == moverapi.Done:
		return status.Task, steps.Step{}, true
	}
	doing := status.Task.Progress.Step
	if doing == "" {
		doing = "at work"
	}
	return nil, steps.Wait(steps.Soon, fmt.Sprintf("claim %s: the mover is %s", name, doing)), false
}

// countSent adds the bytes that a finished task has sent to the record.
func countSent(c *record.Claim, task *moverapi.TaskStatus) {
	c.Sent, c.Stored, c.Counted = c.Sent+task.Progress.BytesSent, c.Stored+task.Progress.BytesStored, task.ID
}

// ReadEnd returns the end at which a mover reads a claim now; empty while nothing may be
// read.
func ReadEnd(o steps.Observation, i int) record.End {
	known := o.Record.Claims[i]
	switch {
	case !mayNotReadYet(o, i):
		return record.Source
	case o.Record.Phase == v1alpha1.MovePreCopy && known.Snapshot.InUse() && o.Claims[i].Snapshot.Backing != nil &&
		!o.Claims[i].Snapshot.Refused:
		return record.Snapped
	}
	return ""
}

// mayNotReadYet says whether a source may not be read yet because pods may use it: its
// mover is started once nobody has the volume.
func mayNotReadYet(o steps.Observation, i int) bool {
	return o.Record.Claims[i].Offline && record.Before(o.Record.Phase, v1alpha1.MoveFinalSync)
}

// finalSync copies the last changes. Nobody writes any more.
func finalSync(o steps.Observation) steps.Step {
	if step, ok := repeatIfDisturbed(o); ok {
		return step
	}
	if step, ok := runMovers(o); ok {
		return steps.LookOftenAtFirst(o, step)
	}
	if step, ok := prepareInStop(o); ok {
		return steps.LookOftenAtFirst(o, step)
	}
	var waiting *steps.Step
	for i, claim := range o.Record.Claims {
		if claim.Instance != "" {
			continue
		}
		task, step, ok := runTask(o, i, moverapi.Task{ID: fmt.Sprintf("final-%d", claim.Try), Kind: moverapi.Final})
		switch {
		case ok:
			return changeAndGoOn(o, i, func(c *record.Claim) {
				c.Instance = steps.Brief(o.Claims[i].Copy.Instance)
				countSent(c, task)
			})
		case step.Action != nil:
			return step
		}
		waiting = &step
	}
	if waiting != nil {
		return steps.LookOftenAtFirst(o, *waiting)
	}
	return steps.Enter(o, v1alpha1.MoveVerifying)
}

// prepareInStop is the step to find out whether a copy is possible of claims that could not
// be examined before their pods were stopped; false once that is known of all. All are
// examined before any is copied, so that a refusal does not come after hours.
func prepareInStop(o steps.Observation) (steps.Step, bool) {
	var waiting *steps.Step
	for i, claim := range o.Record.Claims {
		if !needsPrepareInStop(claim) {
			continue
		}
		step := prepareClaim(o, i)
		if step.Action != nil {
			return step, true
		}
		waiting = &step
	}
	if waiting == nil {
		return steps.Step{}, false
	}
	return *waiting, true
}

// needsPrepareInStop says whether a claim cannot be examined until nobody has its volume.
func needsPrepareInStop(claim record.Claim) bool { return claim.Offline && !claim.Prepared }

// preparesInStop says whether a volume is still to be examined although pods are stopped.
func preparesInStop(o steps.Observation) bool {
	return o.Record.Phase == v1alpha1.MoveFinalSync && slices.ContainsFunc(o.Record.Claims, needsPrepareInStop)
}

// changeAndGoOn records a change together with the next change that follows from it, in one
// write: pods wait.
func changeAndGoOn(o steps.Observation, i int, with func(*record.Claim)) steps.Step {
	step := steps.ChangeClaim(o, i, with)
	o.Record = step.Saved()
	if further := Next(o); further.Saved() != nil && record.Before(further.Saved().Phase, v1alpha1.MoveResume) {
		return further
	}
	return step
}

// verify compares both copies.
func verify(o steps.Observation) steps.Step {
	if step, ok := repeatIfDisturbed(o); ok {
		return step
	}
	if step, ok := runMovers(o); ok {
		return steps.LookOftenAtFirst(o, step)
	}
	for i, claim := range o.Record.Claims {
		if steps.Brief(o.Claims[i].Copy.Instance) != claim.Instance {
			// The new pass does not use results of the last one.
			next := o.Record.Enter(v1alpha1.MoveFinalSync, o.Now)
			resetFinal(&next.Claims[i])
			return steps.Step{Action: steps.Save{Record: next}, Say: "the mover of claim " + claim.Name + " was started anew: the last pass is " +
				"made again"}
		}
	}
	var waiting *steps.Step
	for i, claim := range o.Record.Claims {
		if claim.SourceRoot != "" {
			continue
		}
		task, step, ok := runTask(o, i, moverapi.Task{ID: fmt.Sprintf("verify-%d", claim.Try), Kind: moverapi.Verify,
			Full: o.Record.Verify == v1alpha1.VerifyFull})
		if ok {
			return judgeComparison(o, i, task)
		}
		if step.Action != nil {
			return step
		}
		waiting = &step
	}
	if waiting != nil {
		return steps.LookOftenAtFirst(o, *waiting)
	}
	return commitTo(o, "both copies are the same")
}

// commitTo is the step that enters Commit, for which the volumes at the target are recorded.
func commitTo(o steps.Observation, say string) steps.Step {
	if why := o.Target.Unusable; why != "" {
		// A provisioner that has just started does not know yet whether it can use the cluster.
		return steps.WaitForHelp(steps.ClusterAway, steps.Soon, why)
	}
	next := o.Record.Enter(v1alpha1.MoveCommit, o.Now)
	for i, claim := range o.Claims {
		if claim.New == nil {
			return steps.GoBack(o, fmt.Sprintf("the volume of claim %s at the target cannot be used: %s", next.Claims[i].Name, claim.NewError),
				record.TargetChanged)
		}
		next.Claims[i].New = claim.New
	}
	if next.Failover != nil {
		next.Failover.Fence = fencedBy(o)
	}
	return steps.Step{Action: steps.Save{Record: next}, Say: say}
}

// repeatIfDisturbed is clearUsers while the volume is copied for the last time or compared:
// whoever had it may have written, so all claims are copied and compared once more; false
// if nobody had it.
func repeatIfDisturbed(o steps.Observation) (steps.Step, bool) {
	step, ok := clearUsers(o)
	switch {
	case ok && !o.Record.Intruded:
		next := o.Record.Clone()
		next.Intruded = true
		return steps.Step{Action: steps.Save{Record: next}, Say: step.Say}, true
	case ok || !o.Record.Intruded:
		return step, ok
	}
	next := o.Record.Enter(v1alpha1.MoveFinalSync, o.Now)
	next.Intruded = false
	for i := range next.Claims {
		resetFinal(&next.Claims[i])
	}
	return steps.Step{Action: steps.Save{Record: next}, Say: "somebody had the volume meanwhile: the last pass is made again"}, true
}

// resetFinal makes the last pass over a claim, and the comparison, run once more.
func resetFinal(c *record.Claim) {
	c.Try++
	c.Instance, c.SourceRoot, c.TargetRoot = "", "", ""
}

// judgeComparison returns the step for the result of a comparison.
func judgeComparison(o steps.Observation, i int, task *moverapi.TaskStatus) steps.Step {
	name, v := o.Record.Claims[i].Name, task.Verified
	if v == nil || !v.Equal || len(v.SourceRoot) > steps.LongestText || v.SourceRoot == "" || v.SourceRoot != v.TargetRoot ||
		len(v.Differences) > 0 || v.DifferencesLeftOff > 0 {
		why := fmt.Sprintf("the copy of claim %s differs from its source, which stays in use", name)
		if v != nil && len(v.Differences) > 0 {
			why += fmt.Sprintf(": %s: %s", v.Differences[0].Path, v.Differences[0].What)
		}
		return steps.GoBack(o, why+"; look at the storage of both places before you move again", record.Differs)
	}
	return changeAndGoOn(o, i, func(c *record.Claim) { c.SourceRoot, c.TargetRoot = v.SourceRoot, v.TargetRoot })
}

// goBackIfStalled is the step for a move whose pods are stopped and whose copy makes no
// progress: after a time it rolls back by itself, if the source can be used. It is false
// while the copy makes progress.
func goBackIfStalled(o steps.Observation) (steps.Step, bool) {
	why, since := whyStalled(o), o.Record.Stalled
	if why == "" && copying(o) && !since.IsZero() && !o.Advanced.IsZero() && !o.Advanced.After(since) {
		// Movers that reconnect again and again without progress count too.
		why = "it has not got further since"
	}
	switch {
	case why == "" && since.IsZero():
		return steps.Step{}, false
	case why == "" || since.IsZero():
		next := o.Record.Clone()
		if next.Stalled = o.Now; why == "" {
			next.Stalled = time.Time{}
		}
		return steps.Step{Action: steps.Save{Record: next}, Say: why}, true
	}
	limit := stallLimit
	if o.Move.Spec.RollBackAfter != nil {
		limit = o.Move.Spec.RollBackAfter.Duration
	}
	if preparesInStop(o) {
		limit = max(limit, firstMoverLimit)
	}
	if o.Now.Sub(since) < limit {
		return steps.Step{}, false
	}
	return steps.GoBack(o, fmt.Sprintf("the pods have waited for %s (spec.rollBackAfter) and the copy stood still: %s; they go on at the "+
		"source, so mend that and move again", limit, why), record.StoodStill), true
}

// stallLimit is how long pods wait for a copy without progress, unless the VolumeMove says
// otherwise.
const stallLimit = 10 * time.Minute

// quietLimit is for how long connected movers may report no progress before the copy counts
// as stalled: they report none while they sort and compare.
const quietLimit = time.Minute

// firstMoverLimit is how long the first mover at a source that waits for the pods to end
// may take to run, however short the configured patience: until it runs, each such copy
// makes no progress.
const firstMoverLimit = time.Minute

// whyStalled says why the copy cannot continue although pods are stopped; empty if it can.
// While the source cannot be used either, a rollback would gain nothing.
func whyStalled(o steps.Observation) string {
	switch {
	case o.Source.Unusable != "":
		return ""
	case o.Record.Phase == v1alpha1.MoveQuiesce || o.Record.Phase == v1alpha1.MoveFence:
		// In that case the movers are not queried.
		return cmp.Or(o.Target.Unusable, whyNotFenced(o))
	case copying(o):
		if step, ok := runMovers(o); ok && step.Action == nil {
			return step.Say
		} else if ok {
			return "a mover is made"
		}
		if quiet := o.Now.Sub(o.Advanced); !o.Advanced.IsZero() && quiet > quietLimit {
			return fmt.Sprintf("nothing was copied or compared for %s: see whether the storage of both places answers", quiet.Round(time.Second))
		}
	}
	return ""
}

// copying says whether movers work while pods are stopped.
func copying(o steps.Observation) bool {
	return o.Record.Phase == v1alpha1.MoveFinalSync || o.Record.Phase == v1alpha1.MoveVerifying
}
