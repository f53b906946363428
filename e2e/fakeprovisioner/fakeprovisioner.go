// Package fakeprovisioner is a real storage provisioner whose volumes take no time and no
// space, for test beds. It stands for the CSI driver of a real storage class: its
// volumes have a driver, a handle, attributes, mount options and a nodeAffinity of
// their own, and it keeps account of them, so that a test can tell whether a real
// volume is really gone. What it does badly can be set while it runs, see [Behavior].
package fakeprovisioner

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/lodestone-storage/lodestone/e2e/retryingwatch"
)

// threads is how many claims are handled at once.
const threads = 50

// Provisioner serves the storage classes of one provisioner name in one cluster. Its
// methods may be called concurrently.
type Provisioner struct {
	name       string
	client     kubernetes.Interface
	factory    informers.SharedInformerFactory
	controller *controller.ProvisionController
	expander   *expander
	behaviors  *behaviors
	snapshots  atomic.Pointer[SnapshotSource]
	storage    storage
	cancel     context.CancelFunc
	done       sync.WaitGroup
}

// Start is New and the Start of what it makes in one.
func Start(ctx context.Context, config *rest.Config, name string) (*Provisioner, error) {
	p, err := New(config, name)
	if err != nil {
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// New makes a provisioner that does not serve yet. The configuration needs all rights
// and rates that do not throttle. The library behind it registers types in the global
// scheme of client-go at this moment, while other clients of this process may be
// reading that: make all provisioners before anything else is started.
func New(config *rest.Config, name string) (*Provisioner, error) {
	client, err := kubernetes.NewForConfig(retryingwatch.Config(config))
	if err != nil {
		return nil, fmt.Errorf("make the client of provisioner %s: %w", name, err)
	}
	p := &Provisioner{
		name:      name,
		client:    client,
		factory:   informers.NewSharedInformerFactory(client, 0),
		behaviors: newBehaviors(),
		storage:   storage{volumes: map[string]Volume{}},
		cancel:    func() {},
	}
	p.controller = p.newController()
	p.expander = newExpander(p)
	return p, nil
}

// Start makes the provisioner's CSIDriver object, and serves the classes whose
// provisioner has this one's name until ctx ends or Stop is called. It returns when the
// service has begun.
func (p *Provisioner) Start(ctx context.Context) error {
	if err := createDriver(ctx, p.client, p.name); err != nil {
		return err
	}
	ctx, p.cancel = context.WithCancel(ctx)
	p.factory.Start(ctx.Done())
	p.done.Go(func() {
		<-ctx.Done()
		p.factory.Shutdown()
	})
	for kind, synced := range p.factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			p.Stop()
			return fmt.Errorf("read the %v objects of the cluster: %w", kind, ctx.Err())
		}
	}
	// The library logs every retry, and retries are what tests ask for.
	quiet := klog.NewContext(ctx, logr.Discard())
	p.done.Go(func() { p.controller.Run(quiet) })
	p.done.Go(func() { p.expander.run(ctx) })
	return nil
}

// Stop ends the service. The account of volumes can still be read.
func (p *Provisioner) Stop() {
	p.cancel()
	p.done.Wait()
}

// Name returns the provisioner's name, which is its CSI driver's too.
func (p *Provisioner) Name() string { return p.name }

// SetClass sets the behaviour for the claims of a storage class.
func (p *Provisioner) SetClass(class string, behavior Behavior) {
	p.behaviors.set(p.behaviors.classes, class, behavior, true)
}

// SetClaim sets the behaviour for one claim, whatever is set for its class.
func (p *Provisioner) SetClaim(namespace, claim string, behavior Behavior) {
	p.behaviors.set(p.behaviors.claims, namespace+"/"+claim, behavior, true)
}

// ResetClass undoes SetClass.
func (p *Provisioner) ResetClass(class string) {
	p.behaviors.set(p.behaviors.classes, class, Behavior{}, false)
}

