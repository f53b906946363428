// Package reflector keeps copies of what the pods of a virtual node need in the
// remote cluster that the node stands for: the ConfigMaps and Secrets that they
// name, home API tokens where they ask for one, and the Services of their
// namespaces. A change here or there brings the one object in question back to
// a worker, which compares what is wanted with what is there; nothing is polled
// but Secrets, which may be written there and not read.
//
// Any step may be the last one of this program, and the next one to run goes on
// from what it finds. Copies can be told by their labels. Names of Secrets are
// written to a ledger before the Secret is made, for Secrets cannot be listed.
package reflector

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// Config is what a Reflector needs of the home cluster.
type Config struct {
	// Client reads Secrets, each by its name, and requests tokens.
	Client kubernetes.Interface
	// Factory has the informers of everything else; the caller starts it.
	Factory informers.SharedInformerFactory
	// Recorder writes events on pods and Services.
	Recorder record.EventRecorder
	// Metrics takes what is counted; it may be nil.
	Metrics prometheus.Registerer
	// Clock is the real one if nil.
	Clock clock.WithTicker
	// Workers is how many objects are worked on at once for each remote cluster;
	// 8 if it is 0.
	Workers int
}

// Reflector runs for any number of remote clusters. It is safe for concurrent
// use.
type Reflector struct {
	Config
	pods       cache.SharedIndexInformer
	configMaps cache.SharedIndexInformer
	services   cache.SharedIndexInformer
	slices     cache.SharedIndexInformer

	configMapLister corelisters.ConfigMapLister
	serviceLister   corelisters.ServiceLister
	looks           *prometheus.CounterVec
}

// New returns a Reflector. It must be called once for each Factory, before that
// is started.
func New(config Config) (*Reflector, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Workers == 0 {
		config.Workers = 8
	}
	core := config.Factory.Core().V1()
	r := &Reflector{
		Config: config,
		pods:   core.Pods().Informer(), configMaps: core.ConfigMaps().Informer(), services: core.Services().Informer(),
		slices:          config.Factory.Discovery().V1().EndpointSlices().Informer(),
		configMapLister: core.ConfigMaps().Lister(), serviceLister: core.Services().Lister(),
	}
	var err error
	if r.looks, err = newLooks(config.Metrics); err != nil {
		return nil, err
	}
	if err := r.pods.AddIndexers(cache.Indexers{needsIndex: indexNeeds}); err != nil {
		return nil, fmt.Errorf("index pods by what they need: %w", err)
	}
	if err := r.slices.AddIndexers(cache.Indexers{serviceIndex: indexService}); err != nil {
		return nil, fmt.Errorf("index EndpointSlices by Service: %w", err)
	}
	return r, nil
}

// Run keeps the copies in one remote cluster until ctx ends. Copies stay when it
// ends: what they are for goes on.
func (r *Reflector) Run(ctx context.Context, s *session.Session) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("cluster", s.Cluster))
	if !cache.WaitForCacheSync(ctx.Done(), r.pods.HasSynced, r.configMaps.HasSynced, r.services.HasSynced, r.slices.HasSynced) {
		return nil
	}
	m := newMirror(ctx, r, s)
	stop, err := m.subscribe()
	defer stop()
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { m.requests.RunWithContext(ctx) })
	for range r.Workers {
		running.Go(func() {
			for m.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	m.queue.ShutDown()
	running.Wait()
	return nil
}

// subscribe brings the objects that events are about to the workers. The
// function it returns undoes that.
func (m *mirror) subscribe() (func(), error) {
	var undo []func()
	stop := func() {
		for _, f := range undo {
			f()
		}
	}
	var errs []error
	listen := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			errs = append(errs, fmt.Errorf("watch the home cluster: %w", err))
			return
		}
		undo = append(undo, func() { _ = informer.RemoveEventHandler(registration) })
	}
	listen(m.pods, podHandler(m.podChanged))
	listen(m.configMaps, handler(m.homeConfigMapChanged))
	listen(m.services, handler(func(service *corev1.Service) { m.queue.Add(key{serviceKind, service.Namespace, service.Name}) }))
	listen(m.slices, bothHandler(m.homeSliceChanged))
	listen(m.requests, m.requestHandler())
	return stop, errors.Join(errs...)
}
