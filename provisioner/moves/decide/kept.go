package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// This file has both sides of a copy that a committed move keeps and a later one takes as its target. In this order, so that
// there is never a doubt whose it is: the later move begins, the earlier one records that it hands the copy over, the later
// one puts its mark on it, the earlier one ends.

// takeKept is the next step to get the copy that an earlier move keeps; false if this move has it.
func takeKept(o steps.Observation, i int, claim steps.Claim) (steps.Step, bool) {
	known, b := o.Record.Claims[i], claim.Target.Backing
	switch {
	case known.Target.Ref.UID != "":
		return steps.Step{}, false
	case b == nil || b.UID != known.Kept.UID || b.DeletionTimestamp != nil:
		return steps.GoBack(o, fmt.Sprintf("the copy of claim %s that VolumeMove %s kept is gone: move all data back, with kubectl lodestone "+
			"move rollback --whole", known.Name, known.Kept.Name), record.TargetChanged), true
	case steps.IsOurTarget(o, b):
		return steps.ChangeClaim(o, i, func(c *record.Claim) { c.Target.Ref.UID = b.UID }), true
	case b.Labels[keys.MoveOf] != string(known.Kept.By):
		return steps.GoBack(o, fmt.Sprintf("the copy of claim %s that VolumeMove %s kept is not that move's any more: move all data back, "+
			"with kubectl lodestone move rollback --whole", known.Name, known.Kept.Name), record.TargetChanged), true
	case !o.Handed:
		return steps.Wait(steps.Soon, fmt.Sprintf("waiting until VolumeMove %s hands over the copy that it keeps", known.Kept.Name)), true
	}
	say := fmt.Sprintf("the copy of claim %s that VolumeMove %s kept is written from now on, and is no longer one to fall back on; the copy "+
		"in use stays whole", known.Name, known.Kept.Name)
	return steps.Step{Action: steps.TakeKept{Claim: i}, Say: say}, true
}

// handOver is the step of a committed move whose copies at the source a later move takes; false if none does.
func handOver(o steps.Observation) (steps.Step, bool) {
	r := o.Record
	own, taken := false, false
	for i, claim := range o.Claims {
		b := claim.Source.Backing
		if b == nil || b.UID != r.Claims[i].Source.Ref.UID {
			continue
		}
		own = own || b.Labels[keys.MoveOf] == string(r.UID)
		taken = taken || wasTaken(&r.Claims[i], b)
	}
	switch {
	case r.HandedTo == "" && taken && !own:
		// The record is from before that, as in a backup that home was restored from.
	case r.HandedTo == "" && o.Taker == "":
		return steps.Step{}, false
	case r.HandedTo == "":
		return handTo(o, o.Taker), true
	case o.Source.Unusable != "":
		return steps.Wait(steps.Seldom, "a later move takes the copy at the source: "+o.Source.Unusable), true
	case own && o.Taker != r.HandedTo:
		// That one is over, or was deleted, and has not taken it.
		return handTo(o, o.Taker), true
	case own:
		return steps.Wait(steps.Soon, "a later move takes the copy at the source, which is no longer one to fall back on"), true
	}
	if step, ok := removeMovers(o, record.Source); ok {
		return step, true
	}
	return steps.Enter(o, v1alpha1.MoveDone), true
}

// wasTaken says whether a copy at the source of a committed move has become the target of a later one: that has given it a
// later generation. It may be in use since, whatever the record says.
func wasTaken(known *record.Claim, b *corev1.PersistentVolumeClaim) bool {
	return known.Generation > 0 && backing.GenerationOf(b) > known.Generation
}

func handTo(o steps.Observation, taker types.UID) steps.Step {
	next := o.Record.Clone()
	next.HandedTo = taker
	return steps.Step{Action: steps.Save{Record: next}}
}
