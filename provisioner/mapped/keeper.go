package mapped

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
)

// Config is what a Keeper needs. Its functions must be safe for concurrent use
// and answer from caches where they take no context.
type Config struct {
	// Cluster is the ID of the remote cluster, HomeID that of the home cluster.
	Cluster, HomeID string
	Strategy        v1alpha1.NamespaceStrategy
	// Home watches the namespaces of the home cluster. Of its pods and volumes the
	// caller tells, see PodChanged and VolumeGone: for each cluster to watch them
	// would hold each of them in a queue of its own.
	Home   cache.SharedIndexInformer
	Remote *remoteapi.Client
	// Leaving says whether the RemoteCluster is being deleted.
	Leaving func() bool
	// Used says whether virtual volumes have their data in a namespace there,
	// claims of its home namespace may have backing claims there, or pods of it may
	// have copies there.
	Used func(namespace, home string) bool
	// Recorded are the namespaces that the RemoteCluster's status names; Forget
	// takes one off.
	Recorded func() []string
	Forget   func(ctx context.Context, namespace string) error
	// Unpublished asks how many backing claims without data are in a namespace.
	Unpublished func(ctx context.Context, namespace string) (int, error)
	// HomePod asks the home cluster for the UID of a pod, empty if there is none of
	// that name.
	HomePod func(ctx context.Context, namespace, name string) (types.UID, error)
	// Changed is told that the state of a namespace changed. It must not block.
	Changed func(namespace, home string, state State)
}

// Keeper keeps the namespaces of one remote cluster for as long as one
// connection to it. It is safe for concurrent use.
type Keeper struct {
	Config
	queue workqueue.TypedRateLimitingInterface[string]

	mu sync.Mutex
	// usable: requests may be sent to the cluster.
	usable   bool
	requests cache.SharedIndexInformer
	stop     context.CancelFunc
	waiting  map[string]time.Time
	unneeded map[string]time.Time
	// left says in a sentence what is left in namespaces that are to be given back.
	left map[string]string
}

// New returns a Keeper that does nothing until it is run.
func New(config Config) *Keeper {
	return &Keeper{
		Config: config,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 30*time.Second),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "namespaces"}),
		waiting: map[string]time.Time{}, unneeded: map[string]time.Time{}, left: map[string]string{},
	}
}

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	home, err := k.Home.AddEventHandler(handler(func(obj any) {
		if namespace, ok := obj.(*corev1.Namespace); ok {
			k.queue.Add(namespaces.Remote(k.Strategy, namespace.Name, k.HomeID))
		}
	}))
	if err != nil {
		logger.Error(err, "Home namespaces cannot be watched")
		return
	}
	defer func() { _ = k.Home.RemoveEventHandler(home) }()
	defer context.AfterFunc(ctx, k.queue.ShutDown)()
	for k.work(ctx) {
	}
}

// Set says whether requests may be sent to the cluster now, and whether it makes
// namespaces on request. ctx bounds what is watched from then on.
func (k *Keeper) Set(ctx context.Context, usable, asking bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	again := usable && !k.usable
	k.usable = usable
	switch {
	case !usable:
	case asking && k.requests == nil:
		k.watch(ctx)
		again = true
	case !asking && k.requests != nil:
		k.stop()
		k.requests, k.stop = nil, nil
	}
	if again {
		k.reviewAll()
	}
}

// watch starts to watch the requests.
func (k *Keeper) watch(ctx context.Context) {
	ctx, k.stop = context.WithCancel(ctx)
	k.requests = remoteapi.NewInformer(k.Remote.NamespaceRequests(k.tenant()), &remotev1alpha1.NamespaceRequest{}, nil, cache.Indexers{})
	_, _ = k.requests.AddEventHandler(handler(func(obj any) {
		request, ok := obj.(*remotev1alpha1.NamespaceRequest)
		if !ok {
			return
		}
		k.queue.Add(request.Name)
		if home, ok := homeOf(k.Strategy, request.Name, k.HomeID); ok {
			k.Changed(request.Name, home, k.State(request.Name))
		}
	}))
	requests := k.requests
	go requests.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), requests.HasSynced) {
			k.Review()
		}
	}()
}

func (k *Keeper) tenant() string { return keys.TenantPrefix + k.HomeID }

// Review has all namespaces looked at.
func (k *Keeper) Review() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reviewAll()
}

// reviewAll is Review for who holds the lock.
func (k *Keeper) reviewAll() {
	for _, obj := range k.Home.GetStore().List() {
		if namespace, ok := obj.(*corev1.Namespace); ok {
			k.queue.Add(namespaces.Remote(k.Strategy, namespace.Name, k.HomeID))
		}
	}
	if k.requests != nil {
		for _, name := range k.requests.GetStore().ListKeys() {
			_, name, _ := cache.SplitMetaNamespaceKey(name)
			k.queue.Add(name)
		}
	}
	for _, name := range k.Recorded() {
		k.queue.Add(name)
	}
}

// Synced says whether it is known what was asked for.
func (k *Keeper) Synced() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.requests == nil || k.requests.HasSynced()
}

func handler(changed func(obj any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, obj any) { changed(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			changed(obj)
		},
	}
}

// Held returns how much memory what the cluster told of requests takes, in bytes,
// about.
func (k *Keeper) Held() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.requests == nil {
		return 0
	}
	const each = 1 << 10 // beside its text
	total := 0
	for _, obj := range k.requests.GetStore().List() {
		if text, err := json.Marshal(obj); err == nil {
			total += len(text) + each
		}
	}
	return total
}
