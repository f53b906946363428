package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Observation is all that the next step for a ShadowPod depends on.
type Observation struct {
	Shadow *remotev1alpha1.ShadowPod
	// Pod is the pod of the ShadowPod's name, whoever made it; nil if none was
	// seen. Live says that the API server was asked just now, or that nothing was
	// asked for before.
	Pod  *corev1.Pod
	Live bool
	// Refusal says why the home cluster may have no such pod; nil if it may.
	Refusal *Refusal
	// Home tells whether the home cluster is connected.
	Home Presence
	// Leaving: the owner of this cluster removes or has removed the home cluster.
	Leaving bool
	// Paused: the pod was refused a moment ago.
	Paused bool
	// Settled: no request of the past to make this pod can still take effect. It
	// counts only while the phase is Creating.
	Settled bool
}

// Verb names a step.
type Verb string

// The steps.
const (
	Idle    Verb = "Idle"    // until something happens
	Wait    Verb = "Wait"    // look again when time has passed
	Look    Verb = "Look"    // ask the API server for the pod and decide again
	Hold    Verb = "Hold"    // put the finalizer on the ShadowPod
	Note    Verb = "Note"    // write Step.Status
	Make    Verb = "Make"    // make the pod
	Count   Verb = "Count"   // take off the pod's finalizer: that it was made is written down
	Carry   Verb = "Carry"   // carry changes of the template to the pod
	Delete  Verb = "Delete"  // delete the pod, with Step.Grace
	Release Verb = "Release" // take the finalizer off the ShadowPod: its pod is gone
)

// Step is what to do next.
type Step struct {
	Verb   Verb
	Status remotev1alpha1.ShadowPodStatus
	Grace  int64
}

// Reasons of a ShadowPod's status.
const (
	ReasonNameTaken = "NameTaken"
	ReasonPodEnded  = "PodEnded"
	ReasonPodGone   = "PodGone"
	ReasonRemade    = "Remade"
)

// Next decides the next step for a ShadowPod. After each step it is asked again,
// until it answers Idle or Wait.
func Next(o Observation) Step {
	ours := o.Pod != nil && Ours(o.Pod, o.Shadow)
	switch {
	case o.Shadow.DeletionTimestamp != nil:
		return end(o, ours)
	case o.Shadow.Status.Phase == remotev1alpha1.ShadowPodLost:
		// A request to make it that took effect late.
		if ours {
			return remove(o)
		}
		return Step{Verb: Idle}
	case ours:
		return follow(o)
	}
	switch o.Shadow.Status.Phase {
	case remotev1alpha1.ShadowPodCreated:
		return gone(o)
	default:
		return begin(o)
	}
}

// end decides for a ShadowPod that is being deleted.
func end(o Observation, ours bool) Step {
	switch {
	case ours:
		return remove(o)
	case !o.Live:
		return Step{Verb: Look}
	case !slices.Contains(o.Shadow.Finalizers, keys.ShadowPodFinalizer):
		return Step{Verb: Idle}
	case !o.Settled && o.Shadow.Status.Phase == remotev1alpha1.ShadowPodCreating:
		return Step{Verb: Wait}
	default:
		return Step{Verb: Release}
	}
}

// remove decides for a pod of ours that must go.
func remove(o Observation) Step {
	grace := Grace(o.Shadow, o.Pod)
	if o.Leaving {
		// The time that home chose must not keep the owner from being rid of it.
		grace = min(grace, corev1.DefaultTerminationGracePeriodSeconds)
	}
	deleting := o.Pod.DeletionTimestamp != nil
	switch {
	case !deleting, o.Pod.DeletionGracePeriodSeconds != nil && grace < *o.Pod.DeletionGracePeriodSeconds:
		return Step{Verb: Delete, Grace: grace}
	case slices.Contains(o.Pod.Finalizers, keys.UnrecordedFinalizer):
		return Step{Verb: Count}
	default:
		return Step{Verb: Idle}
	}
}

// Grace returns how many seconds the pod may take to end. It is at least one on
// a node: with zero the API server would call a pod gone that still runs.
func Grace(shadow *remotev1alpha1.ShadowPod, pod *corev1.Pod) int64 {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		grace = *own
	}
	if wanted := shadow.Spec.GracePeriodSeconds; wanted != nil {
		grace = *wanted
	}
	return max(grace, 1)
}

