package replicas

import (
	"cmp"
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

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// report writes the state of a replica to its status. No decision depends on it: after an error the next report writes it. It
// returns when the status changes by the clock alone, 0 for never.
func (c *Controller) report(ctx context.Context, w *activeReplica, o decide.Observation, step decide.Step) time.Duration {
	if o.Replica == nil {
		return 0
	}
	next, late := statusOf(o, step)
	c.Metrics.observe(o, next)
	if equality.Semantic.DeepEqual(next, o.Replica.Status) {
		return late
	}
	changed := o.Replica.DeepCopy()
	changed.Status = next
	_, err := c.Replicas.Replicas(w.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(2).Info("Status will be written again", "err", err)
	}
	return late
}

// tell writes an event about a step, once for each sentence.
func (c *Controller) tell(w *activeReplica, o decide.Observation, step decide.Step) {
	if o.Replica == nil || step.Say == "" || step.Say == w.lastSaid {
		return
	}
	if slices.Contains([]string{decide.PointFailed, decide.VersionLost, decide.NotFrozen, decide.ThawFailed, decide.Suspect}, step.Reason) {
		w.lastSaid = step.Say
		c.Recorder.Event(referenceTo(o.Replica), corev1.EventTypeWarning, step.Reason, plain(step.Say))
	}
}

// sayMade says how a version was made; empty: as all are.
func sayMade(version *record.Version) string {
	switch version.Made {
	case v1alpha1.VersionFrozen:
		return "; it is of a moment at which the application was frozen"
	case v1alpha1.VersionAtRest:
		return "; it is of a moment at which no pod with the claims ran"
	case v1alpha1.VersionCrash:
	}
	return ""
}

// saySlots says what it means that versions are in slots; empty if they are not.
func saySlots(o decide.Observation) string {
	if !o.Record.Slots {
		return ""
	}
	say := "; it is in two real claims that are written in turn, without snapshots, which takes twice the room"
	if keep := o.Replica.Spec.Versions.Keep; keep > 2 {
		say += fmt.Sprintf(" and keeps 2 versions at most, not the %d of spec.versions.keep", keep)
	}
	if o.Replica.Spec.Versions.Daily > 0 {
		say += "; none stays for its day, as spec.versions.daily asks: that takes a class with snapshots"
	}
	return say
}

// sayKept says that there are more versions than are wanted; empty if there are not.
func sayKept(o decide.Observation) string {
	kept := slices.DeleteFunc(decide.Surplus(o), func(i int) bool { return decide.WhyKept(o, &o.Record.Sealed[i]) == "" })
	if len(kept) == 0 {
		return ""
	}
	return fmt.Sprintf("; %d versions more than spec.versions says stay for now: %s", len(kept), decide.WhyKept(o, &o.Record.Sealed[kept[0]]))
}

// referenceTo is what an event on a replica names.
func referenceTo(r *v1alpha1.VolumeReplica) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "VolumeReplica", Namespace: r.Namespace, Name: r.Name,
		UID: r.UID}
}

