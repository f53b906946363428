package needs

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Anything reports whether a pod needs anything in a remote cluster: it was
// accepted to run there, which its finalizer says before anything is made, and it
// has not ended. A phase alone does not end it: home's controllers also write
// Failed on a pod whose node is silent, while its containers go on.
func Anything(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" || !slices.Contains(pod.Finalizers, keys.RemotePodFinalizer) {
		return false
	}
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return true
	}
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses),
		func(status corev1.ContainerStatus) bool { return status.State.Running != nil })
}
