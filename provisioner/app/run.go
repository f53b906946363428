package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/program"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/capacity"
	"github.com/lodestone-storage/lodestone/provisioner/claims"
	"github.com/lodestone-storage/lodestone/provisioner/clusterprofiles"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/moves"
	"github.com/lodestone-storage/lodestone/provisioner/moves/turns"
	"github.com/lodestone-storage/lodestone/provisioner/pvcontroller"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/replicas"
	"github.com/lodestone-storage/lodestone/provisioner/reselect"
	"github.com/lodestone-storage/lodestone/provisioner/site"
	"github.com/lodestone-storage/lodestone/provisioner/snapshots"
)

// perCluster is how many requests may run at once in each remote cluster.
const perCluster = 16

// Run runs the provisioner until ctx ends. It then finishes every step that has begun,
// gives up leadership and returns nil. An error means that it could not start or that it
// lost leadership.
func Run(ctx context.Context, config *Config) error {
	process, err := program.Start(ctx, config.Home, config.Options.Options, program.Settings{Name: "lodestone-provisioner", QPS: 300,
		Burst: 600})
	if err != nil {
		return err
	}
	defer process.Stop()
	client := process.Client
	homeID, homeUID, err := process.HomeID(ctx, config.ClusterID)
	if err != nil {
		return err
	}
	remotes, err := clients.NewRemoteClusters(process.Access)
	if err != nil {
		return err
	}

	// Informers and metrics that the parts share.
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(home.Transform))
	own := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(config.Namespace),
		informers.WithTransform(home.Transform))
	secrets := own.Core().V1().Secrets().Informer()
	objects := clients.NewRemoteClusterInformer(remotes)
	sources, err := home.NewSources(factory)
	if err != nil {
		return err
	}
	counts := claims.NewMetrics(process.Metrics)
	writes := capacity.NewMetrics(process.Metrics)

	// The parts, each after those that it needs.
	homeSnapshots, homeGroups, err := newHome(process.Access)
	if err != nil {
		return err
	}
	held, copies := moves.NewRecords(), replicas.NewRecords()
	volumeMetrics := metrics.New("controller")
	process.Metrics.MustRegister(volumeMetrics.PersistentVolumeClaimProvisionTotal, volumeMetrics.PersistentVolumeClaimProvisionFailedTotal,
		volumeMetrics.PersistentVolumeClaimProvisionDurationSeconds, volumeMetrics.PersistentVolumeDeleteTotal,
		volumeMetrics.PersistentVolumeDeleteFailedTotal, volumeMetrics.PersistentVolumeDeleteDurationSeconds)
	publisher := pvcontroller.New(klog.FromContext(ctx), pvcontroller.Config{
		Client: client, Claims: sources.Claims, Volumes: sources.Volumes, Classes: sources.Classes,
		Nodes: corelisters.NewNodeLister(sources.Nodes.GetIndexer()), Metrics: volumeMetrics,
		Workers: config.Workers, Find: sources.Claim,
	})
	room := capacity.New(capacity.Config{
		Client: client, Namespace: config.Namespace, Withdraw: !config.PublishCapacity, Metrics: writes,
		Classes: sources.Classes, Remotes: objects,
		Capacities: factory.Storage().V1().CSIStorageCapacities().Informer(), Drivers: factory.Storage().V1().CSIDrivers().Informer(),
	})
	clusters := remote.New(remote.Config{
		Home: client, Remotes: remotes, Objects: objects, Secrets: secrets,
		Namespace: config.Namespace, HomeID: homeID, HomeUID: homeUID, Interval: config.ProbeInterval,
		Namespaces: sources.Namespaces, Volumes: sources.Volumes, Pods: sources.Pods,
		Contents: contents{sources: sources, metrics: counts, snapshots: homeSnapshots, groups: homeGroups, moves: held, replicas: copies},
		Recorder: process.Recorder,
	})
	process.Metrics.MustRegister(clusters)
	nodes := remote.NewVirtualNodes(client, config.Namespace, objects)
	profiles := func(context.Context) error { return nil }
	if config.ClusterProfilesNamespace != "" {
		client, err := dynamic.NewForConfig(process.Access)
		if err != nil {
			return fmt.Errorf("make client of ClusterProfiles: %w", err)
		}
		profiles = clusterprofiles.New(client, config.ClusterProfilesNamespace, objects, process.Recorder).Run
	}
	choices := reselect.New(reselect.Config{
		Client: client, Claims: sources.Claims, Classes: sources.Classes, Nodes: sources.Nodes, Recorder: process.Recorder,
	})
	claiming := claims.New(claims.Config{
		Client: client, Sources: sources, Clusters: clusters, Publisher: publisher, Snapshots: homeSnapshots,
		Place: backing.Place{HomeID: homeID, StorageNamespace: config.StorageNamespace},
		Held:  held.Holds, Replica: copies.Named, Places: room.RoomOf,
		Recorder: process.Recorder, Metrics: counts, RefusalPeriod: config.RefusalPeriod, Workers: config.Workers, PerCluster: perCluster,
	})
	taking := snapshots.Config{Home: homeSnapshots, Clusters: clusters, Volume: sources.VolumeOf, HomeID: homeID}
	snapshotter, groups := snapshots.New(taking), snapshots.NewGroups(snapshots.GroupConfig{
		Config: taking, Contents: homeGroups, Recorder: process.Recorder,
		Claims: func(namespace string) []*corev1.PersistentVolumeClaim {
			return controller.In[corev1.PersistentVolumeClaim](sources.Claims, namespace)
		},
		VolumeNamed: func(name string) *corev1.PersistentVolume {
			return controller.Get[corev1.PersistentVolume](sources.Volumes, name)
		},
	})
	moving, err := newMoves(config, process, clusters, held, copies, claiming)
	if err != nil {
		return err
	}
	replicating, err := newReplicas(process, moving, copies, sources)
	if err != nil {
		return err
	}

	// Who is notified of which changes.
	room.Subscribe(claiming.RoomReleased)
	homeSnapshots.Subscribe(home.Listener{
		SnapshotChanged: claiming.SnapshotChanged, ContentChanged: snapshotter.ContentChanged, StateChanged: claiming.SnapshotsFound,
	})
	homeGroups.Subscribe(groups.ContentChanged, groups.GroupAsked)
	clusters.Subscribe(remote.Listener{
		BackingChanged: claiming.BackingChanged, BackingVolumeChanged: claiming.BackingVolumeChanged,
		NamespaceSynced: claiming.NamespaceSeen, NamespaceGiven: claiming.NamespaceGiven,
		ClusterChanged: claiming.ClusterChanged, SnapshotChanged: claiming.RemoteSnapshotChanged,
		GroupChanged: func(string, *volumesnapshot.GroupSnapshot) { claiming.SnapshotsFound() },
	})
	clusters.Subscribe(remote.Listener{ClusterChanged: moving.ClusterChanged})
	clusters.Subscribe(remote.Listener{ClusterChanged: replicating.ClusterChanged})
	clusters.Subscribe(remote.Listener{
		BackingChanged: snapshotter.BackingChanged, SnapshotChanged: snapshotter.SnapshotChanged, SnapshotsSynced: snapshotter.ClusterChanged,
		ClusterChanged: func(id string, _ bool) { snapshotter.ClusterChanged(id) },
	})
	clusters.Subscribe(remote.Listener{
		BackingChanged: groups.BackingChanged, SnapshotChanged: groups.SnapshotChanged, GroupChanged: groups.GroupChanged,
		SnapshotsSynced: groups.ClusterChanged, ClusterChanged: func(id string, _ bool) { groups.ClusterChanged(id) },
	})

	// Not ctx: the watches must end however this function ends, or it would wait for them
	// for ever.
	watching, stopWatching := context.WithCancel(ctx)
	factory.StartWithContext(watching)
	own.StartWithContext(watching)
	go objects.RunWithContext(watching)
	go moving.Objects.RunWithContext(watching)
	go replicating.Objects.RunWithContext(watching)
	defer func() { stopWatching(); factory.Shutdown(); own.Shutdown() }()
	process.Probes.WaitFor("home cluster caches")
	if !cache.WaitForCacheSync(ctx.Done(), sources.Claims.HasSynced, sources.Volumes.HasSynced, sources.Classes.HasSynced,
		sources.Nodes.HasSynced,
		sources.Namespaces.HasSynced, sources.Attachments.HasSynced, sources.Pods.HasSynced, secrets.HasSynced, objects.HasSynced,
		moving.Objects.HasSynced, replicating.Objects.HasSynced) {
		return nil
	}
	process.Probes.Ready()
	return process.Lead(ctx, func(ctx context.Context) error {
		// The records of moves and replicas must be loaded before any other work begins.
		if err := cmp.Or(moving.Load(ctx), replicating.Load(ctx)); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // It is to end already, and has begun nothing.
			}
			return err
		}
		// Feed the queues only as the leader: a replica that waits for leadership does not
		// empty them.
		if err := errors.Join(claiming.Watch(), publisher.Watch()); err != nil {
			return err
		}
		var running sync.WaitGroup
		var failed, unpublished, unmoved, unlisted, unchosen, unshown, uncopied error
		running.Go(func() { failed = clusters.Run(ctx) })
		running.Go(func() { unlisted = nodes.Run(ctx) })
		running.Go(func() { unpublished = room.Run(ctx) })
		running.Go(func() { publisher.Run(ctx) })
		running.Go(func() { homeSnapshots.Run(ctx) })
		running.Go(func() { claiming.Run(ctx) })
		running.Go(func() { snapshotter.Run(ctx) })
		running.Go(func() { homeGroups.Run(ctx) })
		running.Go(func() { groups.Run(ctx) })
		running.Go(func() { unmoved = moving.Run(ctx) })
		running.Go(func() { uncopied = replicating.Run(ctx) })
		running.Go(func() { unchosen = choices.Run(ctx) })
		running.Go(func() { unshown = profiles(ctx) })
		running.Wait()
		clusters.Release(ctx)
		return errors.Join(failed, unpublished, unmoved, uncopied, unlisted, unchosen, unshown)
	})
}

