package access

import corev1 "k8s.io/api/core/v1"

// Uses says whether a pod mounts a claim of its namespace, by its own name or as
// a generic ephemeral volume. A pod that has ended uses nothing any more.
func Uses(pod *corev1.Pod, claim string) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	for _, volume := range pod.Spec.Volumes {
		if source := volume.PersistentVolumeClaim; source != nil && source.ClaimName == claim {
			return true
		}
		if volume.Ephemeral != nil && pod.Name+"-"+volume.Name == claim {
			return true
		}
	}
	return false
}
