package decide

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// rollBack leaves everything as it was before the move: first the pods get their
// volumes back, then what is at the target goes.
func rollBack(o Observation) Step {
	r := o.Record
	if o.Unusable[record.Source] == "" {
		if step, ok := told(o, record.Source); ok {
			return step
		}
		// It only reads; one whose node is gone must not keep pods waiting.
		if step, ok := dropped(o, record.Source); ok && o.Now.Sub(r.Began[v1alpha1.MoveRollBack]) <= graceful {
			return hurry(step)
		}
	}
	if step, ok := bound(o, func(c record.Claim) *corev1.PersistentVolume { return c.Volume }); ok {
		return step
	}
	if step, ok := ending(o); ok {
		return step
	}
	if step, ok := freed(o); ok {
		return step
	}
	if !r.Down.IsZero() && r.Up.IsZero() {
		next := r.Clone()
		next.Up = o.Now
		return Step{Verb: Save, Record: next}
	}
	for _, end := range record.Ends {
		if why := o.Unusable[end]; why != "" {
			return wait(seldom, "the claims are in use at the source; what the move left at the "+string(end)+" cannot be removed yet: "+why)
		}
	}
	for i, claim := range o.Claims {
		if policy := r.Claims[i].Source.Policy; policy != "" && claim.Source.Real != nil && claim.Source.Real.Spec.PersistentVolumeReclaimPolicy != policy {
			return Step{Verb: Restore, Claim: i, End: record.Source}
		}
	}
	if step, ok := dropped(o, record.Ends...); ok {
		return step
	}
	if step, ok := removed(o, record.Target); ok {
		return step
	}
	if left := r.Began[v1alpha1.MoveRollBack].Add(settling).Sub(o.Now); left > 0 && !r.Down.IsZero() {
		return wait(min(left, soon), "the claims are in use at the source")
	}
	phase := v1alpha1.MoveAborted
	if r.Refused {
		phase = v1alpha1.MoveFailed
	}
	return enter(o, phase)
}

// ending waits a while for pods that were stopped for the move, so that their successors
// do not write beside them; false where none is left, or it takes too long.
func ending(o Observation) (Step, bool) {
	if o.Record.Down.IsZero() || o.Now.Sub(o.Record.Began[v1alpha1.MoveRollBack]) > graceful {
		return Step{}, false
	}
	for _, pod := range o.Pods {
		if pod.Bound && pod.Leaving && !pod.Finished {
			return wait(often, "waiting until pod "+pod.Name+" has ended"), true
		}
	}
	return Step{}, false
}
