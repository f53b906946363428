package instant

import (
	"context"
	"fmt"
	"sync"
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

	"github.com/lodestone-storage/lodestone/e2e/patient"
)

// threads is how many claims are handled at once.
const threads = 50

// Provisioner serves the storage classes of one provisioner name in one cluster. Its
// methods may be called concurrently.
type Provisioner struct {
	name      string
	client    kubernetes.Interface
	behaviors *behaviors
	storage   storage
	cancel    context.CancelFunc
	done      sync.WaitGroup
}

// Start makes the provisioner's CSIDriver object and serves, until ctx ends or Stop is
// called, the classes whose provisioner is name. The configuration needs all rights and
// rates that do not throttle.
func Start(ctx context.Context, config *rest.Config, name string) (*Provisioner, error) {
	client, err := kubernetes.NewForConfig(patient.Config(config))
	if err != nil {
		return nil, fmt.Errorf("make the client of provisioner %s: %w", name, err)
	}
	if err := createDriver(ctx, client, name); err != nil {
		return nil, err
	}
	p := &Provisioner{name: name, client: client, behaviors: newBehaviors(), storage: storage{volumes: map[string]Volume{}}}
	ctx, p.cancel = context.WithCancel(ctx)
	if err := p.run(ctx); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
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

func (p *Provisioner) run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(p.client, 0)
	claims := factory.Core().V1().PersistentVolumeClaims().Informer()
	volumes := factory.Core().V1().PersistentVolumes().Informer()
	classes := factory.Storage().V1().StorageClasses().Informer()
	nodes := factory.Core().V1().Nodes().Lister()
	// Refusals are retried for ever, and tests wait for them.
	quiet := klog.NewContext(ctx, logr.Discard())
	ctrl := controller.NewProvisionController(logr.Discard(), p.client, p.name, p,
		controller.LeaderElection(false),
		controller.Threadiness(threads),
		controller.ClaimsInformer(claims),
		controller.VolumesInformer(volumes),
		controller.ClassesInformer(classes),
		controller.NodesLister(nodes),
		controller.RateLimiter(backoff()),
		controller.CreateProvisionedPVLimiter(backoff()),
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
		controller.AddFinalizer(true),
	)
	factory.Start(ctx.Done())
	p.done.Go(func() {
		<-ctx.Done()
		factory.Shutdown()
	})
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("read the %v objects of the cluster: %w", kind, ctx.Err())
		}
	}
	p.done.Go(func() { ctrl.Run(quiet) })
	return nil
}

func backoff() workqueue.RateLimiter { //nolint:staticcheck // the library takes no other type
	return workqueue.NewItemExponentialFailureRateLimiter(50*time.Millisecond, 5*time.Second) //nolint:staticcheck
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
