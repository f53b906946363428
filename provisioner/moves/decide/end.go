package decide

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// commit gives the claims their volumes at the target. It only goes forward, unless the
// target is given up before anybody can have used it.
func commit(o Observation) Step {
	if why := o.Unusable[record.Target]; why != "" {
		return stranded(o, ClusterAway, why)
	}
	// Movers take their time to end, and nobody uses yet what is done meanwhile.
	steps, lacks := telling(o, reached(o)...), ""
	for i, claim := range o.Claims {
		ours, b := o.Record.Claims[i], claim.Target.Backing
		switch {
		case b == nil || b.UID != ours.Target.Ref.UID:
			lacks = fmt.Sprintf("real claim %s of the target is gone", ours.Target.Ref.Key())
		case backing.Unpublished(b) || b.Labels[keys.MoveOf] != "":
			steps = append(steps, Step{Verb: Publish, Claim: i})
		}
	}
	if step, ok := all(append(steps, shelving(o)...)); ok {
		return step
	}
	if lacks != "" {
		return stranded(o, CopyGone, lacks)
	}
	// The mover at the source only reads, and nobody listens to it any more: it is not
	// waited for, since its node may be gone.
	if step, ok := dropped(o, record.Target); ok {
		return hurry(step)
	}
	if step, ok := bound(o, func(c record.Claim) *corev1.PersistentVolume { return c.New }); ok {
		return step
	}
	return enter(o, v1alpha1.MoveResume)
}

// reached returns the ends whose clusters take requests.
func reached(o Observation) []record.End {
	return slices.DeleteFunc(slices.Clone(record.Ends), func(end record.End) bool { return o.Unusable[end] != "" })
}

// shelving are the steps that mark the copies at the source as the move's, as far as they
// are not, and can be for now.
func shelving(o Observation) (steps []Step) {
	for i, claim := range o.Claims {
		if s := claim.Source.Backing; s != nil && s.UID == o.Record.Claims[i].Source.Ref.UID && s.Labels[keys.MoveOf] != string(o.Record.UID) {
			steps = append(steps, Step{Verb: Shelve, Claim: i})
		}
	}
	return steps
}

// leftovers is the step towards a source that is as Commit leaves it, had its cluster
// been there then; false where it is, or cannot be for now.
func leftovers(o Observation) (Step, bool) {
	if o.Unusable[record.Source] != "" {
		return Step{}, false
	}
	if step, ok := all(shelving(o)); ok {
		return step, true
	}
	return dropped(o, record.Source)
}

// bound is the step towards claims that have a volume; false where all have.
func bound(o Observation, volume func(record.Claim) *corev1.PersistentVolume) (Step, bool) {
	var steps []Step
	blocked := Step{}
	for i, claim := range o.Claims {
		want := volume(o.Record.Claims[i])
		switch {
		case claim.Volume == nil:
			steps = append(steps, Step{Verb: MakeVolume, Claim: i, Volume: want})
		case claim.Volume.DeletionTimestamp != nil && claim.Claim != nil && foreign(claim.Volume) != "":
			blocked = wait(often, fmt.Sprintf("waiting until volume %s is let go by who put finalizer %s on it", want.Name, foreign(claim.Volume)))
		case claim.Volume.DeletionTimestamp != nil && claim.Claim != nil:
			steps = append(steps, Step{Verb: FreeVolume, Claim: i})
		case claim.Claim == nil:
			// Whoever let the claim go decided about its volume too.
		case claim.Volume.Annotations[keys.Backing] != want.Annotations[keys.Backing]:
			blocked = needs(Replaced, seldom, fmt.Sprintf("volume %s is not what this move made of it: see who replaced it, and delete that one", want.Name))
		}
	}
	if step, ok := all(steps); ok {
		return step, true
	}
	if blocked.Verb != "" {
		return blocked, true
	}
	waiting := ""
	for i, claim := range o.Claims {
		switch {
		case claim.Claim == nil || claim.Claim.Status.Phase == corev1.ClaimBound && claim.Volume.Status.Phase == corev1.VolumeBound:
		case claim.Claim.Annotations[keys.MoveTouched] != touch(o, i):
			steps = append(steps, Step{Verb: Touch, Claim: i, Text: touch(o, i)})
		default:
			waiting = "waiting until claim " + o.Record.Claims[i].Name + " is bound again"
		}
	}
	if step, ok := all(steps); ok {
		return step, true
	}
	return wait(often, waiting), waiting != ""
}

