package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// This file has both sides of a copy that a committed move keeps and a later one takes as its target. In this order, so that
// there is never a doubt whose it is: the later move begins, the earlier one takes a snapshot of the copy if that is possible and
// records that it hands the copy over, the later one puts its mark on it, the earlier one ends. If it has a snapshot, it keeps
// that in place of the copy until the later one is committed, or else for as long as it would have kept the copy.

// takeKept is the next step to get the copy that an earlier move keeps; false if this move has it.
func takeKept(o steps.Observation, i int, claim steps.Claim) (steps.Step, bool) {
	known, b := o.Record.Claims[i], claim.Target.Backing
	const whole = ": move all data back, with kubectl lodestone move rollback --whole"
	its := fmt.Sprintf("the copy of claim %s that VolumeMove %s kept", known.Name, known.Kept.Name)
	switch {
	case known.Target.Ref.UID != "":
		return steps.Step{}, false
	case b == nil || b.UID != known.Kept.UID || b.DeletionTimestamp != nil:
		return steps.GoBack(o, its+" is gone"+whole, record.TargetChanged), true
	case steps.IsOurTarget(o, b):
		return steps.ChangeClaim(o, i, func(c *record.Claim) { c.Target.Ref.UID = b.UID }), true
	case b.Labels[keys.MoveOf] != string(known.Kept.By) || o.Earlier == nil || o.Earlier.Phase != v1alpha1.MoveRetain:
		return steps.GoBack(o, its+" is not that move's any more"+whole, record.TargetChanged), true
	case o.Earlier.HandedTo != o.Record.UID:
		return steps.Wait(steps.Soon, fmt.Sprintf("waiting until VolumeMove %s hands over the copy that it keeps; kubectl lodestone move status "+
			"shows what it waits for", known.Kept.Name)), true
	case known.Kept.Snapshot == "" && known.Kept.NoSnapshot == "":
		return steps.ChangeClaim(o, i, func(c *record.Claim) { c.Kept = whatIsKept(c, o.Earlier) }), true
	case known.Kept.Snapshot == "" && o.Earlier.Failover != nil:
		return steps.GoBack(o, fmt.Sprintf("%s alone has what was written before the failover, and no snapshot of it can be taken: %s%s", its,
			known.Kept.NoSnapshot, whole), record.TargetChanged), true
	}
	return steps.Step{Action: steps.TakeKept{Claim: i}, Say: WhatIsWritten(o.Record.Namespace, &known)}, true
}

// whatIsKept adds what the earlier move keeps of the copy of a claim.
func whatIsKept(c *record.Claim, earlier *record.Record) *record.Kept {
	kept := *c.Kept
	i := slices.IndexFunc(earlier.Claims, func(known record.Claim) bool { return known.UID == c.UID })
	if i < 0 || earlier.Claims[i].Snapshot == nil {
		kept.NoSnapshot = "VolumeMove " + earlier.Name + " took none"
		return &kept
	}
	if s := earlier.Claims[i].Snapshot; !s.Keeps || s.Gone {
		kept.NoSnapshot = cmp.Or(s.Why, "VolumeMove "+earlier.Name+" took none")
	} else {
		kept.Snapshot, kept.Stays = nameOf(s), earlier.Failover != nil
	}
	return &kept
}

func nameOf(s *record.Snapshot) string {
	return fmt.Sprintf("VolumeSnapshot %s in cluster %s", s.Key(), s.Ref.Cluster)
}

// WhatIsWritten says, of a claim of a namespace that takes the copy of an earlier move, that it is written to and what is kept of it.
func WhatIsWritten(namespace string, known *record.Claim) string {
	kept := "no snapshot of it could be taken: " + known.Kept.NoSnapshot
	if known.Kept.Snapshot != "" {
		until := "this move is committed"
		if known.Kept.Stays {
			until = fmt.Sprintf("kubectl lodestone move finalize %s -n %s", known.Kept.Name, namespace)
		}
		kept = "as it was it is in " + known.Kept.Snapshot + " until " + until
	}
	return fmt.Sprintf("the copy of claim %s that VolumeMove %s kept is written to, and is no longer one to fall back on (%s); the copy in "+
		"use stays whole", known.Name, known.Kept.Name, kept)
}

