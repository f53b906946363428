package decide

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// This file has what is different where a claim gets a sealed version of a replica: the target is made of that and nothing is
// copied, somebody may vouch for a source that does not answer, and the source is never removed without being asked for.

// provisionVersion makes the target of a version, and stops the pods once it can be used.
func provisionVersion(o steps.Observation) steps.Step {
	const claim = 0
	seen := o.Claims[claim]
	if step, ok := makeTargetClaim(o, claim, seen); ok {
		return step
	}
	m := seen.Target.Mover
	if seen.Target.Real == nil {
		return awaitVersion(o, claim)
	}
	// It was the first to use the target, where storage waits for that.
	switch {
	case m.Exists && !m.Leaving:
		return steps.Step{Action: steps.DropMover{Claim: claim, End: record.Target}}
	case m.Exists:
		return steps.Wait(steps.Often, moverEnding(o, claim, record.Target))
	case seen.New == nil:
		return steps.GoBack(o, fmt.Sprintf("the version of claim %s cannot be used: %s", o.Record.Claims[claim].Name, seen.NewError),
			record.TargetChanged)
	}
	return stopPodsFor(o)
}

// awaitVersion waits until the target of a version has a volume. Storage that waits for the first pod gets a mover that does nothing.
func awaitVersion(o steps.Observation, i int) steps.Step {
	known, waiting := o.Record.Claims[i], ""
	if o.Record.Failover.Deferred {
		step, acts, why := runMover(o, i, record.Target, "", "")
		if acts {
			return step
		}
		waiting = why
	}
	if waiting == "" {
		waiting = fmt.Sprintf("waiting until real claim %s has got its volume from VolumeSnapshot %s", known.Target.Ref.Key(),
			o.Record.Failover.Version)
	}
	if o.Now.Sub(o.Record.Began[v1alpha1.MoveProvision]) > startTimeout {
		return steps.GoBack(o, waiting+"; no pod was stopped for it: see the events of that claim in its cluster, and fail over again",
			record.NotStarted)
	}
	return steps.Wait(steps.Soon, waiting)
}

// isVouchedFor says whether somebody has declared that nobody writes to a source whose cluster does not answer.
func isVouchedFor(o steps.Observation) bool {
	return o.Record.Failover != nil && o.Record.Failover.Declared && o.Source.Away &&
		o.Record.ClusterOf(record.Source) != keys.Home
}

// isOutOfReach says whether a pod runs, if it does, where somebody vouches that it does not write.
func isOutOfReach(o steps.Observation, pod steps.Pod) bool {
	return isVouchedFor(o) && pod.Bound && pod.Cluster == o.Record.ClusterOf(record.Source)
}

// withoutVouched leaves those out of what is known of writers for whom somebody vouches.
func withoutVouched(o steps.Observation) (proof.Known, proof.Seen) {
	known, seen := o.Record.Known, o.Seen
	if !isVouchedFor(o) {
		return known, seen
	}
	cluster := o.Record.ClusterOf(record.Source)
	known.Ran = slices.DeleteFunc(slices.Clone(known.Ran), func(node proof.Node) bool { return node.Cluster == cluster })
	known.Pods = slices.DeleteFunc(slices.Clone(known.Pods), func(pod proof.Pod) bool { return pod.Cluster == cluster })
	seen.Unended = slices.DeleteFunc(slices.Clone(seen.Unended), func(pod proof.Pod) bool { return pod.Cluster == cluster })
	return known, seen
}

// awaitSource waits for the cluster of a source that does not answer.
func awaitSource(o steps.Observation) steps.Step {
	say := o.Source.Unusable
	if o.Record.Failover != nil {
		say += fmt.Sprintf("; if nobody writes there any more, or what is written there does not count, end this with kubectl lodestone move "+
			"abort %s, and fail over with --fence Declared", o.Record.Name)
	}
	return steps.WaitForHelp(steps.ClusterAway, steps.Soon, say)
}

// fencedBy is how it is known that nobody writes to the source.
func fencedBy(o steps.Observation) v1alpha1.FailoverFence {
	if isVouchedFor(o) {
		return v1alpha1.FenceDeclared
	}
	return v1alpha1.FenceProven
}

// noteSource is the step that records what the source of a failover is, which could not be read when it began; false if it is known,
// or cannot be read yet.
func noteSource(o steps.Observation) (steps.Step, bool) {
	known, seen := o.Record.Claims[0].Source, o.Claims[0].Source
	b := seen.Backing
	if o.Record.Failover == nil || known.Real != "" || b == nil || b.UID != known.Ref.UID || seen.Real == nil {
		return steps.Step{}, false
	}
	return steps.ChangeClaim(o, 0, func(c *record.Claim) {
		c.Source.Real, c.Source.Class = seen.Real.Name, ptr.Deref(b.Spec.StorageClassName, "")
	}), true
}

// keepDiverged is the step of a failover that is done: what was written to the source after the version is only there, so it stays
// until somebody says that it may go.
func keepDiverged(o steps.Observation) steps.Step {
	r := o.Record
	switch {
	case o.Claims[0].Claim == nil && o.Claims[0].Volume == nil:
		// Nobody wants the data any more.
		return enterFinalize(o)
	case o.Move == nil || o.Move.DeletionTimestamp != nil:
		return steps.Enter(o, v1alpha1.MoveDone)
	case o.Move.Spec.Action == v1alpha1.ActionFinalize || o.Move.Spec.Action == v1alpha1.ActionGiveUp:
		return enterFinalize(o)
	case o.Next != "":
		return steps.Wait(rare, fmt.Sprintf("VolumeMove %s moves the claim on; real claim %s in cluster %s is kept", o.Next,
			r.Claims[0].Source.Ref.Key(), r.ClusterOf(record.Source)))
	}
	return steps.Wait(rare, Diverged(r))
}

// Diverged says what a failover gave a claim, and what is kept.
func Diverged(r *record.Record) string {
	ref := r.Claims[0].Source.Ref
	return fmt.Sprintf("the claim has the version of %s; what was written after that is in real claim %s in cluster %s, which is kept: "+
		"kubectl lodestone failback %s brings the claim back there once a snapshot of that is taken, and move finalize %s removes it",
		r.Failover.Cut.UTC().Format(time.RFC3339), ref.Key(), ref.Cluster, r.Name, r.Name)
}

// keepsFallBack says whether the snapshot of what had diverged is kept, although the claim is back: nothing else has that.
func keepsFallBack(o steps.Observation) bool {
	r, move := o.Record, o.Move
	wanted := o.Claims[0].Claim != nil || o.Claims[0].Volume != nil
	return r.Failover != nil && wanted && move != nil && move.DeletionTimestamp == nil && move.Spec.Action == v1alpha1.ActionMove &&
		slices.ContainsFunc(r.Claims, func(known record.Claim) bool { return known.Snapshot.MayExist() && known.Snapshot.Keeps })
}
