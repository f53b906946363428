package feed

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/remoteclusters"
)

// Feed watches one kind of object.
type Feed struct {
	// Kind is the plural name of the kind.
	Kind string
	// Entries returns how many objects of the kind the snapshot holds.
	Entries func() int
	// LastChange returns when the last change arrived; zero before the first.
	LastChange func() time.Time

	// optional: no decision needs it.
	optional bool
	synced   func() bool
	pulse    *pulse
	run      func(context.Context)
}

// Feeds watch all that a snapshot holds.
type Feeds []Feed

// New returns feeds that fill view. They do nothing until Run.
func New(client kubernetes.Interface, clusters *remoteclusters.Client, view *snapshot.Snapshot) Feeds {
	core, storage := client.CoreV1(), client.StorageV1()
	return Feeds{
		newFeed("persistentvolumeclaims", core.PersistentVolumeClaims(metav1.NamespaceAll), client, view.ClaimStore(time.Now), snapshot.FromClaim, &corev1.PersistentVolumeClaim{}),
		newFeed("persistentvolumes", core.PersistentVolumes(), client, view.Volumes, snapshot.FromVolume, &corev1.PersistentVolume{}),
		newFeed("storageclasses", storage.StorageClasses(), client, view.StorageClasses(), whole, &storagev1.StorageClass{}),
		newFeed("remoteclusters", clusters, clusters, view.Clusters, snapshot.FromRemoteCluster, &v1alpha1.RemoteCluster{}),
		newFeed("nodes", core.Nodes(), client, view.Nodes, snapshot.FromNode, &corev1.Node{}),
		newFeed("namespaces", core.Namespaces(), client, view.Namespaces, snapshot.FromNamespace, &corev1.Namespace{}),
		newFeed("csinodes", storage.CSINodes(), client, view.Limits, snapshot.FromCSINode, &storagev1.CSINode{}),
		newFeed("pods", onNodes{core.Pods(metav1.NamespaceAll)}, client, view.Assigned, snapshot.FromPod, &corev1.Pod{}),
		room(client, view),
	}
}

// Run watches until ctx ends.
func (f Feeds) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, feed := range f {
		running.Go(func() { feed.run(ctx) })
	}
	running.Wait()
}

// Missing returns the kinds that have not been listed yet.
func (f Feeds) Missing() []string {
	var kinds []string
	for _, feed := range f {
		if !feed.synced() && !feed.optional {
			kinds = append(kinds, feed.Kind)
		}
	}
	return kinds
}

func newFeed[L, O runtime.Object, V any](kind string, objects listWatcher[L], client any, table target[V], convert func(O) (V, bool), example O) Feed {
	entries := &store[O, V]{table: table, convert: convert, now: time.Now}
	entries.pulse.lose(time.Now())
	source := watchAll(kind, objects, client, &entries.pulse)
	return Feed{
		Kind:       kind,
		Entries:    table.Len,
		LastChange: entries.lastChange,
		synced:     entries.synced.Load,
		pulse:      &entries.pulse,
		run: func(ctx context.Context) {
			go entries.pulse.guard(ctx)
			cache.NewReflectorWithOptions(source, example, entries, cache.ReflectorOptions{
				Name: kind,
				// A kind may appear only after us, when its definition and this
				// program are installed together: look again soon.
				Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Cap: 5 * time.Second, Steps: 10},
			}).RunWithContext(ctx)
		},
	}
}

// whole keeps an object as it is.
func whole[O runtime.Object](object O) (O, bool) { return object, true }

// onNodes lists and watches the pods that have a node and have not ended.
type onNodes struct{ corev1client.PodInterface }

func (p onNodes) List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	return p.PodInterface.List(ctx, running(options))
}

func (p onNodes) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return p.PodInterface.Watch(ctx, running(options))
}

func running(options metav1.ListOptions) metav1.ListOptions {
	options.FieldSelector = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
	return options
}

type listWatcher[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// watchAll adapts a typed client to a reflector; client says whether the first
// list can be streamed. What comes of it is told to pulse.
func watchAll[L runtime.Object](kind string, objects listWatcher[L], client any, pulse *pulse) cache.ListerWatcher {
	outage := &outage{kind: kind}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			pulse.asking(time.Now())
			list, err := objects.List(ctx, options)
			outage.note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			pulse.asking(time.Now())
			changes, err := objects.Watch(ctx, options)
			if options.SendInitialEvents == nil || (!apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err)) {
				// A server that cannot stream the first list is asked for a plain one.
				outage.note(ctx, err)
			}
			if err == nil {
				pulse.opening(changes, options.SendInitialEvents != nil, time.Now())
			}
			return changes, err
		},
	}, client)
}
