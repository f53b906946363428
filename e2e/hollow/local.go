package hollow

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// problemRetry is the time after which a pod that could not be mounted is looked at
// again even if nothing it waits for has changed.
const problemRetry = 2 * time.Second

// syncLocal takes a pod of an ordinary node a step on.
func (h *Hollow) syncLocal(ctx context.Context, p *player, pod *corev1.Pod) error {
	if h.runner != nil && h.runner.Runs(pod) {
		return h.syncRun(ctx, p, pod)
	}
	if pod.DeletionTimestamp != nil {
		return h.endLocal(ctx, pod)
	}
	if finished(pod) || running(pod) {
		return nil
	}
	// What runs has its volumes mounted already: no claim is looked at again.
	if pod.Status.Phase != corev1.PodRunning {
		found, err := h.mountProblem(ctx, p, pod)
		if err != nil {
			return err
		}
		if found != nil {
			h.complain(pod, "FailedMount", found)
			h.queue.AddAfter(keyOf(pod), problemRetry)
			return nil
		}
	}
	return patchStatus(ctx, h.client, pod, runningStatus(pod))
}

// endLocal tells that a pod has ended that is being deleted, and then lets it go: so do
// kubelets.
func (h *Hollow) endLocal(ctx context.Context, pod *corev1.Pod) error {
	if !finished(pod) {
		if err := patchStatus(ctx, h.client, pod, endedStatus(pod)); err != nil {
			return err
		}
	}
	return finishDeletion(ctx, h.client, pod)
}

// finishDeletion removes a pod that is being deleted, as a kubelet does whose
// containers have ended.
func finishDeletion(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	if ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0 {
		return nil // only finalizers hold it now
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0),
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("finish the deletion of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// running reports whether the pod runs and nobody has marked it unready, as the node
// lifecycle controller does when the node was silent.
func running(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
