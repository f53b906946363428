package clusters

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// Between a look at a cluster and one that the cluster itself caused there is
// leastPause. Where it causes the next one within that time, the pause is twice as
// long, at most mostPause: whoever changes storage classes there at every moment has
// home look, write and decide no more often.
const (
	leastPause = time.Second
	mostPause  = 15 * time.Second
)

// signals ask for a look at a cluster: poke at once, which nobody but home causes;
// nudge soon.
type signals struct {
	poke, nudge chan struct{}
}

func newSignals() signals {
	return signals{poke: make(chan struct{}, 1), nudge: make(chan struct{}, 1)}
}

// Poke makes the cluster be looked at now.
func (s signals) Poke() { signal(s.poke) }

// Nudge makes the cluster be looked at soon, as after a request that failed or a
// change there.
func (s signals) Nudge() { signal(s.nudge) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run looks at the cluster at once, then in intervals and whenever asked to, until
// its RemoteCluster is gone or ctx ends.
func (c *Cluster) run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("cluster", c.id)
	ctx = klog.NewContext(ctx, logger)
	defer c.disconnect()
	c.repeat(ctx, func() (time.Duration, bool) {
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
// poked, or nudged and the pause is over; until look returns false or ctx ends.
func (s signals) repeat(ctx context.Context, look func() (next time.Duration, on bool)) {
	timer, quiet := time.NewTimer(0), time.NewTimer(leastPause)
	defer timer.Stop()
	defer quiet.Stop()
	pause := leastPause
	var heard <-chan struct{} // nudge, unless there is a pause
	for {
		nudged := false
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			select {
			case <-s.nudge:
				pause, nudged = min(2*pause, mostPause), true
			default:
				pause, heard = leastPause, s.nudge
				continue
			}
		case <-heard:
			nudged = true
		case <-timer.C:
		case <-s.poke:
		}
		next, on := look()
		if !on {
			return
		}
		timer.Reset(next)
		if nudged || heard != nil {
			quiet.Reset(pause)
			heard = nil
		}
	}
}

// changedByHome says whether more of a RemoteCluster changed than its status, which
// also tells what its cluster says, and its labels and annotations.
func changedByHome(before, after *v1alpha1.RemoteCluster) bool {
	return before == nil || after == nil || before.UID != after.UID || before.Generation != after.Generation ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || len(before.Finalizers) != len(after.Finalizers)
}

// pokeUsers has the clusters looked at whose kubeconfig is in a Secret.
func (r *Registry) pokeUsers(secret string) {
	for _, remote := range r.all() {
		if remote.Spec.KubeconfigSecretRef.Name == secret {
			if c := r.Get(remote.Name); c != nil {
				c.Poke()
			}
		}
	}
}

// PokeAll makes all clusters be looked at soon.
func (r *Registry) PokeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clusters {
		c.Poke()
	}
}
