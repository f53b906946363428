// Package flow runs flow A, claim to volume: it observes one virtual claim at a
// time, lets package decide choose the next step, and takes that step. Claims
// are known by UID. A change of anything that a decision depends on brings the
// claim back here by an event, so nothing is polled and no worker waits.
//
// A claim is worked on by one worker at a time. Steps that go to a remote
// cluster are taken on that cluster's own bounded set of goroutines, so that one
// that answers slowly delays only its own claims.
package flow

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
	"github.com/lodestone-storage/lodestone/provisioner/snapshots"
)

// Publisher creates and deletes virtual volumes.
type Publisher interface {
	// Publish has the virtual volume of a claim created; Finish has a released
	// one deleted. Both return at once and may be called again.
	Publish(claim *corev1.PersistentVolumeClaim)
	Finish(volume *corev1.PersistentVolume)
	// Withdraw undoes Publish; false means that the volume is being created.
	Withdraw(claim types.UID) bool
	// HandedOut says whether the volume of a claim is being created.
	HandedOut(claim types.UID) bool
	// Forget and ForgetVolume drop what is remembered.
	Forget(claim types.UID)
	ForgetVolume(volume types.UID)
}

// Clusters finds remote clusters.
type Clusters interface {
	Get(id string) *clusters.Cluster
}

// Config is what a Flow needs.
type Config struct {
	Client   kubernetes.Interface
	Sources  Sources
	Clusters *clusters.Registry
	// Snapshots are those of the home cluster; nil: it has none.
	Snapshots *snapshots.Home
	Place     backing.Place
	// Held says whether a move holds a claim; nil: none ever does.
	Held func(claim types.UID) bool
	// Places returns the places of a virtual class, as decide.Observation has them; nil:
	// nothing is known of any.
	Places   func(class string) map[string]*resource.Quantity
	Recorder record.EventRecorder
	Metrics  *Metrics
	// RefusalPeriod is how long a place that refused a claim is passed over.
	RefusalPeriod time.Duration
	// Workers is how many claims are worked on at once; PerCluster how many
	// requests run at once in each remote cluster.
	Workers, PerCluster int
}

// Flow is flow A. It is safe for concurrent use.
type Flow struct {
	Config
	publisher Publisher
	queue     workqueue.TypedRateLimitingInterface[types.UID]
	// left has the clusters of which is to be told what is left there.
	left workqueue.TypedDelayingInterface[string]
	// flips has the nodes that have become ready, or are no longer.
	flips     workqueue.TypedDelayingInterface[string]
	memory    memory
	questions questions
	written   written
	shows     *shows

	mu    sync.Mutex
	pools map[string]chan struct{}
	away  sync.WaitGroup
}

// New returns a Flow that does nothing until it is run.
func New(config Config) *Flow {
	return &Flow{
		Config: config,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](20*time.Millisecond, 20*time.Second),
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Name: "flow"}),
		left:      workqueue.NewTypedDelayingQueue[string](),
		memory:    newMemory(),
		questions: questions{paces: map[string]flowcontrol.PassiveRateLimiter{}},
		written:   written{claims: map[place]write{}},
		shows:     newShows(),
		flips:     workqueue.NewTypedDelayingQueue[string](),
		pools:     map[string]chan struct{}{},
	}
}

// SetPublisher sets what creates and deletes virtual volumes, before Run.
func (f *Flow) SetPublisher(p Publisher) { f.publisher = p }

// Run works until ctx ends, and returns when every step that was begun is done.
// The sources must be synced.
func (f *Flow) Run(ctx context.Context) {
	// A step that was begun is finished even when ctx ends: half a step is what
	// the next leader would have to clean up.
	work := context.WithoutCancel(ctx)
	var workers sync.WaitGroup
	for range f.Workers {
		workers.Go(func() {
			for f.next(ctx, work) {
			}
		})
	}
	workers.Go(f.tellLeft)
	workers.Go(f.followFlips)
	<-ctx.Done()
	f.queue.ShutDown()
	f.left.ShutDown()
	f.flips.ShutDown()
	workers.Wait()
	f.away.Wait()
}

// Enqueue has a claim looked at.
func (f *Flow) Enqueue(uid types.UID) {
	if uid != "" {
		f.queue.Add(uid)
	}
}

func (f *Flow) next(ctx, work context.Context) bool {
	uid, shutdown := f.queue.Get()
	if shutdown {
		return false
	}
	if ctx.Err() != nil {
		f.queue.Done(uid)
		return true
	}
	o := f.observe(uid, false)
	step := f.decide(o)
	if step.Cluster == "" || step.Cluster == keys.Home {
		f.finish(uid, f.perform(work, o, step))
		return true
	}
	// Until Done is called the queue gives this claim to nobody else.
	f.away.Go(func() { f.takeAway(ctx, work, o, step) })
	return true
}

// takeAway takes a step in a remote cluster once there is room for a request.
func (f *Flow) takeAway(ctx, work context.Context, o decide.Observation, step decide.Step) {
	pool := f.pool(step.Cluster)
	select {
	case pool <- struct{}{}:
		defer func() { <-pool }()
	default:
		select {
		case pool <- struct{}{}:
			defer func() { <-pool }()
		case <-ctx.Done():
			f.queue.Done(o.UID)
			return
		}
		// That took its time: the cluster may be known to be dead by now, or the
		// claim be gone.
		cluster := step.Cluster
		o = f.observe(o.UID, false)
		if step = f.decide(o); step.Cluster != cluster {
			f.finish(o.UID, outcome{again: true})
			return
		}
	}
	f.finish(o.UID, f.perform(work, o, step))
}

func (f *Flow) pool(cluster string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	pool, ok := f.pools[cluster]
	if !ok {
		pool = make(chan struct{}, f.PerCluster)
		f.pools[cluster] = pool
	}
	return pool
}

// outcome is what became of a step.
type outcome struct {
	err error
	// again is set when the claim is to be looked at again at once.
	again bool
	after time.Duration
}

func (f *Flow) finish(uid types.UID, result outcome) {
	defer f.queue.Done(uid)
	switch {
	case result.err != nil:
		f.queue.AddRateLimited(uid)
		return
	case result.again:
		f.queue.Add(uid)
	case result.after > 0:
		f.queue.AddAfter(uid, result.after)
	}
	f.queue.Forget(uid)
}

// perform takes a step and tells the user what there is to tell.
func (f *Flow) perform(ctx context.Context, o decide.Observation, step decide.Step) outcome {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	logger := klog.FromContext(ctx).WithValues("claimUID", o.UID)
	if o.Claim != nil {
		logger = logger.WithValues("PVC", klog.KObj(o.Claim))
	}
	ctx = klog.NewContext(ctx, logger)
	if step.Verb != decide.Idle {
		logger.V(3).Info("Taking step", "step", step.Verb, "cluster", step.Cluster)
	}
	f.tell(o, step.Tell)
	f.Metrics.see(o, step)
	f.noteLeft(ctx, o.UID, step.Left)
	result := outcome{after: step.After}
	result = f.act(ctx, o, step, result)
	f.Metrics.step(step, result.err)
	if result.err != nil {
		logger.V(2).Info("Step will be tried again", "step", step.Verb, "cluster", step.Cluster, "err", result.err)
		f.tellFailure(o, step, result.err)
	}
	return result
}
