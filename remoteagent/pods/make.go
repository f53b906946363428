package pods

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// make makes the pod of a ShadowPod that says that a pod may exist.
func (c *Controller) make(ctx context.Context, l *look) error {
	same, err := c.refresh(ctx, l)
	if err != nil || !same {
		return err
	}
	home := sources.Get[remotev1alpha1.HomeCluster](c.Sources.Homes, l.shadow.Spec.Home.Cluster)
	if home == nil {
		return nil // the next decision says so
	}
	ctx, cancel := context.WithTimeout(ctx, makeTimeout-elapsed(l.asOf))
	defer cancel()
	wanted := policy.NewPod(l.shadow, home)
	if len(home.Spec.Offer) > 0 {
		if ok, err := c.weigh(ctx, l, home, wanted); err != nil || !ok {
			return err
		}
	}
	if elapsed(l.asOf) >= makeTimeout {
		// This process or its machine was stopped for a while: another may have
		// taken over, and given the ShadowPod up.
		return fmt.Errorf("make pod: what was known of the ShadowPod is too old: %w", context.DeadlineExceeded)
	}
	pod, err := c.Client.CoreV1().Pods(l.shadow.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
	switch {
	case err == nil:
		klog.FromContext(ctx).V(2).Info("Made a pod")
		l.pod, l.live = pod, true
		c.pauses.forget(keyOf(l.shadow))
		return nil
	case apierrors.IsAlreadyExists(err):
		return c.lookLive(ctx, l)
	case refused(err):
		return c.refuse(ctx, l, refusalOf(err))
	default:
		c.unsure.note(keyOf(l.shadow))
		return fmt.Errorf("make pod: %w", err)
	}
}

// weigh asks what the API server would make of a pod, and reports whether that
// is within the offer. If not, that is written down. Nothing is made.
func (c *Controller) weigh(ctx context.Context, l *look, home *remotev1alpha1.HomeCluster, wanted *corev1.Pod) (bool, error) {
	pod, err := c.Client.CoreV1().Pods(wanted.Namespace).Create(ctx, wanted, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		if refusal := c.ledger.correct(home, pod); refusal != nil {
			return false, c.refuse(ctx, l, *refusal)
		}
		return true, nil
	case apierrors.IsAlreadyExists(err):
		return false, c.lookLive(ctx, l)
	case refused(err):
		return false, c.refuse(ctx, l, refusalOf(err))
	default:
		return false, fmt.Errorf("ask what would be made of pod: %w", err)
	}
}

// refuse writes down why no pod was made; it is tried again after a pause.
func (c *Controller) refuse(ctx context.Context, l *look, refusal policy.Refusal) error {
	c.pauses.begin(keyOf(l.shadow))
	c.ledger.forget(keyOf(l.shadow))
	return c.note(ctx, l, policy.Refused(l.shadow, refusal).Status)
}

func refusalOf(err error) policy.Refusal {
	return policy.Refusal{Reason: string(apierrors.ReasonForError(err)), Message: "This cluster refused the pod: " + err.Error() + "."}
}

// refused reports whether an answer says that the request did and will do nothing.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsNotFound(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// elapsed returns how long ago a time was by the clock that says more: the
// monotonic one stands still while a machine is suspended, and the other may be
// set.
func elapsed(since time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}
