package moves

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// madeFor says whether a pod was made for a ShadowPod, which may be gone before its pod,
// and may not have heard of it yet.
func madeFor(shadow *remotev1alpha1.ShadowPod, pod *corev1.Pod) bool {
	if pod.UID == "" {
		return false
	}
	if shadow != nil && shadow.Status.PodUID == pod.UID {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "ShadowPod" && owner.Name == pod.Name && (shadow == nil || owner.UID == shadow.UID)
}

// moverAt looks for the mover of an end. pod is nil while there is none.
func (c *Controller) moverAt(ctx context.Context, at site, r *record.Record, i int, end record.End) (m decide.Mover, pod *corev1.Pod, err error) {
	defer func() { m.Problem = sentence(m.Problem) }()
	ref, name := r.Claims[i].At(end).Ref, r.MoverName(i, end)
	namespace := ref.Namespace
	var shadow *remotev1alpha1.ShadowPod
	if at.Remote != nil {
		shadow, err = at.Remote.ShadowPods(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil && shadow.Labels[keys.MoveOf] == string(r.UID):
			m.Exists, m.Leaving = true, shadow.DeletionTimestamp != nil
			m.Unstarted = !shadow.Spec.Start
			m.Ended = shadow.Status.Phase == remotev1alpha1.ShadowPodLost
			m.Problem = shadow.Status.Message
		case err != nil && !apierrors.IsNotFound(err):
			return m, nil, fmt.Errorf("look at ShadowPod %s/%s: %w", namespace, name, err)
		default:
			shadow = nil
		}
	}
	pod, err = at.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if pod, err = orNil(at, pod, err, fmt.Sprintf("mover %s/%s", namespace, name)); err != nil {
		return m, nil, err
	}
	if pod == nil {
		if m.Exists && !m.Leaving && !m.Unstarted && m.Problem == "" {
			m.Problem = whyNot(ctx, at, ref, nil)
		}
		return m, nil, nil
	}
	if at.Remote != nil && !madeFor(shadow, pod) {
		// Whoever may make pods in that namespace knows the names of movers.
		if m.Problem == "" {
			m.Problem = fmt.Sprintf("pod %s/%s is there already and is no mover: delete it", namespace, name)
		}
		return m, nil, nil
	}
	m.Exists, m.Pod, m.IPs, m.Node = true, pod.UID, addressesOf(pod), pod.Spec.NodeName
	m.Unstarted = m.Unstarted || at.home && podOf(pod).Gated
	m.Leaving = m.Leaving || pod.DeletionTimestamp != nil
	m.Ended = m.Ended || finished(pod)
	if problem := problemOf(pod); problem != "" {
		m.Problem = problem
	}
	m.Running = !m.Leaving && !m.Ended && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" &&
		!slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running == nil })
	if !m.Running && !m.Leaving && m.Problem == "" {
		m.Problem = whyNot(ctx, at, ref, pod)
	}
	return m, pod, nil
}

// problemOf says what keeps a pod from running, as far as its status tells.
func problemOf(pod *corev1.Pod) string {
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Message != "" {
		// As when its node had too little memory or disk left.
		return fmt.Sprintf("its node %s ended it (%s): %s", pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message)
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "ContainerCreating" {
			return waiting.Reason + " " + waiting.Message
		}
		if ended := status.State.Terminated; ended != nil {
			return fmt.Sprintf("its program ended with code %d (%s %s) and is started again: see the log of pod %s/%s", ended.ExitCode, ended.Reason, ended.Message, pod.Namespace, pod.Name)
		}
	}
	return ""
}
