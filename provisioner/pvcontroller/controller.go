// Package pvcontroller connects package claims to sig-storage-lib-external-provisioner.
// That library creates and deletes virtual volumes as Kubernetes requires; package claims
// decides when. Before each action the library asks this package (Qualifier,
// DeletionGuard), which answers "not yet" without an error or an event; Publish and Finish
// put an object back into the library's queue once the time has come. So no worker of the
// library waits and none of its back-offs applies. Start with Controller and its method
// Publish.
package pvcontroller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"

	ours "github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Controller is the library's controller together with the volumes that it may create or
// delete now.
type Controller struct {
	controller *controller.ProvisionController
	claims     *requeueInformer
	volumes    *requeueInformer
	creates    *createRequests

	mu        sync.Mutex
	published map[types.UID]*publication // claims that may be provisioned
	finished  map[types.UID]bool         // volumes that may be deleted
}

// publication is a claim whose volume may be created.
type publication struct {
	// get returns the volume if it may still be created, else nil. One of phase Bound gets that phase once it is created.
	get func() *corev1.PersistentVolume
	// handedOut: the volume is being created.
	handedOut bool
}

// Config is what a Controller needs. The caller runs the informers.
type Config struct {
	Client  kubernetes.Interface
	Claims  cache.SharedIndexInformer
	Volumes cache.SharedIndexInformer
	Classes cache.SharedIndexInformer
	Nodes   corelisters.NodeLister
	Metrics metrics.Metrics
	// Workers is how many volumes are created or deleted at once.
	Workers int
	// Find returns the claim with this UID from the store of Claims, nil if there is none.
	Find func(uid types.UID) *corev1.PersistentVolumeClaim
}

// New returns a Controller that does nothing until it is run.
func New(logger klog.Logger, config Config) *Controller {
	// No rate limit for all together: each failure is retried soon, whatever else fails.
	return newController(logger, config, func() workqueue.TypedRateLimiter[any] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[any](50*time.Millisecond, 10*time.Second)
	})
}

func newController(logger klog.Logger, config Config, limiter func() workqueue.TypedRateLimiter[any]) *Controller {
	c := &Controller{
		claims:    &requeueInformer{SharedIndexInformer: claimInformer{config.Claims, config.Find}},
		volumes:   &requeueInformer{SharedIndexInformer: volumeInformer{config.Volumes}},
		creates:   newCreateRequests(),
		published: map[types.UID]*publication{},
		finished:  map[types.UID]bool{},
	}
	c.controller = controller.NewProvisionController(logger, countingClient{config.Client, c.creates}, keys.Driver, c,
		controller.ClaimsInformer(c.claims),
		controller.VolumesInformer(c.volumes),
		controller.ClassesInformer(config.Classes),
		controller.NodesLister(config.Nodes),
		controller.Threadiness(config.Workers),
		controller.RateLimiter(limiter()),
		controller.CreateProvisionedPVLimiter(limiter()),
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
		controller.AddFinalizer(true),
		controller.LeaderElection(false),
		controller.MetricsInstance(config.Metrics),
		controller.MetricsPort(0),
	)
	return c
}

// Watch starts to fill the library's queues, beginning with all objects in the caches. Call
// it once, before Run.
func (c *Controller) Watch() error {
	return errors.Join(c.claims.start(), c.volumes.start())
}

// Run works until ctx ends and returns when no volume is being created any more.
func (c *Controller) Run(ctx context.Context) {
	c.controller.Run(ctx)
	c.creates.end()
}

// Publish lets the library create the virtual volume of a claim. The library calls get just
// before that; nil means that the volume may no longer be created. A volume of phase Bound gets
// that phase right after it is created.
func (c *Controller) Publish(claim *corev1.PersistentVolumeClaim, get func() *corev1.PersistentVolume) {
	c.mu.Lock()
	p, ok := c.published[claim.UID]
	if !ok {
		p = &publication{}
		c.published[claim.UID] = p
	}
	p.get = get
	c.mu.Unlock()
	c.claims.requeue(claim)
}

// Withdraw undoes Publish. It returns false if the volume of the claim is already being
// created.
func (c *Controller) Withdraw(claim types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.published[claim]; p != nil && p.handedOut {
		return false
	}
	delete(c.published, claim)
	return true
}

// Finish lets the library delete a released virtual volume.
func (c *Controller) Finish(volume *corev1.PersistentVolume) {
	c.mu.Lock()
	c.finished[volume.UID] = true
	c.mu.Unlock()
	c.volumes.requeue(volume)
}

// HandedOut says whether the virtual volume of a claim is being created. It
// stays true until Forget.
func (c *Controller) HandedOut(claim types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.published[claim]
	return p != nil && p.handedOut
}

// Forget drops the state of a claim. Call it once its volume is in the cache or nothing of
// the claim is left.
func (c *Controller) Forget(claim types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.published, claim)
}

