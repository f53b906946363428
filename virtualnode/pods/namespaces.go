package pods

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// namespaceEvents are the callbacks for changes in the remote cluster.
type namespaceEvents struct {
	shadow func(*shadowPod, bool)
	pod    func(*corev1.Pod)
	// event is called for each event that is recorded from now on, about whatever.
	event func(*corev1.Event)
	// given is called when a namespace is given to home or taken back, synced when the objects in
	// it have been listed.
	given, synced func(namespace string)
}

// remoteNamespaces are the namespaces of a remote cluster that are given to home, with the
// ShadowPods and pods in them.
type remoteNamespaces struct {
	session  *session.Session
	events   namespaceEvents
	retries  retrySignal
	requests cache.SharedIndexInformer

	running sync.WaitGroup
	// refused: it was logged that home may not watch events.
	refused sync.Once

	mu      sync.Mutex
	ctx     context.Context // nil before open, and when no more watches may begin
	watched map[string]*watchedNamespace
}

// watchedNamespace is one namespace that is watched.
type watchedNamespace struct{ shadows, pods cache.SharedIndexInformer }

func newRemoteNamespaces(s *session.Session) *remoteNamespaces {
	p := &remoteNamespaces{session: s, watched: map[string]*watchedNamespace{}}
	p.requests = clients.NewInformer(retryingSource[*remotev1alpha1.NamespaceRequestList]{s.Remote.NamespaceRequests(s.Tenant()),
		newRetry(&p.retries)}, &remotev1alpha1.NamespaceRequest{}, nil, cache.Indexers{})
	return p
}

// open allows namespaces to be watched until ctx ends, and calls events; run must follow.
func (p *remoteNamespaces) open(ctx context.Context, events namespaceEvents) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx, p.events = ctx, events
}

// close makes sure that no more watches begin.
func (p *remoteNamespaces) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx = nil
}

// run watches until ctx ends.
func (p *remoteNamespaces) run(ctx context.Context) {
	_, _ = controller.Watch(p.requests, func(was, now *remotev1alpha1.NamespaceRequest) {
		request := controller.Either(was, now)
		if usable(request) {
			p.watch(request.Name, was != nil)
			// Home may have had no rights there until now: its informers may be in a pause.
			p.retries.retryNow()
		}
		p.events.given(request.Name)
	})
	p.requests.RunWithContext(ctx)
	p.close()
	p.running.Wait()
}

// watch begins to watch a namespace, unless it is watched already. fresh says that it was just given to
// home.
func (p *remoteNamespaces) watch(namespace string, fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watched[namespace] != nil || p.ctx == nil {
		return
	}
	selected := func(options *metav1.ListOptions) { options.LabelSelector = keys.HomeID + "=" + p.session.HomeID }
	again := newRetry(&p.retries)
	at := &watchedNamespace{
		shadows: clients.NewInformer(retryingSource[*remotev1alpha1.ShadowPodList]{p.session.Remote.ShadowPods(namespace), again}, &shadowPod{},
			selected, cache.Indexers{}),
		pods: clients.NewInformer(retryingSource[*corev1.PodList]{p.session.Client.CoreV1().Pods(namespace), again}, &corev1.Pod{}, selected,
			cache.Indexers{}),
	}
	_ = at.shadows.SetTransform(transformShadow)
	_ = at.pods.SetTransform(transformRemote)
	_, _ = controller.Watch(at.shadows, func(was, now *shadowPod) {
		if shadow := controller.Either(was, now); !isMovers(shadow) {
			p.events.shadow(shadow, now == nil)
		}
	})
	_, _ = controller.Watch(at.pods, func(was, now *corev1.Pod) {
		if pod := controller.Either(was, now); !isMovers(pod) {
			p.events.pod(pod)
		}
	})
	p.watched[namespace] = at
	ctx := p.ctx
	p.running.Go(func() { at.shadows.RunWithContext(ctx) })
	p.running.Go(func() { at.pods.RunWithContext(ctx) })
	events := &eventStream{source: p.session.Client.CoreV1().Events(namespace), again: retry{&p.retries, eventBackoff}, fresh: fresh,
		tell: p.events.event, refused: p.eventsRefused}
	p.running.Go(func() { events.follow(ctx) })
	p.running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), at.shadows.HasSynced, at.pods.HasSynced) {
			p.events.synced(namespace)
		}
	})
}

// eventsRefused logs once that home may not watch events.
func (p *remoteNamespaces) eventsRefused(ctx context.Context, err error) {
	p.refused.Do(func() {
		klog.FromContext(ctx).Info("Events of pods and claims do not come home from this cluster, since home may not watch events there: have "+
			"its owner apply the manifests of the remote agent again, of the version of home", "err", err)
	})
}

// transformRemote keeps of a remote pod what decisions read: whose it is, whether it is being deleted, and its
// status.
func transformRemote(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp,
		Labels: map[string]string{},
	}, Status: pod.Status}
	for _, label := range []string{keys.PodUID, keys.MoveOf} {
		if value, ok := pod.Labels[label]; ok {
			kept.Labels[label] = value
		}
	}
	return controller.PackPod(kept), nil
}

// transformShadow packs a ShadowPod.
func transformShadow(obj any) (any, error) {
	shadow, ok := obj.(*shadowPod)
	if !ok {
		return obj, nil
	}
	shadow.ManagedFields = nil
	return controller.PackShadowPod(shadow), nil
}

// isMovers reports whether the provisioner made a ShadowPod, or its pod, to move a volume: it has
// no home pod.
func isMovers(object metav1.Object) bool { return object.GetLabels()[keys.MoveOf] != "" }

