// Package library joins flow A to sig-storage-lib-external-provisioner. That
// library creates virtual volumes and deletes them with all the care that
// Kubernetes wants; when to do so is decided here, by flow A: the library asks
// before it acts (Qualifier, DeletionGuard), gets "not yet" without an error or
// an event, and is told at once when the time has come. So nothing waits inside
// a worker of the library, and none of its back-offs ever runs.
package library

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Library is the library's controller together with what it may do now.
type Library struct {
	controller *controller.ProvisionController
	claims     *nudged
	volumes    *nudged
	// Revalidate returns the virtual volume for a claim if it may still be
	// published, else nil. It is called just before the volume is created.
	revalidate func(claim types.UID) *corev1.PersistentVolume

	mu        sync.Mutex
	published map[types.UID]bool // claims that may be provisioned
	handedOut map[types.UID]bool // claims whose volume is being created
	finished  map[types.UID]bool // volumes that may be deleted
}

// Config is what a Library needs. The informers are run by the caller.
type Config struct {
	Client  kubernetes.Interface
	Claims  cache.SharedIndexInformer
	Volumes cache.SharedIndexInformer
	Classes cache.SharedIndexInformer
	Nodes   corelisters.NodeLister
	Metrics metrics.Metrics
	// Workers is how many volumes are created or deleted at once.
	Workers int
	// Find returns the claim with a UID from the store of Claims, nil if there is
	// none.
	Find func(uid types.UID) *corev1.PersistentVolumeClaim
	// Revalidate returns the virtual volume for a claim if it may still be
	// published, else nil.
	Revalidate func(claim types.UID) *corev1.PersistentVolume
}

// New returns a Library that does nothing until it is run.
func New(logger klog.Logger, config Config) *Library {
	// No bucket: what fails is retried on its own, soon, whatever else goes on.
	return newLibrary(logger, config, func() workqueue.TypedRateLimiter[any] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[any](50*time.Millisecond, 10*time.Second)
	})
}

func newLibrary(logger klog.Logger, config Config, limiter func() workqueue.TypedRateLimiter[any]) *Library {
	l := &Library{
		claims:     &nudged{SharedIndexInformer: found{config.Claims, config.Find}},
		volumes:    &nudged{SharedIndexInformer: saved{config.Volumes}},
		revalidate: config.Revalidate,
		published:  map[types.UID]bool{},
		handedOut:  map[types.UID]bool{},
		finished:   map[types.UID]bool{},
	}
	l.controller = controller.NewProvisionController(logger, terse{config.Client}, keys.Driver, l,
		controller.ClaimsInformer(l.claims),
		controller.VolumesInformer(l.volumes),
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
	return l
}

// Watch begins to feed the library's queues, from all that is known. Call it
// once, before Run.
func (l *Library) Watch() error {
	return errors.Join(l.claims.feed(), l.volumes.feed())
}

// Run works until ctx ends.
func (l *Library) Run(ctx context.Context) { l.controller.Run(ctx) }

// Publish has the virtual volume of a claim created.
func (l *Library) Publish(claim *corev1.PersistentVolumeClaim) {
	l.mu.Lock()
	l.published[claim.UID] = true
	l.mu.Unlock()
	l.claims.nudge(claim)
}

// Withdraw undoes Publish. False means that it is too late: the volume of the
// claim is being created.
func (l *Library) Withdraw(claim types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handedOut[claim] {
		return false
	}
	delete(l.published, claim)
	return true
}

// Finish has a released virtual volume deleted.
func (l *Library) Finish(volume *corev1.PersistentVolume) {
	l.mu.Lock()
	l.finished[volume.UID] = true
	l.mu.Unlock()
	l.volumes.nudge(volume)
}

// HandedOut says whether the virtual volume of a claim is being created. It
// stays true until Forget.
func (l *Library) HandedOut(claim types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handedOut[claim]
}

// Forget drops what is remembered of a claim, once its volume is seen or there
// is nothing left of it.
func (l *Library) Forget(claim types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.published, claim)
	delete(l.handedOut, claim)
}

// ForgetVolume drops what is remembered of a volume that is gone.
func (l *Library) ForgetVolume(volume types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.finished, volume)
}

// ShouldProvision implements controller.Qualifier.
func (l *Library) ShouldProvision(_ context.Context, claim *corev1.PersistentVolumeClaim) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.published[claim.UID]
}

// Provision implements controller.Provisioner.
func (l *Library) Provision(_ context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	uid := options.PVC.UID
	if !l.handOut(uid) {
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: "the claim is not to be published now"}
	}
	volume := l.revalidate(uid)
	if volume == nil || volume.Name != options.PVName {
		l.Forget(uid)
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: "the claim changed meanwhile"}
	}
	return volume, controller.ProvisioningFinished, nil
}

// handOut notes that the volume of a claim is being created, if it may be.
func (l *Library) handOut(claim types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.published[claim] {
		l.handedOut[claim] = true
	}
	return l.published[claim]
}

// ShouldDelete implements controller.DeletionGuard.
func (l *Library) ShouldDelete(_ context.Context, volume *corev1.PersistentVolume) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished[volume.UID]
}

// Delete implements controller.Provisioner. All that is behind the volume is
// gone already.
func (l *Library) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	if !l.ShouldDelete(ctx, volume) {
		return &controller.IgnoredError{Reason: "what is behind the volume is not gone yet"}
	}
	return nil
}

// SupportsBlock implements controller.BlockProvisioner. Whether the real class
// supports block volumes shows when the backing claim is created with it.
func (l *Library) SupportsBlock(context.Context) bool { return true }
