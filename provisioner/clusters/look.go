package clusters

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/bounded"
	"github.com/lodestone-storage/lodestone/pkg/kubeconfig"
	"github.com/lodestone-storage/lodestone/provisioner/credentials"
)

// look brings the connection in step with the kubeconfig and asks the cluster
// how it is. The result is how soon to look again, 0 for the usual interval.
func (c *Cluster) look(ctx context.Context, remote *v1alpha1.RemoteCluster) time.Duration {
	wasUsable := c.usable()
	wasLeaving := c.leaving()
	c.meet(remote.UID)
	v := verdict{}
	if remote.DeletionTimestamp != nil {
		v.leaving = "it is being deleted"
	}
	data, err := c.registry.kubeconfig(remote)
	switch {
	case err != nil:
		v.unconfigured = err.Error()
	case c.rests():
		v.unconfigured, v.rests = tooMuch, true
	default:
		if err := c.reconnect(ctx, data, remote); err != nil {
			v.unconfigured = err.Error()
		} else if c.measure(ctx, remote) {
			v.unconfigured, v.rests = tooMuch, true
		}
	}
	if v.unconfigured != "" {
		c.disconnect()
	}
	var again time.Duration
	if v.unconfigured == "" {
		v.finding = check(ctx, c.current().client, c.registry.homeID)
		v.checked = true
		if ended := credentials.Of(data).Ended(time.Now()); v.rejected && ended != "" {
			v.unauthorized = ended
		}
		again = c.weigh(&v)
		if v.unreachable == "" && v.unauthorized == "" && c.distrust(ctx, remote) {
			v.unsynced, again = true, time.Millisecond
		}
		v.unwantedReason, v.unwanted = unwanted(remote, v.clusterUID, c.registry.homeUID, c.registry.all(), c.registry.kept(c.id))
		current := c.current()
		usable := v.unreachable == "" && v.unauthorized == "" && v.unwanted == ""
		current.keeper.Set(current.ctx, usable, v.asking)
		if usable {
			current.follow(ctx, v.room)
		}
		v.credentials = c.renew(ctx, remote, data, usable)
		v.unsynced = v.unsynced || !c.current().synced()
		if again == 0 && v.unsynced && v.unreachable == "" && v.unauthorized == "" {
			again = 50 * time.Millisecond
		}
	}
	c.mu.Lock()
	c.verdict = v
	usable, reason, message := v.usable()
	if usable != wasUsable {
		c.since = time.Now()
	}
	c.mu.Unlock()
	if left := (v.leaving != "") != wasLeaving; left && v.unconfigured == "" {
		c.current().keeper.Review()
	}
	if usable != wasUsable || (v.leaving != "") != wasLeaving {
		klog.FromContext(ctx).Info("Cluster changed", "usable", usable, "reason", reason, "message", message)
		c.changed = true
	}
	return again
}

// weigh counts failures: one missed answer is not yet an outage. A cluster that
// comes back gets a new connection, because the old one's watches may sleep for
// half a minute before they try again.
func (c *Cluster) weigh(v *verdict) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v.unreachable == "" {
		if c.failures >= 2 {
			c.fingerprint = ""
			c.failures = 0
			v.unsynced = true
			return time.Millisecond
		}
		c.failures = 0
		return 0
	}
	c.failures++
	if c.failures < 2 && c.verdict.checked && c.verdict.unreachable == "" {
		leaving := v.leaving
		*v = c.verdict
		v.leaving = leaving
		return 500 * time.Millisecond
	}
	return 0
}

// meet forgets what was recorded in an earlier RemoteCluster of the same name.
func (c *Cluster) meet(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uid != uid {
		c.uid = uid
		clear(c.recorded)
	}
}

func (c *Cluster) leaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdict.leaving != ""
}

func (c *Cluster) usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	usable, _, _ := c.verdict.usable()
	return usable
}

// reconnect makes a new connection if the kubeconfig is not that of the present
// one.
func (c *Cluster) reconnect(ctx context.Context, data []byte, remote *v1alpha1.RemoteCluster) error {
	strategy := remote.Spec.Namespaces.Strategy
	fingerprint, shape := fingerprintOf(data)+string(strategy), shapeOf(data, strategy)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connection != nil && c.fingerprint == fingerprint {
		return nil
	}
	config, err := kubeconfig.Parse(data)
	if err != nil {
		return err
	}
	if c.renewed(shape) {
		c.bearer.set(config.BearerToken)
		c.fingerprint = fingerprint
		return nil
	}
	config.UserAgent = "lodestone-provisioner"
	config.QPS, config.Burst = 300, 600 // as at home
	bounded.Wrap(config)
	bearer := newBearer(config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	custom, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	namespaces := remote.Status.Namespaces
	if c.connection != nil {
		namespaces = append(c.connection.namespaces(), namespaces...)
		c.connection.stop()
	}
	// What was found out about the old one says nothing about this one.
	c.verdict = verdict{leaving: c.verdict.leaving}
	c.since = time.Now()
	c.changed = true
	next := connect(ctx, c.id, client, c.registry.homeID, c.registry.hooks, namespaces, c.Nudge)
	next.dynamic = custom
	if err := c.keep(next, config, strategy); err != nil {
		next.stop()
		return fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	c.connection, c.fingerprint, c.shape, c.bearer = next, fingerprint, shape, bearer
	return nil
}

func (c *Cluster) disconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connection != nil {
		c.connection.stop()
		c.connection, c.fingerprint = nil, ""
	}
}
