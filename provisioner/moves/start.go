package moves

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// ensureMover makes the mover that a step says, which does not start.
func (c *Controller) ensureMover(ctx context.Context, r *record.Record, step decide.Step) error {
	i, end := step.Claim, step.End
	at, err := c.must(r.Claims[i].At(end).Ref.Cluster)
	if err != nil {
		return err
	}
	namespace, name := r.Claims[i].At(end).Ref.Namespace, r.MoverName(i, end)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: c.moverLabels(r)}
	node, err := c.nodeFor(ctx, at, r, i, end)
	if err != nil {
		return err
	}
	spec := c.moverSpec(r, i, end, cmp.Or(step.Node, node))
	if step.Near != "" {
		spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: onNode(step.Near)}}
	}
	if at.home {
		spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: keys.MovingGate}}
		_, err = at.Client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: spec}, metav1.CreateOptions{})
	} else {
		if at.Remote == nil {
			return errUnreachable(fmt.Sprintf("cluster %s runs no remote agent, which a move needs: install deploy/remote there", r.Claims[i].At(end).Ref.Cluster))
		}
		meta.Finalizers = []string{keys.ShadowPodFinalizer}
		_, err = at.Remote.ShadowPods(namespace).Create(ctx, &remotev1alpha1.ShadowPod{ObjectMeta: meta, Spec: remotev1alpha1.ShadowPodSpec{
			Home: remotev1alpha1.HomePod{Cluster: c.Place.HomeID, Namespace: r.Namespace, Name: r.Name, UID: r.UID},
			Pod:  corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: c.moverLabels(r)}, Spec: spec},
		}}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make mover %s/%s: %w", namespace, name, err)
	}
	return nil
}

// startMover gives the mover of an end its keys and has it run. It is a step of its own: a
// request to make a mover that arrives late starts nothing.
func (c *Controller) startMover(ctx context.Context, r *record.Record, i int, end record.End) error {
	at, err := c.must(r.Claims[i].At(end).Ref.Cluster)
	if err != nil {
		return err
	}
	namespace, name := r.Claims[i].At(end).Ref.Namespace, r.MoverName(i, end)
	owner, err := asOwner(ctx, at, namespace, name)
	if err != nil {
		return err
	}
	if err := c.giveKeys(ctx, at, r, i, end, owner); err != nil {
		return err
	}
	if at.home {
		return c.ungate(ctx, namespace, decide.Pod{Name: name, UID: owner.UID})
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"start":true}}`, owner.UID)
	if _, err := at.Remote.ShadowPods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("start mover %s/%s: %w", namespace, name, err)
	}
	return nil
}

// nodeFor returns the node that a mover must run on; empty for any.
func (c *Controller) nodeFor(ctx context.Context, at site, r *record.Record, i int, end record.End) (string, error) {
	if end == record.Target {
		return r.Claims[i].Target.Node, nil
	}
	// A claim made of a snapshot is best made where its source can be used.
	copied := r.Claims[i].Source
	namespace, claim, options := r.Namespace, r.Claims[i].Name, metav1.ListOptions{}
	if !at.home {
		namespace, claim, options.LabelSelector = copied.Ref.Namespace, copied.Ref.Name, keys.HomeID+"="+c.Place.HomeID
	}
	pods, err := at.Client.CoreV1().Pods(namespace).List(ctx, options)
	if err != nil {
		return "", fmt.Errorf("list pods that use claim %s: %w", r.Claims[i].Name, err)
	}
	node, mover := "", r.MoverName(i, end)
	for j := range pods.Items {
		pod := &pods.Items[j]
		if pod.Spec.NodeName == "" || finished(pod) || !uses(&pod.Spec, claim) || pod.Name == mover {
			continue
		}
		if node = pod.Spec.NodeName; pod.DeletionTimestamp == nil {
			return node, nil
		}
	}
	// The volume may still be where one ends.
	return node, nil
}

// dropMover removes the mover of an end and its keys.
func (c *Controller) dropMover(ctx context.Context, r *record.Record, i int, end record.End) error {
	at, err := c.must(r.Claims[i].At(end).Ref.Cluster)
	if err != nil {
		return err
	}
	namespace, name := r.Claims[i].At(end).Ref.Namespace, r.MoverName(i, end)
	err = at.Client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove Secret of mover %s/%s: %w", namespace, name, err)
	}
	if at.home {
		err = at.Client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(graceOf(r, i, end, 1))})
	} else {
		err = at.Remote.ShadowPods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove mover %s/%s: %w", namespace, name, err)
	}
	return nil
}
