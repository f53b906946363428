package node

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// leaseDuration is how long a node's lease holds: as with kubelets.
const leaseDuration = 40

// renew renews a lease in intervals while the remote cluster answers.
func (m *Manager) renew(ctx context.Context, what string, once func(context.Context) error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next := m.config.Heartbeat
		m.mu.Lock()
		alive := m.health.Alive() && m.health.Home != nil
		m.mu.Unlock()
		if !alive {
			next = min(next, 500*time.Millisecond)
		} else if err := once(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("A lease will be renewed again", "lease", what, "err", err)
			next = min(next, time.Second)
		}
		timer.Reset(next)
	}
}

// renewNode renews the lease of the node, so that kube-controller-manager knows
// that somebody looks after it.
func (m *Manager) renewNode(ctx context.Context, name string) error {
	node := m.node(name)
	if node == nil || !Ours(node, m.cluster) {
		return fmt.Errorf("node %s is not there yet", name)
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
	return write(ctx, m.config.Home, corev1.NamespaceNodeLease, name, name, &owner)
}

// renewHeartbeat tells the remote agent that home is there.
func (m *Manager) renewHeartbeat(ctx context.Context, p *prober, s *session.Session) error {
	if err := write(ctx, p.client, s.Tenant(), keys.HeartbeatLease, s.HomeID, nil); err != nil {
		return err
	}
	m.mu.Lock()
	m.health.Beats++
	m.mu.Unlock()
	return nil
}

// write renews a lease, or makes it.
func write(ctx context.Context, client kubernetes.Interface, namespace, name, holder string, owner *metav1.OwnerReference) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	leases := client.CoordinationV1().Leases(namespace)
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	fresh := apierrors.IsNotFound(err)
	if fresh {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	} else if err != nil {
		return fmt.Errorf("get lease %s/%s: %w", namespace, name, err)
	}
	if owner != nil && !equality.Semantic.DeepEqual(lease.OwnerReferences, []metav1.OwnerReference{*owner}) {
		lease.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	lease.Spec.HolderIdentity = ptr.To(holder)
	lease.Spec.LeaseDurationSeconds = ptr.To[int32](leaseDuration)
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	if fresh {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew lease %s/%s: %w", namespace, name, err)
	}
	return nil
}
