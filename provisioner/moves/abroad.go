package moves

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// abroad are the witnesses of a move in the remote clusters of its sources, by namespace.
// Its zero value is ready. It is used by one goroutine.
type abroad map[place]*lookout

// place is a namespace of a remote cluster.
type place struct{ cluster, namespace string }

// The most that is held of a place: a cluster may show anything. One that shows more pods is
// not watched, and of a pod that takes more bytes nothing is known.
const (
	mostPods  = 5000
	mostOfPod = 4 << 10
)

// lookout sees how the pods of a place go. While it cannot watch it sees nothing: a pod
// that goes then may have been deleted by force.
type lookout struct {
	witness witness
	client  kubernetes.Interface
	pods    cache.SharedIndexInformer
	stop    context.CancelFunc
}

// watch has the pods of a place seen. With a new client, whose credentials are others, the
// watch begins anew, and what was seen stays known.
func (a *abroad) watch(ctx context.Context, at site, where place) {
	l := (*a)[where]
	if l == nil {
		l = &lookout{}
		if *a == nil {
			*a = abroad{}
		}
		(*a)[where] = l
	}
	if l.client == at.Client {
		if l.pods != nil && len(l.pods.GetStore().ListKeys()) > mostPods {
			l.stop()
			l.pods = nil
		}
		return
	}
	if l.stop != nil {
		l.stop()
	}
	// Not this turn's context; its end is the work's.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.client, l.stop = at.Client, stop
	l.pods = informers.NewSharedInformerFactoryWithOptions(at.Client, 0, informers.WithNamespace(where.namespace), informers.WithTransform(small)).Core().V1().Pods().Informer()
	quiet := func(ctx context.Context, _ *cache.Reflector, err error) {
		klog.FromContext(ctx).V(2).Info("Pods at the source of a move are not watched now", "cluster", where.cluster, "namespace", where.namespace, "err", err)
	}
	_ = l.pods.SetWatchErrorHandlerWithContext(quiet)
	_, _ = l.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: l.witness.gone})
	go l.pods.RunWithContext(ctx)
}

// small is slim.Object for a pod of a remote cluster.
func small(obj any) (any, error) {
	kept, err := slim.Object(obj)
	pod, ok := kept.(*slim.Pod)
	if !ok || err != nil {
		return kept, err
	}
	size := len(pod.Namespace) + len(pod.Name) + len(pod.UID) + len(pod.ResourceVersion) + len(pod.Node) + len(pod.Phase)
	for _, text := range append(slices.Clone(pod.Claims), pod.Finalizers...) {
		size += len(text) + entryBytes
	}
	if size > mostOfPod {
		return &slim.Pod{}, nil
	}
	return pod, nil
}

// entryBytes is about what an entry of a list takes beside its text.
const entryBytes = 16

// close ends all watches.
func (a *abroad) close() {
	for _, l := range *a {
		l.stop()
	}
	*a = nil
}

// settle forgets pods that run no longer.
func (a abroad) settle(pods map[types.UID]bool) {
	for _, l := range a {
		l.witness.settle(pods)
	}
}

// saw says whether a pod was seen to end.
func (a abroad) saw(pod types.UID) bool {
	for _, l := range a {
		if l.witness.saw(pod) {
			return true
		}
	}
	return false
}
