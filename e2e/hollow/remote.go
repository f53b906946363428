package hollow

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// probeTimeout is how long a remote API server may take to say that it is ready.
const probeTimeout = 1500 * time.Millisecond

// remoteSession knows whether a remote cluster can be reached, and the copies that
// run there.
type remoteSession struct {
	remote *Remote
	client kubernetes.Interface
	period time.Duration
	up     atomic.Bool

	mu      sync.Mutex // guards what follows
	copies  corelisters.PodLister
	closing context.CancelFunc
}

func newRemoteSession(remote *Remote, client kubernetes.Interface, period time.Duration) *remoteSession {
	return &remoteSession{remote: remote, client: client, period: period}
}

func (s *remoteSession) reachable() bool { return s.up.Load() }

// lister returns what is known of the copies, or nil while the cluster is unreachable.
func (s *remoteSession) lister() corelisters.PodLister {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copies
}

func (s *remoteSession) ready(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := s.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err == nil
}

// run probes the cluster until ctx ends. When the cluster can be reached again, it
// reads the copies anew, for a watch that has lost its server tries again only
// after a growing pause, and calls onReturn.
func (s *remoteSession) run(ctx context.Context, onCopy func(any), onReturn func()) {
	logger := klog.FromContext(ctx).WithValues("cluster", s.remote.ID)
	for {
		select {
		case <-ctx.Done():
			s.close()
			return
		case <-time.After(s.period / 2):
		}
		switch ready := s.ready(ctx); {
		case ready && !s.up.Load():
			if s.open(ctx, onCopy) {
				logger.V(1).Info("The remote cluster can be reached")
				onReturn()
			}
		case !ready && s.up.Load() && ctx.Err() == nil:
			logger.V(1).Info("The remote cluster cannot be reached")
			s.close()
		}
	}
}

// openIfReady opens the session if the cluster can be reached now.
func (s *remoteSession) openIfReady(ctx context.Context, onCopy func(any)) {
	if s.ready(ctx) {
		s.open(ctx, onCopy)
	}
}

// open reads the copies and watches them; false means that the cluster went away meanwhile.
func (s *remoteSession) open(ctx context.Context, onCopy func(any)) bool {
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0,
		informers.WithTransform(dropManagedFields),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = homeLabel + "=" + s.remote.homeID()
		}))
	pods := factory.Core().V1().Pods()
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    onCopy,
		UpdateFunc: func(_, object any) { onCopy(object) },
		DeleteFunc: onCopy,
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Watching the copies of pods failed", "cluster", s.remote.ID)
		cancel()
		return false
	}
	factory.Start(ctx.Done())
	syncCtx, stopWaiting := context.WithTimeout(ctx, callTimeout)
	defer stopWaiting()
	if !cache.WaitForCacheSync(syncCtx.Done(), pods.Informer().HasSynced) {
		cancel()
		factory.Shutdown()
		return false
	}
	s.mu.Lock()
	s.copies = pods.Lister()
	s.closing = func() {
		cancel()
		factory.Shutdown()
	}
	s.mu.Unlock()
	s.up.Store(true)
	// What was told while the session was not up yet was not acted on.
	for _, duplicate := range pods.Informer().GetStore().List() {
		onCopy(duplicate)
	}
	return true
}

func (s *remoteSession) close() {
	s.up.Store(false)
	s.mu.Lock()
	closing := s.closing
	s.copies, s.closing = nil, nil
	s.mu.Unlock()
	if closing != nil {
		closing()
	}
}

// enqueueCopy looks at the home pod of a copy again.
func (h *Hollow) enqueueCopy(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	duplicate, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	if key, ok := homePod(duplicate); ok {
		h.queue.Add(key)
	}
}

// homePod returns the home pod that a copy names.
func homePod(duplicate *corev1.Pod) (podKey, bool) {
	parts := strings.Split(duplicate.Annotations[homePodAnnotation], "/")
	if len(parts) != 3 {
		return podKey{}, false
	}
	return podKey{node: parts[0], namespace: parts[1], name: parts[2]}, true
}

func homePodValue(key podKey) string {
	return fmt.Sprintf("%s/%s/%s", key.node, key.namespace, key.name)
}
