package moves

import (
	"context"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/pkg/movekeys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/transport"
)

// askTimeout bounds a question to a mover.
const askTimeout = 5 * time.Second

// observeCopies asks the movers at the sources how far they are, and keeps the
// connections between both movers.
func (c *Controller) observeCopies(ctx context.Context, w *work, o *decide.Observation) {
	r := o.Record
	if record.Before(r.Phase, v1alpha1.MoveProvision) || !record.Before(r.Phase, v1alpha1.MoveCommit) {
		w.links.close()
		return
	}
	if r.Phase == v1alpha1.MoveQuiesce || r.Phase == v1alpha1.MoveFence {
		// They do nothing, and pods wait: the connections are kept, and nothing is asked.
		return
	}
	for i := range o.Claims {
		seen, from := &o.Claims[i], decide.Reads(*o, i)
		reader := seen.Source.Mover
		if from == record.Snapped {
			reader = seen.Snapshot.Mover
		}
		if from == "" || !reader.Running {
			seen.CopyError = "it does not run"
			continue
		}
		client, err := c.client(ctx, w, r, i, from)
		if err == nil {
			asking, cancel := context.WithTimeout(ctx, askTimeout)
			seen.Copy, err = client.Status(asking)
			cancel()
		}
		if err != nil {
			seen.Copy, seen.CopyError = nil, err.Error()
			continue
		}
		if seen.Target.Mover.Running {
			c.connect(ctx, w, r, i, from, [2]types.UID{reader.Pod, seen.Target.Mover.Pod}, seen, client)
		}
		if why := w.links.why(i); why != "" && !seen.Copy.Connected {
			// The movers themselves do not know how their connections are made.
			seen.Copy.ConnectionError = why
		}
	}
	o.Advanced = w.advance.see(*o)
}

// pod returns the pod of a mover as it is now, and how it is reached.
func (c *Controller) pod(ctx context.Context, r *record.Record, i int, end record.End) (site, *corev1.Pod, error) {
	at, err := c.must(r.Claims[i].At(end).Ref.Cluster)
	if err != nil {
		return at, nil, err
	}
	ctx, cancel := at.patience(ctx)
	defer cancel()
	m, pod, err := c.moverAt(ctx, at, r, i, end)
	if err == nil && !m.Running {
		err = fmt.Errorf("the mover at the %s does not run", end)
	}
	return at, pod, err
}

// to returns a function that connects to a port of the mover of an end, wherever its pod
// is by then.
func (c *Controller) to(r *record.Record, i int, end record.End, port uint16) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		at, pod, err := c.pod(ctx, r, i, end)
		if err != nil {
			return nil, err
		}
		address := transport.Reach(c.placeOf(r.Claims[i].At(end).Ref.Cluster), pod.Status.PodIP, port, c.Networks)
		return c.ways.dial(ctx, at, pod, port, address)
	}
}

// client returns the client of the mover that reads a claim at an end.
func (c *Controller) client(_ context.Context, w *work, r *record.Record, i int, from record.End) (*movecontrol.Client, error) {
	w.links.mu.Lock()
	defer w.links.mu.Unlock()
	of := reader{i, from}
	if client, ok := w.links.clients[of]; ok {
		return client, nil
	}
	client, err := movecontrol.NewClient(r.Claims[i].Keys[movekeys.Controller], r.KeysOf(i), c.to(r, i, from, controlPort))
	if err != nil {
		return nil, err
	}
	if w.links.clients == nil {
		w.links.clients = map[reader]*movecontrol.Client{}
	}
	w.links.clients[of] = client
	return client, nil
}
