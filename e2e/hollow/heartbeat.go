package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// heartbeat shows that the node lives until ctx ends.
func (h *Hollow) heartbeat(ctx context.Context, p *player) {
	h.beat(ctx, p)
	// Many nodes must not beat in step.
	wait := time.Duration(rand.Int64N(int64(h.leasePeriod)))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = h.leasePeriod
		h.beat(ctx, p)
	}
}

// beat renews the node's lease, and its status if that does not say that it is ready.
func (h *Hollow) beat(ctx context.Context, p *player) {
	if !p.alive() {
		return
	}
	node, err := h.nodes.Get(p.node.Name)
	if err != nil {
		return // somebody has deleted it: a kubelet registers only when it starts
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := h.renewLease(ctx, node); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("Renewing a lease failed", "node", node.Name, "err", err)
	}
	if !nodeReady(node) {
		if err := h.patchNodeStatus(ctx, node.Name); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Writing a node's status failed", "node", node.Name, "err", err)
		}
	}
}

func (h *Hollow) renewLease(ctx context.Context, node *corev1.Node) error {
	leases := h.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, now.UTC().Format(metav1.RFC3339Micro))
	_, err := leases.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{nodeReference(node)}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &node.Name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &now,
		},
	}, metav1.CreateOptions{})
	return err
}

func (h *Hollow) patchNodeStatus(ctx context.Context, name string) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": nodeConditions(metav1.Now())}})
	if err != nil {
		return err
	}
	_, err = h.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
