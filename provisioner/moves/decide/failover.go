package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// This file has what is different where a claim gets a sealed version of a replica: the target is made of that and nothing is
// copied, somebody may vouch for a source that does not answer, or its pods may have been promised to end, and the source is never removed
// without being asked for.

// provisionVersion makes the targets of a version, and stops the pods once all can be used.
func provisionVersion(o steps.Observation) steps.Step {
	var waiting *steps.Step
	for i := range o.Record.Claims {
		step, ok := provisionOne(o, i)
		switch {
		case ok && step.Action != nil:
			return step
		case ok && waiting == nil:
			waiting = &step
		}
	}
	if waiting != nil {
		return *waiting
	}
	return stopPodsFor(o)
}

// provisionOne makes the target of a claim; false once it can be used.
func provisionOne(o steps.Observation, i int) (steps.Step, bool) {
	seen := o.Claims[i]
	if step, ok := makeTargetClaim(o, i, seen); ok {
		return step, true
	}
	m := seen.Target.Mover
	if seen.Target.Real == nil {
		return awaitVersion(o, i), true
	}
	// It was the first to use the target, where storage waits for that.
	switch {
	case m.Exists && !m.Leaving:
		return steps.Step{Action: steps.DropMover{Claim: i, End: record.Target}}, true
	case m.Exists:
		return steps.Wait(steps.Often, moverEnding(o, i, record.Target)), true
	case seen.New == nil:
		return steps.GoBack(o, fmt.Sprintf("the version of claim %s cannot be used: %s", o.Record.Claims[i].Name, seen.NewError),
			record.TargetChanged), true
	}
	return steps.Step{}, false
}

// awaitVersion waits until the target of a version has a volume. Storage that waits for the first pod gets a mover that does nothing.
func awaitVersion(o steps.Observation, i int) steps.Step {
	known, version, waiting := o.Record.Claims[i], o.Record.Failover.At(i), ""
	if version.Deferred {
		step, acts, why := runMover(o, i, record.Target, "", "")
		if acts {
			return step
		}
		waiting = why
	}
	if waiting == "" {
		waiting = fmt.Sprintf("waiting until real claim %s has got its volume from VolumeSnapshot %s", known.Target.Ref.Key(), version.Version)
	}
	if o.Now.Sub(o.Record.Began[v1alpha1.MoveProvision]) > startTimeout {
		return steps.GoBack(o, waiting+"; no pod was stopped for it: see the events of that claim in its cluster, and fail over again",
			record.NotStarted)
	}
	return steps.Wait(steps.Soon, waiting)
}

// isVouchedFor says whether it is given that nobody writes to a source whose cluster does not answer: somebody has declared so, or its
// remote agent has promised to end the pods there, and the time for that is over.
func isVouchedFor(o steps.Observation) bool {
	f := o.Record.Failover
	return f != nil && o.Source.Away && o.Record.ClusterOf(record.Source) != keys.Home &&
		(f.Declared || f.Lease && o.Source.Silence.IsPromised() && leaseLeft(o) == 0)
}

// leaseLeft is for how long the end of pods at the source must be waited for yet.
func leaseLeft(o steps.Observation) time.Duration {
	return o.Source.Silence.Left(time.Duration(graceOf(o)) * time.Second)
}

// graceOf is the longest grace period of pods that use the claims at the source, in seconds, also of those that were seen there alone. Any
// others count with that of a pod which names none.
func graceOf(o steps.Observation) int64 {
	grace := max(o.Record.Failover.Grace, corev1.DefaultTerminationGracePeriodSeconds)
	for _, pod := range o.Pods {
		if pod.Bound && pod.Cluster == o.Record.ClusterOf(record.Source) {
			grace = max(grace, pod.Grace)
		}
	}
	for _, pod := range o.Record.Known.Pods {
		if pod.Cluster == o.Record.ClusterOf(record.Source) {
			grace = max(grace, pod.Grace)
		}
	}
	return grace
}

