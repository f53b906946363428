// Package moves moves the data of claims to other places while their applications
// run. Package decide says what to do next; this package asks API servers and movers
// what there is, and does it. Each move has a goroutine of its own, so that none waits
// for another.
package moves

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/volumemoves"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	flowdecide "github.com/lodestone-storage/lodestone/provisioner/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/transport"
)

const (
	// stepTimeout bounds what one look at a move, or one step, may take.
	stepTimeout = 30 * time.Second
	// retryAfter is when a step that failed is tried again.
	retryAfter = 500 * time.Millisecond
)

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// Home is how the home cluster is reached.
	Home *rest.Config
	// Dynamic reads and writes the VolumeSnapshots of the home cluster.
	Dynamic dynamic.Interface
	// Moves reads and writes VolumeMoves; Objects watches them, the caller runs it.
	Moves    *volumemoves.Client
	Objects  cache.SharedIndexInformer
	Clusters *clusters.Registry
	Registry *Registry
	Place    backing.Place
	// Namespace is where the provisioner runs, and its records are.
	Namespace string
	// Image is that of the movers.
	Image string
	// Scratch is how many bytes a mover may keep on the disk of its node; 0: by the size of
	// its volume.
	Scratch int64
	// Margin is how long after its grace period a pod may still run that was deleted by
	// force.
	Margin time.Duration
	// Settling is how long after a move pods are still looked at that may have got the gate
	// from an API server that had not heard yet that the claims are free.
	Settling time.Duration
	// Networks are those in which movers may dial each other.
	Networks transport.Networks
	Recorder record.EventRecorder
	// Metrics are told how moves are; nil for nobody to know.
	Metrics *Metrics
	// Class, Node and Space return objects of home as last seen, nil where there are
	// none.
	Class func(name string) *storagev1.StorageClass
	Node  func(name string) *corev1.Node
	Space func(name string) *corev1.Namespace
	// StandIns returns the nodes of home that stand for a remote cluster, as last seen.
	StandIns func(cluster string) []*corev1.Node
	// View returns what is known of a cluster for claims of a home namespace.
	View func(cluster, namespace string) flowdecide.Cluster
	// Released is told of each claim that a move no longer holds. It must not block.
	Released func(claim types.UID)
}

// Controller moves volumes.
type Controller struct {
	Config
	ways    ways
	witness witness
	mu      sync.Mutex
	work    map[types.UID]*work
	running sync.WaitGroup
}

// New returns a Controller that does nothing until it is run.
func New(config Config) *Controller {
	if config.Metrics == nil {
		config.Metrics = newMetrics()
	}
	return &Controller{Config: config, work: map[types.UID]*work{}}
}

// Run works until ctx ends. Load must have succeeded, and Objects be synced.
func (c *Controller) Run(ctx context.Context) error {
	changed := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if move, ok := obj.(*v1alpha1.VolumeMove); ok {
			c.poke(ctx, move.UID, types.NamespacedName{Namespace: move.Namespace, Name: move.Name})
		}
	}
	handler, err := c.Objects.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }, DeleteFunc: changed,
	})
	if err != nil {
		return fmt.Errorf("watch VolumeMoves: %w", err)
	}
	for uid, known := range c.Registry.all() {
		c.poke(ctx, uid, types.NamespacedName{Namespace: known.Namespace, Name: known.Name})
	}
	c.running.Go(func() { c.sweepAlways(ctx) })
	<-ctx.Done()
	err = c.Objects.RemoveEventHandler(handler)
	c.mu.Lock()
	c.work = nil
	c.mu.Unlock()
	c.running.Wait()
	return err
}

// work is one move that is worked on.
type work struct {
	uid types.UID
	at  types.NamespacedName
	// woken has room for one: what happens while a step is taken is seen after it.
	woken  chan struct{}
	record *stored
	told   string
	waits  waiting
	links  links
	abroad abroad
	steps  repeated
	// refused are why snapshots cannot be taken of claims, or claims made of them, as API
	// servers have said.
	refused map[int]string
	// advance is kept in memory only: a provisioner that is started anew gives copies
	// their time again.
	advance advance
	failing failing
	tardy   tardy
}

// poke has a move looked at.
func (c *Controller) poke(ctx context.Context, uid types.UID, at types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.work == nil || ctx.Err() != nil {
		return
	}
	w, ok := c.work[uid]
	if !ok {
		w = &work{uid: uid, at: at, woken: make(chan struct{}, 1)}
		c.work[uid] = w
		c.running.Go(func() { c.follow(ctx, w) })
		return
	}
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// follow works on a move until nothing is left of it, or ctx ends.
func (c *Controller) follow(ctx context.Context, w *work) {
	logger := klog.FromContext(ctx).WithValues("move", w.at, "moveUID", w.uid)
	ctx = klog.NewContext(ctx, logger)
	defer w.links.close()
	defer w.abroad.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.woken:
		case <-timer.C:
		}
		after, gone, err := c.turn(ctx, w)
		if err != nil {
			logger.V(2).Info("Will be tried again", "err", err)
			after = retryAfter
			w.record = nil
		}
		if gone && c.leave(w) {
			return
		}
		if after > 0 {
			timer.Reset(after)
		}
	}
}

// leave ends the work on a move, unless it was poked meanwhile.
func (c *Controller) leave(w *work) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-w.woken:
		w.woken <- struct{}{}
		return false
	default:
	}
	delete(c.work, w.uid)
	return true
}

// turn looks at a move and takes the next step. after is how long until the next turn,
// 0: when something changes; gone says that nothing is left of it.
func (c *Controller) turn(ctx context.Context, w *work) (after time.Duration, gone bool, err error) {
	// A step that was begun is finished even when ctx ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
	defer cancel()
	o, err := c.observe(ctx, w)
	if err != nil {
		c.tell(ctx, w, o, decide.Step{Verb: decide.Idle, Say: "waiting until this can be read: " + err.Error()})
		return 0, false, err
	}
	if o.Record == nil && o.Move == nil {
		c.Metrics.see(w.uid, o, decide.Step{})
		return 0, true, nil
	}
	o.Failing, o.FailingWhy = w.failing.since, w.failing.why
	step := decide.Next(o)
	failed, err := c.take(ctx, w, o, step)
	if w.failing.see(o.Now, err); err != nil {
		c.tell(ctx, w, o, decide.Step{Verb: decide.Idle, Say: fmt.Sprintf("%s is tried again: %v", failed.Verb, err)})
		return 0, false, err
	}
	if step.Verb == decide.Save {
		c.tellGivenUp(o, step)
		o.Record = w.record.record
	}
	c.Metrics.see(w.uid, o, step)
	c.tell(ctx, w, o, step)
	if step.Verb == decide.Idle {
		return step.After, false, nil
	}
	return w.steps.pause(o, step), false, nil
}
