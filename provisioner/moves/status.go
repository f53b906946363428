package moves

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// report writes the state of a move to the VolumeMove's status and to events. No decision
// depends on it: after an error the next report writes it. It returns the VolumeMove as it is now, as far as known.
func (c *Controller) report(ctx context.Context, w *activeMove, o steps.Observation, step steps.Step) *v1alpha1.VolumeMove {
	if o.Move == nil || o.Record == nil && step.Say == "" {
		return o.Move
	}
	if o.Record == nil {
		// It is not known yet what is to be moved or what prevents it.
		next := *o.Move.Status.DeepCopy()
		next.ObservedGeneration, next.Message, next.QueuePosition = o.Move.Generation, plain(step.Say), 0
		return c.writeStatus(ctx, o.Move, next)
	}
	next := statusOf(o, step)
	if phase := string(next.Phase); phase != w.lastPhase {
		c.reportPhase(o, next)
		w.lastPhase = phase
	}
	if w.waiting.isDue(o.Now, step, next) {
		c.Recorder.Event(aboutMove(o.Move), corev1.EventTypeNormal, "Waiting", next.Message)
	}
	return c.writeStatus(ctx, o.Move, next)
}

// reportFinished notes in the status of a finished move that a later change of its spec was seen.
func (c *Controller) reportFinished(ctx context.Context, move *v1alpha1.VolumeMove) {
	next := *move.Status.DeepCopy()
	next.ObservedGeneration = move.Generation
	c.writeStatus(ctx, move, next)
}

