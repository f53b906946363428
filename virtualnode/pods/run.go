package pods

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/virtualnode/decide"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

const (
	// requestTimeout bounds one request, in either cluster.
	requestTimeout = 10 * time.Second
	// minBackoff and maxBackoff bound the pause before a step is tried again.
	minBackoff, maxBackoff = 20 * time.Millisecond, 10 * time.Second
	// safetyNet is when a pod is looked at again whose next event should have
	// come by then.
	safetyNet = 5 * time.Second
	// resync is how often all pods of a session are looked at without an event.
	resync = 10 * time.Minute
)

// key names the pod of a home pod: the home pod by UID, the rest by where it
// belongs in the remote cluster.
type key struct {
	uid             types.UID
	namespace, name string
}

func (k key) String() string { return k.namespace + "/" + k.name }

// runner works for one session.
type runner struct {
	*Controller
	session *session.Session
	queue   workqueue.TypedRateLimitingInterface[key]
	places  *places
	memory  memory
	pods    latest[*corev1.Pod] // home pods as last written
	shadows shadowWrites

	mu         sync.Mutex
	clusterUID types.UID
}

// Run works for a session until ctx ends, and returns when every step that was
// begun is done. The informers of the home cluster must be running.
func (c *Controller) Run(ctx context.Context, s *session.Session) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("cluster", s.Cluster))
	r := &runner{
		Controller: c, session: s,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[key](minBackoff, maxBackoff),
			workqueue.TypedRateLimitingQueueConfig[key]{Name: "pods"}),
		memory:  newMemory(),
		pods:    newLatest[*corev1.Pod](),
		shadows: newShadowWrites(),
	}
	r.places = newPlaces(s, placeEvents{
		shadow: r.shadowChanged, pod: r.remotePodChanged, request: r.placeChanged, seen: r.placeChanged,
	})
	// A step that was begun is finished even when ctx ends: half a step is what
	// the next one would have to clean up.
	work := context.WithoutCancel(ctx)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	defer r.queue.ShutDown()
	unwatch, err := r.watchHome()
	if err != nil {
		return err
	}
	defer unwatch()
	if !cache.WaitForCacheSync(ctx.Done(), c.config.Pods.HasSynced, c.config.Nodes.HasSynced, c.config.Namespaces.HasSynced) {
		return nil
	}
	r.places.open(watching)
	var running sync.WaitGroup
	running.Go(func() { r.places.run(watching) })
	running.Go(func() { r.identify(watching) })
	running.Go(func() { r.awaitPlaces(watching) })
	running.Go(func() { r.resyncAll(watching) })
	for range c.config.Workers {
		running.Go(func() {
			for r.next(ctx, work) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	running.Wait()
	return nil
}

// identify finds out which cluster this is, which a home pod notes before
// anything runs for it.
func (r *runner) identify(ctx context.Context) {
	logger := klog.FromContext(ctx)
	err := newRetry(&r.places.pokes).always(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		system, err := r.session.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get namespace kube-system: %w", err)
		}
		if system.UID == "" {
			return errors.New("the answer has no namespace kube-system: something else than an API server gave it")
		}
		r.mu.Lock()
		r.clusterUID = system.UID
		r.mu.Unlock()
		return nil
	})
	if err != nil {
		return
	}
	logger.V(2).Info("Cluster answers", "clusterUID", r.cluster())
	r.enqueueAll(func(*corev1.Pod) bool { return true })
}

// awaitPlaces has all pods looked at once it is known which namespaces are given. Each
// was heard of before it was known that all are, and whoever looked then waits.
func (r *runner) awaitPlaces(ctx context.Context) {
	if cache.WaitForCacheSync(ctx.Done(), r.places.requests.HasSynced) {
		r.enqueueAll(func(*corev1.Pod) bool { return true })
	}
}

func (r *runner) cluster() types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clusterUID
}

func (r *runner) resyncAll(ctx context.Context) {
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.enqueueAll(func(*corev1.Pod) bool { return true })
			r.places.each(r.shadowChanged)
		}
	}
}

func (r *runner) next(ctx, work context.Context) bool {
	k, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(k)
	if ctx.Err() != nil {
		return true
	}
	o, believed := r.observe(ctx, k)
	step := decide.Next(o)
	result := r.perform(work, k, o, step)
	if believed && result.after == 0 {
		result.after = safetyNet
	}
	switch {
	case result.err != nil:
		r.queue.AddRateLimited(k)
		return true
	case result.again:
		r.queue.Add(k)
	case result.after > 0:
		r.queue.AddAfter(k, result.after)
	}
	r.queue.Forget(k)
	return true
}

// outcome is what became of a step.
type outcome struct {
	err error
	// again is set when the pod is to be looked at again at once.
	again bool
	after time.Duration
}