// ForgetVolume drops the state of a volume that is gone.
func (c *Controller) ForgetVolume(volume types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.finished, volume)
}

// ShouldProvision implements controller.Qualifier.
func (c *Controller) ShouldProvision(_ context.Context, claim *corev1.PersistentVolumeClaim) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.published[claim.UID] != nil
}

// Provision implements controller.Provisioner.
func (c *Controller) Provision(_ context.Context,
	options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	uid := options.PVC.UID
	get := c.handOut(uid)
	if get == nil {
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: "the claim is not to be published now"}
	}
	volume := get()
	if volume == nil || volume.Name != options.PVName {
		c.Forget(uid)
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: "the claim changed meanwhile"}
	}
	if !c.creates.handOut(volume.Name) {
		c.Forget(uid)
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: "the provisioner is ending"}
	}
	return volume, controller.ProvisioningFinished, nil
}

// handOut marks the volume of a claim as being created and returns the function that gets
// it; nil if the volume may not be created.
func (c *Controller) handOut(claim types.UID) func() *corev1.PersistentVolume {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.published[claim]
	if p == nil {
		return nil
	}
	p.handedOut = true
	return p.get
}

// ShouldDelete implements controller.DeletionGuard.
func (c *Controller) ShouldDelete(_ context.Context, volume *corev1.PersistentVolume) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.finished[volume.UID]
}

// Delete implements controller.Provisioner. The backing claim and real volume are already
// gone.
func (c *Controller) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	if !c.ShouldDelete(ctx, volume) {
		return &controller.IgnoredError{Reason: "what is behind the volume is not gone yet"}
	}
	return nil
}

// SupportsBlock implements controller.BlockProvisioner. Whether the real class supports
// block volumes is found out when the backing claim is created with it.
func (c *Controller) SupportsBlock(context.Context) bool { return true }

// requeueInformer is an informer that keeps the library's event handler, so that an object
// can be put into the library's queue although it did not change.
type requeueInformer struct {
	cache.SharedIndexInformer
	handler cache.ResourceEventHandler
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer. The handler is called
// only after feed, and never for a resync: nothing needs one.
func (n *requeueInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler,
	_ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	n.handler = handler
	return nil, nil //nolint:nilnil // the library ignores the registration
}

// start starts to call the handler, first with all objects in the cache, which the library wants whole.
func (n *requeueInformer) start() error {
	_, err := ours.AddHandler(n.SharedIndexInformer, cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { n.handler.OnAdd(ours.Unpacked(obj), initial) },
		UpdateFunc: func(was, now any) { n.handler.OnUpdate(ours.Unpacked(was), ours.Unpacked(now)) },
		DeleteFunc: func(obj any) { n.handler.OnDelete(ours.Unpacked(obj)) },
	})
	if err != nil {
		return fmt.Errorf("watch for the library: %w", err)
	}
	return nil
}

func (n *requeueInformer) requeue(obj any) { n.handler.OnUpdate(obj, obj) }

// claimInformer is an informer of claims that replaces the library's only index, by UID,
// with a function: an index set for each claim needs much memory.
type claimInformer struct {
	cache.SharedIndexInformer
	find func(uid types.UID) *corev1.PersistentVolumeClaim
}

// AddIndexers implements cache.SharedIndexInformer.
func (f claimInformer) AddIndexers(indexers cache.Indexers) error {
	for name := range indexers {
		if name != uidIndex {
			return fmt.Errorf("there is no index %s", name)
		}
	}
	return nil
}

// GetIndexer implements cache.SharedIndexInformer.
func (f claimInformer) GetIndexer() cache.Indexer {
	return claimIndexer{f.SharedIndexInformer.GetIndexer(), f.find}
}

// uidIndex is the library's name for its index.
const uidIndex = "uid"

type claimIndexer struct {
	cache.Indexer
	find func(uid types.UID) *corev1.PersistentVolumeClaim
}

// ByIndex implements cache.Indexer.
func (f claimIndexer) ByIndex(index, key string) ([]any, error) {
	if index != uidIndex {
		return f.Indexer.ByIndex(index, key)
	}
	if claim := f.find(types.UID(key)); claim != nil {
		return []any{claim}, nil
	}
	return nil, nil
}

// volumeInformer is an informer of volumes. After creating a volume the library adds it to
// the store, so as not to create it twice; the store may already have the newer object
// from the API server, which must not be overwritten.
type volumeInformer struct{ cache.SharedIndexInformer }

// GetStore implements cache.SharedInformer.
func (s volumeInformer) GetStore() cache.Store { return addOnlyStore{s.SharedIndexInformer.GetStore()} }

// addOnlyStore is a store whose Add ignores objects that it already has. The library reads it by key
// alone.
type addOnlyStore struct{ cache.Store }

