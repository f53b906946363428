package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// refused says why a pod may not run in the remote cluster, nil if it may.
func refused(o Observation) *Message {
	pod := o.Pod
	owner := metav1.GetControllerOf(pod)
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case mirror:
		return warn("StaticPod", "a static pod belongs to the machine of its kubelet, and a virtual node has none")
	case owner != nil && owner.Kind == "DaemonSet":
		return warn("DaemonSetPod", fmt.Sprintf("pods of DaemonSets do not run on virtual nodes: let DaemonSet %q not tolerate taint %s, or keep it off nodes with label %s", owner.Name, keys.RemoteTaint, keys.Cluster))
	case !scheduled(pod):
		return warn("NotScheduled", "the pod names a virtual node itself, so no scheduler looked at what it needs: leave spec.nodeName out and use a node affinity")
	case !o.Open:
		return warn("NamespaceNotOpen", fmt.Sprintf("namespace %q is not open to cluster %s: give it the label %s=%s and, if it has the annotation %s, add the cluster there", pod.Namespace, o.Cluster, keys.Offload, keys.OffloadEnabled, keys.OffloadClusters))
	}
	return nil
}

// scheduled says whether a scheduler bound the pod, which writes the condition
// together with the node.
func scheduled(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
