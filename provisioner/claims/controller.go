// Package claims gives virtual claims their volumes and then keeps claim, virtual volume
// and backing claim consistent. It observes one claim at a time, lets package decide choose
// the next step, and takes that step. The queue's keys are UIDs of claims. Events of
// everything that a decision depends on queue the claim again, so nothing is polled and no
// worker waits.
//
// One worker at a time works on a claim. Steps in a remote cluster run on that cluster's
// own bounded set of goroutines, so that a slow cluster delays only its own claims.
//
// Start with controller.go (New, Run, next), then observe.go and act.go; events.go says
// what queues a claim.
package claims

import (
	"cmp"
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

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	replica "github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// Publisher creates and deletes virtual volumes.
type Publisher interface {
	// Publish makes the volume controller create the virtual volume of a claim. It calls
	// get just before; nil means that the claim may no longer be published. Finish makes it
	// delete a released volume. Both return at once and are idempotent.
	Publish(claim *corev1.PersistentVolumeClaim, get func() *corev1.PersistentVolume)
	Finish(volume *corev1.PersistentVolume)
	// Withdraw undoes Publish; false means that the volume is already being created.
	Withdraw(claim types.UID) bool
	// HandedOut says whether the volume of a claim is being created.
	HandedOut(claim types.UID) bool
	// Forget and ForgetVolume drop the state of a claim or volume.
	Forget(claim types.UID)
	ForgetVolume(volume types.UID)
}

// Config is what a Controller needs.
type Config struct {
	Client   kubernetes.Interface
	Sources  home.Sources
	Clusters *remote.Clusters
	// Publisher creates and deletes virtual volumes.
	Publisher Publisher
	// Snapshots are those of the home cluster; nil if it does not serve the API.
	Snapshots *home.Snapshots
	Place     backing.Place
	// Held says whether a move works on a claim; nil means that there are no moves.
	Held func(claim types.UID) bool
	// Replica returns the record of a VolumeReplica by its name, nil if there is none; nil means that there are no replicas.
	Replica func(namespace, name string) *replica.Record
	// Places returns Observation.Places for a virtual class; nil means that nothing is
	// known of any class.
	Places   func(class string) map[string]*resource.Quantity
	Recorder record.EventRecorder
	Metrics  *Metrics
	// RefusalPeriod is for how long a cluster or node that refused a claim is not tried
	// again.
	RefusalPeriod time.Duration
	// Workers is how many claims are processed in parallel; PerCluster how many requests
	// run in parallel in each remote cluster.
	Workers, PerCluster int
}

// Controller processes virtual claims. It is safe for concurrent use.
type Controller struct {
	Config
	queue workqueue.TypedRateLimitingInterface[types.UID]
	// leftovers queues remote clusters whose leftovers are to be reported, readyChanges
	// nodes that have become ready or not ready.
	leftovers       *controller.Queue[string]
	readyChanges    workqueue.TypedDelayingInterface[string]
	memory          memory
	eventReads      eventReads
	conditionWrites *conditionWrites

	mu        sync.Mutex
	slots     map[string]chan struct{}
	inRemotes sync.WaitGroup
}

// New returns a Controller that does nothing until Run.
func New(config Config) *Controller {
	return &Controller{
		Config: config,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](20*time.Millisecond, 20*time.Second),
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Name: "flow"}),
		leftovers:       controller.NewQueue[string](controller.QueueConfig{Name: "leftovers"}),
		memory:          newMemory(),
		eventReads:      eventReads{paces: map[string]flowcontrol.PassiveRateLimiter{}},
		conditionWrites: newConditionWrites(),
		readyChanges:    workqueue.NewTypedDelayingQueue[string](),
		slots:           map[string]chan struct{}{},
	}
}

// Run works until ctx ends, and returns when every step that has begun is finished. The
// informers of the sources must be synced.
func (f *Controller) Run(ctx context.Context) {
	// A step that has begun is finished even when ctx ends: otherwise the next leader would
	// have to clean up half a step.
	work := context.WithoutCancel(ctx)
	var workers sync.WaitGroup
	for range f.Workers {
		workers.Go(func() {
			for f.next(ctx, work) {
			}
		})
	}
	workers.Go(func() { f.leftovers.Run(ctx, 1, f.reportLeftovers) })
	workers.Go(f.followReadiness)
	<-ctx.Done()
	f.queue.ShutDown()
	f.readyChanges.ShutDown()
	workers.Wait()
	f.inRemotes.Wait()
}

func (f *Controller) next(ctx, work context.Context) bool {
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
	if cluster := step.Cluster(); cluster == "" || cluster == keys.Home {
		f.requeue(uid, f.perform(work, o, step))
		return true
	}
	// Until Done is called the queue gives this claim to no other worker.
	f.inRemotes.Go(func() { f.actWhenSlotFree(ctx, work, o, step) })
	return true
}

// decide returns the next step for a claim, which may be to write its condition.
func (f *Controller) decide(o steps.Observation) steps.Step {
	step := decide.Next(o)
	wish, known := decide.PendingCondition(o, step)
	if !known {
		return step
	}
	if wish == "" {
		f.conditionWrites.drop(o.UID)
	}
	return decide.ShowWhenLasting(o, step, f.memory.since(o.UID, pendingCondition, wish, o.Now))
}

// actWhenSlotFree takes a step in a remote cluster once one of its request slots is free.
func (f *Controller) actWhenSlotFree(ctx, work context.Context, o steps.Observation, step steps.Step) {
	pool := f.slotsOf(step.Cluster())
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
		// Waiting took time: meanwhile the cluster may have become unusable, or the claim
		// may be gone.
		cluster := step.Cluster()
		o = f.observe(o.UID, false)
		if step = f.decide(o); step.Cluster() != cluster {
			f.requeue(o.UID, outcome{again: true})
			return
		}
	}
	f.requeue(o.UID, f.perform(work, o, step))
}

func (f *Controller) slotsOf(cluster string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	pool, ok := f.slots[cluster]
	if !ok {
		pool = make(chan struct{}, f.PerCluster)
		f.slots[cluster] = pool
	}
	return pool
}

// outcome is the result of a step.
type outcome struct {
	err error
	// again: queue the claim at once.
	again bool
	after time.Duration
}

func (f *Controller) requeue(uid types.UID, result outcome) {
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

// perform takes a step and writes its event.
func (f *Controller) perform(ctx context.Context, o steps.Observation, step steps.Step) outcome {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	logger := klog.FromContext(ctx).WithValues("claimUID", o.UID)
	if o.Claim != nil {
		logger = logger.WithValues("PVC", klog.KObj(o.Claim))
	}
	ctx = klog.NewContext(ctx, logger)
	if step.Action != nil {
		logger.V(3).Info("Taking step", "step", step.Verb(), "cluster", step.Cluster())
	}
	f.event(o, step.Tell)
	f.Metrics.observe(o, step)
	f.noteLeftover(ctx, o.UID, step.Left)
	result := f.act(ctx, o, step)
	result.after = cmp.Or(result.after, step.After)
	f.Metrics.step(step, result.err)
	if result.err != nil {
		logger.V(2).Info("Step will be tried again", "step", step.Verb(), "cluster", step.Cluster(), "err", result.err)
		f.failureEvent(o, step, result.err)
	}
	return result
}