// of returns what is known of a namespace. uid is that of the home namespace that it belongs to;
// empty if that is not known.
func (p *remoteNamespaces) of(namespace string, uid types.UID) decide.Namespace {
	known := decide.Namespace{Name: namespace}
	request := controller.Get[remotev1alpha1.NamespaceRequest](p.requests, p.session.Tenant()+"/"+namespace)
	switch {
	case !p.requests.HasSynced():
		known.Message = fmt.Sprintf("waiting until cluster %s answers", p.session.Cluster)
	case request == nil:
		known.Message = fmt.Sprintf("waiting until namespace %q is asked for in cluster %s, which the provisioner does", namespace,
			p.session.Cluster)
	case usable(request) && isFor(request, uid):
		known.Given = true
	case usable(request):
		known.Message = fmt.Sprintf("waiting until cluster %s has looked at namespace %q again: it is of an earlier namespace of this name",
			p.session.Cluster, namespace)
	default:
		known.Message = fmt.Sprintf("waiting until cluster %s gives namespace %q", p.session.Cluster, namespace)
		if ready := meta.FindStatusCondition(request.Status.Conditions, remotev1alpha1.Ready); ready != nil && ready.Message != "" {
			known.Message += ": " + ready.Message
		}
	}
	if at := p.at(namespace); at != nil {
		known.Seen = at.shadows.HasSynced() && at.pods.HasSynced()
	}
	return known
}

func (p *remoteNamespaces) at(namespace string) *watchedNamespace {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watched[namespace]
}

// find returns the ShadowPod and the pod of a name, nil if the caches have none.
func (p *remoteNamespaces) find(k key) (*shadowPod, *corev1.Pod) {
	at := p.at(k.namespace)
	if at == nil {
		return nil, nil
	}
	shadow := controller.Get[shadowPod](at.shadows, k.String())
	if shadow != nil && isMovers(shadow) {
		return nil, nil
	}
	return shadow, controller.Get[corev1.Pod](at.pods, k.String())
}

// pod returns the pod of a name, nil if the caches have none.
func (p *remoteNamespaces) pod(k key) *corev1.Pod {
	if at := p.at(k.namespace); at != nil {
		return controller.Get[corev1.Pod](at.pods, k.String())
	}
	return nil
}

// each calls do for every ShadowPod in the caches.
func (p *remoteNamespaces) each(do func(*shadowPod, bool)) {
	p.mu.Lock()
	watched := slices.Collect(maps.Values(p.watched))
	p.mu.Unlock()
	for _, at := range watched {
		for shadow := range controller.Each[shadowPod](at.shadows) {
			if !isMovers(shadow) {
				do(shadow, false)
			}
		}
	}
}

func usable(request *remotev1alpha1.NamespaceRequest) bool {
	return request.DeletionTimestamp == nil && meta.IsStatusConditionTrue(request.Status.Conditions, remotev1alpha1.Ready)
}

// isFor reports whether a namespace belongs to the home namespace of this UID, and not to an earlier
// one of the same name; true if one of the UIDs is not known.
func isFor(request *remotev1alpha1.NamespaceRequest, uid types.UID) bool {
	recorded := request.Status.HomeNamespaceUID
	return recorded == "" || uid == "" || recorded == uid
}

// retrySignal ends pauses early. The zero value is ready to use.
type retrySignal struct {
	mu   sync.Mutex
	next chan struct{}
}

// retryNow ends all present pauses.
func (p *retrySignal) retryNow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next != nil {
		close(p.next)
		p.next = nil
	}
}

func (p *retrySignal) retried() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = make(chan struct{})
	}
	return p.next
}

// retry repeats failed requests, with growing pauses that can be ended early. An informer's own
// pauses grow to a minute, which is long for a cluster that answers again.
type retry struct {
	signal *retrySignal
	// longest is the longest pause.
	longest time.Duration
}

func newRetry(p *retrySignal) retry { return retry{signal: p, longest: maxBackoff} }

// until repeats do until it succeeds, returns an error that the caller must handle, or ctx ends.
func (r retry) until(ctx context.Context, do func(context.Context) error) error {
	return r.repeat(ctx, do, again)
}

// always repeats do after any error, until it succeeds or ctx ends.
func (r retry) always(ctx context.Context, do func(context.Context) error) error {
	return r.repeat(ctx, do, func(error) bool { return true })
}

func (r retry) repeat(ctx context.Context, do func(context.Context) error, again func(error) bool) error {
	for pause := minBackoff * 10; ; pause = min(2*pause, r.longest) {
		poked := r.signal.retried()
		err := do(ctx)
		if err == nil || !again(err) {
			return err
		}
		klog.FromContext(ctx).V(3).Info("Request will be tried again", "err", err)
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-poked:
			timer.Stop()
			pause = minBackoff * 5
		case <-timer.C:
		}
	}
}

// again reports whether an error may pass by itself. The others go to the informer: it must list
// again, or send another request.
func again(err error) bool {
	return !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !apierrors.IsInvalid(err) &&
		!apierrors.IsBadRequest(err) && !apierrors.IsTooManyRequests(err)
}

// source has the methods of a typed client that an informer needs.
type source[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// retryingSource is a source whose requests are repeated until they succeed.
type retryingSource[L runtime.Object] struct {
	source[L]
	retry retry
}

func (p retryingSource[L]) List(ctx context.Context, options metav1.ListOptions) (list L, err error) {
	err = p.retry.until(ctx, func(ctx context.Context) error {
		list, err = p.source.List(ctx, options)
		return err
	})
	return list, err
}

func (p retryingSource[L]) Watch(ctx context.Context, options metav1.ListOptions) (stream watch.Interface, err error) {
	err = p.retry.until(ctx, func(ctx context.Context) error {
		stream, err = p.source.Watch(ctx, options)
		return err
	})
	return stream, err
}
