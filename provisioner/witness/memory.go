package witness

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// maxRemembered is how many pods of each kind a Memory remembers. For a pod that was
// dropped it is not known that it ended, so a move that has recorded it waits longer.
const maxRemembered = 1000

// Memory remembers whether pods that used claims and are gone had ended: only a watch sees
// the last state of a pod. Its zero value is ready to use. It is safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	ended   []types.UID
	unended []*home.Pod
}

// Watch records each deleted pod in its last state, from now on. What was deleted before is not known, so call it also
// in a process that does not lead: it must know that when it starts to lead.
func (m *Memory) Watch(pods cache.SharedIndexInformer) error {
	_, err := controller.Watch(pods, m.podChanged)
	return err
}

// podChanged records a pod that is gone.
func (m *Memory) podChanged(pod, now *home.Pod) {
	if now != nil || pod.Node == "" || len(pod.Claims) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if pod.Ended() {
		m.ended = newest(append(m.ended, pod.UID))
	} else {
		m.unended = newest(append(m.unended, pod))
	}
}

// newest drops the oldest entries beyond maxRemembered.
func newest[T any](all []T) []T {
	return slices.Delete(all, 0, max(0, len(all)-maxRemembered))
}

// sawEnd says whether a pod was observed to end.
func (m *Memory) sawEnd(pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.ended, pod)
}

// unendedUsers returns the pods that used one of these claims, given as namespace/name, and
// were gone before they were observed to end.
func (m *Memory) unendedUsers(claims []string) []*home.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*home.Pod
	for _, pod := range m.unended {
		if slices.ContainsFunc(pod.Claims, func(name string) bool { return slices.Contains(claims, name) }) {
			found = append(found, pod)
		}
	}
	return found
}

// Forget drops pods that certainly run no longer.
func (m *Memory) Forget(pods map[types.UID]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unended = slices.DeleteFunc(m.unended, func(pod *home.Pod) bool { return pods[pod.UID] })
}

// Watchers watch pods beside volumes in remote clusters, by namespace. The zero value is ready to use. They are not safe
// for concurrent use.
type Watchers map[remoteNamespace]*podWatcher

// remoteNamespace is a namespace of a remote cluster.
type remoteNamespace struct{ cluster, namespace string }

// The limits for one namespace: a remote cluster may send anything. A namespace with more
// pods is not watched, and of a pod with more bytes nothing is known.
const (
	maxWatchedPods = 5000
	maxPodBytes    = 4 << 10
)

// podWatcher observes how the pods of a remote namespace end. A pod that goes while its
// watch is broken may have been force-deleted.
type podWatcher struct {
	memory Memory
	client kubernetes.Interface
	pods   cache.SharedIndexInformer
	stop   context.CancelFunc
}

// Watch watches the pods of a namespace and says which ones change. With a new client, which has new credentials, the
// watch is restarted, and what was observed is kept.
func (a *Watchers) Watch(ctx context.Context, at site.Site, cluster, namespace string, changed func(*home.Pod)) {
	where := remoteNamespace{cluster, namespace}
	l := (*a)[where]
	if l == nil {
		l = &podWatcher{}
		if *a == nil {
			*a = Watchers{}
		}
		(*a)[where] = l
	}
	if l.client == at.Client {
		if l.pods != nil && len(l.pods.GetStore().ListKeys()) > maxWatchedPods {
			l.stop()
			l.pods = nil
		}
		return
	}
	if l.stop != nil {
		l.stop()
	}
	// It must outlive this call, until Close.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.client, l.stop = at.Client, stop
	l.pods = informers.NewSharedInformerFactoryWithOptions(at.Client, 0, informers.WithNamespace(where.namespace),
		informers.WithTransform(transformRemotePod)).Core().V1().Pods().Informer()
	quiet := func(ctx context.Context, _ *cache.Reflector, err error) {
		klog.FromContext(ctx).V(2).Info("Pods beside a volume are not watched now", "cluster", where.cluster, "namespace",
			where.namespace, "err", err)
	}
	_ = l.pods.SetWatchErrorHandlerWithContext(quiet)
	_ = l.memory.Watch(l.pods)
	_, _ = controller.Watch(l.pods, func(was, now *home.Pod) { changed(controller.Either(was, now)) })
	go l.pods.RunWithContext(ctx)
}

// transformRemotePod is home.Transform for a pod of a remote cluster; one that is too large
// becomes empty.
func transformRemotePod(obj any) (any, error) {
	kept, err := home.Transform(obj)
	pod, ok := kept.(*home.Pod)
	if !ok || err != nil {
		return kept, err
	}
	size := len(pod.Namespace) + len(pod.Name) + len(pod.UID) + len(pod.ResourceVersion) + len(pod.Node) + len(pod.Phase)
	for _, text := range append(slices.Clone(pod.Claims), pod.Finalizers...) {
		size += len(text) + entryBytes
	}
	if size > maxPodBytes {
		return &home.Pod{}, nil
	}
	return pod, nil
}

// entryBytes is about what an entry of a list needs besides its text.
const entryBytes = 16

// Forget drops pods that certainly run no longer.
func (a Watchers) Forget(pods map[types.UID]bool) {
	for _, l := range a {
		l.memory.Forget(pods)
	}
}

// sawEnd says whether a pod of a cluster was observed to end there. What another cluster says of a
// pod with that UID does not count.
func (a Watchers) sawEnd(cluster string, pod types.UID) bool {
	for where, l := range a {
		if where.cluster == cluster && l.memory.sawEnd(pod) {
			return true
		}
	}
	return false
}

// Close ends all watches.
func (a *Watchers) Close() {
	for _, l := range *a {
		l.stop()
	}
	*a = nil
}
