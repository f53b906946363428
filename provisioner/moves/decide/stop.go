package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/swap/plan"
)

// quiesce makes new pods wait at the scheduling gate and ends the present ones.
func quiesce(o steps.Observation) steps.Step {
	if step, ok := lockClaims(o); ok {
		return step
	}
	stop, stopping := stopPods(o)
	if stopping && (stop.Action != nil || slices.ContainsFunc(o.Pods, MustStop)) {
		return stop
	}
	// The movers take time to end, as the pods do.
	if step, ok := endAttachedMovers(o); ok && (step.Action != nil || !stopping) {
		return step
	}
	if stopping {
		return stop
	}
	return steps.Enter(o, v1alpha1.MoveFence)
}

// endAttachedMovers is the step to end the movers that keep a source attached under the
// virtual volume's name; false if there are none. They are made again once the volume is
// fenced. A driver that attaches nothing keeps its movers, which know what they have read.
func endAttachedMovers(o steps.Observation) (steps.Step, bool) {
	var actions []steps.Action
	waiting := ""
	for i, claim := range o.Claims {
		switch m := claim.Source.Mover; {
		case !claim.Attached || !m.Exists:
		case !m.Leaving:
			actions = append(actions, steps.DropMover{Claim: i, End: record.Source})
		default:
			waiting = moverAttached(o, i)
		}
	}
	if step, ok := steps.AllAtOnce(actions); ok {
		return step, true
	}
	return steps.Wait(steps.Often, waiting), waiting != ""
}

// moverAttached describes a mover at the source that is awaited.
func moverAttached(o steps.Observation, i int) string {
	return fmt.Sprintf("waiting until the mover of claim %s at the source has ended, so that its volume is detached", o.Record.Claims[i].Name)
}

// gateTimeout is how long API servers may take to see that a claim is locked.
const gateTimeout = 10 * time.Second

// awaitGate waits until a new pod like the given one would get the gate; false if it would.
// Otherwise its successor would run beside the movers, or start on a volume that is on its
// way. The claims are locked.
func awaitGate(o steps.Observation, pod steps.Pod) (steps.Step, bool) {
	if pod.Held {
		return steps.Step{}, false
	}
	why := fmt.Sprintf("pod %s is not stopped, for a new one would not be held back: %s", pod.Name, cmp.Or(pod.NotHeld,
		"that is not known yet"))
	if o.Now.Sub(o.Record.Began[o.Record.Phase]) < gateTimeout {
		return steps.Wait(steps.Often, why), true
	}
	return steps.GoBack(o, why+"; apply deploy/base of this version, which has the admission policies lodestone-move-gate and "+
		"lodestone-move-proof, before Kubernetes 1.36 with deploy/components/webhook, and see that the pods of Deployment lodestone-webhook "+
		"are ready; or if the policies are there and were deleted before, restart the API servers; then move again",
		record.NotHeldBack), true
}

// lockClaims is the step that locks the claims that are not locked; false if all are.
func lockClaims(o steps.Observation) (steps.Step, bool) {
	var actions []steps.Action
	for i, claim := range o.Claims {
		if claim.Claim.Annotations[keys.Move] != string(o.Record.UID) || claim.Claim.Labels[keys.Moving] != keys.MovingNow {
			actions = append(actions, steps.Lock{Claim: i})
		}
	}
	return steps.AllAtOnce(actions)
}

// stopPods is the step to stop all pods that use a claim; false once there is none.
func stopPods(o steps.Observation) (steps.Step, bool) {
	var names, unleased []string
	for _, pod := range o.Pods {
		switch {
		case pod.Finished, pod.Gated && !pod.Bound:
		case pod.Bound && !pod.Leaving && pod.Job != "":
			return steps.GoBack(o, OfJob(o.Record.Namespace, pod.Name, pod.Job), record.PodsInTheWay), true
		case pod.Bound && !pod.Leaving && !pod.Owned:
			return steps.GoBack(o, fmt.Sprintf("pod %s uses the volume and nobody would make it anew: delete it yourself, and move again", pod.Name),
				record.PodsInTheWay), true
		case MustStop(pod):
			if step, ok := awaitGate(o, pod); ok {
				return step, true
			}
			say := fmt.Sprintf("pod %s is stopped; its successor waits until the move is done", pod.Name)
			return steps.Step{Action: steps.DeletePod{Pod: pod}, Say: say}, true
		case isOutOfReach(o, pod) && pod.Leaving && !pod.Released:
			return steps.Step{Action: steps.ReleasePod{Pod: pod}, Say: givenUp(o, pod)}, true
		case isNotLeased(o, pod) && !pod.Released:
			unleased = append(unleased, "pod "+pod.Name)
		case pod.Bound:
			names = append(names, "pod "+pod.Name)
		}
		// A pod without a node, a gate and an owner that would replace it is left: the move
		// rolls back once it gets a node. So is a pod of a Job.
	}
	if len(unleased) > 0 {
		return awaitNotLeased(o, unleased), true
	}
	names = append(append(names, o.Others...), o.Attachments...)
	if len(names) == 0 {
		return steps.Step{}, false
	}
	step := steps.Wait(steps.Often, "waiting until the volume is free of "+strings.Join(names, ", "))
	if lease, ok := awaitLease(o); ok {
		step.Say, step.Need = step.Say+"; "+lease.Say, lease.Need
		return step, true
	}
	if away, ok := awaitWriters(o); ok {
		step.Say += "; " + away.Say
		step.Need = away.Need
	}
	return step, true
}

