package remote

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/homegate"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/nodeaccess"
)

// Cluster is one remote cluster. It is safe for concurrent use.
type Cluster struct {
	id       string
	clusters *Clusters
	signals

	mu             sync.Mutex
	connection     *connection
	fingerprint    string
	shape          string
	bearer         *bearer
	credentialsEnd time.Time
	verdict        verdict
	since          time.Time
	failures       int
	uid            types.UID
	recorded       map[string]bool
	// waiting counts, by namespace, the callers that wait for it to be recorded; writing is
	// a lock: it holds a value while one caller writes.
	waiting map[string]int
	writing chan struct{}
	// ignoreUntil is until when a cluster that sent too much data stays disconnected.
	ignoreUntil time.Time

	// gate lets changes through to the cluster while home is known to be the one that acts there.
	gate *homegate.Gate
	// changed is set until the change is in the status and the listeners have been called.
	// It and the fields below are used by run only.
	changed         bool
	renewal         renewal
	epoch           epochMemory
	lastCredentials string
}

// View returns the state of the cluster for decisions about a claim. namespace is the
// namespace in the cluster that belongs to the claim's; it is watched from now on.
func (c *Cluster) View(remote *v1alpha1.RemoteCluster, namespace string) steps.Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	view := steps.Cluster{
		ClusterClasses: route.ClusterClasses{
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

// Backing returns our backing claim with this key and the real volume that it is bound to,
// from the cache; nil for what is not there. clusterUID is the UID of the cluster that the cache is
// of, empty while it is not known. For a RemoteCluster that must not be used it
// returns none: the claims there belong to another RemoteCluster or to home.
func (c *Cluster) Backing(key types.NamespacedName) (claim *corev1.PersistentVolumeClaim, real *corev1.PersistentVolume,
	clusterUID string) {
	connection := c.wanted()
	if connection == nil {
		return nil, nil, ""
	}
	shadow := connection.claim(key)
	if shadow == nil {
		return nil, nil, ""
	}
	return shadow, connection.volume(shadow), connection.identity()
}

// Volume returns a real volume from the cache; nil if there is none of that name or the
// RemoteCluster must not be used.
func (c *Cluster) Volume(name string) *corev1.PersistentVolume {
	connection := c.wanted()
	if connection == nil {
		return nil
	}
	return controller.Get[corev1.PersistentVolume](connection.volumes, name)
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

// NodesGone names the nodes on which a real volume could be used: in gone if none of them
// exists in the cluster any more, in down if some exist but none is ready. Both are empty
// if at least one is ready, or if the nodes are not known.
func (c *Cluster) NodesGone(volume *corev1.PersistentVolume) (gone, down string) {
	connection := c.current()
	if connection == nil {
		return "", ""
	}
	connection.mu.Lock()
	nodes := connection.nodes
	connection.mu.Unlock()
	if nodes == nil || !nodes.HasSynced() {
		return "", ""
	}
	return nodeaccess.Lost(volume, nodes.GetStore())
}

// Access has the clients of a remote cluster.
type Access struct {
	Client kubernetes.Interface
	// UID is that of the cluster; empty for home.
	UID string
	// Remote is nil where the cluster runs no agent.
	Remote *clients.RemoteClient
	Config *rest.Config
	// Dynamic reads and writes VolumeSnapshots, which the cluster may not have.
	Dynamic dynamic.Interface
}

// Access returns the clients of the cluster. why says why no request may be sent, and is
// empty if requests may be sent.
func (c *Cluster) Access() (access Access, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	usable, _, message := c.verdict.usable()
	if !usable || c.connection == nil {
		if message == "" {
			message = "it is being looked at for the first time"
		}
		return Access{}, "cluster " + c.id + " cannot be used now: " + message
	}
	access = Access{Client: c.connection.client, UID: c.connection.identity(), Config: c.connection.config, Dynamic: c.connection.dynamic}
	if c.verdict.asking {
		access.Remote = c.connection.remote
	}
	return access, ""
}

// Starting says, after the start of this process or with a new kubeconfig, that it is not known yet
// whether the cluster can be used: it is being asked, or read, or home watches whether a copy of it acts there.
func (c *Cluster) Starting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, reason, _ := c.verdict.usable()
	return reason == "Checking" || reason == "Syncing" || reason == notInForce && c.verdict.epoch.watches()
}

// Client returns a client of the cluster, nil while there is none.
func (c *Cluster) Client() kubernetes.Interface {
	if connection := c.current(); connection != nil {
		return connection.client
	}
	return nil
}

// Clients returns both clients of the same connection, nil if there is none. Two calls
// could return those of two clusters, if the kubeconfig changes in between.
func (c *Cluster) Clients() (kubernetes.Interface, dynamic.Interface) {
	if connection := c.current(); connection != nil {
		return connection.client, connection.dynamic
	}
	return nil, nil
}

func (c *Cluster) current() *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connection
}

// Expect starts to watch a namespace in which a backing claim was just created, even if
// reading it failed before.
func (c *Cluster) Expect(namespace string) {
	if connection := c.current(); connection != nil {
		connection.rewatchClaims(namespace)
	}
}
