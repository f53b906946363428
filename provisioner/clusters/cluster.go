// Package clusters keeps the remote clusters: it reads RemoteCluster objects and
// their kubeconfig Secrets, looks at each cluster on its own, so that a slow or
// dead one holds up no other, watches what is needed there, and says in the
// object's status what it found.
package clusters

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// Cluster is one remote cluster. It is safe for concurrent use.
type Cluster struct {
	id       string
	registry *Registry
	signals

	mu          sync.Mutex
	connection  *connection
	fingerprint string
	shape       string
	bearer      *bearer
	until       time.Time
	verdict     verdict
	since       time.Time
	failures    int
	uid         types.UID
	recorded    map[string]bool
	// waiting counts the callers that wait for a namespace to be recorded, writing
	// is held by the one that writes.
	waiting map[string]int
	writing chan struct{}
	// restUntil is until when a cluster that told too much is not listened to.
	restUntil time.Time

	// changed is set until the change was reported and told; only run uses it and
	// what follows.
	changed bool
	renewal renewal
	told    string
}

// View returns what a decision about a claim needs to know of the cluster.
// namespace is the mapped namespace of that claim; it is watched from now on.
func (c *Cluster) View(remote *v1alpha1.RemoteCluster, namespace string) decide.Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	view := decide.Cluster{
		Cluster: route.Cluster{
			Known:            true,
			Leaving:          remote.DeletionTimestamp != nil,
			StorageClassName: remote.Spec.StorageClassName,
		},
		Since: c.since,
	}
	view.Usable, view.Reason, view.Message = c.verdict.usable()
	if c.connection != nil {
		var seen bool
		view.Mapped, seen = c.connection.mapped(namespace)
		view.Seen = view.Usable && seen
		view.Offered = c.connection.offered()
	}
	return view
}

// Backing returns our backing claim of the given name as last seen, nil if none
// is seen, with the real volume that it is bound to. A RemoteCluster that must
// not be used shows none: they are another's.
func (c *Cluster) Backing(key types.NamespacedName) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	connection := c.wanted()
	if connection == nil {
		return nil, nil
	}
	shadow := connection.shadow(key)
	if shadow == nil {
		return nil, nil
	}
	return shadow, connection.volume(shadow)
}

// Volume returns a real volume as last seen, nil if none of that name is seen, or
// if the RemoteCluster must not be used.
func (c *Cluster) Volume(name string) *corev1.PersistentVolume {
	connection := c.wanted()
	if connection == nil {
		return nil
	}
	obj, ok, err := connection.volumes.GetStore().GetByKey(name)
	if err != nil || !ok {
		return nil
	}
	volume, _ := obj.(*corev1.PersistentVolume)
	return volume
}

// wanted returns the connection, nil if there is none or if the RemoteCluster must
// not be used.
func (c *Cluster) wanted() *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.verdict.unwanted != "" {
		return nil
	}
	return c.connection
}

// Client returns a client of the cluster, nil while there is none.
func (c *Cluster) Client() kubernetes.Interface {
	if connection := c.current(); connection != nil {
		return connection.client
	}
	return nil
}

func (c *Cluster) current() *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connection
}

// Expect has a namespace looked at now, in which a backing claim was just
// created, even if it could not be read before.
func (c *Cluster) Expect(namespace string) {
	if connection := c.current(); connection != nil {
		connection.watchAgain(namespace)
	}
}
