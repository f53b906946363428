package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/podlease"
)

// Observation is all that the next step for a ShadowPod depends on.
type Observation struct {
	Shadow *remotev1alpha1.ShadowPod
	// Pod is the pod of the ShadowPod's name, whoever made it; nil if none is known. Live says that
	// this was just read from the API server, or that no pod was requested before.
	Pod  *corev1.Pod
	Live bool
	// Refusal says why the home cluster may have no such pod; nil if it may.
	Refusal *Refusal
	// Home says whether the home cluster is connected, Lease whether its pods that use claims may run, if it asks for a lease.
	Home  Presence
	Lease podlease.State
	// Leaving says that the owner of this cluster is removing or has removed the home cluster.
	Leaving bool
	// Paused says that the pod, or a change of it, was refused a short time ago.
	Paused bool
	// Settled says that no earlier request to create this pod can still take effect. It counts only
	// while the phase is Creating.
	Settled bool
}

// Verb names a step.
type Verb string

// The steps.
const (
	Idle    Verb = "Idle"    // until something happens
	Wait    Verb = "Wait"    // reconcile again when time has passed
	Look    Verb = "Look"    // read the pod from the API server and decide again
	Hold    Verb = "Hold"    // add the finalizer to the ShadowPod
	Note    Verb = "Note"    // write Step.Status
	Make    Verb = "Make"    // create the pod
	Count   Verb = "Count"   // remove the pod's finalizer: the status records that the pod was made
	Carry   Verb = "Carry"   // apply changes of the template to the pod
	Change  Verb = "Change"  // apply those that only a subresource of the pod takes
	Delete  Verb = "Delete"  // delete the pod, with Step.Grace
	Release Verb = "Release" // remove the finalizer from the ShadowPod: its pod is gone
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
	// ReasonHomeSilent is that of pods which are ended, or not made, because the home cluster's lease has lapsed. It stays, so that an agent
	// which starts anew ends them, too.
	ReasonHomeSilent = "HomeSilent"
)

// Next decides the next step for a ShadowPod. After each step it is called again, until it returns
// Idle or Wait.
func Next(o Observation) Step {
	step := next(o)
	if step.Verb == Note {
		step.Status.ObservedGeneration = o.Shadow.Generation
	}
	return step
}

