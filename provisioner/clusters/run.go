package clusters

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// leastPause is the least time between a look at a cluster and one that it was poked
// for: whoever changes storage classes there at every moment makes home look, write
// and decide no more often.
const leastPause = time.Second

// run looks at the cluster at once, then in intervals and whenever poked, until
// its RemoteCluster is gone or ctx ends.
func (c *Cluster) run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("cluster", c.id)
	ctx = klog.NewContext(ctx, logger)
	defer c.disconnect()
	repeat(ctx, c.poke, func() (time.Duration, bool) {
		next := wait.Jitter(c.registry.interval, 0.1)
		remote := c.registry.Object(c.id)
		if remote == nil {
			return 0, false
		}
		again := c.look(ctx, remote)
		if err := c.registry.report(ctx, c, remote); err != nil {
			logger.V(2).Info("Status will be written again", "err", err)
			again = 200 * time.Millisecond
		} else if c.changed {
			// The extender, too, can know by now.
			c.changed = false
			c.registry.hooks.Changed(c.id, c.usable() && !c.leaving())
		}
		if again != 0 {
			next = again
		}
		return next, true
	})
}

// repeat calls look at once, then each time after what it returned, or earlier when
// poked, but not within leastPause; until look returns false or ctx ends.
func repeat(ctx context.Context, poke <-chan struct{}, look func() (next time.Duration, on bool)) {
	timer, quiet := time.NewTimer(0), time.NewTimer(leastPause)
	defer timer.Stop()
	defer quiet.Stop()
	var heard <-chan struct{} // poke, once it is heard
	for {
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			heard = poke
			continue
		case <-timer.C:
		case <-heard:
		}
		next, on := look()
		if !on {
			return
		}
		timer.Reset(next)
		quiet.Reset(leastPause)
		heard = nil
	}
}