// ResetClaim undoes SetClaim.
func (p *Provisioner) ResetClaim(namespace, claim string) {
	p.behaviors.set(p.behaviors.claims, namespace+"/"+claim, Behavior{}, false)
}

func (p *Provisioner) newController() *controller.ProvisionController {
	return controller.NewProvisionController(logr.Discard(), p.client, p.name, p,
		controller.LeaderElection(false),
		controller.Threadiness(threads),
		controller.ClaimsInformer(p.factory.Core().V1().PersistentVolumeClaims().Informer()),
		controller.VolumesInformer(p.factory.Core().V1().PersistentVolumes().Informer()),
		controller.ClassesInformer(p.factory.Storage().V1().StorageClasses().Informer()),
		controller.NodesLister(p.factory.Core().V1().Nodes().Lister()),
		controller.RateLimiter(backoff()),
		controller.CreateProvisionedPVLimiter(backoff()),
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
		controller.AddFinalizer(true),
	)
}

func backoff() workqueue.RateLimiter { //nolint:staticcheck // the library takes no other type
	return workqueue.NewItemExponentialFailureRateLimiter(50*time.Millisecond, 5*time.Second) //nolint:staticcheck // see above
}

// createDriver creates the CSIDriver object. Without it the attach-detach controller
// would wait for somebody to attach the volumes.
func createDriver(ctx context.Context, client kubernetes.Interface, name string) error {
	driver := &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired:       ptr.To(false),
			PodInfoOnMount:       ptr.To(false),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
		},
	}
	_, err := client.StorageV1().CSIDrivers().Create(ctx, driver, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the CSIDriver %s: %w", name, err)
	}
	return nil
}

// Class returns a storage class of this provisioner that reclaims by deletion, for a
// test to change and create.
func (p *Provisioner) Class(name string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: name},
		Provisioner:          p.name,
		VolumeBindingMode:    &mode,
		ReclaimPolicy:        ptr.To(corev1.PersistentVolumeReclaimDelete),
		AllowVolumeExpansion: ptr.To(true),
	}
}

// EveryNode stands for all nodes in Behavior.FullNodes.
const EveryNode = "*"

// Behavior is what goes wrong with the volumes of a class or a claim. The zero value
// is a provisioner that does its work at once.
type Behavior struct {
	// Refuse, if not empty, is the error that every attempt to provision ends with.
	Refuse string

	// Delay is how long provisioning takes.
	Delay time.Duration

	// Never makes provisioning hang until the behaviour changes or the claim is deleted.
	Never bool

	// FullNodes are the nodes that have no room: a claim whose selected node is one of
	// them has that choice dropped, and kube-scheduler chooses again.
	FullNodes []string

	// DeleteNever makes every attempt to delete a volume fail.
	DeleteNever bool

	// ExpandRefuse, if not empty, is the error that every attempt to expand ends with.
	ExpandRefuse string

	// ExpandNever lets volumes grow, but not their file systems, as when no pod uses them.
	ExpandNever bool
}

func (b Behavior) full(node string) bool {
	return slices.Contains(b.FullNodes, node) || slices.Contains(b.FullNodes, EveryNode)
}

// behaviors holds what was set. That of a claim goes before that of its class.
type behaviors struct {
	mu      sync.Mutex
	classes map[string]Behavior
	claims  map[string]Behavior
	changed chan struct{} // closed at the next change
}

func newBehaviors() *behaviors {
	return &behaviors{classes: map[string]Behavior{}, claims: map[string]Behavior{}, changed: make(chan struct{})}
}

func (b *behaviors) set(in map[string]Behavior, key string, behavior Behavior, present bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if present {
		in[key] = behavior
	} else {
		delete(in, key)
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// of returns the behaviour for a claim and a channel that is closed when it may have changed.
func (b *behaviors) of(class, claim string) (Behavior, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if behavior, ok := b.claims[claim]; ok {
		return behavior, b.changed
	}
	return b.classes[class], b.changed
}

// pause waits for the duration, less if ctx ends.
func pause(ctx context.Context, duration time.Duration) error {
	if duration <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return nil
	}
}
