// Package replicas keeps second copies of claims in other clusters. Controller observes each VolumeReplica through API servers and
// movers (observe.go), package decide chooses the next step, and act.go takes it; begin.go finds out where a copy goes and what a
// point is of. wanted.go makes the VolumeReplicas that classes and claims ask for, automatic.go fails over by itself. The state of a
// replica is a record (records.go, package record).
package replicas

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	events "k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/provisioner/copying"
	"github.com/lodestone-storage/lodestone/provisioner/copying/transport"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/site"
	"github.com/lodestone-storage/lodestone/provisioner/witness"
)

const (
	// stepTimeout limits one observation of a replica and its step.
	stepTimeout = 30 * time.Second
	// retryAfter is the pause after a failed step.
	retryAfter = time.Second
	// workers is how many replicas are processed in parallel: those that wait for a cluster that does not answer delay no others.
	workers = 64
	// mostSteps is how many steps are taken in a row before others have their turn.
	mostSteps = 8
)

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// Home is the client configuration of the home cluster.
	Home *rest.Config
	// Dynamic reads and writes the VolumeSnapshots of the home cluster.
	Dynamic dynamic.Interface
	// Client of the VolumeReplicas; Objects is their informer, which the caller runs.
	Replicas *clients.VolumeMoveClient
	Objects  cache.SharedIndexInformer
	Clusters *remote.Clusters
	Records  *Records
	Place    backing.Place
	// Namespace is the provisioner's namespace, which has its records.
	Namespace string
	// Image is the image of the movers, Scratch how many bytes one may store on the disk of its node; 0: depends on the volume.
	Image   string
	Scratch int64
	// Networks are those in which movers may dial each other.
	Networks transport.Networks
	Targets  copying.Targets
	Recorder events.EventRecorder
	Metrics  *Metrics
	// Node returns a home node from the cache, nil if there is none.
	Node func(name string) *corev1.Node
	// Sources are what there is at home, in informers that the caller runs.
	Sources home.Sources
	// Moving says whether a move holds a claim.
	Moving func(claim types.UID) bool
	// FailedOver returns when the last failover of a claim began that is not over, zero if there is none.
	FailedOver func(claim types.UID) time.Time
	// KeptAt returns the real claim in a cluster that a move keeps of what a claim had there; false if there is none.
	KeptAt func(claim types.UID, cluster string) (backing.Ref, bool)
}

// Controller keeps replicas.
type Controller struct {
	Config
	sites   site.Sites
	queue   *controller.Queue[replicaKey]
	copier  *copying.Copier
	witness witness.Witness
	mu      sync.Mutex
	active  map[types.UID]*activeReplica
	// ending is closed when this process is to end: steps go on until they are done.
	ending chan struct{}
}

// replicaKey is the key of a replica; the UID distinguishes it from another one of the same name.
type replicaKey struct {
	types.NamespacedName
	uid types.UID
}

// activeReplica is the in-memory state of one replica. Only the worker that has its key uses it.
type activeReplica struct {
	replicaKey
	record    *stored
	copies    []*activeCopy
	keyless   copying.Keyless
	refused   decide.Refusal
	refusedAt time.Time
	// runnable is whether its standby could run the pods.
	runnable runnableNow
	// reached is since when both clusters of its point could be asked without a break, zero if one cannot be.
	reached time.Time
	// cleared says that nothing is left of points that home does not know; see leftovers.go.
	cleared bool
	// looks counts how often its versions were looked at.
	looks int
	// kept are the versions that their cluster does not let go, by name.
	kept map[string]keptVersion
	// lastSaid is what the last event said.
	lastSaid string
	// point is the number of the point that copies are of.
	point int64
	// hold is what is known of the freeze of its point. holding says that this process may have frozen an application, and not thawed it.
	hold    decide.Hold
	holding bool
}

// activeCopy is what is remembered of the copy of one claim.
type activeCopy struct {
	link     copying.Link
	furthest copying.Furthest
	advanced time.Time
}

// close ends the connections of its movers.
func (w *activeReplica) close() {
	for _, one := range w.copies {
		one.link.Close()
	}
}

// New returns a Controller that does nothing until Run.
func New(config Config) *Controller {
	home := remote.Access{Client: config.Client, Config: config.Home, Dynamic: config.Dynamic}
	sites := site.New(home, config.Clusters)
	return &Controller{
		Config: config, sites: sites, active: map[types.UID]*activeReplica{}, ending: make(chan struct{}),
		queue: controller.NewQueue[replicaKey](controller.QueueConfig{
			Name: "replicas", FirstRetry: retryAfter, LastRetry: retryAfter, Timeout: stepTimeout, FinishSteps: true,
		}),
		copier:  &copying.Copier{Sites: sites, Networks: config.Networks},
		witness: witness.Witness{Sites: sites, HomeID: config.Place.HomeID, Node: config.Node, Memory: &witness.Memory{}},
	}
}

