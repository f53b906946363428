package decide

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// quiesce has new pods wait at the gate and the present ones end.
func quiesce(o Observation) Step {
	if step, ok := locked(o); ok {
		return step
	}
	if step, ok := stopped(o); ok {
		return step
	}
	return enter(o, v1alpha1.MoveFence)
}

// locked is the step that locks the claims that are not locked; false if all are.
func locked(o Observation) (Step, bool) {
	var steps []Step
	for i, claim := range o.Claims {
		if claim.Claim.Annotations[keys.Move] != string(o.Record.UID) || claim.Claim.Labels[keys.Moving] != keys.MovingNow {
			steps = append(steps, Step{Verb: Lock, Claim: i})
		}
	}
	return all(steps)
}

// stopped is the step towards no pod that uses a claim; false once there is none.
func stopped(o Observation) (Step, bool) {
	var names []string
	for _, pod := range o.Pods {
		switch {
		case pod.Finished, pod.Gated && !pod.Bound:
		case pod.Bound && !pod.Leaving && pod.Job != "":
			return back(o, OfJob(o.Record.Namespace, pod.Name, pod.Job), record.PodsInTheWay), true
		case pod.Bound && !pod.Leaving && !pod.Owned:
			return back(o, fmt.Sprintf("pod %s uses the volume and nobody would make it anew: delete it yourself, and move again", pod.Name), record.PodsInTheWay), true
		case !pod.Leaving && (pod.Bound || pod.Owned && pod.Job == ""):
			return Step{Verb: DeletePod, Pod: pod, Say: fmt.Sprintf("pod %s is stopped; its successor waits until the move is done", pod.Name)}, true
		case pod.Bound:
			names = append(names, "pod "+pod.Name)
		}
		// One that has no node, no gate and no owner that would make it anew is left: the
		// move goes back once it gets a node. So is one of a Job.
	}
	names = append(names, o.Others...)
	if len(names) == 0 {
		return Step{}, false
	}
	step := wait(often, "waiting until the volume is free of "+strings.Join(names, ", "))
	if away, ok := unsure(o); ok {
		step.Say += "; " + away.Say
		step.Need = away.Need
	}
	return step, true
}

// fence takes the volume from everybody, and makes sure that nobody has it.
func fence(o Observation) Step {
	if why := o.Unusable[record.Source]; why != "" {
		return needs(ClusterAway, soon, why)
	}
	if step, ok := intruders(o); ok {
		return step
	}
	var steps []Step
	blocked := Step{}
	for i, claim := range o.Claims {
		switch before := o.Record.Claims[i].Volume; {
		case claim.Volume == nil:
		case claim.Volume.UID != before.UID:
			return back(o, fmt.Sprintf("somebody replaced volume %s: see who did, and move again", before.Name), record.VolumeReplaced)
		case claim.Volume.DeletionTimestamp == nil:
			steps = append(steps, Step{Verb: DeleteVolume, Claim: i})
		case foreign(claim.Volume) != "":
			blocked = wait(often, fmt.Sprintf("waiting until volume %s is let go by who put finalizer %s on it", before.Name, foreign(claim.Volume)))
		default:
			steps = append(steps, Step{Verb: FreeVolume, Claim: i})
		}
	}
	if step, ok := all(steps); ok {
		return step
	}
	if blocked.Verb != "" {
		return blocked
	}
	waiting := ""
	for i, claim := range o.Claims {
		switch {
		case lost(claim):
		case claim.Claim.Annotations[keys.MoveTouched] != touch(o, i):
			steps = append(steps, Step{Verb: Touch, Claim: i, Text: touch(o, i)})
		default:
			waiting = "waiting until it is known that claim " + o.Record.Claims[i].Name + " has no volume for now"
		}
	}
	if step, ok := all(steps); ok {
		return step
	}
	if waiting != "" {
		return wait(often, waiting)
	}
	return enter(o, v1alpha1.MoveFinalSync)
}

// intruders is the step against whoever has the volume, or may have it; false if nobody
// does.
func intruders(o Observation) (Step, bool) {
	if step, ok := locked(o); ok {
		return step, ok
	}
	if step, ok := stopped(o); ok {
		return step, ok
	}
	return unsure(o)
}

// disturbed is the step against whoever got at the volume while it was copied for the last
// time, or compared. That may have been written to since, so all claims are copied and
// compared once more; false if nobody has been there.
func disturbed(o Observation) (Step, bool) {
	step, ok := intruders(o)
	switch {
	case ok && !o.Record.Intruded:
		next := o.Record.Clone()
		next.Intruded = true
		return Step{Verb: Save, Record: next, Say: step.Say}, true
	case ok || !o.Record.Intruded:
		return step, ok
	}
	next := o.Record.Enter(v1alpha1.MoveFinalSync, o.Now)
	next.Intruded = false
	for i := range next.Claims {
		anew(&next.Claims[i])
	}
	return Step{Verb: Save, Record: next, Say: "somebody had the volume meanwhile: the last pass is made again"}, true
}

// foreign returns a finalizer of a virtual volume that is not for a move to take off,
// such as that of an attacher whose volume is not detached yet.
func foreign(volume *corev1.PersistentVolume) string {
	for _, finalizer := range volume.Finalizers {
		if !record.Ours(finalizer) {
			return finalizer
		}
	}
	return ""
}

// again is how soon a claim is touched again that is not as it should be.
const again = 3 * time.Second

// touch is what a claim is touched with: another text in each phase, for each phase of its
// volume, and from time to time. kube-controller-manager binds a claim only to a volume that
// it has seen, and looks by itself at claims every 15 seconds only, also after a conflict: a
// claim that was touched too early would wait for that.
func touch(o Observation, i int) string {
	began, volume := o.Record.Began[o.Record.Phase], corev1.PersistentVolumePhase("")
	if v := o.Claims[i].Volume; v != nil {
		volume = v.Status.Phase
	}
	return fmt.Sprintf("%s-%d-%d-%s", o.Record.Phase, began.UnixMilli(), o.Now.Sub(began)/again, volume)
}
