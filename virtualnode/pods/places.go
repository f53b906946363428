package pods

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// placeEvents are called when something changes in the remote cluster.
type placeEvents struct {
	shadow func(*shadowPod, bool)
	pod    func(*corev1.Pod)
	// request is called when a namespace is given or taken back, seen when it is
	// first known what exists in it.
	request, seen func(namespace string)
}

// places are the namespaces of a remote cluster that are given to home, and what
// exists in them for its pods.
type places struct {
	session  *session.Session
	events   placeEvents
	pokes    pokes
	requests cache.SharedIndexInformer

	running sync.WaitGroup

	mu      sync.Mutex
	ctx     context.Context // nil before open, and when no watch may begin any more
	watched map[string]*place
}

// place is one namespace that is watched.
type place struct{ shadows, pods cache.SharedIndexInformer }

func newPlaces(s *session.Session, events placeEvents) *places {
	p := &places{session: s, events: events, watched: map[string]*place{}}
	p.requests = remoteapi.NewInformer(patient[*remotev1alpha1.NamespaceRequestList]{s.Remote.NamespaceRequests(s.Tenant()), newRetry(&p.pokes)},
		&remotev1alpha1.NamespaceRequest{}, nil, cache.Indexers{})
	return p
}

// open lets namespaces be watched until ctx ends; run must follow.
func (p *places) open(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx = ctx
}

// close lets no watch begin any more.
func (p *places) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx = nil
}

// run watches until ctx ends.
func (p *places) run(ctx context.Context) {
	changed := func(obj any) {
		if request, ok := object[*remotev1alpha1.NamespaceRequest](obj); ok {
			if given(request) {
				p.watch(request.Name)
				// Without rights there until now, it may be pausing.
				p.pokes.poke()
			}
			p.events.request(request.Name)
		}
	}
	_, _ = p.requests.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, obj any) { changed(obj) },
		DeleteFunc: changed,
	})
	p.requests.RunWithContext(ctx)
	p.close()
	p.running.Wait()
}

// watch begins to watch a namespace, if that is not done.
func (p *places) watch(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watched[namespace] != nil || p.ctx == nil {
		return
	}
	selected := func(options *metav1.ListOptions) { options.LabelSelector = keys.HomeID + "=" + p.session.HomeID }
	again := newRetry(&p.pokes)
	at := &place{
		shadows: remoteapi.NewInformer(patient[*remotev1alpha1.ShadowPodList]{p.session.Remote.ShadowPods(namespace), again}, &shadowPod{}, selected, cache.Indexers{}),
		pods:    remoteapi.NewInformer(patient[*corev1.PodList]{p.session.Client.CoreV1().Pods(namespace), again}, &corev1.Pod{}, selected, cache.Indexers{}),
	}
	_ = at.shadows.SetTransform(slim)
	_ = at.pods.SetTransform(slim)
	_, _ = at.shadows.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { p.shadow(obj, false) },
		UpdateFunc: func(_, obj any) { p.shadow(obj, false) },
		DeleteFunc: func(obj any) { p.shadow(obj, true) },
	})
	pod := func(obj any) {
		if pod, ok := object[*corev1.Pod](obj); ok && !ofMove(pod) {
			p.events.pod(pod)
		}
	}
	_, _ = at.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: pod, UpdateFunc: func(_, obj any) { pod(obj) }, DeleteFunc: pod})
	p.watched[namespace] = at
	ctx := p.ctx
	p.running.Go(func() { at.shadows.RunWithContext(ctx) })
	p.running.Go(func() { at.pods.RunWithContext(ctx) })
	p.running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), at.shadows.HasSynced, at.pods.HasSynced) {
			p.events.seen(namespace)
		}
	})
}

// ofMove says whether a ShadowPod, or its pod, is one that the provisioner made to move a
// volume: it has no home pod.
func ofMove(object metav1.Object) bool { return object.GetLabels()[keys.MoveOf] != "" }

func (p *places) shadow(obj any, gone bool) {
	if shadow, ok := object[*shadowPod](obj); ok && !ofMove(shadow) {
		p.events.shadow(shadow, gone)
	}
}

// of returns what is known of a namespace.
func (p *places) of(namespace string) decide.Place {
	known := decide.Place{Name: namespace}
	request := one[remotev1alpha1.NamespaceRequest](p.requests.GetStore(), p.session.Tenant()+"/"+namespace)
	switch {
	case !p.requests.HasSynced():
		known.Message = fmt.Sprintf("waiting until cluster %s answers", p.session.Cluster)
	case request == nil:
		known.Message = fmt.Sprintf("waiting until namespace %q is asked for in cluster %s, which the provisioner does", namespace, p.session.Cluster)
	case given(request):
		known.Given = true
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

func (p *places) at(namespace string) *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watched[namespace]
}

// find returns the ShadowPod and the pod of a name, nil where none is seen.
func (p *places) find(k key) (*shadowPod, *corev1.Pod) {
	at := p.at(k.namespace)
	if at == nil {
		return nil, nil
	}
	if shadow := one[shadowPod](at.shadows.GetStore(), k.String()); shadow != nil && ofMove(shadow) {
		return nil, nil
	}
	return one[shadowPod](at.shadows.GetStore(), k.String()), one[corev1.Pod](at.pods.GetStore(), k.String())
}

// each calls do for every ShadowPod that is seen.
func (p *places) each(do func(*shadowPod, bool)) {
	p.mu.Lock()
	watched := make([]*place, 0, len(p.watched))
	for _, at := range p.watched {
		watched = append(watched, at)
	}
	p.mu.Unlock()
	for _, at := range watched {
		for _, obj := range at.shadows.GetStore().List() {
			if shadow, ok := obj.(*shadowPod); ok && !ofMove(shadow) {
				do(shadow, false)
			}
		}
	}
}

func given(request *remotev1alpha1.NamespaceRequest) bool {
	return request.DeletionTimestamp == nil && meta.IsStatusConditionTrue(request.Status.Conditions, remotev1alpha1.Ready)
}
