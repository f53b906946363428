package hollow

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Marks of a copy in the remote cluster.
const (
	homeLabel         = "hollow.lodestone.dev/home"
	homePodAnnotation = "hollow.lodestone.dev/home-pod"

	// HomePodUIDAnnotation is, on a copy in a remote cluster, the UID of its home pod.
	HomePodUIDAnnotation = "hollow.lodestone.dev/home-pod-uid"
)

// accountTokenVolume begins the name of the volume that the home API server adds to
// pods. Its token means nothing in the remote cluster.
const accountTokenVolume = "kube-api-access-"

// copyOf returns the pod to create in the remote cluster for a home pod. What refers
// to nodes, classes and accounts of the home cluster is left out, the volumes stay.
func copyOf(pod *corev1.Pod, remote *Remote) *corev1.Pod {
	duplicate := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        pod.Name,
			Namespace:   remote.namespaceFor(pod.Namespace),
			Labels:      map[string]string{},
			Annotations: map[string]string{},
		},
		Spec: *pod.Spec.DeepCopy(),
	}
	maps.Copy(duplicate.Labels, pod.Labels)
	maps.Copy(duplicate.Annotations, pod.Annotations)
	duplicate.Labels[homeLabel] = remote.homeID()
	duplicate.Annotations[HomePodUIDAnnotation] = string(pod.UID)
	duplicate.Annotations[homePodAnnotation] = homePodValue(keyOf(pod))
	spec := &duplicate.Spec
	spec.NodeName, spec.NodeSelector, spec.SchedulerName = "", nil, ""
	spec.Affinity, spec.Tolerations, spec.TopologySpreadConstraints, spec.SchedulingGates = nil, nil, nil, nil
	spec.Priority, spec.PriorityClassName, spec.PreemptionPolicy = nil, "", nil
	spec.RuntimeClassName, spec.Overhead = nil, nil
	spec.ServiceAccountName, spec.DeprecatedServiceAccount, spec.ImagePullSecrets = "", "", nil
	spec.AutomountServiceAccountToken = ptr.To(false)
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, accountTokenVolume) })
	dropTokenMounts(spec.Containers)
	dropTokenMounts(spec.InitContainers)
	return duplicate
}

func dropTokenMounts(containers []corev1.Container) {
	for i := range containers {
		containers[i].VolumeMounts = slices.DeleteFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool {
			return strings.HasPrefix(m.Name, accountTokenVolume)
		})
	}
}

// homeStatus is the status of a home pod whose copy has the given status.
func homeStatus(duplicate *corev1.Pod) corev1.PodStatus {
	status := corev1.PodStatus{
		Phase:                 duplicate.Status.Phase,
		Message:               duplicate.Status.Message,
		Reason:                duplicate.Status.Reason,
		StartTime:             duplicate.Status.StartTime,
		PodIP:                 duplicate.Status.PodIP,
		PodIPs:                duplicate.Status.PodIPs,
		ContainerStatuses:     duplicate.Status.ContainerStatuses,
		InitContainerStatuses: duplicate.Status.InitContainerStatuses,
	}
	for _, condition := range duplicate.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			// At home the pod is scheduled, to the virtual node.
			if condition.Status != corev1.ConditionTrue {
				status.Message = "not scheduled in the remote cluster: " + condition.Message
			}
			continue
		}
		condition.ObservedGeneration = 0
		status.Conditions = append(status.Conditions, condition)
	}
	return status
}
