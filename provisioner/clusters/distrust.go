package clusters

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// rewound says whether the API server tells an older state than before, as one that
// was restored from a backup does. A watch that began before then shows nothing
// until the new history is as long as the old one was, and no error.
func (c *connection) rewound(ctx context.Context) (bool, error) {
	before := c.newest()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	// Without a version it is asked for the latest state, whichever server answers.
	list, err := c.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, err
	}
	now := list.ResourceVersion
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier(now, before) {
		return true, nil
	}
	c.latest = now
	return false, nil
}

// newest is the latest resource version of volumes that was seen. Those of other
// kinds may come from another etcd and say nothing about these.
func (c *connection) newest() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	watched := c.volumes.LastSyncResourceVersion()
	if c.latest == "" || earlier(c.latest, watched) {
		return watched
	}
	return c.latest
}

// earlier says whether one resource version comes before another; what is no
// resource version is not compared.
func earlier(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// tooMuch says why a cluster is not listened to.
var tooMuch = fmt.Sprintf("it told more than the %d MiB that are held of one cluster, so it is not listened to for %v: let its administrator see whether it has that many volumes", maxHeld>>20, restTime)

// restTime is how long a cluster that told too much is not listened to.
const restTime = 5 * time.Minute

// rests says whether the cluster is not listened to for now, for it told too much.
func (c *Cluster) rests() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.restUntil)
}

// measure says whether what the cluster told is too much to be held: then it is not
// listened to for a while. Whatever it says of itself, its watches go on.
func (c *Cluster) measure(ctx context.Context, remote *v1alpha1.RemoteCluster) bool {
	held := c.current().held()
	if held <= maxHeld {
		return false
	}
	klog.FromContext(ctx).Info("The cluster told too much and is not listened to for a while", "bytes", held)
	c.registry.event(remote, corev1.EventTypeWarning, "TooMuch", tooMuch)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restUntil = time.Now().Add(restTime)
	return true
}

// distrust gives up the connection where it shows the state of another time. It
// says whether to look again at once.
func (c *Cluster) distrust(ctx context.Context, remote *v1alpha1.RemoteCluster) bool {
	current := c.current()
	// A connection is not older than what it shows: that bounds, besides, how often
	// a cluster that says so each time is read anew.
	if time.Since(current.began) < c.registry.interval {
		return false
	}
	switch rewound, err := current.rewound(ctx); {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("It is not known whether the cluster was restored from a backup", "err", err)
	case rewound:
		klog.FromContext(ctx).Info("The cluster tells an older state than before: all is read anew")
		c.registry.event(remote, corev1.EventTypeWarning, "StateRewound",
			"its API server tells an older state than before, as one restored from a backup does: all there is read anew; see the events of claims whose volumes are there")
		c.mu.Lock()
		c.fingerprint = ""
		c.mu.Unlock()
		return true
	}
	return false
}
