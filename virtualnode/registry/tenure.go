package registry

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/virtualnode/node"
)

// badKubeconfig is the reason of a node without a session, for want of a usable
// kubeconfig. It is said only once the last session has ended, so that others may
// rely on it.
const badKubeconfig = "BadKubeconfig"

// tenure is the time that a RemoteCluster object is there. One goroutine runs it.
type tenure struct {
	id      string
	config  Config
	manager *node.Manager
	poke    chan struct{}
	// serving says whether the kubelet API of the node is served, left whether
	// there is nothing left of a node that is not wanted.
	serving, left bool

	current     *running
	fingerprint string
	// failures is how many sessions ended early in a row, and pause when the next
	// may begin.
	failures int
	pause    time.Time
}

func newTenure(id string, config Config) *tenure {
	return &tenure{id: id, config: config, poke: make(chan struct{}, 1)}
}

// Poke has the cluster be looked at soon.
func (t *tenure) Poke() {
	select {
	case t.poke <- struct{}{}:
	default:
	}
}

// run looks after the cluster until its RemoteCluster is gone or ctx ends.
func (t *tenure) run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("cluster", t.id)
	ctx = klog.NewContext(ctx, logger)
	defer func() {
		t.endSession()
		t.config.Metrics.forget(t.id)
		if t.serving {
			t.config.Endpoints.Close(t.id)
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-t.poke:
		}
		remote := object(t.config.Objects, t.id)
		if remote == nil {
			return
		}
		next := wait.Jitter(t.config.Interval, 0.1)
		again, err := t.look(ctx, remote)
		switch {
		case err != nil && ctx.Err() == nil:
			logger.V(2).Info("The cluster will be looked at again", "err", err)
			next = time.Second
		case again > 0:
			next = again
		}
		timer.Reset(next)
	}
}

// look brings session and node in step with the RemoteCluster. The result is how
// soon to look again, 0 for the usual interval.
func (t *tenure) look(ctx context.Context, remote *v1alpha1.RemoteCluster) (time.Duration, error) {
	if t.current != nil && t.current.ended() {
		t.reap(ctx)
	}
	wanted := remote.DeletionTimestamp == nil && remote.Spec.VirtualNode != v1alpha1.VirtualNodeDisabled
	if !wanted {
		return t.leave(ctx, remote)
	}
	if err := t.protect(ctx, remote); err != nil {
		return 0, err
	}
	if err := t.serve(ctx); err != nil {
		return 0, t.report(ctx, remote, node.State{Reason: "NoEndpoint", Message: err.Error()})
	}
	t.manager.Retire(false)
	wait, problem := t.keepSession(ctx, remote)
	if problem != nil {
		state := node.State{Reason: badKubeconfig, Message: problem.Error()}
		return wait, errors.Join(t.manager.Show(ctx, t.id, state), t.report(ctx, remote, state))
	}
	if state, known := t.manager.State(); known {
		return wait, t.report(ctx, remote, state)
	}
	if said := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.VirtualNode); said != nil && said.Reason == badKubeconfig {
		return wait, t.report(ctx, remote, node.State{Reason: "Connecting", Message: "the cluster has not answered yet"})
	}
	return wait, nil
}

// serve has the node's kubelet API be served.
func (t *tenure) serve(ctx context.Context) error {
	if t.serving {
		return nil
	}
	port, err := t.config.Endpoints.Serve(ctx, t.id)
	if err != nil {
		return err
	}
	t.serving = true
	config := t.config.Node
	config.Port = port
	config.Changed = t.Poke
	t.manager = node.NewManager(t.id, config)
	return nil
}
