package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// finalize removes the source.
func finalize(o Observation) Step {
	if step, ok := ungated(o); ok {
		return step
	}
	if o.Record.GaveUp(record.Source) {
		return enter(o, v1alpha1.MoveDone)
	}
	if step, ok := forsaken(o, record.Source); ok {
		return step
	}
	if why := unsound(o); why != "" {
		need := CopyGone
		if o.Unusable[record.Target] != "" {
			need = ClusterAway
		}
		return needs(need, seldom, "the copy at the source is not removed: "+why)
	}
	if step, ok := leftovers(o); ok {
		return step
	}
	if step, ok := leftSnapshots(o); ok {
		return step
	}
	if step, ok := removed(o, record.Source); ok {
		return step
	}
	return enter(o, v1alpha1.MoveDone)
}

// unsound says why the copies at the target are not known to be there; empty if they
// are. Of a claim that its user deleted nothing need be there.
func unsound(o Observation) string {
	if why := o.Unusable[record.Target]; why != "" {
		return why
	}
	for i, claim := range o.Claims {
		ours, b, real := o.Record.Claims[i], claim.Target.Backing, claim.Target.Real
		switch {
		case claim.Claim == nil:
		case b == nil || real == nil:
			return fmt.Sprintf("real claim %s at the target has no volume now: see its events there; the copy at the source is whole, so ask for help before anything is removed", ours.Target.Ref.Key())
		case ours.New != nil && real.Name != ours.New.Annotations[keys.BackingVolume]:
			return fmt.Sprintf("real claim %s at the target has volume %s, and the data was copied to %s: see who replaced it; the copy at the source is whole, so ask for help before anything is removed",
				ours.Target.Ref.Key(), real.Name, ours.New.Annotations[keys.BackingVolume])
		case b.DeletionTimestamp != nil || real.DeletionTimestamp != nil:
			return fmt.Sprintf("real claim %s at the target or its volume %s is being deleted: see who did that", ours.Target.Ref.Key(), real.Name)
		}
	}
	return ""
}

// outlasting is the step that records whether the real volume of a claim that is about to
// be removed stays with its data; false where the record says so.
func outlasting(o Observation, i int, end record.End, real *corev1.PersistentVolume) (Step, bool) {
	if real == nil {
		return Step{}, false
	}
	stays := ""
	if real.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		stays = real.Name
	}
	if o.Record.Claims[i].At(end).Stays == stays {
		return Step{}, false
	}
	return change(o, i, func(c *record.Claim) { c.At(end).Stays = stays }), true
}

// removed is the step towards no backing claims at an end; false once they are gone.
func removed(o Observation, end record.End) (Step, bool) {
	if o.Unusable[end] != "" {
		return needs(ClusterAway, seldom, stuck(o, end)), true
	}
	for i, claim := range o.Claims {
		copied, side := o.Record.Claims[i].At(end), claim.side(end)
		if copied.Policy != "" && side.Real != nil && side.Real.Spec.PersistentVolumeReclaimPolicy != copied.Policy {
			return Step{Verb: Restore, Claim: i, End: end}, true
		}
		b := side.Backing
		// One at a target that was given up in Commit may be an ordinary one already.
		marked := b != nil && (b.Labels[keys.MoveOf] == string(o.Record.UID) || end == record.Target && committed(o.Record) && b.UID == copied.Ref.UID)
		if !marked || copied.Ref.UID != "" && b.UID != copied.Ref.UID {
			// Gone, or never this move's.
			continue
		}
		if b.DeletionTimestamp == nil || backing.Protected(b) {
			if step, ok := outlasting(o, i, end, side.Real); ok {
				return step, true
			}
			return Step{Verb: DropBacking, Claim: i, End: end}, true
		}
		return wait(soon, fmt.Sprintf("waiting until real claim %s is gone", copied.Ref.Key())), true
	}
	return Step{}, false
}