// Run works until ctx ends. Call it once, after Load has succeeded and Objects is synced.
func (c *Controller) Run(ctx context.Context) error {
	unwatch, err := controller.Watch(c.Objects, func(was, now *v1alpha1.VolumeReplica) {
		either := controller.Either(was, now)
		if was == nil || now == nil || was.Generation != now.Generation || was.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero() {
			c.queue.Add(replicaKey{types.NamespacedName{Namespace: either.Namespace, Name: either.Name}, either.UID})
		}
	})
	if err != nil {
		return err
	}
	for _, known := range c.Records.all() {
		c.queue.Add(replicaKey{types.NamespacedName{Namespace: known.Namespace, Name: known.Name}, known.UID})
	}
	context.AfterFunc(ctx, func() { close(c.ending) })
	var beside errgroup.Group
	beside.Go(func() error { return c.runWanted(ctx) })
	failing := automatic{Controller: c, silent: map[string]time.Time{}, known: map[types.UID]*attempts{}, begun: map[types.UID]begun{},
		probes: map[string]*probing{}}
	beside.Go(func() error { return failing.run(ctx) })
	c.queue.Run(ctx, workers, c.sync)
	for _, w := range c.active {
		w.close()
	}
	return errors.Join(beside.Wait(), unwatch())
}

// ClusterChanged has the replicas looked at that have a copy in a cluster whose state has changed.
func (c *Controller) ClusterChanged(cluster string, _ bool) {
	for _, r := range c.Records.all() {
		if r.Head.Cluster == cluster || r.Point != nil && r.Point.Source.Cluster == cluster || r.LeftIn(cluster) {
			c.queue.Add(replicaKey{types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, r.UID})
		}
	}
	c.wakeNext()
}

func (c *Controller) replicaOf(key replicaKey) *activeReplica {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.active[key.uid]
	if w == nil {
		w = &activeReplica{replicaKey: key}
		c.active[key.uid] = w
	}
	return w
}

// drop forgets a replica of which nothing is left.
func (c *Controller) drop(w *activeReplica) {
	w.close()
	c.Metrics.forget(w.uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.active, w.uid)
}

// sync takes the next steps of a replica, and drops its state once nothing is left of it.
func (c *Controller) sync(ctx context.Context, key replicaKey) (after time.Duration, err error) {
	logger := klog.FromContext(ctx).WithValues("replica", key.NamespacedName, "replicaUID", key.uid)
	ctx = klog.NewContext(ctx, logger)
	w := c.replicaOf(key)
	for range mostSteps {
		after, over := c.step(ctx, w)
		switch {
		case w.holding:
			return c.holdOn(ctx, w), nil
		case over:
			return after, nil
		}
	}
	return time.Millisecond, nil
}

// holdOn takes the steps of a point while its application may be frozen: neither the turns of others nor the end of this process come
// between.
func (c *Controller) holdOn(ctx context.Context, w *activeReplica) time.Duration {
	after := time.Duration(0)
	for until := time.Now().Add(longestHold); w.holding && time.Now().Before(until); {
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
		after, _ = c.step(one, w)
		cancel()
		if w.holding {
			time.Sleep(min(after, retryAfter))
		}
	}
	return max(after, time.Millisecond)
}

// step takes the next step of a replica. With over none is to be taken before after has passed, 0 for when something changes.
func (c *Controller) step(ctx context.Context, w *activeReplica) (after time.Duration, over bool) {
	o, err := c.observe(ctx, w)
	if err != nil {
		return c.failed(ctx, w, o, err), true
	}
	step := decide.Next(o)
	if o.Record != nil && o.Replica != nil {
		c.Records.awaitTurn(decide.TurnOf(o), step.AwaitsTurn)
	}
	if step.Action != nil || step.Reason == decide.NotFrozen || step.Reason == decide.ThawFailed {
		c.tell(w, o, step)
	}
	switch {
	case step.Over:
		c.drop(w)
		return 0, true
	case step.Action == nil && w.holding:
		return step.After, true
	case step.Action == nil:
		return soonest(step.After, c.report(ctx, w, o, step)), true
	}
	klog.FromContext(ctx).V(3).Info("Taking step", "action", step.Action, "say", step.Say)
	if err := c.act(ctx, w, o, step.Action); err != nil {
		return c.failed(ctx, w, o, err), true
	}
	return 0, false
}

// isAway says whether a cluster cannot be asked now.
func (c *Controller) isAway(cluster string) bool {
	_, why := c.sites.Reach(cluster)
	return why != ""
}

// wakeNext has those looked at whose turn it is to begin a point.
func (c *Controller) wakeNext() {
	for _, r := range c.Records.turns(time.Now(), c.isAway) {
		c.queue.Add(replicaKey{types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, r.UID})
	}
}

// failed reports an error of an API server, after which the step is tried again.
func (c *Controller) failed(ctx context.Context, w *activeReplica, o decide.Observation, err error) time.Duration {
	// Logged here at a low level, not by the queue: the VolumeReplica shows it, and clusters may be unreachable for long.
	klog.FromContext(ctx).V(2).Info("Will be tried again", "err", err)
	w.record = nil
	c.report(ctx, w, o, decide.Step{Say: plain("this is tried again: " + err.Error()), Reason: decide.Waiting})
	return retryAfter
}

// soonest returns the shorter one of two times of which 0 means never.
func soonest(a, b time.Duration) time.Duration {
	times := slices.DeleteFunc([]time.Duration{a, b}, func(d time.Duration) bool { return d <= 0 })
	if len(times) == 0 {
		return 0
	}
	return slices.Min(times)
}