// givenUp says what becomes of a pod that is given up.
func givenUp(o steps.Observation, pod steps.Pod) string {
	if o.Record.Failover.Lease {
		return fmt.Sprintf("pod %s is taken for ended in cluster %s, as the remote agent there has promised", pod.Name, pod.Cluster)
	}
	return fmt.Sprintf("pod %s is given up without being seen to end in cluster %s: its successor may run beside it", pod.Name, pod.Cluster)
}

// MustStop says whether a pod that uses a claim is stopped for the move.
func MustStop(pod steps.Pod) bool {
	return !pod.Finished && !pod.Leaving && pod.Job == "" && pod.Owned && (pod.Bound || !pod.Gated)
}

// OfJob says why a pod of a Job is not stopped, and what to do.
func OfJob(namespace, pod, job string) string {
	return fmt.Sprintf("pod %[2]s of Job %[3]s uses the volume, and a Job counts each pod that is stopped as one that failed: wait until it "+
		"has ended, or suspend the Job "+
		"(kubectl patch job %[3]s -n %[1]s -p '{\"spec\":{\"suspend\":true}}'), move, and resume it", namespace, pod, job)
}

// awaitJobs waits for pods of Jobs that began after the move, before any pod is stopped;
// false if there are none. They are not stopped for a move.
func awaitJobs(o steps.Observation) (steps.Step, bool) {
	for _, pod := range o.Pods {
		if pod.Job != "" && pod.Bound && !pod.Finished {
			return steps.Wait(steps.Soon, "all is copied but the last changes; before pods are stopped this is waited for: "+
				OfJob(o.Record.Namespace, pod.Name, pod.Job)), true
		}
	}
	return steps.Step{}, false
}

// fence takes the volume from all users and makes sure that nobody has it.
func fence(o steps.Observation) steps.Step {
	if o.Source.Unusable != "" && !isVouchedFor(o) {
		return awaitSource(o)
	}
	if step, ok := clearUsers(o); ok {
		return step
	}
	if step, ok := endAttachedMovers(o); ok {
		return step
	}
	if step, ok := releaseVolumes(o); ok {
		return step
	}
	if o.Record.CopiesNothing() {
		return commitTo(o, "nobody has the volume any more")
	}
	return steps.Enter(o, v1alpha1.MoveFinalSync)
}

// fenceSoon is how long it may take to fence a volume before it counts as standing still.
const fenceSoon = 5 * time.Second

// whyNotFenced says why a volume is not fenced although its pods have ended: something of
// the move's own, or of the storage, keeps them waiting, so that counts as standing still.
// It is empty while pods may still write: how long they take is their own matter.
func whyNotFenced(o steps.Observation) string {
	pods := slices.ContainsFunc(o.Pods, func(pod steps.Pod) bool { return pod.Bound && !pod.Finished })
	if pods || len(o.Others) > 0 || o.Now.Sub(o.Record.Began[o.Record.Phase]) < fenceSoon {
		return ""
	}
	if _, ok := awaitWriters(o); ok {
		return ""
	}
	for i, claim := range o.Claims {
		switch {
		case claim.Attached && claim.Source.Mover.Exists:
			return moverAttached(o, i)
		case len(o.Attachments) > 0:
			return "waiting until the volume is free of " + strings.Join(o.Attachments, ", ")
		case o.Record.Phase == v1alpha1.MoveFence:
			if why := plan.WhyNotReleased(swapOf(o, i), seenOf(o, i)); why != "" {
				return why
			}
		}
	}
	return ""
}

// clearUsers is the step to get rid of everybody who has or may have the volume; false if
// nobody does.
func clearUsers(o steps.Observation) (steps.Step, bool) {
	if step, ok := lockClaims(o); ok {
		return step, ok
	}
	if step, ok := stopPods(o); ok {
		return step, ok
	}
	return awaitWriters(o)
}
