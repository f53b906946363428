package moves

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

const (
	// gateProof is the policy that answers the dry run, and heldBack what it says of a pod
	// that has the gate: deploy/base/moves/rights.yaml.
	gateProof = "lodestone-move-proof"
	heldBack  = "a new pod waits at the gate"
)

// observeGate finds out, for the next pod that is to be stopped, whether a new one like it
// would get the gate. live are the pods of the observation, in its order.
//
// It is asked by a dry run with the live pod, which was admitted once, so that all that
// decides about its successor decides here too: the namespace, its labels, policies and
// webhooks of others. Our policy refuses each such pod and says in the refusal what it saw,
// before quotas are looked at, which that pod may fill. So the right to create pods is the
// right to ask.
func (c *Controller) observeGate(ctx context.Context, o *steps.Observation, live []*corev1.Pod) error {
	next := slices.IndexFunc(o.Pods, decide.MustStop)
	stopping := record.Before(o.Record.Phase, v1alpha1.MoveCommit) && !record.Before(o.Record.Phase, v1alpha1.MoveQuiesce)
	if next < 0 || !stopping || !isLocked(o) {
		return nil
	}
	made, err := c.Client.CoreV1().Pods(o.Record.Namespace).Create(ctx, likeAgain(live[next]),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	pod := &o.Pods[next]
	switch {
	case err == nil:
		if pod.Held = podOf(made).Gated; !pod.Held {
			pod.NotHeld = "nothing gave it the scheduling gate " + keys.MovingGate
		}
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), gateProof) && strings.Contains(err.Error(), heldBack):
		pod.Held = true
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err):
		pod.NotHeld = plain(err.Error())
	default:
		return fmt.Errorf("ask what would hold a new pod like %s back: %w", pod.Name, err)
	}
	return nil
}

// isLocked says whether new pods of all claims are to be held back.
func isLocked(o *steps.Observation) bool {
	return !slices.ContainsFunc(o.Claims, func(claim steps.Claim) bool {
		return claim.Claim == nil || claim.Claim.Labels[keys.Moving] != keys.MovingNow ||
			claim.Claim.Annotations[keys.Move] != string(o.Record.UID)
	})
}

// likeAgain is a pod as the owner of another one would make it once more.
func likeAgain(pod *corev1.Pod) *corev1.Pod {
	next := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "lodestone-move-", Labels: pod.Labels, Annotations: pod.Annotations},
		Spec:       *pod.Spec.DeepCopy(),
	}
	next.Spec.NodeName, next.Spec.SchedulingGates, next.Spec.EphemeralContainers = "", nil, nil
	return next
}
