package policy

import (
	corev1 "k8s.io/api/core/v1"
)

// endedByItself reports whether a pod has ended that nobody made end. A kubelet that ends
// a pod which is being deleted calls it succeeded or failed too, before it lets it go.
func endedByItself(o Observation) bool {
	switch status := o.Shadow.Status; {
	case !Ended(o.Pod):
		return false
	case o.Pod.DeletionTimestamp == nil:
		return true
	case status.Reason == ReasonPodEnded && status.PodUID == o.Pod.UID:
		// That was before.
		return true
	default:
		// Its work may have been done just then: it is not done twice.
		policy := o.Pod.Spec.RestartPolicy
		return o.Pod.Status.Phase == corev1.PodSucceeded && (policy == corev1.RestartPolicyOnFailure || policy == corev1.RestartPolicyNever)
	}
}

// Ended reports whether a pod will never run again.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
