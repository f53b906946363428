package crash

import (
	"context"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// NewAgentWorld starts control planes for the flows of the remote agent, and for no
// others: the agent is behind the gates, and the provisioner is not.
func NewAgentWorld(ctx context.Context, say func(format string, args ...any)) (*World, error) {
	w, err := newWorld(ctx, say, fabric.Options{Agent: true})
	if err != nil {
		return nil, err
	}
	if err := w.prepareAgent(ctx); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

func (w *World) prepareAgent(ctx context.Context) (err error) {
	if w.agent, err = w.Bed.BuildAgent(ctx); err != nil {
		return err
	}
	if err := w.observe(ctx); err != nil {
		return err
	}
	account, err := w.Bed.AgentKubeconfig(ctx)
	if err != nil {
		return err
	}
	if err := w.openGates(map[string][]byte{"agent": account}); err != nil {
		return err
	}
	// Home is served once; each batch starts an agent of its own.
	first, err := w.start(ctx, 1, false)
	if err != nil {
		return err
	}
	defer first.Kill()
	kubeconfigs, err := w.serveHome(ctx)
	if err != nil {
		return err
	}
	if _, err := w.Bed.StartProvisioner(ctx); err != nil {
		return err
	}
	if err := w.Bed.Register(ctx, "west", kubeconfigs["west"]); err != nil {
		return err
	}
	return w.makeClasses(ctx)
}