// newHome returns the watchers of VolumeSnapshots and VolumeGroupSnapshots in the home cluster.
func newHome(access *rest.Config) (*home.Snapshots, *home.Groups, error) {
	// Custom resources have no protobuf form, so they need the dynamic client.
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, nil, fmt.Errorf("make dynamic client of the home cluster: %w", err)
	}
	resources, err := discovery.NewDiscoveryClientForConfig(access)
	if err != nil {
		return nil, nil, fmt.Errorf("make discovery client of the home cluster: %w", err)
	}
	return home.NewSnapshots(client, resources), home.NewGroups(client, resources), nil
}

// newMoves returns the controller of moves. The claims controller, claiming, works on all
// claims that are not being moved.
func newMoves(config *Config, process *program.Process, clusters *remote.Clusters, held *moves.Records, copies *replicas.Records,
	claiming *claims.Controller) (*moves.Controller, error) {
	// However many moves there are, claims do not wait for their requests.
	access := process.Limited(site.QPS, site.Burst)
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("make client of moves: %w", err)
	}
	snapshotClient, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("make client of moves: %w", err)
	}
	objects, err := clients.NewVolumeMoveClient(access)
	if err != nil {
		return nil, err
	}
	networks, err := config.networks()
	if err != nil {
		return nil, err
	}
	scratch, err := config.scratch()
	if err != nil {
		return nil, err
	}
	counts := moves.NewMetrics(process.Metrics)
	sources := claiming.Sources
	moving := moves.New(moves.Config{
		Client: client, Home: access, Dynamic: snapshotClient, Moves: objects,
		Objects: clients.NewVolumeMoveInformer(objects), Claims: sources.Claims, Volumes: sources.Volumes, Pods: sources.Pods,
		Namespaces: sources.Namespaces, LabelSpaces: config.LabelMovingNamespaces,
		Clusters: clusters, Records: held, Place: claiming.Place, Namespace: config.Namespace, Image: config.MoverImage, Scratch: scratch,
		Networks: networks,
		Recorder: process.NewRecorder(client), Metrics: counts, Margin: config.ForcedDeletionMargin, Settling: config.MoveSettling,
		Limits: turns.Limits{Total: config.MaxMoves, PerNamespace: config.MaxMovesPerNamespace},
		Class: func(name string) *storagev1.StorageClass {
			return controller.Get[storagev1.StorageClass](sources.Classes, name)
		},
		Node:     func(name string) *corev1.Node { return controller.Get[corev1.Node](sources.Nodes, name) },
		Space:    func(name string) *corev1.Namespace { return controller.Get[corev1.Namespace](sources.Namespaces, name) },
		StandIns: func(cluster string) []*corev1.Node { return standIns(sources.Nodes, cluster) },
		Replica:  copies.Named,
		Having:   copies.Having,
		View:     claiming.View,
		Released: claiming.Enqueue,
	})
	return moving, moving.Witness(sources.Pods)
}

