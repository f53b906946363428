package reflector

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// serviceIndex is the index of EndpointSlices by the "namespace/name" of their Service.
const serviceIndex = "lodestone.dev/service"

func indexService(obj any) ([]string, error) {
	if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
		return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
	}
	return nil, nil
}

// remoteNamespace is a usable namespace of the remote cluster.
type remoteNamespace struct {
	// home is the home namespace, namespace the one in the remote cluster.
	home, namespace string
	stop            context.CancelFunc
	// These watch the copies of this home there.
	configMaps, services, slices cache.SharedIndexInformer
	ledger                       *ledger
	synced                       chan struct{}

	mu      sync.Mutex
	written map[string]written // Secrets, by name
	// used says whether there were pods at the last check; idleSince is the time of the first check
	// without pods after that.
	used      bool
	idleSince time.Time
}

// namespaceOf returns the namespace of the remote cluster for a home namespace, nil while it cannot
// be used or is not known yet.
func (c *clusterReflector) namespaceOf(namespace string) *remoteNamespace {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.namespaces[namespace]
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

func (c *clusterReflector) requestChanged(was, now *remotev1alpha1.NamespaceRequest) {
	request := controller.Either(was, now)
	// Such a request is from an earlier session with another strategy: by the present one the
	// namespace belongs to none of ours.
	if c.session.Namespace(request.Spec.HomeNamespace) != request.Name {
		return
	}
	home := request.Spec.HomeNamespace
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.namespaces[home]
	switch usable := now != nil && meta.IsStatusConditionTrue(request.Status.Conditions, remotev1alpha1.Ready); {
	case usable && s == nil:
		c.namespaces[home] = c.open(home, request.Name)
	case !usable && s != nil:
		s.stop()
		delete(c.namespaces, home)
		for _, name := range c.secrets.watched(home) {
			c.queue.Add(key{secretKind, home, name})
		}
	}
}

// open begins to watch this home's copies in a namespace.
func (c *clusterReflector) open(home, namespace string) *remoteNamespace {
	client := c.session.Client
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTransform(controller.DropManagedFields),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = keys.HomeID + "=" + c.session.HomeID }))
	s := &remoteNamespace{
		home: home, namespace: namespace, synced: make(chan struct{}), written: map[string]written{},
		configMaps: factory.Core().V1().ConfigMaps().Informer(),
		services:   factory.Core().V1().Services().Informer(),
		slices:     factory.Discovery().V1().EndpointSlices().Informer(),
		ledger:     newLedger(client.CoreV1().ConfigMaps(namespace), c.session.HomeID),
	}
	_ = s.slices.AddIndexers(cache.Indexers{serviceIndex: indexService})
	configMaps, _ := s.configMaps.AddEventHandler(controller.Handler(func(was, now *corev1.ConfigMap) { c.copyChanged(s, was, now) }))
	services, _ := s.services.AddEventHandler(controller.Handler(func(was, now *corev1.Service) {
		c.queue.Add(key{serviceKind, home, controller.Either(was, now).Name})
	}))
	slices, _ := s.slices.AddEventHandler(controller.Handler(func(was, now *discoveryv1.EndpointSlice) {
		for _, slice := range []*discoveryv1.EndpointSlice{was, now} {
			if slice != nil {
				c.queue.Add(key{serviceKind, home, slice.Labels[discoveryv1.LabelServiceName]})
			}
		}
	}))
	ctx, stop := context.WithCancel(c.ctx)
	s.stop = stop
	factory.StartWithContext(ctx)
	go func() {
		// The handlers must have run as well, since one of them reads the ledger.
		if cache.WaitForCacheSync(ctx.Done(), configMaps.HasSynced, services.HasSynced, slices.HasSynced) {
			close(s.synced)
			c.enqueueAll(s)
		}
	}()
	return s
}

// enqueueAll queues all objects that are wanted in a namespace or exist there.
func (c *clusterReflector) enqueueAll(s *remoteNamespace) {
	for _, configMap := range controller.All[corev1.ConfigMap](s.configMaps) {
		if configMap.Name != ledgerName {
			c.queue.Add(key{configMapKind, s.home, configMap.Name})
		}
	}
	for pod := range c.needing(key{kind: namespaceKind, namespace: s.home}) {
		for _, k := range keysOf(pod) {
			c.queue.Add(k)
		}
	}
	c.enqueueSecrets(s)
	c.enqueueServices(s)
}

// enqueueSecrets queues the Secrets that exist there.
func (c *clusterReflector) enqueueSecrets(s *remoteNamespace) {
	for _, name := range s.secretNames() {
		c.queue.Add(key{secretKind, s.home, name})
	}
}

// enqueueServices queues the Services that are wanted in a namespace or exist there.
func (c *clusterReflector) enqueueServices(s *remoteNamespace) {
	services, _ := c.serviceLister.Services(s.home).List(labels.Everything())
	for _, service := range services {
		c.queue.Add(key{serviceKind, s.home, service.Name})
	}
	for _, service := range controller.All[corev1.Service](s.services) {
		c.queue.Add(key{serviceKind, s.home, service.Name})
	}
	for _, slice := range controller.All[discoveryv1.EndpointSlice](s.slices) {
		c.queue.Add(key{serviceKind, s.home, slice.Labels[discoveryv1.LabelServiceName]})
	}
}

// copyChanged queues a ConfigMap of the remote cluster, and passes the ledger's ConfigMap to the
// ledger.
func (c *clusterReflector) copyChanged(s *remoteNamespace, was, now *corev1.ConfigMap) {
	configMap := controller.Either(was, now)
	switch {
	case configMap.Name != ledgerName:
		c.queue.Add(key{configMapKind, s.home, configMap.Name})
	case s.ledger.see(configMap, now != nil):
		c.enqueueSecrets(s)
	}
}