// statusOf is the status of a replica after an observation and a step. late is when the newest version gets older than the RPO.
func statusOf(o decide.Observation, step decide.Step) (next v1alpha1.VolumeReplicaStatus, late time.Duration) {
	next = *o.Replica.Status.DeepCopy()
	next.ObservedGeneration = o.Replica.Generation
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&next.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: plain(message),
			ObservedGeneration: next.ObservedGeneration})
	}
	r := o.Record
	if r == nil {
		reason := step.Reason
		if reason == "" {
			reason = decide.Seeding
		}
		set(v1alpha1.ReplicaHealthy, metav1.ConditionFalse, reason, step.Say)
		set(v1alpha1.ReplicaWithinRPO, metav1.ConditionUnknown, decide.NothingSealed, "nothing is sealed yet")
		return next, 0
	}
	next.Epoch = r.Epoch
	standby := v1alpha1.ReplicaStandbyStatus{Cluster: r.Head.Cluster, Class: r.Class, In: v1alpha1.InSnapshots}
	if r.Slots {
		standby.In = v1alpha1.InSlots
	}
	if o.At != "" {
		next.Primary = o.At
	}
	standby.Runnable, standby.RunnableMessage = o.Runnable.Status, o.Runnable.Why
	if before := o.Replica.Status.Standbys; standby.Runnable == "" && len(before) > 0 {
		standby.Runnable, standby.RunnableMessage = before[0].Runnable, before[0].RunnableMessage
	}
	if r.Point != nil {
		standby.Point = fmt.Sprintf("point %d: %s", r.Point.Number, r.Point.Stage)
	}
	for _, other := range r.Others {
		if !slices.Contains(strings.Split(standby.Class, ","), other.Class) {
			standby.Class += "," + other.Class
		}
	}
	_, daily := decide.Retained(r.Sealed, o.Replica.Spec.Versions)
	for i, version := range slices.Backward(r.Sealed) {
		if version.Counts() {
			standby.Versions = append(standby.Versions, v1alpha1.ReplicaVersion{Name: version.Name, Cut: metav1.NewTime(version.Cut).Rfc3339Copy(),
				Root: version.Root, Consistency: cmp.Or(version.Made, v1alpha1.VersionCrash), Daily: daily[i] && !r.Slots,
				Pinned: version.Pinned})
		}
	}
	newest := r.Newest()
	if newest != nil {
		cut := metav1.NewTime(newest.Cut).Rfc3339Copy()
		standby.Sealed, standby.Sent = &cut, newest.AllSent()
	}
	if !r.Scrubbed.IsZero() {
		at := metav1.NewTime(r.Scrubbed).Rfc3339Copy()
		standby.Scrubbed = &at
	}
	if r.Change != nil {
		standby.Suspect = r.Change.Version
	}
	next.Standbys = []v1alpha1.ReplicaStandbyStatus{standby}
	switch found := decide.SayFound(r); {
	case r.Change != nil:
		set(v1alpha1.ReplicaSuspect, metav1.ConditionTrue, "MuchChanged", decide.SayChange(r)+sentence.Prefixed("; also ", found))
	case o.Replica.Spec.ScrubEvery == nil:
		meta.RemoveStatusCondition(&next.Conditions, v1alpha1.ReplicaSuspect)
	case found != "":
		set(v1alpha1.ReplicaSuspect, metav1.ConditionTrue, "ChangedUnseen", found+"; the next scrub that finds nothing ends this")
	case r.Scrubbed.IsZero():
		set(v1alpha1.ReplicaSuspect, metav1.ConditionUnknown, "NotScrubbed", "there was no scrub yet: the first one follows the next point that "+
			"is sealed")
	default:
		set(v1alpha1.ReplicaSuspect, metav1.ConditionFalse, "NothingFound", "nothing has changed unseen since the last scrub")
	}

	switch reason := step.Reason; {
	case reason != "":
		set(v1alpha1.ReplicaHealthy, metav1.ConditionFalse, reason, step.Say)
	case r.Failures > 0:
		set(v1alpha1.ReplicaHealthy, metav1.ConditionFalse, decide.PointFailed, fmt.Sprintf("the last %d points failed: %s", r.Failures, r.Why))
	case newest == nil:
		set(v1alpha1.ReplicaHealthy, metav1.ConditionFalse, decide.Seeding,
			"the first copy is being made: until it is sealed there is none"+saySlots(o))
	default:
		set(v1alpha1.ReplicaHealthy, metav1.ConditionTrue, decide.Sealed, "the copy was compared and sealed"+sayMade(newest)+saySlots(o)+
			sayKept(o))
	}
	rpo := decide.RPO(o.Replica)
	switch {
	case newest == nil:
		set(v1alpha1.ReplicaWithinRPO, metav1.ConditionUnknown, decide.NothingSealed, "nothing is sealed yet")
	case decide.Ahead(newest.Cut, o.Now):
		set(v1alpha1.ReplicaWithinRPO, metav1.ConditionUnknown, "Clock", fmt.Sprintf("the newest sealed version is of %s, which has not come "+
			"yet: the clock of the provisioner's node was ahead, or is behind; a newer version is made now", newest.Cut.UTC().Format(time.RFC3339)))
	case o.Now.Sub(newest.Cut) > rpo:
		set(v1alpha1.ReplicaWithinRPO, metav1.ConditionFalse, "Late", fmt.Sprintf("what was written since %s is in no sealed version, and "+
			"the RPO is %s: see the condition Healthy; if points are made without a break, they take longer than that: raise spec.rpo or the "+
			"bandwidth", newest.Cut.UTC().Format(time.RFC3339), rpo))
	default:
		set(v1alpha1.ReplicaWithinRPO, metav1.ConditionTrue, "InTime", fmt.Sprintf("the newest sealed version is no older than %s", rpo))
		late = newest.Cut.Add(rpo).Sub(o.Now) + time.Millisecond
	}
	return next, late
}
