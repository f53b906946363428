package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// This file has what is different where a replica keeps its versions in slots, real claims that are written in turn: no target is made
// of the version, but the slot that has it is the target. It bears the marks of both until it is published, so that it can be given back.
// Nobody writes to it meanwhile: the replica writes to no slot that has a version which it counts, it begins no point while a move holds
// the claim, and gives up the one that it was making.

// takeSlot is the next step to get the slot that has the version of a claim; false if this move has it.
func takeSlot(o steps.Observation, i int, claim steps.Claim) (steps.Step, bool) {
	known, b := o.Record.Claims[i], claim.Target.Backing
	its := fmt.Sprintf("real claim %s, which has the version of claim %s,", known.Target.Ref.Key(), known.Name)
	switch {
	case known.Target.Ref.UID != "":
		return steps.Step{}, false
	case b == nil || b.UID != o.Record.Failover.At(i).UID || b.DeletionTimestamp != nil:
		return steps.GoBack(o, its+" was deleted: fail over again, to another version", record.TargetChanged), true
	case steps.IsOurTarget(o, b):
		return steps.ChangeClaim(o, i, func(c *record.Claim) { c.Target.Ref.UID = b.UID }), true
	case b.Labels[keys.ReplicaOf] != string(o.Record.Failover.Slots) || b.Labels[keys.MoveOf] != "":
		return steps.GoBack(o, its+" is not that of the VolumeReplica any more: fail over again", record.TargetChanged), true
	case claim.Overwritten:
		return steps.GoBack(o, its+" is written to by now, and newer ones are there: fail over again", record.TargetChanged), true
	}
	return steps.Step{Action: steps.TakeSlot{Claim: i}}, true
}

// returnSlot is the step by which the replica gets the slot of a claim back; false if it has it, or it is gone.
func returnSlot(o steps.Observation, i int, b *corev1.PersistentVolumeClaim) (steps.Step, bool) {
	switch {
	case b == nil || b.UID != o.Record.Failover.At(i).UID:
		return steps.Step{}, false
	case b.Labels[keys.MoveOf] == "" && b.Labels[keys.ReplicaOf] == string(o.Record.Failover.Slots):
		return steps.Step{}, false
	case b.Labels[keys.MoveOf] != string(o.Record.UID) && !o.Record.WasCommitted():
		// It was never taken.
		return steps.Step{}, false
	case wasReplaced(o, i):
		// It was in use, and home knows it as it was before, as after a restore from a backup. So it shows as the newer data.
		return steps.Step{Action: steps.Publish{Claim: i, End: record.Target}}, b.Labels[keys.MoveOf] != ""
	}
	return steps.Step{Action: steps.ReturnSlot{Claim: i}}, true
}
