package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/leader"
	"github.com/lodestone-storage/lodestone/pkg/probes"
	"github.com/lodestone-storage/lodestone/pkg/remoteclusters"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/capacity"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	"github.com/lodestone-storage/lodestone/provisioner/flow"
	"github.com/lodestone-storage/lodestone/provisioner/library"
	"github.com/lodestone-storage/lodestone/provisioner/mirror"
	"github.com/lodestone-storage/lodestone/provisioner/moves"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
	"github.com/lodestone-storage/lodestone/provisioner/snapshots"
)

// perCluster is how many requests run at once in each remote cluster.
const perCluster = 16

// Run runs the provisioner until ctx ends, and then returns nil once every step
// that was begun is done and leadership is given up. An error means that it
// could not start or lost its leadership.
func Run(ctx context.Context, config *Config) error {
	home := prepared(config.Home)
	client, err := kubernetes.NewForConfig(home)
	if err != nil {
		return fmt.Errorf("make client of the home cluster: %w", err)
	}
	// A burst of claims must not hold up the lease.
	election, err := kubernetes.NewForConfig(forElection(home))
	if err != nil {
		return fmt.Errorf("make client for the lease: %w", err)
	}
	remotes, err := remoteclusters.NewClient(home)
	if err != nil {
		return err
	}
	registry, state := prometheus.NewRegistry(), probes.New()
	stopHTTP, err := state.Serve(ctx, config.HTTPAddress, registry)
	if err != nil {
		return err
	}
	defer stopHTTP()

	system, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get namespace kube-system of the home cluster: %w", err)
	}
	homeID := config.ClusterID
	if homeID == "" {
		homeID = string(system.UID)[:8]
	}

	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")})

	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim.Object))
	secrets := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(config.Namespace), informers.WithTransform(slim.Object))
	sources, err := flow.NewSources(factory)
	if err != nil {
		return err
	}
	counts, err := flow.NewMetrics(registry)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	objects := remoteclusters.NewInformer(remotes)
	taken, err := snapshotsOf(home)
	if err != nil {
		return err
	}
	secretInformer := secrets.Core().V1().Secrets().Informer()

	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "lodestone-provisioner"})
	// The flow, the clusters and the library each call the others.
	var work *flow.Flow
	held := moves.NewRegistry()
	var copies *mirror.Mirror
	var room *capacity.Controller
	known := clusters.New(clusters.Config{
		Home: client, Remotes: remotes, Objects: objects, Secrets: secretInformer,
		Namespace: config.Namespace, HomeID: homeID, HomeUID: string(system.UID),
		Interval: config.ProbeInterval, Volumes: func(id string) int { return sources.VolumesIn(id) + held.In(id) }, Snapshots: func(id string) (int, bool) { return copies.In(id) },
		Health:   func(id string) *v1alpha1.VolumeHealth { return counts.Health(id, sources.VolumesIn(id)) },
		Recorder: recorder,
		Mapping: clusters.Mapping{Namespaces: sources.Namespaces, Volumes: sources.Volumes, Pods: sources.Pods, Used: func(cluster, namespace, home string) bool {
			return sources.Used(cluster, namespace, home) || copies.Uses(cluster, namespace) || held.Uses(cluster, namespace)
		}},
		Hooks: clusters.Hooks{
			Shadow: func(b *corev1.PersistentVolumeClaim) {
				work.BackingChanged(b)
				copies.ShadowChanged(b)
			},
			Backing: func(b types.UID) { work.BackingVolumeChanged(b) },
			Seen:    func(id, namespace string) { work.NamespaceSeen(id, namespace) },
			Mapped:  func(id, home string, given bool) { work.NamespaceGiven(id, home, given) },
			Changed: func(id string, ready bool) {
				work.ClusterChanged(id, ready)
				copies.ClusterChanged(id)
			},
			Snapshot: func(id string, s *volumesnapshot.Snapshot) {
				copies.SnapshotChanged(id, s)
				if content := taken.Content(s.Annotations[keys.Content]); content != nil {
					work.SnapshotChanged(types.NamespacedName{Namespace: content.Spec.Snapshot.Namespace, Name: content.Spec.Snapshot.Name})
				}
			},
			Taken: func(id, _ string) { copies.ClusterChanged(id) },
		},
	})
	work = flow.New(flow.Config{
		Client: client, Sources: sources, Clusters: known, Snapshots: taken,
		Place:    backing.Place{HomeID: homeID, StorageNamespace: config.StorageNamespace},
		Held:     held.Holds,
		Places:   func(class string) map[string]*resource.Quantity { return room.PlacesOf(class) },
		Recorder: recorder,
		Metrics:  counts, RefusalPeriod: config.RefusalPeriod, Workers: config.Workers, PerCluster: perCluster,
	})
	copies = mirror.New(mirror.Config{Home: taken, Clusters: known, Volume: sources.VolumeOf, HomeID: homeID})
	registry.MustRegister(known)
	moving, err := movesOf(config, home, client, known, held, work, recorder, registry)
	if err != nil {
		return err
	}
	writes, err := capacity.NewMetrics(registry)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	room = capacity.New(capacity.Config{
		Client: client, Namespace: config.Namespace, Withdraw: !config.PublishCapacity, Metrics: writes,
		Classes: sources.Classes, Remotes: objects,
		Capacities: factory.Storage().V1().CSIStorageCapacities().Informer(), Drivers: factory.Storage().V1().CSIDrivers().Informer(),
		Released: work.RoomReleased,
	})
	libraryMetrics := metrics.New("controller")
	registry.MustRegister(libraryMetrics.PersistentVolumeClaimProvisionTotal, libraryMetrics.PersistentVolumeClaimProvisionFailedTotal,
		libraryMetrics.PersistentVolumeClaimProvisionDurationSeconds, libraryMetrics.PersistentVolumeDeleteTotal,
		libraryMetrics.PersistentVolumeDeleteFailedTotal, libraryMetrics.PersistentVolumeDeleteDurationSeconds)
	publisher := library.New(klog.FromContext(ctx), library.Config{
		Client: client, Claims: sources.Claims, Volumes: sources.Volumes, Classes: sources.Classes,
		Nodes: corelisters.NewNodeLister(sources.Nodes.GetIndexer()), Metrics: libraryMetrics,
		Workers: config.Workers, Find: sources.Claim, Revalidate: work.Volume,
	})
	work.SetPublisher(publisher)

	// Not ctx: whatever ends this function ends the watches, or it would wait for
	// them for ever.
	watching, stopWatching := context.WithCancel(ctx)
	factory.StartWithContext(watching)
	secrets.StartWithContext(watching)
	go objects.RunWithContext(watching)
	go moving.Objects.RunWithContext(watching)
	defer func() { stopWatching(); factory.Shutdown(); secrets.Shutdown() }()
	state.WaitFor("home cluster caches")
	if !cache.WaitForCacheSync(ctx.Done(), sources.Claims.HasSynced, sources.Volumes.HasSynced, sources.Classes.HasSynced, sources.Nodes.HasSynced,
		sources.Namespaces.HasSynced, sources.Attachments.HasSynced, sources.Pods.HasSynced, secretInformer.HasSynced, objects.HasSynced, moving.Objects.HasSynced) {
		return nil
	}
	state.Ready()
	return leader.Run(ctx, election, leader.Election{
		Enabled: config.LeaderElect, Namespace: config.Namespace, Name: "lodestone-provisioner", Duration: config.LeaseDuration,
	}, func(ctx context.Context) error {
		// Before anything else is touched.
		if err := moving.Load(ctx); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // It is to end already, and has begun nothing.
			}
			return err
		}
		// Only now: while another replica leads nobody empties the queues.
		if err := errors.Join(work.Watch(), publisher.Watch()); err != nil {
			return err
		}
		var running sync.WaitGroup
		var failed, unpublished, unmoved error
		running.Go(func() { failed = known.Run(ctx) })
		running.Go(func() { unpublished = room.Run(ctx) })
		running.Go(func() { publisher.Run(ctx) })
		running.Go(func() {
			taken.Run(ctx, snapshots.Hooks{Snapshot: work.SnapshotChanged, Content: copies.ContentChanged, State: work.SnapshotsFound})
		})
		running.Go(func() { work.Run(ctx) })
		running.Go(func() { copies.Run(ctx) })
		running.Go(func() { unmoved = moving.Run(ctx) })
		running.Wait()
		// The library does not wait for a volume that it is creating.
		time.Sleep(200 * time.Millisecond)
		return errors.Join(failed, unpublished, unmoved)
	})
}
