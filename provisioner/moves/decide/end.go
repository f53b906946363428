package decide

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// commit gives the claims their volumes at the target. It cannot be undone, unless the
// target is given up before anybody can have used it.
func commit(o steps.Observation) steps.Step {
	if why := o.Target.Unusable; why != "" {
		return withoutTarget(o, steps.ClusterAway, why)
	}
	// Movers that write nothing more take time to end. All this can be done meanwhile: pods do not use the result yet.
	actions, releasing := releaseTargets(o)
	if !releasing {
		actions = endMoverActions(o, reachableEnds(o)...)
	}
	lacks := ""
	for i, claim := range o.Claims {
		ours, b := o.Record.Claims[i], claim.Target.Backing
		switch {
		case b == nil || b.UID != ours.Target.Ref.UID:
			lacks = fmt.Sprintf("real claim %s of the target is gone", ours.Target.Ref.Key())
		case backing.Unpublished(b) || b.Labels[keys.MoveOf] != "":
			actions = append(actions, steps.Publish{Claim: i, End: record.Target})
		case ours.Target.Policy != "" && claim.Target.Real != nil && claim.Target.Real.Spec.PersistentVolumeReclaimPolicy != ours.Target.Policy:
			// The move before has changed it.
			actions = append(actions, steps.Restore{Claim: i, End: record.Target})
		}
	}
	actions = append(actions, shelveActions(o)...)
	writes := mayStillWrite(o)
	if lacks == "" && !releasing && writes == "" {
		actions = append(actions, makeVolumes(o, newVolume)...)
	}
	if step, ok := steps.AllAtOnce(actions); ok {
		return step
	}
	switch {
	case lacks != "":
		return withoutTarget(o, steps.CopyGone, lacks)
	case releasing:
		return noteReleased(o)
	case writes != "":
		return awaitEnd(o, writes)
	}
	if step, ok := bindClaims(o, newVolume); ok {
		return step
	}
	return steps.Enter(o, v1alpha1.MoveResume)
}

// newVolume is the virtual volume of a claim at the target.
func newVolume(c record.Claim) *corev1.PersistentVolume { return c.New }

// mayStillWrite describes a mover at the target that is awaited; empty if none is. The mover at the source only reads, and its
// result is not used any more: its node may be gone.
func mayStillWrite(o steps.Observation) string {
	for i, claim := range o.Claims {
		if claim.Target.Mover.Exists && !o.Record.Claims[i].Released {
			return moverEnding(o, i, record.Target)
		}
	}
	return ""
}

// endSoon is how long a mover at the target may take to end before somebody is asked to look at its node.
const endSoon = 30 * time.Second

// awaitEnd waits for a mover at the target. The wait has no limit, for until its end the mover may write beside pods that
// got the volume; so somebody is told which node it is on, and what has the move go on.
func awaitEnd(o steps.Observation, writes string) steps.Step {
	if o.Now.Sub(o.Record.Began[v1alpha1.MoveCommit]) <= endSoon {
		return steps.Wait(steps.Often, writes)
	}
	for i, claim := range o.Claims {
		if node := claim.Target.Mover.Node; claim.Target.Mover.Exists && !o.Record.Claims[i].Released && node != "" {
			writes += fmt.Sprintf(", which takes long: until then it may write, and pods wait; its node %s of %s may be silent: bring it back, or "+
				"once it is surely off delete the Node or taint it node.kubernetes.io/out-of-service there, and the move goes on", node,
				o.Record.ClusterOf(record.Target))
			break
		}
	}
	return steps.WaitForHelp(steps.NodeAway, steps.Often, writes)
}

// releaseSoon is how long a mover at the target may take to say that it writes nothing more. After
// that the end of its pod is waited for.
const releaseSoon = 5 * time.Second

