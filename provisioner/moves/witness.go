package moves

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/site"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// maxRemembered is how many pods of each kind a witness remembers. For a pod that was
// dropped it is not known that it ended, so a move that has recorded it waits longer.
const maxRemembered = 1000

// witness remembers whether pods that used claims and are gone had ended: only a watch sees
// the last state of a pod. It is safe for concurrent use.
type witness struct {
	mu      sync.Mutex
	ended   []types.UID
	unended []*home.Pod
}

// Witness makes the controller record how home pods end. Call it also before this process
// leads: it must know that when it starts to lead.
func (c *Controller) Witness(pods cache.SharedIndexInformer) error { return c.witness.watch(pods) }

// watch records each deleted pod in its last state.
func (w *witness) watch(pods cache.SharedIndexInformer) error {
	_, err := controller.Watch(pods, w.podChanged)
	return err
}

// podChanged records a pod that is gone.
func (w *witness) podChanged(pod, now *home.Pod) {
	if now != nil || pod.Node == "" || len(pod.Claims) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if pod.Ended() {
		w.ended = newest(append(w.ended, pod.UID))
	} else {
		w.unended = newest(append(w.unended, pod))
	}
}

// newest drops the oldest entries beyond maxRemembered.
func newest[T any](all []T) []T {
	return slices.Delete(all, 0, max(0, len(all)-maxRemembered))
}

// sawEnd says whether a pod was observed to end.
func (w *witness) sawEnd(pod types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.ended, pod)
}

// unendedUsers returns the pods that used one of these claims, given as namespace/name, and
// were gone before they were observed to end.
func (w *witness) unendedUsers(claims []string) []*home.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []*home.Pod
	for _, pod := range w.unended {
		if slices.ContainsFunc(pod.Claims, func(name string) bool { return slices.Contains(claims, name) }) {
			found = append(found, pod)
		}
	}
	return found
}

// forget drops pods that certainly run no longer.
func (w *witness) forget(pods map[types.UID]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unended = slices.DeleteFunc(w.unended, func(pod *home.Pod) bool { return pods[pod.UID] })
}

// remoteWatchers are the watchers of a move in the remote clusters of both its ends, by
// namespace. Its zero value is ready to use. It is not safe for concurrent use.
type remoteWatchers map[remoteNamespace]*podWatcher

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
	witness witness
	client  kubernetes.Interface
	pods    cache.SharedIndexInformer
	stop    context.CancelFunc
}

// watchRemotes starts the watchers in the remote clusters of both ends. Call it before
// observing them. The move is observed again when a mover changes there, or a pod that uses a
// source.
func (c *Controller) watchRemotes(ctx context.Context, w *activeMove, r *record.Record) {
	if !record.Before(r.Phase, v1alpha1.MoveResume) {
		w.watchers.close()
		return
	}
	changed := func(pod *home.Pod) { c.remotePodChanged(w.uid, pod) }
	for i := range r.Claims {
		for _, end := range record.Ends {
			ref := r.Claims[i].At(end).Ref
			if at, why := c.sites.Reach(ref.Cluster); why == "" && !at.Home {
				w.watchers.watch(ctx, at, remoteNamespace{ref.Cluster, ref.Namespace}, changed)
			}
		}
	}
}

// remoteWakePause gathers what changes in a remote cluster while pods stand still: it may send
// anything at any rate.
const remoteWakePause = 20 * time.Millisecond

// remotePodChanged queues a move if a pod in a remote cluster is its mover or uses a source.
func (c *Controller) remotePodChanged(move types.UID, pod *home.Pod) {
	for _, r := range c.Records.those(func(r *record.Record) bool {
		return r.UID == move && (strings.HasPrefix(pod.Name, record.SecretName(move)+"-") ||
			slices.ContainsFunc(r.Claims, func(known record.Claim) bool {
				return slices.Contains(pod.Claims, known.Source.Ref.Key().String())
			}))
	}) {
		pause := wakePause
		if isStopped(r) {
			pause = remoteWakePause
		}
		c.noteChange(move)
		c.queue.AddAfter(keyOf(r), pause)
	}
}

// watch watches the pods of a namespace and says which ones change. With a new client, which has new credentials, the
// watch is restarted, and what was observed is kept.
func (a *remoteWatchers) watch(ctx context.Context, at site.Site, where remoteNamespace, changed func(*home.Pod)) {
	l := (*a)[where]
	if l == nil {
		l = &podWatcher{}
		if *a == nil {
			*a = remoteWatchers{}
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
	// It must outlive this step, until the watchers of the move are closed.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.client, l.stop = at.Client, stop
	l.pods = informers.NewSharedInformerFactoryWithOptions(at.Client, 0, informers.WithNamespace(where.namespace),
		informers.WithTransform(transformRemotePod)).Core().V1().Pods().Informer()
	quiet := func(ctx context.Context, _ *cache.Reflector, err error) {
		klog.FromContext(ctx).V(2).Info("Pods beside a copy of a move are not watched now", "cluster", where.cluster, "namespace",
			where.namespace, "err", err)
	}
	_ = l.pods.SetWatchErrorHandlerWithContext(quiet)
	_ = l.witness.watch(l.pods)
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

// forget drops pods that certainly run no longer.
func (a remoteWatchers) forget(pods map[types.UID]bool) {
	for _, l := range a {
		l.witness.forget(pods)
	}
}

// sawEnd says whether a pod of a cluster was observed to end there. What another cluster says of a
// pod with that UID does not count.
func (a remoteWatchers) sawEnd(cluster string, pod types.UID) bool {
	for where, l := range a {
		if where.cluster == cluster && l.witness.sawEnd(pod) {
			return true
		}
	}
	return false
}

// close ends all watches.
func (a *remoteWatchers) close() {
	for _, l := range *a {
		l.stop()
	}
	*a = nil
}

// observeEndedPods finds out which pods that used the claims are gone, and whether they had
// ended.
func (c *Controller) observeEndedPods(o *steps.Observation, seen remoteWatchers) {
	var claims []string
	for i := range o.Record.Claims {
		known := &o.Record.Claims[i]
		claims = append(claims, o.Record.Namespace+"/"+known.Name)
		ref := known.Source.Ref
		if ref.Cluster == keys.Home {
			claims = append(claims, ref.Namespace+"/"+ref.Name)
		} else if l := seen[remoteNamespace{ref.Cluster, ref.Namespace}]; l != nil {
			for _, pod := range l.witness.unendedUsers([]string{ref.Namespace + "/" + ref.Name}) {
				if pod.Name != o.Record.MoverName(i, record.Source) {
					o.Unended = append(o.Unended, recordPodOf(ref.Cluster, pod))
				}
			}
		}
	}
	for _, pod := range c.witness.unendedUsers(claims) {
		if c.isHomePod(pod) && !strings.HasPrefix(pod.Name, record.SecretName(o.Record.UID)+"-") {
			// Movers of this move are handled elsewhere.
			o.Unended = append(o.Unended, recordPod(pod))
		}
	}
	for _, pod := range o.Record.Pods {
		if pod.Cluster == "" && c.witness.sawEnd(pod.UID) || pod.Cluster != "" && seen.sawEnd(pod.Cluster, pod.UID) {
			noteEnded(o, pod.UID)
		}
	}
}
