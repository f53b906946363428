package hollow

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Runner really runs pods of ordinary nodes. Package processes has one.
type Runner interface {
	// Runs reports whether a pod is really run; others are played.
	Runs(pod *corev1.Pod) bool

	// Run starts a pod unless it runs already, and returns its status. volumes are
	// what its claims are bound to, by the name of the pod's own volume.
	Run(ctx context.Context, pod *corev1.Pod, volumes map[string]*corev1.PersistentVolume) (corev1.PodStatus, error)

	// End ends what runs of the pods of a name, and returns when nothing does.
	End(namespace, name string)

	// Notify has look called when the status of a pod has changed.
	Notify(look func(pod *corev1.Pod))
}

// syncRun takes a pod that is really run a step on.
func (h *Hollow) syncRun(ctx context.Context, p *player, pod *corev1.Pod) error {
	switch {
	case pod.DeletionTimestamp != nil:
		h.runner.End(pod.Namespace, pod.Name)
		return h.endLocal(ctx, pod)
	case finished(pod):
		return nil
	}
	if pod.Status.Phase != corev1.PodRunning {
		if found, err := h.mountProblem(ctx, p, pod); found != nil || err != nil {
			if found != nil {
				h.complain(pod, "FailedMount", found)
				h.queue.AddAfter(keyOf(pod), problemRetry)
			}
			return err
		}
	}
	volumes, err := h.mounted(ctx, pod)
	if err != nil {
		return err
	}
	status, err := h.runner.Run(ctx, pod, volumes)
	if err != nil {
		return fmt.Errorf("run pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if equality.Semantic.DeepEqual(status.ContainerStatuses, pod.Status.ContainerStatuses) && status.Phase == pod.Status.Phase {
		return nil
	}
	return patchStatus(ctx, h.client, pod, status)
}

// mounted returns the volumes behind the claims of a pod, by the pod's own names
// for them.
func (h *Hollow) mounted(ctx context.Context, pod *corev1.Pod) (map[string]*corev1.PersistentVolume, error) {
	volumes := map[string]*corev1.PersistentVolume{}
	read := h.liveReader(ctx, pod.Namespace)
	for _, source := range pod.Spec.Volumes {
		name, ok := claimName(pod, source)
		if !ok {
			continue
		}
		claim, err := read.claim(name)
		if err != nil || claim == nil {
			return nil, fmt.Errorf("read claim %s/%s, which a pod mounts: %w", pod.Namespace, name, err)
		}
		volume, err := read.volume(claim.Spec.VolumeName)
		if err != nil || volume == nil {
			return nil, fmt.Errorf("read volume %s, which a pod mounts: %w", claim.Spec.VolumeName, err)
		}
		volumes[source.Name] = volume
	}
	return volumes, nil
}