// handOver is the step of a committed move whose copies at the source a later move takes; false if none does.
func handOver(o steps.Observation) (steps.Step, bool) {
	r := o.Record
	own, taken := 0, false
	for i, claim := range o.Claims {
		b := claim.Source.Backing
		if b == nil || b.UID != r.Claims[i].Source.Ref.UID {
			continue
		}
		if taken = taken || wasTaken(&r.Claims[i], b); b.Labels[keys.MoveOf] == string(r.UID) {
			own++
		}
	}
	switch {
	case r.HandedTo == "" && taken && own == 0:
		// The record is from before that, as in a backup that home was restored from.
		return endHandedOver(o, own), true
	case r.HandedTo == "" && o.Source.Unusable != "":
		return steps.Step{}, false
	case r.HandedTo == "" && o.Taker == "":
		return dropFallBacks(o)
	case r.HandedTo == "":
		if step, ok := removeMovers(o, record.Source); ok {
			return step, true
		}
		if step, ok := takeFallBacks(o); ok {
			return step, true
		}
		return handTo(o, o.Taker), true
	case r.GaveUp(record.Source):
		return steps.Enter(o, v1alpha1.MoveDone), true
	case o.Source.Unusable != "":
		if step, ok := giveUpEnd(o, record.Source); ok {
			return step, true
		}
		return steps.WaitForHelp(steps.ClusterAway, steps.Seldom, "a later move takes the copy at the source: "+whyNotRemoved(o, record.Source)),
			true
	case own == len(o.Claims) && o.Taker != r.HandedTo:
		// That one is over, or was deleted, and has taken none.
		return handTo(o, o.Taker), true
	case own > 0 && o.Taker == r.HandedTo:
		return steps.Wait(steps.Soon, "a later move takes the copy at the source, which is no longer one to fall back on"), true
	}
	return endHandedOver(o, own), true
}

func handTo(o steps.Observation, taker types.UID) steps.Step {
	next := o.Record.Clone()
	next.HandedTo = taker
	return steps.Step{Action: steps.Save{Record: next}}
}

// untouchedTimeout is how long a snapshot controller may take to look at a snapshot of a kept copy. There may be none.
const untouchedTimeout = time.Minute

// takeFallBacks is the next step to take snapshots of the copies at the source before they are handed over; false if they are
// taken, or cannot be.
func takeFallBacks(o steps.Observation) (steps.Step, bool) {
	if !areFallBacks(o.Record) {
		return planFallBacks(o), true
	}
	for i, claim := range o.Claims {
		known, seen := o.Record.Claims[i], claim.Snapshot
		if b := claim.Source.Backing; b == nil || b.UID != known.Source.Ref.UID {
			continue
		}
		s := known.Snapshot
		taking := o.Now.Sub(s.Since)
		late := taking > snapshotTimeout || (seen.Problem != "" || !seen.Exists) && taking > startTimeout ||
			seen.Untouched && taking > untouchedTimeout
		switch {
		case s.Gone:
		case !s.Over.IsZero():
			if step, ok := removeSnapshot(o, i); ok {
				return step, true
			}
			return steps.ChangeClaim(o, i, func(c *record.Claim) { c.Snapshot.Gone = true }), true
		case seen.Refused:
			return giveUpSnapshot(o, i, seen.Problem), true
		case seen.Exists && seen.Leaving:
			return giveUpSnapshot(o, i, "somebody deleted it"), true
		case !seen.Ready && late:
			why := seen.Problem
			if seen.Untouched {
				why = "no snapshot controller has looked at it"
			}
			return giveUpSnapshot(o, i, fmt.Sprintf("it was not ready within %s%s", taking.Round(time.Second), sentence.Prefixed(": ", why))),
				true
		case !seen.Exists:
			return steps.Step{Action: steps.MakeSnapshot{Claim: i}}, true
		case !seen.Ready:
			return steps.Wait(steps.Soon, fmt.Sprintf("a later move takes the copy at the source; waiting until the snapshot of claim %s is ready%s",
				known.Name, sentence.Prefixed(": ", seen.Problem))), true
		}
	}
	return steps.Step{}, false
}

