package hollow

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/e2e/patient"
)

// player plays one node.
type player struct {
	node   Node
	remote *remoteSession // of a virtual node, else nil
	silent atomic.Bool    // set by SetAlive
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// alive reports whether the node's kubelet works: that of a virtual node does not
// while its remote cluster is unreachable.
func (p *player) alive() bool {
	return !p.silent.Load() && (p.remote == nil || p.remote.reachable())
}

func (h *Hollow) player(name string) *player {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.played[name]
}

// AddNodes registers more nodes and waits until pods can be scheduled to them; to
// virtual nodes only if their remote cluster can be reached.
func (h *Hollow) AddNodes(ctx context.Context, nodes ...Node) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for _, node := range nodes {
		group.Go(func() error { return h.addNode(ctx, node) })
	}
	return group.Wait()
}

func (h *Hollow) addNode(ctx context.Context, node Node) error {
	if err := node.validate(); err != nil {
		return err
	}
	playCtx, cancel := context.WithCancel(h.ctx)
	p := &player{node: node, cancel: cancel}
	if err := h.admit(p); err != nil {
		cancel()
		return err
	}
	if err := h.register(ctx, node); err != nil {
		h.dismiss(node.Name)
		return err
	}
	if p.remote != nil {
		p.remote.openIfReady(playCtx, h.enqueueCopy)
		p.done.Go(func() { p.remote.run(playCtx, h.enqueueCopy, func() { h.revive(playCtx, p) }) })
	}
	p.done.Go(func() { h.heartbeat(playCtx, p) })
	if p.alive() {
		if err := h.waitSchedulable(ctx, node.Name); err != nil {
			return err
		}
	}
	h.enqueueIndexed(byNode, node.Name)
	return nil
}

// admit makes the player known, so that events of its pods are heeded.
func (h *Hollow) admit(p *player) error {
	if remote := p.node.Remote; remote != nil {
		client, err := kubernetes.NewForConfig(patient.Config(remote.Config))
		if err != nil {
			return fmt.Errorf("make the client of cluster %s: %w", remote.ID, err)
		}
		p.remote = newRemoteSession(remote, client, h.leasePeriod)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.played[p.node.Name] != nil {
		return fmt.Errorf("node %s is played already", p.node.Name)
	}
	h.played[p.node.Name] = p
	return nil
}

// dismiss ends the play of a node; it reports whether there was one.
func (h *Hollow) dismiss(name string) bool {
	h.mu.Lock()
	p := h.played[name]
	delete(h.played, name)
	h.mu.Unlock()
	if p == nil {
		return false
	}
	p.cancel()
	p.done.Wait()
	return true
}

// RemoveNode stops playing a node and deletes its Node object, as when a machine is
// taken away. Pods on it are left to the cluster's controllers.
func (h *Hollow) RemoveNode(ctx context.Context, name string) error {
	if !h.dismiss(name) {
		return fmt.Errorf("node %s is not played", name)
	}
	err := h.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", name, err)
	}
	return nil
}

// SetAlive makes a node's kubelet fall silent, or work again: a silent one renews no
// lease and does nothing for its pods.
func (h *Hollow) SetAlive(name string, alive bool) error {
	p := h.player(name)
	if p == nil {
		return fmt.Errorf("node %s is not played", name)
	}
	p.silent.Store(!alive)
	if alive {
		h.revive(h.ctx, p)
	}
	return nil
}

// revive sends a sign of life at once and looks at all pods of the node again.
func (h *Hollow) revive(ctx context.Context, p *player) {
	h.beat(ctx, p)
	h.enqueueIndexed(byNode, p.node.Name)
}
