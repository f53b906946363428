package remote

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/home"
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
	// sent is when a heartbeat for the remote agent may have been sent last, or when this process began.
	sent time.Time

	// gate lets changes through to the cluster while home is known to be the one that acts there.
	gate *clients.Gate
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
	view.Usable, _, view.Message = c.verdict.usable()
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
	// UID is that of the cluster; empty for home. HomeEpoch is the epoch in which home acts there: it rises when home, or the cluster, was
	// restored from a backup; 0 if home keeps no mark there, and for home.
	UID       string
	HomeEpoch int64
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
	access = Access{Client: c.connection.client, UID: c.connection.identity(), HomeEpoch: c.verdict.epoch.epoch, Config: c.connection.config,
		Dynamic: c.connection.dynamic}
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

// Silent says that the API server of the cluster was asked and does not answer. One that answers and refuses is not silent.
func (c *Cluster) Silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, reason, _ := c.verdict.usable()
	return reason == notReachable
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

// Dynamic returns a client of the cluster for VolumeSnapshots, nil if there is none.
func (c *Cluster) Dynamic() dynamic.Interface {
	if connection := c.current(); connection != nil {
		return connection.dynamic
	}
	return nil
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

// connection is one client of a remote cluster with its watches: volumes and storage
// classes, and our backing claims in each namespace that belongs to one of home. It is
// replaced when the kubeconfig changes or the cluster comes back.
type connection struct {
	id         string
	client     kubernetes.Interface
	homeID     string
	volumes    cache.SharedIndexInformer
	classes    cache.SharedIndexInformer
	factory    informers.SharedInformerFactory
	listeners  listeners
	namespaces *namespaceController
	ctx        context.Context
	stop       context.CancelFunc
	began      time.Time
	// confined is set once a volume was seen that can be used on some nodes only.
	confined atomic.Bool
	// remote reads and writes the objects of the remote agent; config is the configuration
	// of both clients.
	remote *clients.RemoteClient
	config *rest.Config

	// dynamic reads and writes VolumeSnapshots.
	dynamic dynamic.Interface
	// marks writes the mark of this home, also while nothing else may be written.
	marks kubernetes.Interface

	mu sync.Mutex
	// uid is the UID of the cluster; empty until a check has read it.
	uid string
	// latest is the highest resource version of volumes that a request has returned.
	latest    string
	claims    map[string]*claimWatch
	snapshots map[watchedSnapshots]*snapshotWatch
	// room is the informer of CSIStorageCapacities; nil if home has no right to read them.
	room cache.SharedIndexInformer
	// nodes is the informer of nodes; nil while home does not need them or has no right to
	// read them.
	nodes cache.SharedIndexInformer
}

func connect(ctx context.Context, id string, client kubernetes.Interface, homeID string, listeners listeners, namespaces []string,
	classesChanged func()) *connection {
	c := &connection{id: id, client: client, homeID: homeID, listeners: listeners, claims: map[string]*claimWatch{},
		snapshots: map[watchedSnapshots]*snapshotWatch{}, began: time.Now()}
	c.ctx, c.stop = context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(cached))
	c.factory = factory
	c.volumes = factory.Core().V1().PersistentVolumes().Informer()
	c.classes = factory.Storage().V1().StorageClasses().Informer()
	_, _ = controller.Watch(c.volumes, func(was, now *corev1.PersistentVolume) { c.volumeChanged(controller.Either(was, now)) })
	_, _ = controller.Watch(c.classes, func(_, _ *storagev1.StorageClass) { classesChanged() })
	factory.StartWithContext(c.ctx)
	for _, namespace := range namespaces {
		c.watchClaims(namespace)
	}
	return c
}

// cached is the transform function of the informers: it takes only what can be trusted from
// an object of a remote cluster, and then removes unused fields.
func cached(obj any) (any, error) {
	obj, err := Trusted(obj)
	if err != nil {
		return nil, err
	}
	return home.Transform(obj)
}

// identify records the UID of the cluster.
func (c *connection) identify(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uid = uid
}

func (c *connection) identity() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uid
}

func (c *connection) synced() bool {
	return c.volumes.HasSynced() && c.classes.HasSynced() && c.namespaces.Synced()
}