// dropped is the step towards no movers at some ends; false once there are none.
func dropped(o Observation, ends ...record.End) (Step, bool) {
	if step, ok := told(o, ends...); ok {
		return step, true
	}
	for i, claim := range o.Claims {
		for _, end := range ends {
			if claim.side(end).Mover.Exists {
				return wait(soon, fmt.Sprintf("waiting until the mover of claim %s at the %s has ended", o.Record.Claims[i].Name, end)), true
			}
		}
	}
	return Step{}, false
}

// told is the step that tells movers at some ends to end; false once all were told.
func told(o Observation, ends ...record.End) (Step, bool) { return all(telling(o, ends...)) }

func telling(o Observation, ends ...record.End) (steps []Step) {
	for i, claim := range o.Claims {
		for _, end := range ends {
			if m := claim.side(end).Mover; m.Exists && !m.Leaving {
				steps = append(steps, Step{Verb: DropMover, Claim: i, End: end})
			}
		}
	}
	return steps
}

// freed is the step that lets pods use the claims; false once they may.
func freed(o Observation) (Step, bool) {
	var steps []Step
	for i, claim := range o.Claims {
		c := claim.Claim
		if c == nil {
			continue
		}
		if c.Annotations[keys.Move] == string(o.Record.UID) || c.Labels[keys.Moving] != "" || c.Annotations[keys.MoveTouched] != "" || has(c.Finalizers) {
			steps = append(steps, Step{Verb: Unlock, Claim: i})
		}
	}
	if step, ok := all(steps); ok {
		return step, true
	}
	return ungated(o)
}

// ungated is the step that takes our gate off pods; false once none has it.
func ungated(o Observation) (Step, bool) {
	var steps []Step
	for _, pod := range o.Pods {
		if pod.Gated && !pod.Leaving {
			steps = append(steps, Step{Verb: Ungate, Pod: pod})
		}
	}
	return all(steps)
}

// resume lets the pods go on at the target.
func resume(o Observation) Step {
	if step, ok := freed(o); ok {
		return step
	}
	next := o.Record.Enter(v1alpha1.MoveRetain, o.Now)
	next.Up = o.Now
	return Step{Verb: Save, Record: next, Say: "the claims have their volumes at the target"}
}

// retain keeps the source for a while.
func retain(o Observation) Step {
	if step, ok := ungated(o); ok {
		return step
	}
	if step, ok := leftovers(o); ok {
		return step
	}
	began := o.Record.Began[v1alpha1.MoveRetain]
	if left := began.Add(o.Settling).Sub(o.Now); left > 0 {
		return wait(min(left, soon), "the claims have their volumes at the target")
	}
	if o.Move != nil && (o.Move.Spec.Action == v1alpha1.ActionFinalize || o.Move.Spec.Action == v1alpha1.ActionGiveUp) {
		return enter(o, v1alpha1.MoveFinalize)
	}
	for _, pod := range o.Pods {
		if !pod.Ready && !pod.Finished {
			return wait(soon, fmt.Sprintf("waiting until pod %s is ready at the target before the copy at the source is removed; spec.action Finalize removes it now", pod.Name))
		}
	}
	until := keptUntil(o)
	if left := until.Sub(o.Now); left > 0 {
		return wait(min(left, seldom), fmt.Sprintf("the copy at the source is kept until %s; spec.action Finalize removes it now", until.UTC().Format(time.RFC3339)))
	}
	return enter(o, v1alpha1.MoveFinalize)
}

// keptUntil is until when the copy at the source of a move in the phase Retain is wanted.
func keptUntil(o Observation) time.Time {
	began := o.Record.Began[v1alpha1.MoveRetain]
	switch {
	case o.Move == nil || o.Move.DeletionTimestamp != nil || o.Move.Spec.Action == v1alpha1.ActionFinalize || o.Move.Spec.Action == v1alpha1.ActionGiveUp:
		return began
	case o.Move.Spec.KeepSourceFor == nil:
		return began.Add(time.Hour)
	}
	return began.Add(o.Move.Spec.KeepSourceFor.Duration)
}

// Overdue says whether the copy at the source is there longer than anybody wants it.
func Overdue(o Observation) bool {
	return o.Record.Phase == v1alpha1.MoveFinalize || o.Record.Phase == v1alpha1.MoveRetain && !o.Now.Before(keptUntil(o))
}
