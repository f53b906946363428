package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has what is different where the standby has no snapshots: versions are in two real claims, of which the head is written to
// and the slot has the newest version. See slots.go of package record for how they take turns.

// isSlot says whether the other real claim of a claim at the standby is ours.
func isSlot(o Observation, i int) bool {
	return o.Record.Slots && isOurs(o, o.Claims[i].Slot, o.Record.At(i).Slot)
}

// isMarked says whether a real claim says that it has a version.
func isMarked(b *corev1.PersistentVolumeClaim) bool {
	return b != nil && b.Annotations[keys.Seal] != ""
}

// isOfPoint says whether a real claim says that it has the version of a point. It may say another: a request of an earlier point may come
// late.
func isOfPoint(o Observation, i int) bool {
	version := versionOf(o)
	return version.IsIn(i, o.Claims[i].Head.Annotations[keys.Seal])
}

// sealSlot has the head of a claim say of which version it is; false once it does. It was compared, and the movers have ended: what makes
// it a version is the record, which is written once all heads say so.
func sealSlot(o Observation, i int) (Step, bool) {
	switch head := o.Claims[i].Head; {
	case !isHead(o, i) || head.DeletionTimestamp != nil:
		return giveUp(o, fmt.Sprintf("somebody deleted real claim %s at the standby", o.Record.At(i).Head.Key())), true
	case isOfPoint(o, i):
		return Step{}, false
	case isRestored(o):
		return giveUp(o, sayRestored(o)), true
	case o.Now.Sub(since(o)) > patience:
		return giveUp(o, fmt.Sprintf("real claim %s at the standby does not keep annotation %s: see who takes it off there",
			o.Record.At(i).Head.Key(), keys.Seal)), true
	default:
		return Step{Action: TakeSeal{i}}, true
	}
}

// keepSlots is the step by which versions are no longer counted whose slot somebody deleted, or that a claim got by a failover; false if
// there is nothing to do. None goes before its slot is written to.
func keepSlots(o Observation) (Step, bool) {
	if o.Moving || o.Standby.Unusable != "" || o.Standby.Gone {
		return Step{}, false
	}
	next, changed, lost, another := o.Record.Clone(), false, "", ""
	for i := range next.Len() {
		part, seen := next.At(i), o.Claims[i]
		for _, one := range []struct {
			known *backing.Ref
			b     *corev1.PersistentVolumeClaim
		}{{&part.Head, seen.Head}, {&part.Slot, seen.Slot}} {
			known, there := *one.known, isOurs(o, one.b, *one.known)
			if there && one.b.DeletionTimestamp == nil {
				if next.LoseSlotUnless(i, known.UID, func(v *record.Version) bool { return v.IsIn(i, one.b.Annotations[keys.Seal]) }) > 0 {
					changed, another = true, known.Key().String()
				}
				continue
			}
			if known.UID == "" {
				continue
			}
			taken := one.b != nil && one.b.UID == known.UID && !there
			if n := next.LoseSlot(i, known.UID); n > 0 {
				changed = true
				if !taken {
					lost = known.Key().String()
				}
			}
			switch {
			case there:
				// It is going: the next point waits for that.
			case taken:
				// A claim has it for good, under that name.
				*one.known, changed = next.NameSlot(i), true
			default:
				one.known.UID, changed = "", true
			}
		}
	}
	if !changed {
		return Step{}, false
	}
	next.Turn()
	step := Step{Action: Save{next}}
	switch {
	case another != "":
		step.Say, step.Reason = fmt.Sprintf("real claim %s at the standby does not say that it has the version that home knows: it was written "+
			"to since, as where home was restored from a backup; that version counts no more", another), VersionLost
	case lost != "":
		step.Say, step.Reason = fmt.Sprintf("somebody deleted real claim %s at the standby, which had a version: the next point that is written "+
			"there copies all again", lost), VersionLost
	}
	return step, true
}
