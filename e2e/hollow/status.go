package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// readyConditions are the conditions that say that a pod runs.
var readyConditions = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
}

// runningStatus is the status of a pod all of whose containers run.
func runningStatus(pod *corev1.Pod) corev1.PodStatus {
	now := metav1.Now()
	status := corev1.PodStatus{
		Phase:     corev1.PodRunning,
		StartTime: &now,
		HostIP:    "127.0.0.1",
		HostIPs:   []corev1.HostIP{{IP: "127.0.0.1"}},
		PodIP:     podIP(pod.UID),
		PodIPs:    []corev1.PodIP{{IP: podIP(pod.UID)}},
	}
	if pod.Status.StartTime != nil {
		status.StartTime = pod.Status.StartTime
	}
	for _, condition := range readyConditions {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: now,
		})
	}
	started := true
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	for _, container := range pod.Spec.InitContainers {
		status.InitContainerStatuses = append(status.InitContainerStatuses, initStatus(container, now))
	}
	return status
}

// endedStatus is the status of a pod whose containers were made to end.
func endedStatus(pod *corev1.Pod) corev1.PodStatus {
	status := corev1.PodStatus{Phase: corev1.PodSucceeded}
	now := metav1.Now()
	for _, container := range pod.Status.ContainerStatuses {
		container.Ready, container.Started = false, nil
		container.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: now}}
		status.ContainerStatuses = append(status.ContainerStatuses, container)
	}
	for _, container := range pod.Status.InitContainerStatuses {
		if container.State.Running != nil {
			container.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: now}}
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, container)
	}
	return status
}

// initStatus is that of an init container that has done its work, or of a sidecar that runs.
func initStatus(container corev1.Container, now metav1.Time) corev1.ContainerStatus {
	started := true
	status := corev1.ContainerStatus{Name: container.Name, Image: container.Image, Ready: true, Started: &started}
	if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
		return status
	}
	status.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}
	return status
}

// podIP is an address that nobody answers at, the same for the same pod.
func podIP(uid types.UID) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid))
	sum := hash.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", 128+sum>>16&0x7f, sum>>8&0xff, 1+sum&0xff%254)
}

// patchStatus writes the message and the reason, even if empty, and the other fields of
// status that are set, if the pod is still the same one.
func patchStatus(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := statusPatch(pod.UID, status)
	if err != nil {
		return fmt.Errorf("encode the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("write the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func statusPatch(uid types.UID, status corev1.PodStatus) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return nil, err
	}
	// Left out, an old text would stay.
	fields["message"], fields["reason"] = status.Message, status.Reason
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": fields})
}