// writeStatus writes a status that differs from the VolumeMove's, and returns the VolumeMove as it is then; as it was after an error.
func (c *Controller) writeStatus(ctx context.Context, move *v1alpha1.VolumeMove, next v1alpha1.VolumeMoveStatus) *v1alpha1.VolumeMove {
	if equality.Semantic.DeepEqual(next, move.Status) {
		return move
	}
	changed := move.DeepCopy()
	changed.Status = next
	written, err := c.Moves.In(changed.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	switch {
	case err == nil:
		return written
	case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
		klog.FromContext(ctx).V(2).Info("Status will be written again", "err", err)
	}
	return move
}

// reportMoverEnded writes an event on the VolumeMove when a mover has ended by itself. That
// is the only trace of it, since it is replaced at once.
func (c *Controller) reportMoverEnded(o steps.Observation, i int, end record.End) {
	mover := o.Claims[i].At(end).Mover
	if o.Move == nil || !mover.Ended || mover.Problem == "" {
		return
	}
	c.Recorder.Event(aboutMove(o.Move), corev1.EventTypeWarning, "MoverEnded",
		plain(fmt.Sprintf("the mover of claim %s at the %s has ended, %s", o.Record.Claims[i].Name, end, mover.Problem)))
}

// reportPhase writes an event on the VolumeMove, and on claims if the phase affects their
// users.
func (c *Controller) reportPhase(o steps.Observation, next v1alpha1.VolumeMoveStatus) {
	kind := corev1.EventTypeNormal
	if next.Phase == v1alpha1.MoveFailed || o.Record.Refused {
		kind = corev1.EventTypeWarning
	}
	text := next.Message
	if text == "" {
		text = fmt.Sprintf("the move is in phase %s", next.Phase)
	}
	c.Recorder.Event(aboutMove(o.Move), kind, string(next.Phase), text)
	for _, claim := range o.Claims {
		if claim.Claim == nil {
			continue
		}
		switch next.Phase {
		case v1alpha1.MoveFence:
			if o.Record.CopiesNothing() {
				c.Recorder.Eventf(claim.Claim, corev1.EventTypeNormal, "VolumeMoving", "VolumeMove %s takes the volume away for a moment: the "+
					"claim shows Pending, but nothing is deleted; pods wait at their scheduling gate", o.Move.Name)
				continue
			}
			c.Recorder.Eventf(claim.Claim, corev1.EventTypeNormal, "VolumeMoving",
				"VolumeMove %s takes the volume away for a moment: the claim shows Pending, but the data is safe in two places; pods wait at their "+
					"scheduling gate", o.Move.Name)
		case v1alpha1.MoveRetain:
			if o.Record.Freed {
				// This process is new, and another move may have moved it on since.
				continue
			}
			if o.Record.Adopts {
				c.Recorder.Event(claim.Claim, corev1.EventTypeNormal, "VolumeMoved", adopted(o.Record))
				continue
			}
			if o.Record.Failover != nil {
				c.Recorder.Event(claim.Claim, corev1.EventTypeWarning, "FailedOver", plain(decide.Diverged(o.Record)))
				continue
			}
			c.Recorder.Eventf(claim.Claim, corev1.EventTypeNormal, "VolumeMoved", "VolumeMove %s has moved the data to %s", o.Move.Name,
				o.Record.Target.Cluster)
			if text := lostMountOptions(claim, o.Record.Target.Cluster); text != "" {
				c.Recorder.Event(claim.Claim, corev1.EventTypeWarning, backing.MountOptionsIgnored, text)
			}
		default: // no other phase is reported on claims
		}
	}
}

// lostMountOptions describes the mount options of its class that a claim's volume does not
// have at the target, empty for none.
func lostMountOptions(claim steps.Claim, cluster string) string {
	if cluster == keys.Home || claim.Volume == nil || claim.Target.Real == nil || claim.Target.Backing == nil {
		return ""
	}
	return backing.IgnoredOptions(claim.Volume, claim.Target.Real, cluster, ptr.Deref(claim.Target.Backing.Spec.StorageClassName, ""))
}

// reportGivenUp writes an event about an end that a step has given up.
func (c *Controller) reportGivenUp(o steps.Observation, step steps.Step) {
	if o.Move != nil && o.Record != nil && len(step.Saved().GivenUp) > len(o.Record.GivenUp) {
		c.Recorder.Event(aboutMove(o.Move), corev1.EventTypeWarning, "GivenUp", plain(step.Say))
	}
}

// statusOf is the status that a VolumeMove should have.
func statusOf(o steps.Observation, step steps.Step) v1alpha1.VolumeMoveStatus {
	r := o.Record
	next := *o.Move.Status.DeepCopy()
	next.ObservedGeneration, next.Phase, next.Message, next.QueuePosition = o.Move.Generation, r.Phase, step.Say, 0
	switch {
	case r.Phase == v1alpha1.MoveDone && r.Adopts:
		next.Message = adopted(r)
	case r.Phase == v1alpha1.MoveDone && r.HandedTo != "":
		next.Message = joinSentences("the claims have their volumes at the target, and a later move has taken the copy at the source",
			r.LeftBehind(), r.KeptVolumes())
	case r.Phase == v1alpha1.MoveDone && r.MovedOn:
		next.Message = joinSentences("a later move has given the claims other volumes, and the copy at the source is gone", r.LeftBehind(),
			r.KeptVolumes())
	case r.Phase == v1alpha1.MoveDone && r.LeftBehind()+r.KeptVolumes() == "":
		next.Message = "the claims have their volumes at the target, and the copy at the source is gone"
	case r.Phase == v1alpha1.MoveDone:
		next.Message = joinSentences("the claims have their volumes at the target", r.LeftBehind(), r.KeptVolumes())
	case r.Over() && r.Why != "":
		next.Message = joinSentences(r.Why, r.LeftBehind(), r.KeptVolumes())
	case r.Phase == v1alpha1.MoveRollBack:
		next.Message = r.Why
		if step.Say != r.Why { // the step that begins it says just that
			next.Message += sentence.Prefixed(": ", step.Say)
		}
	case step.Say == "" && step.Action != nil && step.Saved() == nil && o.Move.Status.QueuePosition == 0:
		next.Message = o.Move.Status.Message
	case o.Move.Spec.Action == v1alpha1.ActionAbort && !r.Over() && !record.Before(r.Phase, v1alpha1.MoveCommit):
		next.Message = joinSentences("the abort came too late, for the move was committed", step.Say)
	}
	next.Message = plain(next.Message)
	target := r.Target
	next.Target = &target
	next.Phases = phases(r)
	next.DownSince, next.Downtime = nil, nil
	switch {
	case !r.Down.IsZero() && r.Up.IsZero():
		next.DownSince = &metav1.MicroTime{Time: r.Down.Truncate(time.Microsecond)}
	case !r.Down.IsZero():
		next.Downtime = &metav1.Duration{Duration: r.Up.Sub(r.Down).Round(time.Millisecond)}
	}
	if len(r.Claims) > 0 {
		next.Claims = claimsOf(o)
	}
	if f := r.Failover; f != nil {
		next.Failover = &v1alpha1.FailoverStatus{Version: f.Version, Cut: metav1.NewTime(f.Cut).Rfc3339Copy(), Fence: f.Fence}
	}
	next.Progress = progressOf(next)
	conditions(r, &next)
	return next
}

// adopted says what became of a claim that got newer data which existed already.
func adopted(r *record.Record) string {
	kept := r.Claims[0].Source.Ref
	return fmt.Sprintf("the claim has the newer data; real claim %s in cluster %s (UID %s) with the older is kept: if nothing in it is "+
		"needed, take finalizer %s off and delete it there", kept.Key(), kept.Cluster, kept.UID, keys.BackingFinalizer)
}

func joinSentences(said ...string) string {
	return strings.Join(slices.DeleteFunc(said, func(one string) bool { return one == "" }), "; ")
}

func phases(r *record.Record) []v1alpha1.PhaseTime {
	var times []v1alpha1.PhaseTime
	for _, phase := range record.Order {
		if at, ok := r.Began[phase]; ok {
			times = append(times, v1alpha1.PhaseTime{Phase: phase, Since: metav1.MicroTime{Time: at.Truncate(time.Microsecond)}})
		}
	}
	return times
}

func claimsOf(o steps.Observation) []v1alpha1.MovedClaim {
	var told []v1alpha1.MovedClaim
	for i := range o.Record.Claims {
		known := &o.Record.Claims[i]
		entry := v1alpha1.MovedClaim{Name: known.Name}
		for _, before := range o.Move.Status.Claims {
			if before.Name == known.Name {
				entry = before
			}
		}
		entry.Source = &v1alpha1.MovePlace{Cluster: known.Source.Ref.Cluster, Class: known.Source.Class, Node: known.Source.Node}
		entry.Target = &v1alpha1.MovePlace{Cluster: known.Target.Ref.Cluster, Class: known.Target.Class, Node: known.Target.Node}
		entry.Pass, entry.SourceRoot, entry.TargetRoot = known.Pass, known.SourceRoot, known.TargetRoot
		if entry.Rate = 0; known.Store != nil {
			entry.Repository = known.Store.Cluster
		}
		if i < len(o.Claims) && o.Claims[i].Connection.Transport != "" {
			way := o.Claims[i].Connection
			entry.Transport, entry.Legs, entry.TransportMessage = way.Transport, way.Legs, plain(way.Why)
		}
		if i < len(o.Claims) && o.Claims[i].Copy != nil && o.Claims[i].Copy.Task != nil {
			p := o.Claims[i].Copy.Task.Progress
			entry.Bytes, entry.BytesTotal, entry.Files, entry.FilesTotal, entry.Rate = p.BytesDone, p.BytesTotal, p.FilesDone, p.FilesTotal,
				p.BytesPerSecond
			entry.Sent = max(entry.Sent, sentOf(o, i))
			entry.Stored = max(entry.Stored, storedOf(o, i))
		}
		told = append(told, entry)
	}
	return told
}

func progressOf(s v1alpha1.VolumeMoveStatus) string {
	var done, total int64
	for _, claim := range s.Claims {
		done, total = done+claim.Bytes, total+claim.BytesTotal
	}
	switch {
	case s.Phase == v1alpha1.MoveDone:
		return "100%"
	case total <= 0 || s.Phase == v1alpha1.MoveAborted || s.Phase == v1alpha1.MoveFailed:
		return ""
	}
	return fmt.Sprintf("%d%%", min(100, done*100/total))
}

func conditions(r *record.Record, next *v1alpha1.VolumeMoveStatus) {
	set := func(kind string, status bool, reason, message string) {
		condition := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: plain(message),
			ObservedGeneration: next.ObservedGeneration}
		if status {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&next.Conditions, condition)
	}
	switch {
	case r.Phase == v1alpha1.MoveAborted && len(r.Claims) == 0:
		// Nobody looked whether anything forbids it.
	case len(r.Claims) == 0 && r.Cause == record.AlreadyThere:
		set(v1alpha1.MoveAccepted, false, v1alpha1.MoveAlreadyThere, r.Why)
	case len(r.Claims) == 0:
		set(v1alpha1.MoveAccepted, false, "Refused", r.Why)
	default:
		set(v1alpha1.MoveAccepted, true, "Accepted", joinSentences(writesToKept(r), basesOf(r)))
	}
	committed := r.Phase == v1alpha1.MoveDone || r.Phase == v1alpha1.MoveRetain || r.Phase == v1alpha1.MoveFinalize ||
		r.Phase == v1alpha1.MoveResume
	set(v1alpha1.MoveCommitted, committed, map[bool]string{true: "AtTarget", false: "AtSource"}[committed], "")
	set(v1alpha1.MoveFinished, r.Over(), string(r.Phase), r.Why)
}

