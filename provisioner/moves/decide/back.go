package decide

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// rollBack restores everything as it was before the move: first the pods get their volumes
// back and the claims are released, then the objects at the target are deleted.
func rollBack(o steps.Observation) steps.Step {
	r := o.Record
	if r.Freed {
		return cleanUp(o)
	}
	if o.Source.Unusable == "" {
		if step, ok := endMovers(o, record.Source); ok {
			return step
		}
		// It only reads, so pods must not wait for one whose node is gone.
		if step, ok := removeMovers(o, record.Source); ok && o.Now.Sub(r.Began[v1alpha1.MoveRollBack]) <= graceful {
			return steps.LookOften(step)
		}
	}
	if step, ok := bindClaims(o, func(c record.Claim) *corev1.PersistentVolume { return c.Volume }); ok {
		return step
	}
	if step, ok := awaitStoppedPods(o); ok {
		return step
	}
	if step, ok := freeClaims(o); ok {
		return step
	}
	if !r.Down.IsZero() && r.Up.IsZero() {
		next := r.Clone()
		next.Up = o.Now
		return steps.Step{Action: steps.Save{Record: next}}
	}
	// This needs nothing at the target, which may never come back.
	if step, ok := restorePolicies(o); ok {
		return step
	}
	if step, ok := unshelveSource(o); ok {
		return step
	}
	if o.Source.Unusable == "" {
		// Another move would stop the pods and then wait for this mover.
		if step, ok := removeMovers(o, record.Source); ok {
			return step
		}
	}
	if left := r.Began[v1alpha1.MoveRollBack].Add(o.Settling).Sub(o.Now); left > 0 && !r.Down.IsZero() {
		return steps.Wait(min(left, steps.Soon), whereClaimsAre(o))
	}
	next := r.Clone()
	next.Freed = true
	return steps.Step{Action: steps.Save{Record: next}}
}

// graceful is how long a rollback waits for pods that the move has stopped.
const graceful = 30 * time.Second

// awaitStoppedPods waits a while for pods that were stopped for the move to end, so that
// their replacements do not write beside them; false if none is left or the time is up.
func awaitStoppedPods(o steps.Observation) (steps.Step, bool) {
	if o.Record.Down.IsZero() || o.Now.Sub(o.Record.Began[v1alpha1.MoveRollBack]) > graceful {
		return steps.Step{}, false
	}
	for _, pod := range o.Pods {
		if pod.Bound && pod.Leaving && !pod.Finished {
			return steps.Wait(steps.Often, "waiting until pod "+pod.Name+" has ended"), true
		}
	}
	return steps.Step{}, false
}

// restorePolicies is the step that gives real volumes of the source their former reclaim
// policies back; false if they have them.
func restorePolicies(o steps.Observation) (steps.Step, bool) {
	for i, claim := range o.Claims {
		policy := o.Record.Claims[i].Source.Policy
		if policy != "" && o.Source.Unusable != "" {
			return steps.WaitForHelp(steps.ClusterAway, steps.Seldom, whereClaimsAre(o)), true
		}
		if policy != "" && claim.Source.Real != nil && claim.Source.Real.Spec.PersistentVolumeReclaimPolicy != policy {
			return steps.Step{Action: steps.Restore{Claim: i, End: record.Source}}, true
		}
	}
	return steps.Step{}, false
}

// unshelveSource is the step that removes the mark of Commit from a real claim of the
// source, which no step for volumes in use removes; false if none has it or the cluster
// takes no requests. A source with the mark of a Commit that the record does not know of was replaced: the mark stays.
func unshelveSource(o steps.Observation) (steps.Step, bool) {
	if !o.Record.WasCommitted() {
		return steps.Step{}, false
	}
	for i, claim := range o.Claims {
		if s := claim.Source.Backing; s != nil && s.UID == o.Record.Claims[i].Source.Ref.UID && s.Labels[keys.MoveOf] == string(o.Record.UID) {
			return steps.Step{Action: steps.Publish{Claim: i, End: record.Source}}, true
		}
	}
	return steps.Step{}, false
}

