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
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualvolume"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// tell says in the VolumeMove, and in events, what there is of a move. Nothing depends on
// it: where it cannot be written, the next turn writes it.
func (c *Controller) tell(ctx context.Context, w *work, o decide.Observation, step decide.Step) {
	if o.Move == nil || o.Record == nil && step.Say == "" {
		return
	}
	if o.Record == nil {
		// It is not known yet what is to be moved, nor what forbids it.
		next := *o.Move.Status.DeepCopy()
		next.Message = sentence(step.Say)
		c.writeStatus(ctx, o.Move, next)
		return
	}
	next := statusOf(o, step)
	if phase := string(next.Phase); phase != w.told {
		c.tellPhase(o, next)
		w.told = phase
	}
	if w.waits.lasts(o.Now, step, next) {
		c.Recorder.Event(aboutMove(o.Move), corev1.EventTypeNormal, "Waiting", next.Message)
	}
	c.writeStatus(ctx, o.Move, next)
}

// writeStatus writes a status that is not what the VolumeMove has.
func (c *Controller) writeStatus(ctx context.Context, move *v1alpha1.VolumeMove, next v1alpha1.VolumeMoveStatus) {
	if equality.Semantic.DeepEqual(next, move.Status) {
		return
	}
	changed := move.DeepCopy()
	changed.Status = next
	_, err := c.Moves.In(changed.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(2).Info("Status will be written again", "err", err)
	}
}

// tellEnded writes an event on the VolumeMove when a mover has ended by itself, which is
// gone before anybody can look at it: another one takes its place.
func (c *Controller) tellEnded(o decide.Observation, i int, end record.End) {
	side := o.Claims[i].Source
	switch end {
	case record.Target:
		side = o.Claims[i].Target
	case record.Snapped:
		side = o.Claims[i].Snapshot.Side
	default: // record.Source
	}
	if o.Move == nil || !side.Mover.Ended || side.Mover.Problem == "" {
		return
	}
	c.Recorder.Event(aboutMove(o.Move), corev1.EventTypeWarning, "MoverEnded",
		sentence(fmt.Sprintf("the mover of claim %s at the %s has ended, %s", o.Record.Claims[i].Name, end, side.Mover.Problem)))
}

// tellPhase writes an event on the VolumeMove, and on the claims where their users see
// something of it.
func (c *Controller) tellPhase(o decide.Observation, next v1alpha1.VolumeMoveStatus) {
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
			c.Recorder.Eventf(claim.Claim, corev1.EventTypeNormal, "VolumeMoving",
				"VolumeMove %s takes the volume away for a moment: the claim shows Lost, and a warning says so, but the data is safe in two places; pods wait at their scheduling gate", o.Move.Name)
		case v1alpha1.MoveRetain:
			c.Recorder.Eventf(claim.Claim, corev1.EventTypeNormal, "VolumeMoved", "VolumeMove %s has moved the data to %s", o.Move.Name, o.Record.Target.Cluster)
			if text := unmounted(claim, o.Record.Target.Cluster); text != "" {
				c.Recorder.Event(claim.Claim, corev1.EventTypeWarning, virtualvolume.MountOptionsIgnored, text)
			}
		default: // of no other does a claim show anything
		}
	}
}

// unmounted says which mount options of its class the volume of a claim has lost at the
// target, empty for none.
func unmounted(claim decide.Claim, cluster string) string {
	if cluster == keys.Home || claim.Volume == nil || claim.Target.Real == nil || claim.Target.Backing == nil {
		return ""
	}
	return virtualvolume.IgnoredOptions(claim.Volume, claim.Target.Real, cluster, ptr.Deref(claim.Target.Backing.Spec.StorageClassName, ""))
}

// tellGivenUp writes an event of an end that was given up by a step that was taken.
func (c *Controller) tellGivenUp(o decide.Observation, step decide.Step) {
	if o.Move != nil && o.Record != nil && len(step.Record.GivenUp) > len(o.Record.GivenUp) {
		c.Recorder.Event(aboutMove(o.Move), corev1.EventTypeWarning, "GivenUp", sentence(step.Say))
	}
}

// statusOf is what the status of a VolumeMove is to say.
func statusOf(o decide.Observation, step decide.Step) v1alpha1.VolumeMoveStatus {
	r := o.Record
	next := *o.Move.Status.DeepCopy()
	next.Phase, next.Message = r.Phase, step.Say
	switch {
	case r.Phase == v1alpha1.MoveDone && r.Left()+r.Kept() == "":
		next.Message = "the claims have their volumes at the target, and the copy at the source is gone"
	case r.Phase == v1alpha1.MoveDone:
		next.Message = sentences("the claims have their volumes at the target", r.Left(), r.Kept())
	case r.Over() && r.Why != "":
		next.Message = sentences(r.Why, r.Left(), r.Kept())
	case r.Phase == v1alpha1.MoveRollBack:
		next.Message = strings.TrimSuffix(r.Why+": "+step.Say, ": ")
	case step.Say == "" && step.Verb != decide.Idle && step.Verb != decide.Save:
		next.Message = o.Move.Status.Message
	}
	next.Message = sentence(next.Message)
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
	next.Progress = progressOf(next)
	conditions(r, &next)
	return next
}

// sentences joins those that are not empty.
func sentences(said ...string) string {
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

func claimsOf(o decide.Observation) []v1alpha1.MovedClaim {
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
		if i < len(o.Claims) && o.Claims[i].Way.Transport != "" {
			way := o.Claims[i].Way
			entry.Transport, entry.Legs, entry.TransportMessage = way.Transport, way.Legs, sentence(way.Why)
		}
		if i < len(o.Claims) && o.Claims[i].Copy != nil && o.Claims[i].Copy.Task != nil {
			p := o.Claims[i].Copy.Task.Progress
			entry.Bytes, entry.BytesTotal, entry.Files, entry.FilesTotal, entry.Rate = p.BytesDone, p.BytesTotal, p.FilesDone, p.FilesTotal, p.BytesPerSecond
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
		condition := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
		if status {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&next.Conditions, condition)
	}
	switch {
	case len(r.Claims) == 0 && r.Cause == record.AlreadyThere:
		set(v1alpha1.MoveAccepted, false, v1alpha1.MoveAlreadyThere, r.Why)
	case len(r.Claims) == 0:
		set(v1alpha1.MoveAccepted, false, "Refused", r.Why)
	default:
		set(v1alpha1.MoveAccepted, true, "Accepted", "")
	}
	committed := r.Phase == v1alpha1.MoveDone || r.Phase == v1alpha1.MoveRetain || r.Phase == v1alpha1.MoveFinalize || r.Phase == v1alpha1.MoveResume
	set(v1alpha1.MoveCommitted, committed, map[bool]string{true: "AtTarget", false: "AtSource"}[committed], "")
	set(v1alpha1.MoveFinished, r.Over(), string(r.Phase), r.Why)
}