// awaitLease waits until the pods at a source whose cluster does not answer have ended, as its remote agent has promised; false if
// nothing is to be waited for.
func awaitLease(o steps.Observation) (steps.Step, bool) {
	switch f := o.Record.Failover; {
	case f == nil || !f.Lease || !o.Source.Away || isVouchedFor(o):
		return steps.Step{}, false
	case !o.Source.Silence.IsPromised():
		return steps.WaitForHelp(steps.ClusterAway, steps.Soon, fmt.Sprintf("%s, and fence Lease proves nothing: %s; end this with kubectl "+
			"lodestone move abort %s -n %s", o.Source.Unusable, o.Source.Silence.Why, o.Record.Name, o.Record.Namespace)), true
	}
	left := leaseLeft(o)
	// Rounded, so that it is the same text each time.
	until := o.Now.Add(left).Truncate(saidTo).Add(saidTo)
	return steps.Wait(min(left, steps.Soon), fmt.Sprintf("cluster %s does not answer: its remote agent ends the pods there, and it is waited "+
		"until %s for that", o.Record.ClusterOf(record.Source), until.UTC().Format(time.RFC3339))), true
}

// saidTo is how exactly it is said until when is waited.
const saidTo = 10 * time.Second

// isOutOfReach says whether a pod runs, if it does, where somebody vouches that it does not write.
func isOutOfReach(o steps.Observation, pod steps.Pod) bool {
	return isVouchedFor(o) && pod.Bound && pod.Cluster == o.Record.ClusterOf(record.Source) && !isNotLeased(o, pod)
}

// isNotLeased says whether a pod runs, if it does, at a source that does not answer, where its remote agent has promised to end pods, but
// not this one, which it has not made.
func isNotLeased(o steps.Observation, pod steps.Pod) bool {
	f := o.Record.Failover
	return f != nil && f.Lease && o.Source.Away && pod.Bound && !pod.Hosted &&
		pod.Cluster == o.Record.ClusterOf(record.Source)
}

// awaitNotLeased waits for somebody to see to such pods.
func awaitNotLeased(o steps.Observation, names []string) steps.Step {
	r := o.Record
	return steps.WaitForHelp(steps.ClusterAway, steps.Soon, fmt.Sprintf("%s has no finalizer %s, so the remote agent of cluster %s has not "+
		"made it and does not end it, and fence Lease proves nothing: once it has surely ended, delete it by force (kubectl delete pod "+
		"--force), or end this with kubectl lodestone move abort %s -n %s", strings.Join(names, ", "), keys.RemotePodFinalizer,
		r.ClusterOf(record.Source), r.Name, r.Namespace))
}

// withoutVouched leaves those out of what is known of writers for whom somebody vouches. An agent does so for those that it has made.
func withoutVouched(o steps.Observation) (proof.Known, proof.Seen) {
	known, seen := o.Record.Known, o.Seen
	if !isVouchedFor(o) {
		return known, seen
	}
	cluster := o.Record.ClusterOf(record.Source)
	vouched := func(pod proof.Pod) bool { return pod.Cluster == cluster && (pod.Hosted || !o.Record.Failover.Lease) }
	known.Ran = slices.DeleteFunc(slices.Clone(known.Ran), func(node proof.Node) bool { return node.Cluster == cluster })
	known.Pods = slices.DeleteFunc(slices.Clone(known.Pods), vouched)
	seen.Unended = slices.DeleteFunc(slices.Clone(seen.Unended), vouched)
	return known, seen
}

// awaitSource waits for the cluster of a source that does not answer.
func awaitSource(o steps.Observation) steps.Step {
	if step, ok := awaitLease(o); ok {
		return step
	}
	say := o.Source.Unusable
	if o.Record.Failover != nil {
		say += fmt.Sprintf("; end this with kubectl lodestone move abort %s -n %s, and fail over with --fence Lease if condition %s of "+
			"RemoteCluster %s is True, or with --fence Declared if nobody writes there any more, or what is written there does not count",
			o.Record.Name, o.Record.Namespace, v1alpha1.PodLeasePromised, o.Record.ClusterOf(record.Source))
	}
	return steps.WaitForHelp(steps.ClusterAway, steps.Soon, say)
}