// next is Next without the generation of the spec.
func next(o Observation) Step {
	ours := o.Pod != nil && IsPodOf(o.Pod, o.Shadow)
	switch {
	case o.Shadow.DeletionTimestamp != nil:
		return end(o, ours)
	case o.Shadow.Status.Phase == remotev1alpha1.ShadowPodLost:
		// An earlier request to create it took effect late.
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

// begin decides for a pod that was not created yet.
func begin(o Observation) Step {
	if !o.Shadow.Spec.Start {
		// The home pod does not name it yet, or is gone: a request to create the ShadowPod may have
		// arrived late.
		return Step{Verb: Idle}
	}
	status := o.Shadow.Status
	if status.Phase == remotev1alpha1.ShadowPodCreating && !o.Settled {
		// At most one request is under way at a time: once a pod is known, none is.
		return Step{Verb: Wait}
	}
	// Before it is refused: whatever else is in its way, home may have given it up.
	if step, ok := awaitLease(o); ok {
		return step
	}
	refusal := o.Refusal
	if refusal == nil && o.Pod != nil {
		refusal = &Refusal{ReasonNameTaken, "A pod of this name exists in the namespace and was made for somebody else: delete it there, or " +
			"wait until it is gone."}
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
		// Reason and message stay until there are new ones.
		status.Phase = remotev1alpha1.ShadowPodCreating
		return Step{Verb: Note, Status: status}
	}
	if !o.Live {
		// An earlier request may have created it.
		return Step{Verb: Look}
	}
	return Step{Verb: Make}
}

// awaitLease is the step for a pod that must not be made because the lease of its home cluster is not held; false if it may be.
func awaitLease(o Observation) (Step, bool) {
	switch {
	case !UsesClaims(o.Shadow), o.Lease != podlease.Lapsed && o.Lease != podlease.Listening:
		return Step{}, false
	case o.Lease == podlease.Listening, o.Home == Unknown:
		return Step{Verb: Wait}, true
	case o.Shadow.Status.Phase == remotev1alpha1.ShadowPodCreating && !o.Live:
		// An earlier request may have created it.
		return Step{Verb: Look}, true
	case o.Home == Away:
		// Whether it is still wanted only home knows once it is back.
		return lost(o.Shadow.Status, ReasonHomeSilent, "The pod is not made: its home cluster is silent, and decides what comes next."), true
	}
	// Its virtual nodes work, and its provisioner does not. They give up the pod if it is not wanted any more.
	step := Refused(o.Shadow, Refusal{ReasonHomeSilent, "The pod is not made while the provisioner of its home cluster is silent: see there " +
		"that it runs."})
	if step.Verb == Idle {
		// Nothing else happens when they fall silent, too.
		step.Verb = Wait
	}
	return step, true
}

// UsesClaims reports whether the pod of a ShadowPod uses claims. One that cannot be read may.
func UsesClaims(shadow *remotev1alpha1.ShadowPod) bool {
	return shadow.Spec.Unreadable != "" || slices.ContainsFunc(shadow.Spec.Pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil
	})
}

// isEnded reports whether it is written down that a pod is ended because the lease of its home cluster has lapsed.
func isEnded(o Observation) bool {
	return o.Shadow.Status.Reason == ReasonHomeSilent && o.Shadow.Status.Phase == remotev1alpha1.ShadowPodCreated
}

// lapses reports whether that lease has lapsed for a pod.
func lapses(o Observation) bool { return o.Lease == podlease.Lapsed && UsesClaims(o.Shadow) }

// Begins reports whether a pod may still be created for a ShadowPod for the first time.
func Begins(shadow *remotev1alpha1.ShadowPod) bool {
	phase := shadow.Status.Phase
	return shadow.DeletionTimestamp == nil && shadow.Spec.Start && (phase == "" || phase == remotev1alpha1.ShadowPodPending)
}

// Refused returns the step that writes down why no pod was created.
func Refused(shadow *remotev1alpha1.ShadowPod, refusal Refusal) Step {
	status := shadow.Status
	status.Phase, status.Reason, status.Message = remotev1alpha1.ShadowPodPending, refusal.Reason, refusal.Message
	status.ObservedGeneration = shadow.Generation
	if status == shadow.Status {
		return Step{Verb: Idle}
	}
	return Step{Verb: Note, Status: status}
}

// follow decides for a pod that exists.
func follow(o Observation) Step {
	status := o.Shadow.Status
	if status.Phase == remotev1alpha1.ShadowPodCreating && !o.Live {
		// The cache may show a pod that is gone.
		return Step{Verb: Look}
	}
	made := status
	made.Phase, made.PodUID, made.Reason, made.Message = remotev1alpha1.ShadowPodCreated, o.Pod.UID, "", ""
	if status.Reason == ReasonRemade {
		made.Reason, made.Message = status.Reason, status.Message
	}
	ends := isEnded(o) || lapses(o) && !Ended(o.Pod)
	if ends {
		made.Reason = ReasonHomeSilent
		made.Message = "The pod is ended, for its home cluster is silent and has asked for that; it decides what comes next."
	}
	if endedByItself(o) {
		made.Reason, made.Message = ReasonPodEnded, "The pod ended by itself with phase "+string(o.Pod.Status.Phase)+"."
	}
	adjusts := Adjust(o.Shadow, o.Pod) != nil
	if adjusts && status.Reason == remotev1alpha1.ReasonNotCarried && !ends {
		made.Reason, made.Message = status.Reason, status.Message
	}
	switch {
	case status != made:
		return Step{Verb: Note, Status: made}
	case ends:
		return remove(o)
	case slices.Contains(o.Pod.Finalizers, keys.UnrecordedFinalizer):
		return Step{Verb: Count}
	case o.Shadow.Spec.Unreadable == "" && o.Pod.DeletionTimestamp == nil && Patch(o.Shadow, o.Pod) != nil:
		return Step{Verb: Carry}
	case adjusts && !o.Paused:
		return Step{Verb: Change}
	case status.ObservedGeneration != o.Shadow.Generation && o.Shadow.Spec.GracePeriodSeconds == nil:
		// A pod with that field is deleted next, so one more write is useless.
		return Step{Verb: Note, Status: made}
	case adjusts:
		return Step{Verb: Wait}
	default:
		return Step{Verb: Idle}
	}
}

// endedByItself reports whether a pod has ended by itself. Nobody may have deleted it: a kubelet
// that ends a deleted pod also writes Succeeded or Failed before the pod is gone.
func endedByItself(o Observation) bool {
	switch status := o.Shadow.Status; {
	case !Ended(o.Pod):
		return false
	case o.Pod.DeletionTimestamp == nil:
		return true
	case status.Reason == ReasonPodEnded && status.PodUID == o.Pod.UID:
		// The pod had ended before it was deleted.
		return true
	default:
		// Its work may have been completed just then: it must not be done twice.
		policy := o.Pod.Spec.RestartPolicy
		return o.Pod.Status.Phase == corev1.PodSucceeded && (policy == corev1.RestartPolicyOnFailure || policy == corev1.RestartPolicyNever)
	}
}

// Ended reports whether a pod has ended for good.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// gone decides for a pod that was created and does not exist any more.
func gone(o Observation) Step {
	status := o.Shadow.Status
	switch {
	case !o.Live:
		return Step{Verb: Look}
	case status.Reason == ReasonPodEnded:
		return lost(status, ReasonPodEnded, "The pod ended by itself and was then removed from this cluster.")
	case isEnded(o), lapses(o):
		return lost(status, ReasonHomeSilent, "The pod was ended while its home cluster was silent, as that has asked for; it decides what "+
			"comes next.")
	case o.Shadow.Spec.Unreadable != "":
		// Its restart policy is not known.
		return lost(status, ReasonPodGone, "The pod was removed from this cluster; it is not made again, since its template cannot be read.")
	case o.Shadow.Spec.Pod.Spec.RestartPolicy == corev1.RestartPolicyNever:
		return lost(status, ReasonPodGone, "The pod was removed from this cluster; it is not made again, since its restart policy is Never.")
	case o.Home == Connected:
		return lost(status, ReasonPodGone, "The pod was removed from this cluster; its home cluster, which is connected, decides "+
			"what comes next.")
	case o.Home == Unknown, o.Lease == podlease.Listening && UsesClaims(o.Shadow):
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

// remove decides for a pod of ours that must be deleted.
func remove(o Observation) Step {
	grace := Grace(o.Shadow, o.Pod)
	if o.Leaving {
		// The grace period that home chose must not keep the owner from removing the pod.
		grace = min(grace, corev1.DefaultTerminationGracePeriodSeconds)
	}
	if lapses(o) {
		// Home counts with that of its pod, also where somebody had deleted that with a longer one before the silence, and by force then.
		grace = min(grace, max(ptr.Deref(o.Pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds), 1))
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

// Grace returns the grace period of the pod's deletion in seconds. For a pod on a node it is at
// least one: with zero the API server would delete the object while the pod still runs.
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