// writesToKept says that a move that is not committed writes to the copy that an earlier one kept; empty if it does not.
func writesToKept(r *record.Record) string {
	var said []string
	for i := range r.Claims {
		if known := &r.Claims[i]; known.Kept != nil && known.Target.Ref.UID != "" && record.Before(r.Phase, v1alpha1.MoveCommit) {
			said = append(said, decide.WhatIsWritten(r.Namespace, known))
		}
	}
	return joinSentences(said...)
}

// basesOf says with which versions of replicas the targets of a move begin; empty if they begin empty.
func basesOf(r *record.Record) string {
	var said []string
	for i := range r.Claims {
		if r.Claims[i].Basis != nil {
			said = append(said, decide.WhatItBeginsWith(&r.Claims[i]))
		}
	}
	return joinSentences(said...)
}

// reportTaken writes an event about a copy of an earlier move that this one writes to from now on.
func (c *Controller) reportTaken(o steps.Observation, step steps.Step) {
	if _, takes := step.Action.(steps.TakeKept); takes && o.Move != nil {
		c.Recorder.Event(aboutMove(o.Move), corev1.EventTypeNormal, "KeptCopyWritten", plain(step.Say))
	}
}

// waitingEventAfter is how long a move must wait for the same thing before an event reports
// it.
const waitingEventAfter = 10 * time.Second

// waiting is what a move waits for.
type waiting struct {
	text     string
	since    time.Time
	reported bool
}

// isDue says, once for each thing that a move waits for, that an event about it is due.
func (w *waiting) isDue(now time.Time, step steps.Step, status v1alpha1.VolumeMoveStatus) bool {
	if step.Action != nil || step.Say == "" || status.Phase == v1alpha1.MoveRetain {
		*w = waiting{}
		return false
	}
	if w.text != status.Message {
		*w = waiting{text: status.Message, since: now}
	}
	if w.reported || now.Sub(w.since) < waitingEventAfter {
		return false
	}
	w.reported = true
	return true
}

// aboutMove is the object of events on a VolumeMove.
func aboutMove(move *v1alpha1.VolumeMove) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "VolumeMove", Namespace: move.Namespace, Name: move.Name, UID: move.UID,
	}
}

// longest limits the texts of other clusters in messages, in bytes.
const longest = 1024

// plain makes a text of another cluster or of a mover fit for a status: one line of limited
// length.
func plain(text string) string { return sentence.Short(sentence.Plain(text, len(text)), longest) }
