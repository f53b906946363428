package services

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/services/rules"
)

// member is a cluster of the Set.
type member struct {
	*rules.Cluster
	set    *Set
	client kubernetes.Interface
	api    *clients.MultiClusterServices
	// namespace returns the one there that belongs to a home namespace.
	namespace func(home string) string
	queue     *controller.Queue[key]
	// requests are the NamespaceRequests of home there, nil for home itself; listed says that they have been read.
	requests cache.SharedIndexInformer
	listed   atomic.Bool
	watching sync.WaitGroup

	mu     sync.Mutex
	places map[string]*place // by home namespace; home has one for all
	// problems say why a name cannot be imported there.
	problems map[key]string
}

// place is a namespace of a cluster, or all of them, that is watched.
type place struct {
	namespace                          string
	exports, imports, services, slices cache.SharedIndexInformer
	stop                               context.CancelFunc
	// synced: all is read. absent: the API is not there, or home may not use it, and why.
	synced atomic.Bool
	absent atomic.Pointer[string]
}

func newMember(s *Set, cluster *rules.Cluster, client kubernetes.Interface, api *clients.MultiClusterServices,
	namespace func(string) string) *member {
	return &member{
		Cluster: cluster, set: s, client: client, api: api, namespace: namespace, places: map[string]*place{}, problems: map[key]string{},
		queue: controller.NewQueue[key](controller.QueueConfig{
			Name: "services-" + cluster.ID, FirstRetry: firstRetry, LastRetry: lastRetry, Timeout: stepTimeout, Quiet: true,
		}),
	}
}

// run works for a cluster until ctx ends.
func (m *member) run(ctx context.Context) {
	m.set.join(m)
	defer m.set.leave(m)
	m.queue.Run(ctx, workers, m.sync)
}

// given begins to watch a namespace that can be used from now on, or ends that.
func (m *member) given(ctx context.Context, home, namespace string, usable bool) {
	m.mu.Lock()
	at := m.places[home]
	if !usable && at != nil {
		at.stop()
		delete(m.places, home)
	}
	m.mu.Unlock()
	switch {
	case usable && at == nil:
		core := informers.NewSharedInformerFactoryWithOptions(m.client, 0, informers.WithNamespace(namespace),
			informers.WithTransform(controller.DropManagedFields))
		m.begin(ctx, home, &place{namespace: namespace, services: core.Core().V1().Services().Informer(),
			slices: core.Discovery().V1().EndpointSlices().Informer()})
	case !usable && at != nil:
		m.set.changedAll(home)
	}
}

// begin watches a place, once the API is there.
func (m *member) begin(ctx context.Context, home string, at *place) {
	indexers := func() cache.Indexers { return cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc} }
	at.exports = clients.NewInformer(m.api.Exports(at.namespace), &mcs.ServiceExport{}, nil, indexers())
	at.imports = clients.NewInformer(m.api.Imports(at.namespace), &mcs.ServiceImport{}, nil, indexers())
	own := []cache.SharedIndexInformer{at.exports, at.imports}
	for _, informer := range own {
		_ = informer.SetTransform(controller.DropManagedFields)
	}
	if m.requests != nil {
		own = append(own, at.services, at.slices)
	}
	ctx, at.stop = context.WithCancel(ctx)
	m.mu.Lock()
	m.places[home] = at
	m.mu.Unlock()
	m.watching.Go(func() {
		if !m.awaitAPI(ctx, home, at) {
			return
		}
		var running sync.WaitGroup
		for _, informer := range own {
			running.Go(func() { informer.RunWithContext(ctx) })
		}
		synced, unwatch := m.handle(at, home)
		if cache.WaitForCacheSync(ctx.Done(), synced...) {
			at.synced.Store(true)
			m.set.changedAll(home)
		}
		running.Wait()
		unwatch()
	})
}

