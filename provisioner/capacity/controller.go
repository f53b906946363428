package capacity

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// Between two passes there is a pause of spacing, plus share times the duration of the
	// last pass: a driver with many nodes changes its objects often.
	spacing, share = 200 * time.Millisecond, 20
	// Errors are retried after firstRetry, then after twice as long each time, up to
	// lastRetry.
	firstRetry, lastRetry = 500 * time.Millisecond, 30 * time.Second
)

// Config is what a Controller needs. The caller runs the informers. Nothing else may wait
// for them: without the rights to read capacities they never sync.
type Config struct {
	Client kubernetes.Interface
	// Namespace is where the objects are published.
	Namespace string
	// Withdraw removes all published objects instead.
	Withdraw bool
	// Capacities, Classes, Remotes and Drivers (CSIDrivers) are informers on the home
	// cluster.
	Capacities, Classes, Remotes, Drivers cache.SharedIndexInformer
	Metrics                               *Metrics
}

// Controller publishes the room of virtual classes as CSIStorageCapacities.
type Controller struct {
	Config
	publisher Publisher
	// room is the room of each virtual class in the last pass.
	room atomic.Pointer[map[string]ClusterRoom]
}

// New returns a Controller that does nothing until Run.
func New(config Config) *Controller {
	return &Controller{Config: config, publisher: Publisher{client: config.Client, namespace: config.Namespace, metrics: config.Metrics}}
}

// Subscribe adds a callback for each time that kube-scheduler is told not to check
// capacities any more; it must not block. Call it before Run.
func (c *Controller) Subscribe(released func()) {
	c.publisher.released = append(c.publisher.released, released)
}

// Run works until ctx ends. It must run in one replica at a time.
func (c *Controller) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
	}
	var ends []func() error
	defer func() {
		for _, end := range ends {
			_ = end()
		}
	}()
	for _, informer := range []cache.SharedIndexInformer{c.Capacities, c.Classes, c.Remotes, c.Drivers} {
		unwatch, err := controller.AddHandler(informer, handler)
		if err != nil {
			return fmt.Errorf("watch what capacities depend on: %w", err)
		}
		ends = append(ends, unwatch)
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.Capacities.HasSynced, c.Classes.HasSynced, c.Remotes.HasSynced, c.Drivers.HasSynced) {
		return nil
	}
	retry := firstRetry
	for {
		again := time.Duration(0)
		took, err := c.sync(ctx)
		if err == nil {
			retry = firstRetry
		} else if ctx.Err() == nil {
			c.reportError(ctx, err)
			again, retry = retry, min(2*retry, lastRetry)
		}
		if !pause(ctx, max(spacing, share*took), again, changed) {
			return nil
		}
	}
}

// pause waits at least for least, then for a change or until again has passed; again is 0
// if no retry is due. It returns false if ctx has ended.
func pause(ctx context.Context, least, again time.Duration, changed <-chan struct{}) bool {
	var due <-chan time.Time
	if again != 0 {
		timer := time.NewTimer(again)
		defer timer.Stop()
		due = timer.C
	}
	quiet := time.NewTimer(least)
	defer quiet.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-quiet.C:
	}
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-due:
	}
	return true
}

// sync makes one pass over all objects and writes the changes; took is the duration of the
// pass without the writes.
func (c *Controller) sync(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	seen := c.observe()
	if c.Withdraw {
		return time.Since(began), c.publisher.Withdraw(ctx, seen)
	}
	segments := Plan(seen.World)
	places := Largest(seen.World, segments)
	c.room.Store(&places)
	changes := Compare(segments, seen.Published, c.Namespace)
	took = time.Since(began)
	return took, c.publisher.write(ctx, seen, changes)
}

// observe gathers the objects from caches only.
func (c *Controller) observe() Seen {
	seen := Seen{World: World{
		Classes: controller.All[storagev1.StorageClass](c.Classes),
		Remotes: controller.All[v1alpha1.RemoteCluster](c.Remotes),
		Drivers: controller.All[storagev1.CSIDriver](c.Drivers),
	}}
	seen.Published, seen.Capacities = split(controller.All[storagev1.CSIStorageCapacity](c.Capacities), c.Namespace)
	for _, driver := range seen.Drivers {
		if driver.Name == keys.Driver {
			seen.Driver = driver
		}
	}
	return seen
}

func (c *Controller) reportError(ctx context.Context, err error) {
	logger := klog.FromContext(ctx)
	if errors.Is(err, errUnmade) {
		logger.Error(err, "Capacities of virtual classes cannot be made, so kube-scheduler is told not to ask for room: let this program "+
			"create CSIStorageCapacity objects", "namespace", c.Namespace)
		return
	}
	logger.V(2).Info("Capacities of virtual classes will be written again", "err", err)
}

// RoomOf returns the ClusterRoom of a virtual class in the last pass; nil before the first
// pass, if nothing is published, and for other classes.
func (c *Controller) RoomOf(class string) map[string]*resource.Quantity {
	if all := c.room.Load(); all != nil {
		return (*all)[class]
	}
	return nil
}

// Metrics count the writes of capacities.
type Metrics struct {
	writes *prometheus.CounterVec
}

// NewMetrics returns metrics that are registered with registerer.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	return &Metrics{writes: promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "lodestone_provisioner_capacity_writes_total",
		Help: "Writes of what kube-scheduler is told of the room of virtual classes, by verb and result.",
	}, []string{"verb", "result"})}
}

func (m *Metrics) wrote(verb string, err error) {
	result := "done"
	if err != nil {
		result = "error"
	}
	m.writes.WithLabelValues(verb, result).Inc()
}