// newReplicas returns the controller of replicas. It has the clients of moves.
func newReplicas(process *program.Process, moving *moves.Controller, records *replicas.Records,
	sources home.Sources) (*replicas.Controller, error) {
	counts, err := replicas.NewMetrics(process.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return replicas.New(replicas.Config{
		Client: moving.Client, Home: moving.Home, Dynamic: moving.Dynamic, Replicas: moving.Moves,
		Objects: clients.NewVolumeReplicaInformer(moving.Moves), Clusters: moving.Clusters, Records: records, Place: moving.Place,
		Namespace: moving.Namespace, Image: moving.Image, Scratch: moving.Scratch, Networks: moving.Networks, Targets: moving.Targets(),
		Recorder: moving.Recorder, Metrics: counts, Node: moving.Node, Moving: moving.Records.Holds, FailedOver: moving.Records.FailedOver,
		KeptAt: moving.Records.KeptAt, Sources: sources,
	}), nil
}

// standIns returns the home nodes that represent a remote cluster.
func standIns(nodes cache.SharedIndexInformer, cluster string) []*corev1.Node {
	var found []*corev1.Node
	for _, node := range controller.All[corev1.Node](nodes) {
		if node.Labels[keys.Cluster] == cluster {
			found = append(found, node)
		}
	}
	return found
}

// contents counts what home stores in remote clusters: volumes, snapshots, and the copies
// that moves and replicas make. It implements remote.Contents.
type contents struct {
	sources   home.Sources
	metrics   *claims.Metrics
	snapshots *home.Snapshots
	groups    *home.Groups
	moves     *moves.Records
	replicas  *replicas.Records
}

var _ remote.Contents = contents{}

// Volumes implements remote.Contents.
func (c contents) Volumes(cluster string) int {
	return c.sources.VolumesIn(cluster) + c.moves.SpareCopiesIn(cluster) + c.replicas.In(cluster)
}

// ClusterUIDs implements remote.Contents.
func (c contents) ClusterUIDs(cluster string) []string { return c.sources.ClusterUIDs(cluster) }

// Snapshots implements remote.Contents.
func (c contents) Snapshots(cluster string) (int, bool) {
	return snapshots.In(c.snapshots, c.groups, cluster)
}

// Health implements remote.Contents.
func (c contents) Health(cluster string) *v1alpha1.VolumeHealth {
	return c.metrics.Health(cluster, c.sources.VolumesIn(cluster))
}

// Uses implements remote.Contents.
func (c contents) Uses(cluster, namespace, homeNamespace string) bool {
	return c.sources.Used(cluster, namespace, homeNamespace) || snapshots.Uses(c.snapshots, c.groups, cluster, namespace) ||
		c.moves.Uses(cluster, namespace) || c.replicas.Uses(cluster, namespace)
}
