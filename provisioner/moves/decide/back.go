package decide

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// rollBack leaves everything as it was before the move: first the pods get their
// volumes back, and the claims are free again, then what is at the target goes.
func rollBack(o Observation) Step {
	r := o.Record
	if r.Freed {
		return cleanUp(o)
	}
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
	// Nothing of the target is needed for that, and it may never come back.
	if step, ok := restored(o); ok {
		return step
	}
	if step, ok := unshelved(o); ok {
		return step
	}
	if o.Unusable[record.Source] == "" {
		// Another move would stop the pods and then wait for it.
		if step, ok := dropped(o, record.Source); ok {
			return step
		}
	}
	if left := r.Began[v1alpha1.MoveRollBack].Add(o.Settling).Sub(o.Now); left > 0 && !r.Down.IsZero() {
		return wait(min(left, soon), whereTheyAre(o))
	}
	next := r.Clone()
	next.Freed = true
	return Step{Verb: Save, Record: next}
}

// restored is the step that gives real volumes of the source the policies that they had;
// false where they have them.
func restored(o Observation) (Step, bool) {
	for i, claim := range o.Claims {
		policy := o.Record.Claims[i].Source.Policy
		if policy != "" && o.Unusable[record.Source] != "" {
			return needs(ClusterAway, seldom, whereTheyAre(o)), true
		}
		if policy != "" && claim.Source.Real != nil && claim.Source.Real.Spec.PersistentVolumeReclaimPolicy != policy {
			return Step{Verb: Restore, Claim: i, End: record.Source}, true
		}
	}
	return Step{}, false
}

// committed says whether a move has been in Commit, where backing claims of both ends get
// other marks.
func committed(r *record.Record) bool { return !r.Began[v1alpha1.MoveCommit].IsZero() }

// unshelved is the step that takes the mark of Commit off a real claim of the source, of
// which volumes in use know nothing; false where none has it, or cannot be asked.
func unshelved(o Observation) (Step, bool) {
	for i, claim := range o.Claims {
		if s := claim.Source.Backing; s != nil && s.UID == o.Record.Claims[i].Source.Ref.UID && s.Labels[keys.MoveOf] == string(o.Record.UID) {
			return Step{Verb: Publish, Claim: i, End: record.Source}, true
		}
	}
	return Step{}, false
}

// cleanUp removes what is left of a move whose claims may be in use, or in another move,
// by now: it touches nothing that is theirs.
func cleanUp(o Observation) Step {
	r := o.Record
	for _, end := range record.Ends {
		if r.GaveUp(end) || o.Unusable[end] != "" {
			continue
		}
		if step, ok := dropped(o, end); ok {
			return step
		}
	}
	for _, end := range record.Ends {
		if r.GaveUp(end) {
			continue
		}
		if step, ok := forsaken(o, end); ok {
			return step
		}
		if o.Unusable[end] != "" {
			return needs(ClusterAway, seldom, stuck(o, end))
		}
	}
	if step, ok := unshelved(o); ok {
		return step
	}
	if !r.GaveUp(record.Source) {
		if step, ok := leftSnapshots(o); ok {
			return step
		}
	}
	if !r.GaveUp(record.Target) {
		if step, ok := removed(o, record.Target); ok {
			return step
		}
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
