package capacity

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// Between two looks at everything there is spacing, and share times what the
	// last one took: a driver with many nodes changes its objects often.
	spacing, share = 200 * time.Millisecond, 20
	// Errors are retried after firstRetry, then each time twice that, at most
	// lastRetry.
	firstRetry, lastRetry = 500 * time.Millisecond, 30 * time.Second
)

// Config is what a Controller needs. The informers are run by the caller, and
// must not be needed by anything else that waits: where the rights to read
// capacities were not given, they never have all.
type Config struct {
	Client kubernetes.Interface
	// Namespace is where the objects are published.
	Namespace string
	// Withdraw has all that was published removed instead.
	Withdraw bool
	// Capacities, Classes, Remotes and Drivers (CSIDrivers) watch those of the home
	// cluster.
	Capacities, Classes, Remotes, Drivers cache.SharedIndexInformer
	Metrics                               *Metrics
	// Released is called once kube-scheduler is told to ask for no room any more; it
	// must not block.
	Released func()
}

// Controller publishes how much room the virtual classes have.
type Controller struct {
	Config
	publisher Publisher
	// places are those of each virtual class at the last look.
	places atomic.Pointer[map[string]Places]
}

// New returns a Controller that does nothing until it is run.
func New(config Config) *Controller {
	return &Controller{Config: config, publisher: Publisher{client: config.Client, namespace: config.Namespace, metrics: config.Metrics, released: config.Released}}
}

// Run works until ctx ends. One replica runs at a time.
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
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("watch what capacities depend on: %w", err)
		}
		ends = append(ends, func() error { return informer.RemoveEventHandler(registration) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.Capacities.HasSynced, c.Classes.HasSynced, c.Remotes.HasSynced, c.Drivers.HasSynced) {
		return nil
	}
	retry := firstRetry
	for {
		again := time.Duration(0)
		took, err := c.once(ctx)
		if err == nil {
			retry = firstRetry
		} else if ctx.Err() == nil {
			c.complain(ctx, err)
			again, retry = retry, min(2*retry, lastRetry)
		}
		if !pause(ctx, max(spacing, share*took), again, changed) {
			return nil
		}
	}
}

// pause waits for a change, or no longer than until a retry is due, which 0 says
// there is not; and at least for least. False means that ctx has ended.
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

// once looks at everything and writes what is to be written; took is how long it
// looked.
func (c *Controller) once(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	seen := c.look()
	if c.Withdraw {
		return time.Since(began), c.publisher.Withdraw(ctx, seen)
	}
	segments := Plan(seen.World)
	places := Largest(seen.World, segments)
	c.places.Store(&places)
	changes := Compare(segments, seen.Published, c.Namespace)
	took = time.Since(began)
	return took, c.publisher.write(ctx, seen, changes)
}

// look gathers what is seen, from caches alone.
func (c *Controller) look() Seen {
	seen := Seen{World: World{
		Classes: listed[storagev1.StorageClass](c.Classes),
		Remotes: listed[v1alpha1.RemoteCluster](c.Remotes),
		Drivers: listed[storagev1.CSIDriver](c.Drivers),
	}}
	seen.Published, seen.Capacities = split(listed[storagev1.CSIStorageCapacity](c.Capacities), c.Namespace)
	for _, driver := range seen.Drivers {
		if driver.Name == keys.Driver {
			seen.Driver = driver
		}
	}
	return seen
}

func listed[T any](informer cache.SharedIndexInformer) []*T {
	var all []*T
	for _, obj := range informer.GetStore().List() {
		if typed, ok := obj.(*T); ok {
			all = append(all, typed)
		}
	}
	return all
}

// complain logs what could not be written.
func (c *Controller) complain(ctx context.Context, err error) {
	logger := klog.FromContext(ctx)
	if errors.Is(err, errUnmade) {
		logger.Error(err, "Capacities of virtual classes cannot be made, so kube-scheduler is told not to ask for room: let this program create CSIStorageCapacity objects", "namespace", c.Namespace)
		return
	}
	logger.V(2).Info("Capacities of virtual classes will be written again", "err", err)
}
