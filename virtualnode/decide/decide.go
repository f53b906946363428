package decide

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/translate"
)

// Next returns the next step for a home pod.
func Next(o Observation) Step {
	switch {
	case o.Pod == nil:
		return homeless(o)
	case o.Pod.DeletionTimestamp != nil:
		return leaving(o)
	case Ended(o.Pod):
		return ended(o)
	}
	if _, started := CopyOf(o.Pod); started {
		return running(o)
	}
	return starting(o)
}

// Ended says whether a pod has ended for good.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Protected says whether a home pod has our finalizer.
func Protected(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, keys.RemotePodFinalizer) }

// homeless is the step for what is left of a home pod.
func homeless(o Observation) Step {
	if o.Shadow == nil || o.Shadow.DeletionTimestamp != nil {
		return Step{Verb: Idle}
	}
	return Step{Verb: Sweep}
}

// starting is the step for a home pod for which nothing runs yet.
func starting(o Observation) Step {
	if o.Shadow != nil && o.Shadow.Spec.Start {
		// It runs: only what the home pod says was lost.
		return Step{Verb: Record}
	}
	if m := refused(o); m != nil {
		return Step{Verb: Refuse, Status: Failed(o.Pod, m.Reason, m.Text), Tell: m}
	}
	switch {
	case !o.Place.Given:
		return waiting(o, "NamespaceNotGiven", o.Place.Message)
	case !o.Place.Seen:
		return waiting(o, "ClusterNotSeen", fmt.Sprintf("waiting until namespace %q of cluster %s can be read", o.Place.Name, o.Cluster))
	case o.Blocking != nil:
		return waiting(o, "NameTaken", fmt.Sprintf("waiting until the earlier pod of this name has ended in cluster %s", o.Cluster))
	case o.Shadow != nil && o.Shadow.DeletionTimestamp != nil:
		return waiting(o, "NameTaken", fmt.Sprintf("waiting until ShadowPod %s/%s is gone from cluster %s, where somebody deleted it", o.Shadow.Namespace, o.Shadow.Name, o.Cluster))
	case !Protected(o.Pod):
		return Step{Verb: Protect}
	case o.Shadow == nil && o.Problem != "":
		// The request is repeated all the same: see the caller's back-off.
		return problem(o, Create)
	case o.Shadow == nil:
		return Step{Verb: Create}
	}
	return Step{Verb: Record}
}

// problem is a step that failed before: first the user can read why.
func problem(o Observation, verb Verb) Step {
	if step := waiting(o, "RemoteRequestFailed", o.Problem); step.Verb == Report {
		return step
	}
	return Step{Verb: verb}
}

// waiting says on the home pod what it waits for.
func waiting(o Observation, reason, text string) Step {
	tell := warn(reason, text)
	status := translate.Status(translate.Seen{Home: o.Pod, HostIP: o.HostIP, Network: o.Network, Reason: reason, Message: text})
	if !equality.Semantic.DeepEqual(o.Pod.Status, status) {
		return Step{Verb: Report, Status: status, Tell: tell}
	}
	return Step{Verb: Idle, Tell: tell}
}

// running is the step for a home pod that has, or had, a copy.
func running(o Observation) Step {
	had, _ := CopyOf(o.Pod)
	if !had.within(o) {
		return elsewhere(o, had)
	}
	if !Protected(o.Pod) {
		return Step{Verb: Protect}
	}
	shadow := o.Shadow
	switch {
	case shadow == nil && !o.Place.Seen:
		return Step{Verb: Idle}
	case shadow == nil:
		return Step{Verb: Lose}
	case shadow.UID != had.ShadowUID && shadow.Spec.Start:
		return Step{Verb: Record}
	case shadow.UID != had.ShadowUID:
		// A late request made it; the one that ran is gone.
		return Step{Verb: Lose}
	case shadow.Status.Phase == remotev1alpha1.ShadowPodLost:
		text := translate.Message(shadow.Status.Message)
		if text == "" {
			text = fmt.Sprintf("the pod disappeared from cluster %s, where somebody deleted it or its node was lost", o.Cluster)
		}
		return Step{Verb: Fail, Status: Failed(o.Pod, "RemotePodLost", text), Tell: warn("RemotePodLost", text)}
	case shadow.DeletionTimestamp != nil:
		return report(o)
	case !shadow.Spec.Start:
		return Step{Verb: Start}
	case !equality.Semantic.DeepEqual(shadow.Spec.Pod, o.Template):
		return Step{Verb: Follow}
	}
	return report(o)
}

// report is the step that brings the home pod in step with the remote one.
func report(o Observation) Step {
	if !o.Current {
		// What runs there may serve nobody: nothing must be sent to it.
		if status := translate.Unreached(o.Pod); o.Silent && !equality.Semantic.DeepEqual(o.Pod.Status, status) {
			return Step{Verb: Report, Status: status}
		}
		return Step{Verb: Idle}
	}
	seen := translate.Seen{Home: o.Pod, Remote: o.Remote, HostIP: o.HostIP, Network: o.Network}
	var tell *Message
	if shadow := o.Shadow; shadow != nil {
		seen.Restarts = shadow.Status.Restarts
		if o.Remote == nil {
			seen.Reason, seen.Message = shadow.Status.Reason, shadow.Status.Message
			if seen.Message != "" {
				tell = warn("RemotePodPending", fmt.Sprintf("cluster %s has not made the pod yet: %s", o.Cluster, seen.Message))
			}
		}
	}
	if o.Remote != nil && o.Remote.DeletionTimestamp != nil && o.Pod.DeletionTimestamp == nil {
		tell = warn("RemotePodEnding", fmt.Sprintf("somebody is deleting the pod in cluster %s", o.Cluster))
	}
	if status := translate.Status(seen); !equality.Semantic.DeepEqual(o.Pod.Status, status) {
		return Step{Verb: Report, Status: status, Tell: tell}
	}
	address := ""
	if found := translate.Addresses(o.Remote); o.Network != v1alpha1.Routed && len(found) > 0 {
		address = found[0]
	}
	if o.Pod.Annotations[keys.RemoteIP] != address {
		return Step{Verb: Annotate, Address: address, Tell: tell}
	}
	return Step{Verb: Idle, Tell: tell}
}

// Failed returns the status of a home pod that ends here.
func Failed(pod *corev1.Pod, reason, text string) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.Phase, status.Reason, status.Message = corev1.PodFailed, reason, text
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status != corev1.ConditionFalse {
			*c = corev1.PodCondition{Type: c.Type, Status: corev1.ConditionFalse, Reason: "PodFailed", ObservedGeneration: c.ObservedGeneration}
		}
	}
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].Ready = false
	}
	return status
}