// GetByKey implements cache.Store.
func (s addOnlyStore) GetByKey(key string) (any, bool, error) {
	obj, exists, err := s.Store.GetByKey(key)
	return ours.Unpacked(obj), exists, err
}

// Add implements cache.Store.
func (s addOnlyStore) Add(obj any) error {
	if _, exists, err := s.Get(obj); err != nil || exists {
		return err
	}
	return s.Store.Add(obj)
}

// provisioningReason is the reason of the library's event that a volume is about to be
// created. It is dropped: here the backing volume exists by then, so the event that the
// volume was created follows at once, and one event for a claim is half the writes of two.
const provisioningReason = "Provisioning"

// countingClient is the library's client. It drops the event begun and counts the requests
// that create volumes.
type countingClient struct {
	kubernetes.Interface
	saves *createRequests
}

// CoreV1 implements kubernetes.Interface.
func (r countingClient) CoreV1() typedcorev1.CoreV1Interface {
	return countingCore{r.Interface.CoreV1(), r.saves}
}

type countingCore struct {
	typedcorev1.CoreV1Interface
	saves *createRequests
}

// Events implements typedcorev1.EventsGetter.
func (r countingCore) Events(namespace string) typedcorev1.EventInterface {
	return filteredEvents{r.CoreV1Interface.Events(namespace)}
}

// PersistentVolumes implements typedcorev1.PersistentVolumesGetter.
func (r countingCore) PersistentVolumes() typedcorev1.PersistentVolumeInterface {
	return countingVolumes{r.CoreV1Interface.PersistentVolumes(), r.saves}
}

type filteredEvents struct{ typedcorev1.EventInterface }

// CreateWithEventNamespace implements typedcorev1.EventExpansion.
func (t filteredEvents) CreateWithEventNamespace(event *corev1.Event) (*corev1.Event, error) {
	if event.Reason == provisioningReason && event.Type == corev1.EventTypeNormal {
		return event, nil
	}
	return t.EventInterface.CreateWithEventNamespace(event) //nolint:staticcheck // The library's broadcaster calls it.
}

// createTimeout bounds the request that creates a volume, since the library sends it
// without the context of Run.
const createTimeout = 30 * time.Second

// countingVolumes counts the requests that create volumes. All other requests have the
// context of Run and end with it.
type countingVolumes struct {
	typedcorev1.PersistentVolumeInterface
	saves *createRequests
}

// Create implements typedcorev1.PersistentVolumeInterface.
func (v countingVolumes) Create(ctx context.Context, volume *corev1.PersistentVolume,
	options metav1.CreateOptions) (*corev1.PersistentVolume, error) {
	if !v.saves.begin(volume.Name) {
		return nil, errEnding
	}
	defer v.saves.done()
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	made, err := v.PersistentVolumeInterface.Create(ctx, volume, options)
	if err == nil && volume.Status.Phase == corev1.VolumeBound {
		v.markBound(ctx, made)
	}
	return made, err //nolint:wrapcheck // the library checks the type of the error
}

// markBound writes the phase of a new volume, which an API server takes from no one who creates it. It is tried once, and only on what
// was created: kube-controller-manager writes the same where it finds another phase, and knows better once it has written anything.
func (v countingVolumes) markBound(ctx context.Context, made *corev1.PersistentVolume) {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q},"status":{"phase":%q}}`, made.UID, made.ResourceVersion,
		corev1.VolumeBound)
	if _, err := v.Patch(ctx, made.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		klog.FromContext(ctx).V(2).Info("Left the phase of a new volume to kube-controller-manager", "PV", klog.KObj(made), "err", err)
	}
}

var errEnding = errors.New("the provisioner is ending")

// createRequests counts the requests that create volumes. When the library stops it does
// not wait for them, and they must not run beside the next leader. It is safe for
// concurrent use.
type createRequests struct {
	mu      sync.Mutex
	changed *sync.Cond
	ended   bool
	// handedOut are the names of volumes that the library is about to create; running is
	// how many create requests are under way.
	handedOut map[string]bool
	running   int
}

func newCreateRequests() *createRequests {
	s := &createRequests{handedOut: map[string]bool{}}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// handOut makes end wait for a volume that the library is about to create; it returns false
// after end.
func (s *createRequests) handOut(volume string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.handedOut[volume] = true
	}
	return !s.ended
}

// begin is called before each request that creates a volume. False means: do not send it,
// for it repeats a failed attempt after end.
func (s *createRequests) begin(volume string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended && !s.handedOut[volume] {
		return false
	}
	delete(s.handedOut, volume)
	s.running++
	return true
}

// done is called after each request for which begin returned true.
func (s *createRequests) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.changed.Broadcast()
}

// end allows no further create request and waits for those under way.
func (s *createRequests) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for len(s.handedOut) > 0 || s.running > 0 {
		s.changed.Wait()
	}
}