// planFallBacks is the step that records which snapshots are taken, once nothing is left of those that were copied in the move itself.
func planFallBacks(o steps.Observation) steps.Step {
	if step, ok := removeSnapshots(o); ok {
		return step
	}
	next := o.Record.Clone()
	for i := range next.Claims {
		if o.Claims[i].FallBack == nil {
			return steps.Wait(steps.Soon, "a later move takes the copy at the source")
		}
		plan := *o.Claims[i].FallBack
		if !plan.Gone {
			plan.Since = o.Now
		}
		next.Claims[i].Snapshot = &plan
	}
	return steps.Step{Action: steps.Save{Record: next}}
}

// areFallBacks says whether it is recorded which snapshots are taken of the copies before a later move writes to them. It is recorded
// of all claims at once.
func areFallBacks(r *record.Record) bool {
	return r.Claims[0].Snapshot != nil && r.Claims[0].Snapshot.Keeps
}

// dropFallBacks is the step of a committed move that keeps its copies after all, and needs no snapshots of them; false if it has
// none.
func dropFallBacks(o steps.Observation) (steps.Step, bool) {
	if !areFallBacks(o.Record) {
		return steps.Step{}, false
	}
	if step, ok := removeSnapshots(o); ok {
		return step, true
	}
	next := o.Record.Clone()
	for i := range next.Claims {
		next.Claims[i].Snapshot = nil
	}
	return steps.Step{Action: steps.Save{Record: next}}, true
}

// endHandedOver is the step of a committed move whose copies a later one has taken. What it still has are snapshots of them, and some
// copies of its own, if the later move went back before it had taken all.
func endHandedOver(o steps.Observation, own int) steps.Step {
	if step, ok := removeMovers(o, record.Source); ok {
		return step
	}
	var names []string
	for _, known := range o.Record.Claims {
		if known.Snapshot.MayExist() && known.Snapshot.Keeps {
			names = append(names, nameOf(known.Snapshot))
		}
	}
	what := "a later move has taken the copy at the source"
	if len(names) > 0 {
		what += ", and as it was before it is in " + strings.Join(names, ", ")
	}
	if own > 0 || len(names) > 0 {
		if step, ok := keepFallBacks(o, what); ok {
			return step
		}
	}
	if keepsFallBack(o) {
		return steps.Wait(rare, what+"; spec.action Finalize removes it")
	}
	if step, ok := removeSnapshots(o); ok {
		return step
	}
	return steps.Enter(o, v1alpha1.MoveDone)
}

// keepFallBacks is the step that waits as long as what is left of copies is kept that a later move has taken; false once the claims have
// these copies again.
func keepFallBacks(o steps.Observation, what string) (steps.Step, bool) {
	if isBack(o) {
		for i, claim := range o.Claims {
			if b := claim.Source.Backing; claim.Claim != nil && (b == nil || b.DeletionTimestamp != nil) {
				return steps.WaitForHelp(steps.CopyGone, steps.Seldom, fmt.Sprintf("%s, for real claim %s is gone now: see its events there",
					what, o.Record.Claims[i].Source.Ref.Key())), true
			}
		}
		return steps.Step{}, false
	}
	if o.Taker == o.Record.HandedTo && o.Taker != "" {
		return steps.Wait(rare, what+" until that one is committed"), true
	}
	if o.Next != "" {
		return steps.Wait(rare, fmt.Sprintf("%s until VolumeMove %s is committed", what, o.Next)), true
	}
	if left := keptUntil(o).Sub(o.Now); left > 0 && !isMovedOn(o) {
		return steps.Wait(min(left, rare), fmt.Sprintf("%s until %s; spec.action Finalize removes it now", what,
			keptUntil(o).UTC().Format(time.RFC3339))), true
	}
	return enterFinalize(o), true
}

// isBack says whether a later move has given all claims that are left the copies at the source again.
func isBack(o steps.Observation) bool {
	back := false
	for i, claim := range o.Claims {
		if claim.Claim == nil && claim.Volume == nil {
			continue
		}
		if !steps.IsBack(&o.Record.Claims[i], claim.Volume) {
			return false
		}
		back = true
	}
	return back
}

// wasTaken says whether a copy at the source of a move has become the target of a later one: that has given it a later
// generation. It may be in use since, whatever the record says.
func wasTaken(known *record.Claim, b *corev1.PersistentVolumeClaim) bool {
	return known.Generation > 0 && backing.GenerationOf(b) > known.Generation
}