// releaseTargets has the movers at the target write nothing more, so that nobody has to wait for the
// end of their pods, which takes seconds; false once none is left to be asked. Beside a pod that only
// one may be, the end of the pod is needed, and for devices of which a kubelet would have two names.
func releaseTargets(o steps.Observation) (actions []steps.Action, releasing bool) {
	if o.Source.Unusable != "" || o.Now.Sub(o.Record.Began[v1alpha1.MoveCommit]) > releaseSoon {
		return nil, false
	}
	for i, claim := range o.Claims {
		known := o.Record.Claims[i]
		mustEnd := known.Offline || hasTwoNames(known)
		if known.Released || mustEnd || !claim.Target.Mover.Running || !claim.Source.Mover.Running || claim.Copy == nil {
			continue
		}
		switch task := claim.Copy.Task; {
		case task == nil || task.ID != release.ID:
			actions, releasing = append(actions, steps.Start{Claim: i, Task: release}), true
		case task.State == moverapi.Running || task.State == moverapi.Done:
			releasing = true
		}
	}
	return actions, releasing
}

// hasTwoNames says whether the kubelet at the target gets a device from the mover and from pods under different names: at home the one
// uses the real volume, the others the virtual one. A kubelet keeps what it has mapped of a device by the name of its volume, and forgets
// the first name if it meets the second before the device is let go: that is never unmapped then, and can never be deleted.
func hasTwoNames(known record.Claim) bool {
	return known.Target.Ref.Cluster == keys.Home && known.Volume != nil &&
		ptr.Deref(known.Volume.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock
}

var release = moverapi.Task{ID: "release", Kind: moverapi.Release}

// noteReleased is the step that records which movers at the target write nothing more, or waits for
// that.
func noteReleased(o steps.Observation) steps.Step {
	next, waiting := o.Record.Clone(), ""
	for i, claim := range o.Claims {
		if claim.Copy == nil || claim.Copy.Task == nil || claim.Copy.Task.ID != release.ID {
			continue
		}
		switch claim.Copy.Task.State {
		case moverapi.Done:
			next.Claims[i].Released = true
		case moverapi.Running:
			waiting = "waiting until the mover of claim " + o.Record.Claims[i].Name + " at the target lets it go"
		default: // its pod is waited for
		}
	}
	if waiting != "" {
		return steps.Wait(steps.Often, waiting)
	}
	return steps.Step{Action: steps.Save{Record: next}}
}

// withoutTarget is the step of a move in Commit whose target is missing. Until a virtual
// volume names the target, the sources are fenced: nobody can have used the target and both
// copies are equal, so the move can be rolled back if the target is given up. After that it
// cannot: a pod may have been ungated early and may have written there.
func withoutTarget(o steps.Observation, need steps.Need, why string) steps.Step {
	if slices.ContainsFunc(o.Claims, func(c steps.Claim) bool { return c.Volume != nil }) {
		return steps.WaitForHelp(need, steps.Soon, why+"; claims have their volumes there already, and pods may have used them; the copy at "+
			"the source is "+
			"whole, so ask for help before anything is removed")
	}
	switch name := o.Record.ClusterOf(record.Target); {
	case o.Move != nil && o.Move.Spec.Action == v1alpha1.ActionGiveUp:
		return steps.GoBack(o, "the move was given up before anybody used the target", record.GivenUp)
	case o.Target.Gone:
		return steps.GoBack(o, fmt.Sprintf("cluster %s was removed before anybody used the target", name), record.GivenUp)
	default:
		return steps.WaitForHelp(need, steps.Soon, fmt.Sprintf("%s; if it is gone for ever, kubectl lodestone move give-up %s -n %s has the "+
			"pods go on at the source", why, o.Record.Name, o.Record.Namespace))
	}
}

// reachableEnds returns the ends whose clusters take requests.
func reachableEnds(o steps.Observation) []record.End {
	return slices.DeleteFunc(slices.Clone(record.Ends), func(end record.End) bool { return o.At(end).Unusable != "" })
}

// shelveActions mark the copies at the source as the move's, where they are not marked and
// can be for now.
func shelveActions(o steps.Observation) (actions []steps.Action) {
	for i, claim := range o.Claims {
		// One with the mark of another move was handed to that, and one that was taken may be in use.
		if s := claim.Source.Backing; s != nil && s.UID == o.Record.Claims[i].Source.Ref.UID && s.Labels[keys.MoveOf] == "" &&
			!wasTaken(&o.Record.Claims[i], s) {
			actions = append(actions, steps.Shelve{Claim: i})
		}
	}
	return actions
}

// removeMovers is the step to delete the movers at some ends; false once they are gone.
func removeMovers(o steps.Observation, ends ...record.End) (steps.Step, bool) {
	if step, ok := endMovers(o, ends...); ok {
		return step, true
	}
	for i, claim := range o.Claims {
		for _, end := range ends {
			if claim.At(end).Mover.Exists {
				return steps.Wait(steps.Soon, moverEnding(o, i, end)), true
			}
		}
	}
	return steps.Step{}, false
}

func moverEnding(o steps.Observation, i int, end record.End) string {
	return fmt.Sprintf("waiting until the mover of claim %s at the %s has ended", o.Record.Claims[i].Name, end)
}

// endMovers is the step that starts to delete the movers at some ends; false once all are
// being deleted.
func endMovers(o steps.Observation, ends ...record.End) (steps.Step, bool) {
	return steps.AllAtOnce(endMoverActions(o, ends...))
}

func endMoverActions(o steps.Observation, ends ...record.End) (actions []steps.Action) {
	for i, claim := range o.Claims {
		for _, end := range ends {
			if m := claim.At(end).Mover; m.Exists && !m.Leaving {
				actions = append(actions, steps.DropMover{Claim: i, End: end})
			}
		}
	}
	return actions
}

// resume lets pods run at the target.
func resume(o steps.Observation) steps.Step {
	if step, ok := freeClaims(o); ok {
		return step
	}
	next := o.Record.Enter(v1alpha1.MoveRetain, o.Now)
	next.Up = o.Now
	return steps.Step{Action: steps.Save{Record: next}, Say: "the claims have their volumes at the target"}
}

// freeClaims is the step that lets pods use the claims; false once they may.
func freeClaims(o steps.Observation) (steps.Step, bool) {
	if o.Record.Phase == v1alpha1.MoveRollBack && o.Record.StaysLocked {
		return leaveLocked(o)
	}
	var actions []steps.Action
	for i, claim := range o.Claims {
		c := claim.Claim
		if c == nil {
			continue
		}
		if c.Annotations[keys.Move] == string(o.Record.UID) || c.Labels[keys.Moving] != "" || c.Annotations[keys.MoveTouched] != "" ||
			slices.Contains(c.Finalizers, keys.MoveFinalizer) {
			actions = append(actions, steps.Unlock{Claim: i})
		}
	}
	// In this order: no pod that is made once its claim is unlocked gets the gate.
	return steps.AllAtOnce(append(actions, ungateActions(o)...))
}

// leaveLocked is the step that leaves the claims locked, with nothing else of the move on them, so that they can be
// deleted; false once it is so.
func leaveLocked(o steps.Observation) (steps.Step, bool) {
	var actions []steps.Action
	for i, claim := range o.Claims {
		switch c := claim.Claim; {
		case c == nil:
		case c.DeletionTimestamp == nil && (c.Annotations[keys.Move] == "" || c.Labels[keys.Moving] != keys.MovingNow):
			actions = append(actions, steps.Lock{Claim: i})
		case slices.Contains(c.Finalizers, keys.MoveFinalizer) || c.Annotations[keys.MoveTouched] != "":
			actions = append(actions, steps.Unlock{Claim: i, StaysLocked: true})
		}
	}
	return steps.AllAtOnce(actions)
}

// ungatePods is the step that removes our scheduling gate from pods; false once none has
// it.
func ungatePods(o steps.Observation) (steps.Step, bool) { return steps.AllAtOnce(ungateActions(o)) }

func ungateActions(o steps.Observation) (actions []steps.Action) {
	for _, pod := range o.Pods {
		if pod.Gated && !pod.Leaving {
			actions = append(actions, steps.Ungate{Pod: pod})
		}
	}
	return actions
}

// retain keeps the source for a while.
func retain(o steps.Observation) steps.Step {
	if step, ok := letGo(o); ok {
		return step
	}
	if step, ok := noteSource(o); ok {
		return step
	}
	if step, ok := handOver(o); ok {
		return step
	}
	if step, ok := cleanUpSource(o); ok {
		return step
	}
	if o.Record.Adopts {
		// Nobody compared the two copies, and both may have what the other lacks.
		return steps.Enter(o, v1alpha1.MoveDone)
	}
	if o.Record.Failover != nil {
		return keepDiverged(o)
	}
	if o.Move != nil && (o.Move.Spec.Action == v1alpha1.ActionFinalize || o.Move.Spec.Action == v1alpha1.ActionGiveUp) {
		return enterFinalize(o)
	}
	if o.Next != "" {
		return steps.Wait(rare, fmt.Sprintf("VolumeMove %s moves the claims on; the copy at the source is kept until that is committed; "+
			"spec.action Finalize removes it now", o.Next))
	}
	if isMovedOn(o) {
		return enterFinalize(o)
	}
	left := keptUntil(o).Sub(o.Now)
	next := rare
	if left > 0 {
		next = min(left, rare)
	}
	for _, pod := range o.Pods {
		if !pod.Ready && !pod.Finished {
			return steps.Wait(next, fmt.Sprintf("waiting until pod %s is ready at the target before the copy at the source is removed; spec.action "+
				"Finalize removes it now", pod.Name))
		}
	}
	if left > 0 {
		return steps.Wait(next, fmt.Sprintf("the copy at the source is kept until %s; spec.action Finalize removes it now",
			keptUntil(o).UTC().Format(time.RFC3339)))
	}
	return enterFinalize(o)
}

func enterFinalize(o steps.Observation) steps.Step {
	next := o.Record.Enter(v1alpha1.MoveFinalize, o.Now)
	next.MovedOn = isMovedOn(o)
	return steps.Step{Action: steps.Save{Record: next}}
}

// letGo is the step of a committed move that lets other moves begin with its claims; false once they
// may. From then on it changes neither the claims nor their pods: a pod with the gate may wait for
// another move.
func letGo(o steps.Observation) (steps.Step, bool) {
	if o.Record.Freed {
		return steps.Step{}, false
	}
	if step, ok := ungatePods(o); ok {
		return step, true
	}
	if step, ok := cleanUpSource(o); ok && step.Action != nil {
		return step, true
	}
	if left := o.Record.Began[v1alpha1.MoveRetain].Add(o.Settling).Sub(o.Now); left > 0 {
		return steps.Wait(min(left, steps.Soon), "the claims have their volumes at the target"), true
	}
	next := o.Record.Clone()
	next.Freed = true
	return steps.Step{Action: steps.Save{Record: next}}, true
}

// isMovedOn says whether a later move has given all claims that are left volumes elsewhere.
func isMovedOn(o steps.Observation) bool {
	moved := false
	for i, claim := range o.Claims {
		if claim.Claim == nil && claim.Volume == nil {
			continue
		}
		if !steps.IsElsewhere(&o.Record.Claims[i], claim.Volume) {
			return false
		}
		moved = true
	}
	return moved
}

// keptUntil is until when a move in the phase Retain keeps the copy at the source.
func keptUntil(o steps.Observation) time.Time {
	began := o.Record.Began[v1alpha1.MoveRetain]
	switch {
	case o.Move == nil || o.Move.DeletionTimestamp != nil || o.Move.Spec.Action == v1alpha1.ActionFinalize ||
		o.Move.Spec.Action == v1alpha1.ActionGiveUp:
		return began
	case o.Move.Spec.KeepSourceFor == nil:
		return began.Add(time.Hour)
	}
	return began.Add(o.Move.Spec.KeepSourceFor.Duration)
}

// Overdue says whether the copy at the source still exists after it should have been
// deleted.
func Overdue(o steps.Observation) bool {
	r := o.Record
	return r.Phase == v1alpha1.MoveFinalize ||
		r.Phase == v1alpha1.MoveRetain && r.Failover == nil && o.Next == "" && !o.Now.Before(keptUntil(o))
}

// cleanUpSource is the step that catches up on the changes of Commit at the source, if its
// cluster was unreachable then; false if there are none left or the cluster is still
// unreachable.
func cleanUpSource(o steps.Observation) (steps.Step, bool) {
	if o.Source.Unusable != "" {
		return steps.Step{}, false
	}
	if step, ok := steps.AllAtOnce(shelveActions(o)); ok {
		return step, true
	}
	return removeMovers(o, record.Source)
}

// finalize deletes the source.
func finalize(o steps.Observation) steps.Step {
	if step, ok := letGo(o); ok {
		return step
	}
	if o.Record.GaveUp(record.Source) {
		return steps.Enter(o, v1alpha1.MoveDone)
	}
	if step, ok := giveUpEnd(o, record.Source); ok {
		return step
	}
	if isBack(o) {
		// The copies at the source are in use, as somebody chose after a restore from a backup.
		return steps.Enter(o, v1alpha1.MoveDone)
	}
	if need, why := whyNotSound(o); why != "" {
		return steps.WaitForHelp(need, steps.Seldom, "the copy at the source is not removed: "+why)
	}
	if step, ok := cleanUpSource(o); ok {
		return step
	}
	if step, ok := removeSnapshots(o); ok {
		return step
	}
	if step, ok := removeBackings(o, record.Source); ok {
		return step
	}
	return steps.Enter(o, v1alpha1.MoveDone)
}

// whyNotSound says why the copies at the target cannot be confirmed to exist; empty if they
// can. The copy of a claim that its user deleted need not exist. Of a claim that a later move has
// moved on, the copy that is in use now must exist instead.
func whyNotSound(o steps.Observation) (need steps.Need, why string) {
	for i, claim := range o.Claims {
		ref, side, volume, away := o.Record.Claims[i].Target.Ref, claim.Target, o.Record.Claims[i].New, o.Target.Unusable
		if steps.IsElsewhere(&o.Record.Claims[i], claim.Volume) {
			ref, side, volume, away = claim.Now.Ref, claim.Now.Side, claim.Volume, claim.Now.Unusable
		}
		b, real := side.Backing, side.Real
		switch {
		case away != "":
			return steps.ClusterAway, away
		case claim.Claim == nil:
		case b == nil || real == nil:
			return steps.CopyGone, fmt.Sprintf("real claim %s at the target has no volume now: see its events there; the copy at the source is "+
				"whole, so ask for help before anything is removed", ref.Key())
		case volume != nil && real.Name != volume.Annotations[keys.BackingVolume]:
			return steps.CopyGone, fmt.Sprintf("real claim %s at the target has volume %s, and the data was copied to %s: see who replaced it; "+
				"the copy at the source is whole, so ask for help before anything is removed", ref.Key(), real.Name,
				volume.Annotations[keys.BackingVolume])
		case backing.ReplacedBy(b) > replacedAfter(&o.Record.Claims[i], claim.Volume) && claim.Source.Backing != nil:
			return steps.Replaced, fmt.Sprintf("a later move has replaced real claim %s by one that home does not know any more, as after a "+
				"restore from a backup, and that may have been the copy at the source: see which data is the newest; once nothing in real claim %s "+
				"is needed, take finalizer %s off and delete it", ref.Key(), o.Record.Claims[i].Source.Ref.Key(), keys.BackingFinalizer)
		case b.DeletionTimestamp != nil || real.DeletionTimestamp != nil:
			return steps.CopyGone, fmt.Sprintf("real claim %s at the target or its volume %s is being deleted: see who did that", ref.Key(),
				real.Name)
		}
	}
	return "", ""
}

// replacedAfter is the generation by which the copy that is in use now may have been replaced at most: that of its own move.
func replacedAfter(known *record.Claim, volume *corev1.PersistentVolume) int64 {
	if steps.IsElsewhere(known, volume) {
		return backing.GenerationOf(volume)
	}
	return known.Generation
}

// removeBackings is the step to delete the backing claims at an end; false once they are
// gone.
func removeBackings(o steps.Observation, end record.End) (steps.Step, bool) {
	if o.Record.Adopts {
		// The move has made none.
		return steps.Step{}, false
	}
	if o.At(end).Unusable != "" {
		return steps.WaitForHelp(steps.ClusterAway, steps.Seldom, whyNotRemoved(o, end)), true
	}
	for i, claim := range o.Claims {
		copied, side := o.Record.Claims[i].At(end), claim.At(end)
		b := side.Backing
		if end == record.Target && o.Record.TakesSlots() {
			if step, ok := returnSlot(o, i, b); ok {
				return step, true
			}
			continue
		}
		// One at a target that was given up in Commit may have lost the mark already.
		marked := b != nil && (b.Labels[keys.MoveOf] == string(o.Record.UID) || end == record.Target && o.Record.WasCommitted() &&
			b.UID == copied.Ref.UID)
		if !marked || copied.Ref.UID != "" && b.UID != copied.Ref.UID {
			// Gone, or never this move's: a copy that an earlier move keeps may not have been taken.
			continue
		}
		if copied.Policy != "" && side.Real != nil && side.Real.Spec.PersistentVolumeReclaimPolicy != copied.Policy {
			return steps.Step{Action: steps.Restore{Claim: i, End: end}}, true
		}
		if end == record.Target && wasReplaced(o, i) {
			// It was in use, and home knows it as it was before, as after a restore from a backup. So it shows as the newer data.
			return steps.Step{Action: steps.Publish{Claim: i, End: end}}, true
		}
		if b.DeletionTimestamp == nil || backing.Protected(b) {
			if step, ok := recordKeptVolume(o, i, end, side.Real); ok {
				return step, true
			}
			return steps.Step{Action: steps.DropBacking{Claim: i, End: end}}, true
		}
		return steps.Wait(steps.Soon, fmt.Sprintf("waiting until real claim %s is gone", copied.Ref.Key())), true
	}
	return steps.Step{}, false
}

// wasReplaced says whether the source of a claim has the mark of a Commit of this move of which the record does not know.
func wasReplaced(o steps.Observation, i int) bool {
	s := o.Claims[i].Source.Backing
	return !o.Record.WasCommitted() && s != nil && s.UID == o.Record.Claims[i].Source.Ref.UID && s.Labels[keys.MoveOf] == string(o.Record.UID)
}

// recordKeptVolume is the step that records whether the real volume of a claim that is
// about to be deleted is kept with its data; false if that is recorded.
func recordKeptVolume(o steps.Observation, i int, end record.End, real *corev1.PersistentVolume) (steps.Step, bool) {
	if real == nil {
		return steps.Step{}, false
	}
	stays := ""
	if real.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		stays = real.Name
	}
	if o.Record.Claims[i].At(end).Stays == stays {
		return steps.Step{}, false
	}
	return steps.ChangeClaim(o, i, func(c *record.Claim) { c.At(end).Stays = stays }), true
}
