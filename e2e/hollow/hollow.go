package hollow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/lodestone-storage/lodestone/e2e/patient"
)

const (
	// workers is how many pods are handled at once.
	workers = 16

	// callTimeout bounds one API request, so that a frozen API server holds up nothing.
	callTimeout = 5 * time.Second
)

// Hollow plays the nodes of one cluster. Its methods may be called concurrently.
type Hollow struct {
	client      kubernetes.Interface
	leasePeriod time.Duration
	runner      Runner
	recorder    record.EventRecorder
	queue       workqueue.TypedRateLimitingInterface[podKey]
	pods        cache.SharedIndexInformer
	nodes       corelisters.NodeLister
	volumes     corelisters.PersistentVolumeLister
	claims      corelisters.PersistentVolumeClaimLister

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu         sync.Mutex // guards what follows
	played     map[string]*player
	violations map[violationKey]Violation
	complaints map[podKey]string // the last problem told of each pod
}

// podKey names a pod of the home cluster and the node that it is bound to.
type podKey struct {
	namespace, name, node string
}

// Start registers the nodes, waits until pods can be scheduled to them and plays them
// until ctx ends or Stop is called.
func Start(ctx context.Context, options Options) (*Hollow, error) {
	client, err := kubernetes.NewForConfig(patient.Config(options.Config))
	if err != nil {
		return nil, fmt.Errorf("make the client of the hollow nodes: %w", err)
	}
	h := &Hollow{
		client:      client,
		leasePeriod: options.leasePeriod(),
		runner:      options.Runner,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[podKey](20*time.Millisecond, 2*time.Second)),
		played:     map[string]*player{},
		violations: map[violationKey]Violation{},
		complaints: map[podKey]string{},
	}
	h.ctx, h.cancel = context.WithCancel(ctx)
	if h.runner != nil {
		h.runner.Notify(func(pod *corev1.Pod) { h.enqueuePod(pod) })
	}
	if err := h.start(options.Nodes); err != nil {
		h.Stop()
		return nil, err
	}
	return h, nil
}

// Stop ends the play: nodes stay registered and become NotReady.
func (h *Hollow) Stop() {
	h.cancel()
	h.mu.Lock()
	names := slices.Collect(maps.Keys(h.played))
	h.mu.Unlock()
	for _, name := range names {
		h.dismiss(name)
	}
	h.done.Wait()
}

func (h *Hollow) start(nodes []Node) error {
	h.startEvents()
	if err := h.startInformers(); err != nil {
		return err
	}
	h.done.Go(func() {
		<-h.ctx.Done()
		h.queue.ShutDown()
	})
	for range workers {
		h.done.Go(h.work)
	}
	return h.AddNodes(h.ctx, nodes...)
}

func (h *Hollow) startEvents() {
	broadcaster := record.NewBroadcaster(record.WithContext(h.ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: h.client.CoreV1().Events("")})
	h.recorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet"})
	h.done.Go(func() {
		<-h.ctx.Done()
		broadcaster.Shutdown()
	})
}

func (h *Hollow) startInformers() error {
	factory := informers.NewSharedInformerFactoryWithOptions(h.client, 0, informers.WithTransform(dropManagedFields))
	h.pods = cache.NewSharedIndexInformer(
		cache.NewListWatchFromClient(h.client.CoreV1().RESTClient(), "pods", "", fields.OneTermNotEqualSelector("spec.nodeName", "")),
		&corev1.Pod{}, 0, cache.Indexers{byClaim: indexByClaim, byNode: indexByNode})
	if err := h.pods.SetTransform(dropManagedFields); err != nil {
		return fmt.Errorf("set up the pod informer: %w", err)
	}
	h.nodes = factory.Core().V1().Nodes().Lister()
	h.volumes = factory.Core().V1().PersistentVolumes().Lister()
	h.claims = factory.Core().V1().PersistentVolumeClaims().Lister()
	handlers := []struct {
		informer cache.SharedIndexInformer
		enqueue  func(any)
	}{
		{h.pods, h.enqueuePod},
		{factory.Core().V1().PersistentVolumes().Informer(), h.enqueueUsersOfVolume},
		{factory.Core().V1().PersistentVolumeClaims().Informer(), h.enqueueUsersOfClaim},
	}
	for _, handler := range handlers {
		_, err := handler.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    handler.enqueue,
			UpdateFunc: func(_, object any) { handler.enqueue(object) },
			DeleteFunc: handler.enqueue,
		})
		if err != nil {
			return fmt.Errorf("watch for changes: %w", err)
		}
	}
	factory.Start(h.ctx.Done())
	h.done.Go(func() { h.pods.Run(h.ctx.Done()) })
	h.done.Go(func() {
		<-h.ctx.Done()
		factory.Shutdown()
	})
	factory.WaitForCacheSync(h.ctx.Done())
	if !cache.WaitForCacheSync(h.ctx.Done(), h.pods.HasSynced) {
		return fmt.Errorf("read the cluster's pods: %w", h.ctx.Err())
	}
	return nil
}
