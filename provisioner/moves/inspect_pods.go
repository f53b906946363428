package moves

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// inspectPods judges the pods that use the claims.
func (c *Controller) inspectPods(ctx context.Context, r *record.Record) error {
	pods, err := c.Client.CoreV1().Pods(r.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if finished(pod) || pod.DeletionTimestamp != nil || !usesAny(pod, r) {
			continue
		}
		if pod.Spec.NodeName != "" && metav1.GetControllerOf(pod) == nil {
			return refuse("pod %q uses the volume and nobody would make it anew once it is stopped: delete it first, and create it again after the move has begun", pod.Name)
		}
		if err := c.inspectVolumes(ctx, r, pod); err != nil {
			return err
		}
	}
	return nil
}

// inspectVolumes judges the other claims of a pod: those with virtual volumes must come
// along, or the pod could run nowhere.
func (c *Controller) inspectVolumes(ctx context.Context, r *record.Record, pod *corev1.Pod) error {
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.Ephemeral != nil || volume.PersistentVolumeClaim == nil:
			continue
		}
		name, listed := volume.PersistentVolumeClaim.ClaimName, false
		for i := range r.Claims {
			listed = listed || r.Claims[i].Name == name
		}
		claim, err := claimAt(ctx, c.here(), pod.Namespace, name)
		switch {
		case err != nil:
			return err
		case claim == nil:
			continue
		case listed:
			for _, mode := range claim.Spec.AccessModes {
				if mode == corev1.ReadWriteOncePod && pod.Spec.NodeName != "" {
					return refuse("claim %q is ReadWriteOncePod and pod %q uses it, so no mover can read it beside: stop the pod, and move again", name, pod.Name)
				}
			}
			continue
		}
		if _, err := c.classOf(claim); err == nil {
			return refuse("pod %q also uses claim %q, which is not part of this move: name both, for the pod can run only where all its volumes are", pod.Name, name)
		}
	}
	return nil
}
