package pods

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
)

// patch changes a home pod if it is still the one that was seen, and keeps what
// became of it.
func (r *runner) patch(ctx context.Context, pod *corev1.Pod, kind types.PatchType, patch map[string]any, subresources ...string) error {
	data, err := encode(patch)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	changed, err := r.config.Home.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, kind, data, metav1.PatchOptions{}, subresources...)
	if err != nil {
		return err
	}
	r.pods.set(pod.UID, changed)
	return nil
}

// unchanged is the metadata of a patch that fails if the pod has changed.
func unchanged(pod *corev1.Pod) map[string]any {
	return map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion}
}

// protect puts the finalizer on a home pod.
func (r *runner) protect(ctx context.Context, pod *corev1.Pod) error {
	metadata := unchanged(pod)
	metadata["finalizers"] = []string{keys.RemotePodFinalizer}
	if err := r.patch(ctx, pod, types.StrategicMergePatchType, map[string]any{"metadata": metadata}); err != nil {
		return fmt.Errorf("put finalizer on pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// annotate writes an annotation of a home pod if that has not changed; an empty
// value removes it.
func (r *runner) annotate(ctx context.Context, pod *corev1.Pod, name, value string) error {
	metadata := unchanged(pod)
	metadata["annotations"] = map[string]any{name: nil}
	if value != "" {
		metadata["annotations"] = map[string]any{name: value}
	}
	if err := r.patch(ctx, pod, types.MergePatchType, map[string]any{"metadata": metadata}); err != nil {
		return fmt.Errorf("annotate pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// writeStatus writes those fields of a home pod's status that differ, if the pod
// has not changed.
func (r *runner) writeStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := statusPatch(pod.Status, status)
	if err != nil {
		return fmt.Errorf("encode status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	patch["metadata"] = unchanged(pod)
	if err := r.patch(ctx, pod, types.StrategicMergePatchType, patch, "status"); err != nil {
		return fmt.Errorf("write status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func statusPatch(was, is corev1.PodStatus) (map[string]any, error) {
	before, err := json.Marshal(corev1.Pod{Status: was})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{Status: is})
	if err != nil {
		return nil, err
	}
	data, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return nil, err
	}
	var patch map[string]any
	return patch, json.Unmarshal(data, &patch)
}

// release takes the finalizer off a home pod and, if it is being deleted, ends
// the deletion, as a kubelet does.
func (r *runner) release(ctx context.Context, pod *corev1.Pod) error {
	if decide.Protected(pod) {
		patch := map[string]any{"metadata": map[string]any{"uid": pod.UID, "$deleteFromPrimitiveList/finalizers": []string{keys.RemotePodFinalizer}}}
		err := r.patch(ctx, pod, types.StrategicMergePatchType, patch)
		if absent(err, pod.Name) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take finalizer off pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	if pod.DeletionTimestamp == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := r.config.Home.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("end deletion of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