// cleanUp deletes what is left of a move whose claims may be in use or in another move by
// now: it touches nothing that belongs to them.
func cleanUp(o steps.Observation) steps.Step {
	r := o.Record
	for _, end := range record.Ends {
		if r.GaveUp(end) || o.At(end).Unusable != "" {
			continue
		}
		if step, ok := removeMovers(o, end); ok {
			return step
		}
	}
	for _, end := range record.Ends {
		if r.GaveUp(end) || end == record.Source && r.Failover != nil && !r.WasCommitted() {
			// The latter: nothing was made there.
			continue
		}
		if step, ok := giveUpEnd(o, end); ok {
			return step
		}
		if o.At(end).Unusable != "" {
			return steps.WaitForHelp(steps.ClusterAway, steps.Seldom, whyNotRemoved(o, end))
		}
	}
	if step, ok := unshelveSource(o); ok {
		return step
	}
	if !r.GaveUp(record.Source) {
		if step, ok := removeSnapshots(o); ok {
			return step
		}
	}
	if !r.GaveUp(record.Target) {
		if step, ok := removeBackings(o, record.Target); ok {
			return step
		}
	}
	phase := v1alpha1.MoveAborted
	if r.Refused {
		phase = v1alpha1.MoveFailed
	}
	return steps.Enter(o, phase)
}

// whereClaimsAre describes the state of the claims of a move that is rolled back.
func whereClaimsAre(o steps.Observation) string {
	if why := o.Source.Unusable; why != "" {
		return "the claims have their volumes at the source again, and no pod can use them: " + why
	}
	return "the claims are in use at the source"
}

// giveUpEnd is the step that gives up an end that is gone for good: what the move left
// there stays. It is false while the end can be used or nobody has said that it is gone.
//
// Before Commit nothing at the target can be mounted, and after it nothing of the source is
// needed. Before Commit all data is at the source: if that is gone, what was copied is all
// there is, so the copy is given up only if nobody wants the claims any more either. The versions of a failover stay.
func giveUpEnd(o steps.Observation, end record.End) (steps.Step, bool) {
	r := o.Record
	if o.At(end).Unusable == "" || end == record.Source && r.Phase == v1alpha1.MoveRollBack && r.Failover == nil && !isDataUnwanted(o) {
		return steps.Step{}, false
	}
	asked := o.Move != nil && o.Move.Spec.Action == v1alpha1.ActionGiveUp
	if !asked && !o.At(end).Gone && !(isDeclaredLost(o) && o.Record.ClusterOf(end) == o.Record.ClusterOf(record.Source)) {
		return steps.Step{}, false
	}
	next := r.Clone()
	next.GivenUp = append(slices.Clone(r.GivenUp), end)
	return steps.Step{Action: steps.Save{Record: next}, Say: next.LeftBehind()}, true
}

// isDataUnwanted says whether every claim was deleted or its volume declared lost.
func isDataUnwanted(o steps.Observation) bool {
	return !slices.ContainsFunc(o.Claims, func(c steps.Claim) bool { return c.Claim != nil && !isLost(c) })
}

// isDeclaredLost says whether somebody has declared the data of a claim lost with its
// cluster.
func isDeclaredLost(o steps.Observation) bool { return slices.ContainsFunc(o.Claims, isLost) }

// isLost is also true for a claim of which nothing is left: without its cluster a volume is
// deleted only once it was declared lost.
func isLost(c steps.Claim) bool {
	return c.Claim == nil && c.Volume == nil || c.Volume != nil && c.Volume.Annotations[keys.Lost] != ""
}

// whyNotRemoved says why what a move left at an end cannot be deleted, and what to do if it
// never can.
func whyNotRemoved(o steps.Observation, end record.End) string {
	name := o.Record.ClusterOf(end)
	advice := fmt.Sprintf("%s; if cluster %s is gone for ever, kubectl lodestone move give-up %s -n %s ends the move", o.At(end).Unusable,
		name, o.Record.Name, o.Record.Namespace)
	switch {
	case o.Record.Phase != v1alpha1.MoveRollBack:
		return "the copy at the " + string(end) + " cannot be removed yet: " + advice
	case end == record.Target:
		return whereClaimsAre(o) + "; what the move left at the target cannot be removed yet: " + advice
	}
	return fmt.Sprintf("%s; what was copied is not the whole data and is kept meanwhile; if cluster %s is gone for ever, the data is "+
		"lost with it: "+
		"kubectl lodestone lose pvc says so for each claim and ends the move", whereClaimsAre(o), name)
}