func (c *connection) offered() []v1alpha1.OfferedClass {
	offered := virtualclass.Offer(controller.All[storagev1.StorageClass](c.classes))
	return offered[:min(len(offered), maxClasses)]
}

func (c *connection) volumeChanged(volume *corev1.PersistentVolume) {
	if nodeaccess.Confined(volume) {
		c.confined.Store(true)
	}
	if volume.Spec.ClaimRef == nil {
		return
	}
	if claim := c.claimOf(volume); claim != nil {
		c.listeners.backingChanged(claim)
		return
	}
	c.listeners.backingVolumeChanged(volume.Spec.ClaimRef.UID)
}

// claimOf returns our backing claim that a real volume names, nil if there is none.
func (c *connection) claimOf(volume *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	ref := volume.Spec.ClaimRef
	if ref == nil {
		return nil
	}
	// The name may by now belong to a later claim.
	claim := c.claim(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
	if claim == nil || (ref.UID != "" && ref.UID != claim.UID) {
		return nil
	}
	return claim
}

// volume returns the real volume that is bound to a backing claim, nil if there is none;
// both must name each other.
func (c *connection) volume(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return Bound(c.volumes, claim)
}

// Bound returns the volume that claim is bound to, nil if there is none; both must name each
// other.
func Bound(volumes cache.SharedIndexInformer, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	if claim.Spec.VolumeName == "" {
		return nil
	}
	volume := controller.Get[corev1.PersistentVolume](volumes, claim.Spec.VolumeName)
	if volume == nil || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID {
		return nil
	}
	return volume
}

// claimWatch watches our backing claims in one namespace.
type claimWatch struct {
	cache.SharedIndexInformer
	stop context.CancelFunc
	// failed is set if a request failed before the first list was complete, or was
	// forbidden later, for example while the namespace is recreated: then the informer's
	// next attempt may be a minute away.
	failed atomic.Bool
}

// watchClaims starts to watch our backing claims in a namespace, unless it is watched
// already.
func (c *connection) watchClaims(namespace string) *claimWatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	watched, ok := c.claims[namespace]
	if !ok {
		watched = c.startClaimWatch(namespace)
		c.claims[namespace] = watched
	}
	return watched
}

func (c *connection) watchesClaims(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claims[namespace] != nil
}

// mapped returns the state of a namespace, and watches it if it may have backing claims;
// seen says whether the cache has all of them.
func (c *connection) mapped(namespace string) (state steps.Mapped, seen bool) {
	known := c.namespaces.State(namespace)
	state = steps.Mapped{Asked: known.Asked, Given: known.Given, Reason: known.Reason, Message: known.Message, Since: known.Since}
	if state.Asked && !known.Rights && !c.watchesClaims(namespace) {
		// Home may have no rights yet; after a failure the informer would retry only in
		// half a minute.
		return state, false
	}
	return state, c.watchClaims(namespace).HasSynced()
}

// rewatchClaims restarts the watch of a namespace if it has failed.
func (c *connection) rewatchClaims(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if watched, ok := c.claims[namespace]; ok && watched.failed.Load() {
		watched.stop()
		c.claims[namespace] = c.startClaimWatch(namespace)
	}
}

func (c *connection) unwatchClaims(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if watched := c.claims[namespace]; watched != nil {
		watched.stop()
		delete(c.claims, namespace)
	}
}

func (c *connection) startClaimWatch(namespace string) *claimWatch {
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(namespace), informers.WithTransform(cached),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = c.selector() }))
	watched := &claimWatch{SharedIndexInformer: factory.Core().V1().PersistentVolumeClaims().Informer()}
	_, _ = controller.Watch(watched.SharedIndexInformer, func(was, now *corev1.PersistentVolumeClaim) {
		c.listeners.backingChanged(controller.Either(was, now))
	})
	_ = watched.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !watched.HasSynced() || apierrors.IsForbidden(err) {
			watched.failed.Store(true)
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	ctx, stop := context.WithCancel(c.ctx)
	watched.stop = stop
	factory.StartWithContext(ctx)
	go func() {
		select {
		case <-watched.HasSyncedChecker().Done():
			c.listeners.namespaceSynced(c.id, namespace)
		case <-ctx.Done():
		}
	}()
	return watched
}