// fencedBy is how it is known that nobody writes to the source.
func fencedBy(o steps.Observation) v1alpha1.FailoverFence {
	switch {
	case !isVouchedFor(o):
		return v1alpha1.FenceProven
	case o.Record.Failover.Lease:
		return v1alpha1.FenceLease
	}
	return v1alpha1.FenceDeclared
}

// noteSource is the step that records what the source of a failover is, which could not be read when it began; false if it is known,
// or cannot be read yet.
func noteSource(o steps.Observation) (steps.Step, bool) {
	if o.Record.Failover == nil {
		return steps.Step{}, false
	}
	for i := range o.Record.Claims {
		known, seen := o.Record.Claims[i].Source, o.Claims[i].Source
		if b := seen.Backing; known.Real == "" && b != nil && b.UID == known.Ref.UID && seen.Real != nil {
			return steps.ChangeClaim(o, i, func(c *record.Claim) {
				c.Source.Real, c.Source.Class = seen.Real.Name, ptr.Deref(b.Spec.StorageClassName, "")
			}), true
		}
	}
	return steps.Step{}, false
}

// isWanted says whether a claim of a move, or its volume, is still there.
func isWanted(o steps.Observation) bool {
	return slices.ContainsFunc(o.Claims, func(seen steps.Claim) bool { return seen.Claim != nil || seen.Volume != nil })
}

// keepDiverged is the step of a failover that is done: what was written to the source after the version is only there, so it stays
// until somebody says that it may go.
func keepDiverged(o steps.Observation) steps.Step {
	r := o.Record
	switch {
	case !isWanted(o):
		// Nobody wants the data any more.
		return enterFinalize(o)
	case o.Move == nil || o.Move.DeletionTimestamp != nil:
		return steps.Enter(o, v1alpha1.MoveDone)
	case o.Move.Spec.Action == v1alpha1.ActionFinalize || o.Move.Spec.Action == v1alpha1.ActionGiveUp:
		return enterFinalize(o)
	case o.Next != "":
		return steps.Wait(rare, fmt.Sprintf("VolumeMove %s moves the %s on; %s in cluster %s %s kept", o.Next, theClaims(r), keptClaims(r),
			r.ClusterOf(record.Source), are(r)))
	}
	return steps.Wait(rare, Diverged(r))
}

// Diverged says what a failover gave its claims, and what is kept.
func Diverged(r *record.Record) string {
	have, brings := "has", "the claim"
	if len(r.Claims) > 1 {
		have, brings = "have", "the claims"
	}
	return fmt.Sprintf("the %s %s the version of %s; what was written after that is in %s in cluster %s, which %s kept: kubectl lodestone "+
		"failback %s -n %s brings %s back there once a snapshot of that is taken, and kubectl lodestone move finalize %s -n %s removes it",
		theClaims(r), have, r.Failover.Cut.UTC().Format(time.RFC3339), keptClaims(r), r.ClusterOf(record.Source), are(r), r.Name, r.Namespace,
		brings, r.Name, r.Namespace)
}

func theClaims(r *record.Record) string {
	if len(r.Claims) > 1 {
		return "claims"
	}
	return "claim"
}

func are(r *record.Record) string {
	if len(r.Claims) > 1 {
		return "are"
	}
	return "is"
}

// keptClaims names the real claims at the source.
func keptClaims(r *record.Record) string {
	var names []string
	for i := range r.Claims {
		names = append(names, r.Claims[i].Source.Ref.Key().String())
	}
	if len(names) > 1 {
		return "real claims " + strings.Join(names, ", ")
	}
	return "real claim " + names[0]
}

// keepsFallBack says whether the snapshot of what had diverged is kept, although the claim is back: nothing else has that.
func keepsFallBack(o steps.Observation) bool {
	r, move := o.Record, o.Move
	return r.Failover != nil && isWanted(o) && move != nil && move.DeletionTimestamp == nil && move.Spec.Action == v1alpha1.ActionMove &&
		slices.ContainsFunc(r.Claims, func(known record.Claim) bool { return known.Snapshot.MayExist() && known.Snapshot.Keeps })
}
