package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// take takes one step, and changes look to what it has seen or done.
func (c *Controller) take(ctx context.Context, l *look, o policy.Observation, step policy.Step) error {
	klog.FromContext(ctx).V(4).Info("Taking a step", "step", step.Verb)
	switch step.Verb {
	case policy.Look:
		return c.lookLive(ctx, l)
	case policy.Hold:
		return c.hold(ctx, l)
	case policy.Note:
		return c.note(ctx, l, step.Status)
	case policy.Make:
		return c.make(ctx, l)
	case policy.Count:
		return c.patch(ctx, l, map[string]any{
			"metadata": map[string]any{"uid": l.pod.UID, "resourceVersion": l.pod.ResourceVersion, "finalizers": without(l.pod.Finalizers, keys.UnrecordedFinalizer)},
		}, types.MergePatchType)
	case policy.Carry:
		return c.patch(ctx, l, policy.Patch(o.Shadow, o.Pod), types.StrategicMergePatchType)
	case policy.Delete:
		return c.delete(ctx, l, step.Grace)
	case policy.Release:
		return c.release(ctx, l)
	default:
		return fmt.Errorf("no such step: %s", step.Verb)
	}
}

func (c *Controller) lookLive(ctx context.Context, l *look) error {
	pod, err := c.Client.CoreV1().Pods(l.shadow.Namespace).Get(ctx, l.shadow.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get pod: %w", err)
	}
	l.pod, l.live = pod, true
	if err != nil {
		l.pod = nil
	}
	return nil
}

func (c *Controller) hold(ctx context.Context, l *look) error {
	held := l.shadow.DeepCopy()
	held.Finalizers = append(held.Finalizers, keys.ShadowPodFinalizer)
	asked := time.Now()
	now, err := c.Remote.ShadowPods(held.Namespace).Update(ctx, held, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("put finalizer on ShadowPod: %w", err)
	}
	l.shadow, l.current, l.asOf = now, true, asked
	return nil
}

func (c *Controller) note(ctx context.Context, l *look, status remotev1alpha1.ShadowPodStatus) error {
	noted := l.shadow.DeepCopy()
	noted.Status = status
	asked := time.Now()
	now, err := c.Remote.ShadowPods(noted.Namespace).UpdateStatus(ctx, noted, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		l.gone = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("write status of ShadowPod: %w", err)
	}
	before := l.shadow.Status
	l.shadow, l.current, l.asOf = now, true, asked
	if now.Status.Phase == remotev1alpha1.ShadowPodCreating {
		c.unsure.own(keyOf(now))
		// Nothing is on its way, and the API server refuses a second pod.
		l.live = true
	}
	c.tell(now, before)
	return nil
}

// tell makes an event of what the owner of this cluster may want to know.
func (c *Controller) tell(shadow *remotev1alpha1.ShadowPod, before remotev1alpha1.ShadowPodStatus) {
	now := shadow.Status
	switch {
	case now.Phase == remotev1alpha1.ShadowPodLost && before.Phase != now.Phase:
		c.Recorder.Event(shadow, corev1.EventTypeWarning, now.Reason, now.Message)
		c.Metrics.lost.Inc()
	case now.Restarts > before.Restarts:
		c.Recorder.Event(shadow, corev1.EventTypeWarning, now.Reason, now.Message)
		c.Metrics.remade.Inc()
	case now.Phase == remotev1alpha1.ShadowPodPending && now.Message != "" && now.Message != before.Message:
		c.Recorder.Event(shadow, corev1.EventTypeWarning, now.Reason, now.Message)
	}
}

// patch changes the pod if it is still the same one.
func (c *Controller) patch(ctx context.Context, l *look, change map[string]any, kind types.PatchType) error {
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	pod, err := c.Client.CoreV1().Pods(l.pod.Namespace).Patch(ctx, l.pod.Name, kind, body, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		l.gone = true
		return nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		// A template that cannot be carried must not hold up the rest.
		klog.FromContext(ctx).Info("The pod could not be changed", "err", err)
		c.Recorder.Eventf(l.shadow, corev1.EventTypeWarning, "NotCarried", "A change could not be carried to the pod: %v.", err)
		l.gone = true
		return nil
	case err != nil:
		return fmt.Errorf("patch pod: %w", err)
	}
	l.pod, l.live = pod, true
	return nil
}

func (c *Controller) delete(ctx context.Context, l *look, grace int64) error {
	err := c.Client.CoreV1().Pods(l.pod.Namespace).Delete(ctx, l.pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &l.pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod: %w", err)
	}
	return c.lookLive(ctx, l)
}

// release lets a ShadowPod go whose pod was just seen to be gone.
func (c *Controller) release(ctx context.Context, l *look) error {
	released := l.shadow.DeepCopy()
	released.Finalizers = without(released.Finalizers, keys.ShadowPodFinalizer)
	_, err := c.Remote.ShadowPods(released.Namespace).Update(ctx, released, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take finalizer off ShadowPod: %w", err)
	}
	c.unsure.forget(keyOf(l.shadow))
	l.gone = true
	return nil
}

func hasFinalizer(object metav1.Object, finalizer string) bool {
	return slices.Contains(object.GetFinalizers(), finalizer)
}

func without(finalizers []string, finalizer string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == finalizer })
}

// makeTimeout bounds the request that makes a pod. It is part of what a request
// with an unknown outcome may still do.
const makeTimeout = 10 * time.Second