func (c *connection) selector() string { return keys.HomeID + "=" + c.homeID }

func (c *connection) claim(key types.NamespacedName) *corev1.PersistentVolumeClaim {
	c.mu.Lock()
	watched := c.claims[key.Namespace]
	c.mu.Unlock()
	if watched == nil {
		return nil
	}
	claim := controller.Get[corev1.PersistentVolumeClaim](watched.SharedIndexInformer, key.String())
	if claim == nil || claim.Namespace != key.Namespace || claim.Name != key.Name {
		return nil
	}
	return claim
}

// watchedNamespaces returns the namespaces that are watched, in order.
func (c *connection) watchedNamespaces() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.claims))
}

// watchMore starts the optional watches: storage capacities if home has the right, and
// nodes if they are needed.
func (c *connection) watchMore(ctx context.Context, room bool) {
	if room {
		c.watchRoom()
	}
	if err := c.watchNodesIfNeeded(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Nodes there are not watched", "err", err)
	}
}

// nodeRights are the rights to watch the nodes of a cluster. Without them home cannot
// notice that a volume's node is gone; all else works.
var nodeRights = []authorizationv1.ResourceAttributes{{Verb: "list", Resource: "nodes"}, {Verb: "watch", Resource: "nodes"}}

// watchNodesIfNeeded starts to watch the nodes of a cluster once one of our real volumes
// can be used on some of them only, if home has the right.
func (c *connection) watchNodesIfNeeded(ctx context.Context) error {
	c.mu.Lock()
	watched := c.nodes != nil
	c.mu.Unlock()
	if watched || !c.hasConfined() {
		return nil
	}
	for _, right := range nodeRights {
		if ok, err := allowed(ctx, c.client, right); err != nil || !ok {
			return err
		}
	}
	return c.watchNodes()
}

// hasConfined says whether one of our real volumes can be used on some nodes only.
func (c *connection) hasConfined() bool {
	if !c.confined.Load() {
		return false
	}
	for volume := range controller.Each[corev1.PersistentVolume](c.volumes) {
		if nodeaccess.Confined(volume) && c.claimOf(volume) != nil {
			return true
		}
	}
	return false
}

func (c *connection) watchNodes() error {
	nodes := c.factory.Core().V1().Nodes().Informer()
	_, err := nodes.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				c.nodeChanged(obj)
			}
		},
		UpdateFunc: func(old, obj any) {
			before, _ := controller.Object[*corev1.Node](old)
			after, _ := controller.Object[*corev1.Node](obj)
			switch {
			case before == nil || after == nil:
			case !maps.Equal(before.Labels, after.Labels):
				c.nodeChanged(before)
				c.nodeChanged(after)
			case nodeaccess.Down(before) != nodeaccess.Down(after):
				places := map[string]bool{}
				nodeaccess.AddNames(places, after)
				c.confinedChanged(func(volume *corev1.PersistentVolume) bool { return nodeaccess.MayBeConfinedTo(volume, places) })
			}
		},
		DeleteFunc: func(obj any) { c.nodeChanged(obj) },
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.nodes = nodes
	c.mu.Unlock()
	c.factory.StartWithContext(c.ctx)
	go func() {
		// Nodes that were gone before the watch began are noticed only now.
		if cache.WaitForCacheSync(c.ctx.Done(), nodes.HasSynced) {
			c.confinedChanged(func(*corev1.PersistentVolume) bool { return true })
		}
	}()
	return nil
}

// nodeChanged queues the volumes that can be used on a node.
func (c *connection) nodeChanged(obj any) {
	if node, ok := controller.Object[*corev1.Node](obj); ok {
		c.confinedChanged(func(volume *corev1.PersistentVolume) bool { return nodeaccess.Allows(volume, node) })
	}
}

func (c *connection) confinedChanged(concerned func(*corev1.PersistentVolume) bool) {
	for volume := range controller.Each[corev1.PersistentVolume](c.volumes) {
		if nodeaccess.Confined(volume) && concerned(volume) && c.claimOf(volume) != nil {
			c.volumeChanged(volume)
		}
	}
}
