package hollow

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// syncVirtual takes a pod of a virtual node a step on. The pod is nil if it does not
// exist, or no longer on this node.
func (h *Hollow) syncVirtual(ctx context.Context, p *player, key podKey, pod *corev1.Pod) error {
	duplicate, err := p.remote.find(key)
	if err != nil {
		return err
	}
	if duplicate != nil && (pod == nil || !isCopyOf(duplicate, pod)) {
		return h.removeOrphan(ctx, p, key, duplicate)
	}
	switch {
	case pod == nil:
		h.forget(key)
		return nil
	case pod.DeletionTimestamp != nil:
		return h.endVirtual(ctx, p, pod, duplicate)
	case duplicate != nil:
		return h.mirror(ctx, pod, duplicate)
	case finished(pod):
		return nil
	case pod.Status.Phase == corev1.PodRunning:
		return h.failIfGone(ctx, p, pod)
	default:
		return h.startVirtual(ctx, p, pod)
	}
}

func isCopyOf(duplicate, pod *corev1.Pod) bool {
	return duplicate.Annotations[HomePodUIDAnnotation] == string(pod.UID)
}

// find returns the copy of a home pod as far as the cache knows, or nil.
func (s *remoteSession) find(key podKey) (*corev1.Pod, error) {
	copies := s.lister()
	if copies == nil {
		return nil, fmt.Errorf("cluster %s cannot be reached", s.remote.ID)
	}
	duplicate, err := orNil(copies.Pods(s.remote.namespaceFor(key.namespace)).Get(key.name))
	if duplicate != nil && duplicate.Annotations[homePodAnnotation] != homePodValue(key) {
		return nil, err // the copy of a pod that was on another of our nodes: its own key handles it
	}
	return duplicate, err
}

// findLive asks the remote API server for the pod of that name, copy or not.
func (s *remoteSession) findLive(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return orNil(s.client.CoreV1().Pods(s.remote.namespaceFor(pod.Namespace)).Get(ctx, pod.Name, metav1.GetOptions{}))
}

// startVirtual copies a pod whose volumes can be mounted to the remote cluster.
func (h *Hollow) startVirtual(ctx context.Context, p *player, pod *corev1.Pod) error {
	found, err := h.mountProblem(ctx, p, pod)
	if err != nil {
		return err
	}
	if found != nil {
		h.complain(pod, "FailedMount", found)
		h.queue.AddAfter(keyOf(pod), problemRetry)
		return nil
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	duplicate := copyOf(pod, p.node.Remote)
	_, err = p.remote.client.CoreV1().Pods(duplicate.Namespace).Create(callCtx, duplicate, metav1.CreateOptions{})
	if err == nil {
		return nil
	}
	if apierrors.IsAlreadyExists(err) {
		existing, readErr := p.remote.findLive(ctx, pod)
		if readErr != nil {
			return fmt.Errorf("read pod %s/%s in cluster %s: %w", duplicate.Namespace, pod.Name, p.node.Remote.ID, readErr)
		}
		if existing == nil || existing.Labels[homeLabel] == p.node.Remote.homeID() {
			h.queue.AddAfter(keyOf(pod), problemRetry) // ours, or our predecessor's: the cache will tell
			return nil
		}
		err = fmt.Errorf("a pod of that name is there already")
	}
	h.complain(pod, "FailedRemoteCreate", &problem{message: fmt.Sprintf("the pod cannot be created in cluster %s: %v", p.node.Remote.ID, err)})
	h.queue.AddAfter(keyOf(pod), problemRetry)
	return nil
}

// mirror writes what the copy's status says into the home pod.
func (h *Hollow) mirror(ctx context.Context, pod, duplicate *corev1.Pod) error {
	if duplicate.DeletionTimestamp != nil || finished(pod) {
		return nil
	}
	status := homeStatus(duplicate)
	if pod.Status.Phase == status.Phase && pod.Status.Message == status.Message && (status.Phase != corev1.PodRunning || running(pod)) &&
		equality.Semantic.DeepEqual(pod.Status.ContainerStatuses, status.ContainerStatuses) {
		return nil
	}
	return patchStatus(ctx, h.client, pod, status)
}

// failIfGone marks a pod as failed whose copy is gone, so that its owner makes a new one.
func (h *Hollow) failIfGone(ctx context.Context, p *player, pod *corev1.Pod) error {
	existing, err := p.remote.findLive(ctx, pod)
	if err != nil {
		return fmt.Errorf("look for the copy of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if existing != nil && isCopyOf(existing, pod) {
		return nil
	}
	return patchStatus(ctx, h.client, pod, corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "RemotePodGone", Message: "the pod was deleted in cluster " + p.node.Remote.ID,
	})
}

// endVirtual deletes the copy of a pod that is being deleted and lets the pod go when
// the copy is proven to be gone.
func (h *Hollow) endVirtual(ctx context.Context, p *player, pod, duplicate *corev1.Pod) error {
	if duplicate == nil {
		var err error
		if duplicate, err = p.remote.findLive(ctx, pod); err != nil {
			return fmt.Errorf("look for the copy of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	if duplicate == nil || !isCopyOf(duplicate, pod) {
		return finishDeletion(ctx, h.client, pod)
	}
	return p.remote.remove(ctx, duplicate)
}

// removeOrphan deletes a copy whose home pod is gone, if the home API server agrees.
func (h *Hollow) removeOrphan(ctx context.Context, p *player, key podKey, duplicate *corev1.Pod) error {
	live, err := orNil(h.client.CoreV1().Pods(key.namespace).Get(ctx, key.name, metav1.GetOptions{}))
	if err != nil {
		return fmt.Errorf("read pod %s/%s: %w", key.namespace, key.name, err)
	}
	if live != nil && isCopyOf(duplicate, live) {
		return nil // the cache was behind; its next event brings the pod back here
	}
	return p.remote.remove(ctx, duplicate)
}

func (s *remoteSession) remove(ctx context.Context, duplicate *corev1.Pod) error {
	if duplicate.DeletionTimestamp != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := s.client.CoreV1().Pods(duplicate.Namespace).Delete(ctx, duplicate.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &duplicate.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s in cluster %s: %w", duplicate.Namespace, duplicate.Name, s.remote.ID, err)
	}
	return nil
}
