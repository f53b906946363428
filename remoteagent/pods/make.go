package pods

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// make makes the pod of a ShadowPod that says that a pod may exist.
func (c *Controller) make(ctx context.Context, l *look) error {
	began := time.Now()
	same, err := c.refresh(ctx, l)
	if err != nil || !same {
		return err
	}
	home := sources.Get[remotev1alpha1.HomeCluster](c.Sources.Homes, l.shadow.Spec.Home.Cluster)
	if home == nil {
		return nil // the next decision says so
	}
	ctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	if time.Since(began) > makeTimeout {
		// This process was stopped for a while; another may have taken over.
		return context.DeadlineExceeded
	}
	pod, err := c.Client.CoreV1().Pods(l.shadow.Namespace).Create(ctx, policy.NewPod(l.shadow, home), metav1.CreateOptions{})
	switch {
	case err == nil:
		klog.FromContext(ctx).V(2).Info("Made a pod")
		l.pod, l.live = pod, true
		c.pauses.forget(keyOf(l.shadow))
		return nil
	case apierrors.IsAlreadyExists(err):
		return c.lookLive(ctx, l)
	case refused(err):
		c.pauses.begin(keyOf(l.shadow))
		c.ledger.forget(keyOf(l.shadow))
		refusal := policy.Refusal{Reason: string(apierrors.ReasonForError(err)), Message: "This cluster refused the pod: " + err.Error() + "."}
		return c.note(ctx, l, policy.Refused(l.shadow, refusal).Status)
	default:
		c.unsure.note(keyOf(l.shadow))
		return fmt.Errorf("make pod: %w", err)
	}
}

// refused reports whether an answer says that the request did and will do nothing.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsNotFound(err) || apierrors.IsRequestEntityTooLargeError(err)
}
