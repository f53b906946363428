package reflector

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// serviceIndex finds the EndpointSlices of a Service, by "namespace/name" of it.
const serviceIndex = "lodestone.dev/service"

func indexService(obj any) ([]string, error) {
	if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
		return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
	}
	return nil, nil
}

// slim drops what nobody here reads.
func slim(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// space is a usable namespace of the remote cluster.
type space struct {
	// home is the home namespace, namespace the one in the remote cluster.
	home, namespace string
	stop            context.CancelFunc
	// What is ours there.
	configMaps, services, slices cache.SharedIndexInformer
	ledger                       *ledger
	synced                       chan struct{}

	mu      sync.Mutex
	written map[string]written // Secrets, by name
	// used is whether pods were there at the last look; idleSince is when there
	// were none for the first time since.
	used      bool
	idleSince time.Time
}

// space returns what belongs to a home namespace in the remote cluster, nil
// while it cannot be used or was not seen yet.
func (m *mirror) space(namespace string) *space {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.spaces[namespace]
	if s == nil {
		return nil
	}
	select {
	case <-s.synced:
		return s
	default:
		return nil
	}
}

func (m *mirror) requestHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { m.requestChanged(obj, true) },
		UpdateFunc: func(_, obj any) { m.requestChanged(obj, true) },
		DeleteFunc: func(obj any) { m.requestChanged(obj, false) },
	}
}

func (m *mirror) requestChanged(obj any, exists bool) {
	request, ok := last(obj).(*remotev1alpha1.NamespaceRequest)
	// A namespace that belongs to none of ours by the strategy of this session is
	// one of earlier times.
	if !ok || m.session.Namespace(request.Spec.HomeNamespace) != request.Name {
		return
	}
	home := request.Spec.HomeNamespace
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.spaces[home]
	switch usable := exists && meta.IsStatusConditionTrue(request.Status.Conditions, remotev1alpha1.Ready); {
	case usable && s == nil:
		m.spaces[home] = m.open(home, request.Name)
	case !usable && s != nil:
		s.stop()
		delete(m.spaces, home)
		for _, name := range m.secrets.held(home) {
			m.queue.Add(key{secretKind, home, name})
		}
	}
}

// open begins to watch what is ours in a namespace.
func (m *mirror) open(home, namespace string) *space {
	client := m.session.Client
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTransform(slim),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = keys.HomeID + "=" + m.session.HomeID }))
	s := &space{
		home: home, namespace: namespace, synced: make(chan struct{}), written: map[string]written{},
		configMaps: factory.Core().V1().ConfigMaps().Informer(),
		services:   factory.Core().V1().Services().Informer(),
		slices:     factory.Discovery().V1().EndpointSlices().Informer(),
		ledger:     newLedger(client.CoreV1().ConfigMaps(namespace), m.session.HomeID),
	}
	_ = s.slices.AddIndexers(cache.Indexers{serviceIndex: indexService})
	configMaps, _ := s.configMaps.AddEventHandler(m.copyHandler(s))
	services, _ := s.services.AddEventHandler(handler(func(service *corev1.Service) { m.queue.Add(key{serviceKind, home, service.Name}) }))
	slices, _ := s.slices.AddEventHandler(bothHandler(func(slice *discoveryv1.EndpointSlice) {
		m.queue.Add(key{serviceKind, home, slice.Labels[discoveryv1.LabelServiceName]})
	}))
	ctx, stop := context.WithCancel(m.ctx)
	s.stop = stop
	factory.StartWithContext(ctx)
	go func() {
		// The handlers too, for the ledger is read by one.
		if cache.WaitForCacheSync(ctx.Done(), configMaps.HasSynced, services.HasSynced, slices.HasSynced) {
			close(s.synced)
			m.lookAtAll(s)
		}
	}()
	return s
}

// stored returns an object from an informer's store.
func stored[T metav1.Object](informer cache.SharedIndexInformer, namespace, name string) (T, bool) {
	var none T
	obj, exists, err := informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return none, false
	}
	object, ok := obj.(T)
	return object, ok
}
