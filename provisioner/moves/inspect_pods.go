package moves

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// inspectPods judges the pods that use the claims, and returns those that must stop.
func (c *Controller) inspectPods(ctx context.Context, r *record.Record) (stops []string, err error) {
	pods, err := c.Client.CoreV1().Pods(r.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if finished(pod) || pod.DeletionTimestamp != nil || len(usedBy(pod, r)) == 0 {
			continue
		}
		if pod.Spec.NodeName != "" && metav1.GetControllerOf(pod) == nil {
			return nil, refuse("pod %q uses the volume and nobody would make it anew once it is stopped: delete it first, and create it again after the move has begun", pod.Name)
		}
		if job := jobOf(pod); pod.Spec.NodeName != "" && job != "" {
			return nil, refuse("%s", decide.OfJob(r.Namespace, pod.Name, job))
		}
		if err := c.inspectPlace(r, pod); err != nil {
			return nil, err
		}
		if err := c.inspectVolumes(ctx, r, pod); err != nil {
			return nil, err
		}
		if pod.Spec.NodeName != "" {
			stops = append(stops, pod.Name)
		}
	}
	whole := slices.IndexFunc(r.Claims, func(known record.Claim) bool { return known.Offline && known.Snapshot == nil })
	if whole >= 0 && len(stops) > 0 && !r.LongStop {
		return nil, refuse("pod %q would stand still while all of claim %q is copied, which is ReadWriteOncePod, so that nothing can read it beside a pod, and no snapshot of it can be copied, for %s: allow that with spec.offline Allow (--offline), or stop the pod, and move again",
			stops[0], r.Claims[whole].Name, r.Claims[whole].NoSnapshot)
	}
	return stops, nil
}

// jobOf returns the name of the Job whose a pod is; empty if it is no Job's.
func jobOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Job" && strings.HasPrefix(owner.APIVersion, "batch/") {
		return owner.Name
	}
	return ""
}

// inspectPlace refuses a pod that uses a claim from another cluster than that of the
// data: nobody could tell there whether it has stopped writing.
func (c *Controller) inspectPlace(r *record.Record, pod *corev1.Pod) error {
	node := c.Node(pod.Spec.NodeName)
	if node == nil {
		return nil
	}
	for i := range r.Claims {
		if at, data := locality.OfNode(node.Labels), r.Claims[i].Source.Ref.Cluster; uses(&pod.Spec, r.Claims[i].Name) && at != data {
			return refuse("pod %q uses claim %q from cluster %s, while its data is in %s: a volume that several clusters use cannot be moved; stop that pod, and move again",
				pod.Name, r.Claims[i].Name, at, data)
		}
	}
	return nil
}

// inspectVolumes judges the other claims of a pod: those with virtual volumes must come
// along, or the pod could run nowhere.
func (c *Controller) inspectVolumes(ctx context.Context, r *record.Record, pod *corev1.Pod) error {
	for _, volume := range pod.Spec.Volumes {
		if volume.Ephemeral != nil || volume.PersistentVolumeClaim == nil {
			continue
		}
		name := volume.PersistentVolumeClaim.ClaimName
		if slices.ContainsFunc(r.Claims, func(known record.Claim) bool { return known.Name == name }) {
			continue
		}
		claim, err := claimAt(ctx, c.here(), pod.Namespace, name)
		switch {
		case err != nil:
			return err
		case claim == nil:
			continue
		}
		if _, err := c.classOf(claim); err == nil {
			return refuse("pod %q also uses claim %q, which is not part of this move: name both, for the pod can run only where all its volumes are", pod.Name, name)
		}
	}
	return nil
}