// follow decides for a pod that exists.
func follow(o Observation) Step {
	status := o.Shadow.Status
	if status.Phase == remotev1alpha1.ShadowPodCreating && !o.Live {
		// It may be one that is gone, seen late.
		return Step{Verb: Look}
	}
	made := status
	made.Phase, made.PodUID, made.Reason, made.Message = remotev1alpha1.ShadowPodCreated, o.Pod.UID, "", ""
	if status.Reason == ReasonRemade {
		made.Reason, made.Message = status.Reason, status.Message
	}
	if endedByItself(o) {
		made.Reason, made.Message = ReasonPodEnded, "The pod ended by itself with phase "+string(o.Pod.Status.Phase)+"."
	}
	switch {
	case status != made:
		return Step{Verb: Note, Status: made}
	case slices.Contains(o.Pod.Finalizers, keys.UnrecordedFinalizer):
		return Step{Verb: Count}
	case o.Shadow.Spec.Unreadable == "" && o.Pod.DeletionTimestamp == nil && Patch(o.Shadow, o.Pod) != nil:
		return Step{Verb: Carry}
	default:
		return Step{Verb: Idle}
	}
}

// gone decides for a pod that was made and is no longer seen.
func gone(o Observation) Step {
	status := o.Shadow.Status
	switch {
	case !o.Live:
		return Step{Verb: Look}
	case status.Reason == ReasonPodEnded:
		return lost(status, ReasonPodEnded, "The pod ended by itself and was then removed from this cluster.")
	case o.Shadow.Spec.Unreadable != "":
		// Its restart policy is not known.
		return lost(status, ReasonPodGone, "The pod was removed from this cluster; it is not made again, since its template cannot be read.")
	case o.Shadow.Spec.Pod.Spec.RestartPolicy == corev1.RestartPolicyNever:
		return lost(status, ReasonPodGone, "The pod was removed from this cluster; it is not made again, since its restart policy is Never.")
	case o.Home == Connected:
		return lost(status, ReasonPodGone, "The pod was removed from this cluster; its home cluster, which is connected, decides what comes next.")
	case o.Home == Unknown:
		return Step{Verb: Wait}
	}
	status.Phase = remotev1alpha1.ShadowPodCreating
	status.Restarts++
	status.Reason, status.Message = ReasonRemade, "The pod was removed from this cluster while its home cluster was away, and was made again."
	return Step{Verb: Note, Status: status}
}

func lost(status remotev1alpha1.ShadowPodStatus, reason, message string) Step {
	status.Phase, status.Reason, status.Message = remotev1alpha1.ShadowPodLost, reason, message
	return Step{Verb: Note, Status: status}
}

// Begins reports whether a pod may yet be made for a ShadowPod for the first time.
func Begins(shadow *remotev1alpha1.ShadowPod) bool {
	phase := shadow.Status.Phase
	return shadow.DeletionTimestamp == nil && shadow.Spec.Start && (phase == "" || phase == remotev1alpha1.ShadowPodPending)
}

// begin decides for a pod that was not made yet.
func begin(o Observation) Step {
	if !o.Shadow.Spec.Start {
		// Its home pod does not know of it yet, or is gone: a request to create it
		// may have arrived late.
		return Step{Verb: Idle}
	}
	status := o.Shadow.Status
	if status.Phase == remotev1alpha1.ShadowPodCreating && !o.Settled {
		// At most one request is on its way at a time: once a pod was seen, none is.
		return Step{Verb: Wait}
	}
	refusal := o.Refusal
	if refusal == nil && o.Pod != nil {
		refusal = &Refusal{ReasonNameTaken, "A pod of this name exists in the namespace and was made for somebody else: delete it there, or wait until it is gone."}
	}
	if refusal != nil {
		return Refused(o.Shadow, *refusal)
	}
	if !slices.Contains(o.Shadow.Finalizers, keys.ShadowPodFinalizer) {
		return Step{Verb: Hold}
	}
	if status.Phase != remotev1alpha1.ShadowPodCreating {
		if o.Paused {
			return Step{Verb: Wait}
		}
		// Reason and message stay until it is known better.
		status.Phase = remotev1alpha1.ShadowPodCreating
		return Step{Verb: Note, Status: status}
	}
	if !o.Live {
		// An earlier request may have made it.
		return Step{Verb: Look}
	}
	return Step{Verb: Make}
}

// Refused writes down why no pod was made.
func Refused(shadow *remotev1alpha1.ShadowPod, refusal Refusal) Step {
	status := shadow.Status
	status.Phase, status.Reason, status.Message = remotev1alpha1.ShadowPodPending, refusal.Reason, refusal.Message
	if status == shadow.Status {
		return Step{Verb: Idle}
	}
	return Step{Verb: Note, Status: status}
}