// awaitAPI returns once the API can be used, false if ctx ends before.
func (m *member) awaitAPI(ctx context.Context, home string, at *place) bool {
	for wait := time.Second; ; wait = min(2*wait, refusedPeriod) {
		_, err := m.api.Exports(at.namespace).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case err == nil:
			at.absent.Store(nil)
			return true
		case apierrors.IsNotFound(err):
			m.miss(ctx, at, home, "the custom resource definitions of the Multi-Cluster Services API are not there: apply them")
		case apierrors.IsForbidden(err):
			m.miss(ctx, at, home, "home may not use the Multi-Cluster Services API there: apply deploy/components/services-remote")
		default:
			klog.FromContext(ctx).V(2).Info("ServiceExports are asked for again later", "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}

// miss says why the API cannot be used in a place.
func (m *member) miss(ctx context.Context, at *place, home, why string) {
	if before := at.absent.Swap(&why); before == nil || *before != why {
		klog.FromContext(ctx).Info("No Services are exported or imported", "cluster", m.ID, "namespace", at.namespace, "why", why)
		m.set.changedAll(home)
	}
}

// handle queues what changes in a place. synced say whether what is there has been seen; unwatch ends it.
func (m *member) handle(at *place, home string) (synced []cache.InformerSynced, unwatch func()) {
	homeOf := func(object metav1.Object) string {
		if m.Home() {
			return object.GetNamespace()
		}
		return home
	}
	named := func(object metav1.Object, name string) {
		if imported := object.GetLabels()[keys.ServiceImport]; imported != "" {
			name = imported
		}
		if k := (key{homeOf(object), name}); m.set.concerns(k) {
			m.set.changed(k)
		}
	}
	var ends []func()
	add := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return // of an informer that was stopped, as when the program ends
		}
		synced = append(synced, registration.HasSynced)
		ends = append(ends, func() { _ = informer.RemoveEventHandler(registration) })
	}
	add(at.exports, controller.Handler(func(was, now *mcs.ServiceExport) {
		export := controller.Either(was, now)
		m.set.changed(key{homeOf(export), export.Name})
	}))
	add(at.imports, controller.Handler(func(was, now *mcs.ServiceImport) {
		imported := controller.Either(was, now)
		m.queue.Add(key{homeOf(imported), imported.Name})
	}))
	add(at.services, controller.Handler(func(was, now *corev1.Service) {
		service := controller.Either(was, now)
		named(service, service.Name)
	}))
	add(at.slices, controller.Handler(func(was, now *discoveryv1.EndpointSlice) {
		for _, slice := range []*discoveryv1.EndpointSlice{was, now} {
			if slice != nil {
				named(slice, slice.Labels[discoveryv1.LabelServiceName])
			}
		}
	}))
	return synced, func() {
		for _, end := range ends {
			end()
		}
	}
}

// find returns what is watched for a home namespace, nil if nothing.
func (m *member) find(home string) *place {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Home() {
		home = ""
	}
	return m.places[home]
}

// at returns what is known of a home namespace in the cluster, nil if nothing is there or known; problem says why it never will.
func (m *member) at(home string) (at *place, problem string) {
	at = m.find(home)
	switch {
	case at == nil:
		return nil, ""
	case at.absent.Load() != nil:
		return nil, *at.absent.Load()
	case !at.synced.Load():
		return nil, ""
	}
	return at, ""
}

// knows says whether it is known what the cluster exports from a home namespace.
func (m *member) knows(home string) bool {
	at := m.find(home)
	if at == nil {
		return m.requests != nil && m.listed.Load()
	}
	return at.synced.Load() || at.absent.Load() != nil
}

// has says whether the cluster exports or imports a name.
func (m *member) has(k key) bool {
	at, _ := m.at(k.namespace)
	if at == nil {
		return false
	}
	name := fmt.Sprintf("%s/%s", m.namespace(k.namespace), k.name)
	return controller.Get[mcs.ServiceExport](at.exports, name) != nil || controller.Get[mcs.ServiceImport](at.imports, name) != nil
}

// names are those that the cluster exports or imports, in a home namespace or in all.
func (m *member) names(home string) iter.Seq[key] {
	m.mu.Lock()
	places := map[string]*place{}
	for of, at := range m.places {
		if m.Home() || home == "" || of == home {
			places[of] = at
		}
	}
	m.mu.Unlock()
	return func(yield func(key) bool) {
		give := func(of string, object metav1.Object) bool {
			if m.Home() {
				of = object.GetNamespace()
			}
			return home != "" && of != home || yield(key{of, object.GetName()})
		}
		for of, at := range places {
			for export := range controller.Each[mcs.ServiceExport](at.exports) {
				if !give(of, export) {
					return
				}
			}
			for imported := range controller.Each[mcs.ServiceImport](at.imports) {
				if !give(of, imported) {
					return
				}
			}
		}
	}
}

// problem says why a name cannot be imported, empty if it can.
func (m *member) problem(k key) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.problems[k]
}

// report remembers that, and has the exports say it.
func (m *member) report(k key, problem string) {
	m.mu.Lock()
	changed := m.problems[k] != problem
	if m.problems[k] = problem; problem == "" {
		delete(m.problems, k)
	}
	m.mu.Unlock()
	if changed {
		m.set.changed(k)
	}
}
