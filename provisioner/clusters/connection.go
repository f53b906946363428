package clusters

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/mapped"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// connection is one client of a remote cluster with what it watches there:
// volumes and storage classes, and our backing claims in each mapped namespace.
// It is made anew when the kubeconfig changes or the cluster comes back.
type connection struct {
	id      string
	client  kubernetes.Interface
	homeID  string
	volumes cache.SharedIndexInformer
	classes cache.SharedIndexInformer
	factory informers.SharedInformerFactory
	hooks   Hooks
	keeper  *mapped.Keeper
	ctx     context.Context
	stop    context.CancelFunc
	began   time.Time
	// remote reads and writes the objects of the remote agent; config is how both get
	// there.
	remote *remoteapi.Client
	config *rest.Config

	// dynamic reads and writes VolumeSnapshots.
	dynamic dynamic.Interface

	mu sync.Mutex
	// latest is the latest resource version of volumes that was asked for.
	latest  string
	shadows map[string]*shadows
	taken   map[string]*taken
	// room watches how much room there is; nil while home may not see it.
	room cache.SharedIndexInformer
	// nodes watches the nodes; nil while home need not or may not see them.
	nodes cache.SharedIndexInformer
}

// Hooks are called from informers; they must not block.
type Hooks struct {
	// Shadow: a backing claim, or the real volume behind it, changed.
	Shadow func(shadow *corev1.PersistentVolumeClaim)
	// Backing: the real volume of the backing claim with this UID changed, and
	// that claim is not there any more.
	Backing func(backing types.UID)
	// Seen: it is now known which backing claims exist in a namespace.
	Seen func(cluster, namespace string)
	// Mapped: whether the namespace that belongs to a home namespace may be used
	// changed; given says that it may.
	Mapped func(cluster, home string, given bool)
	// Snapshot: a VolumeSnapshot of ours changed. Taken: what is known of those in a
	// namespace changed.
	Snapshot func(cluster string, s *volumesnapshot.Snapshot)
	Taken    func(cluster, namespace string)
	// Changed: what can be asked of a cluster changed; ready says whether new
	// volumes can be made there.
	Changed func(cluster string, ready bool)
}

func connect(ctx context.Context, id string, client kubernetes.Interface, homeID string, hooks Hooks, namespaces []string, classesChanged func()) *connection {
	c := &connection{id: id, client: client, homeID: homeID, hooks: hooks, shadows: map[string]*shadows{}, taken: map[string]*taken{}, began: time.Now()}
	c.ctx, c.stop = context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(cached))
	c.factory = factory
	c.volumes = factory.Core().V1().PersistentVolumes().Informer()
	c.classes = factory.Storage().V1().StorageClasses().Informer()
	_, _ = c.volumes.AddEventHandler(handler(c.volumeChanged))
	_, _ = c.classes.AddEventHandler(handler(func(any) { classesChanged() }))
	factory.StartWithContext(c.ctx)
	for _, namespace := range namespaces {
		c.watch(namespace)
	}
	return c
}

// cached is what is cached of an object of a remote cluster: what can be trusted,
// made small only then.
func cached(obj any) (any, error) {
	obj, err := Trusted(obj)
	if err != nil {
		return nil, err
	}
	return slim.Object(obj)
}

// handler calls changed with an object as it is, or was last before it went.
func handler(changed func(obj any)) cache.ResourceEventHandler {
	return changes(func(old, obj any) {
		if obj == nil {
			obj = old
		}
		changed(obj)
	})
}

// changes calls changed with an object as it was, nil for a new one, and as it is,
// nil for one that is gone.
func changes(changed func(old, obj any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(nil, obj) },
		UpdateFunc: changed,
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			changed(obj, nil)
		},
	}
}

func (c *connection) volumeChanged(obj any) {
	volume, ok := obj.(*corev1.PersistentVolume)
	if !ok || volume.Spec.ClaimRef == nil {
		return
	}
	if shadow := c.shadowOf(volume); shadow != nil {
		c.hooks.Shadow(shadow)
		return
	}
	c.hooks.Backing(volume.Spec.ClaimRef.UID)
}

// shadowOf returns our backing claim that a real volume is for, nil if there is
// none.
func (c *connection) shadowOf(volume *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	ref := volume.Spec.ClaimRef
	if ref == nil {
		return nil
	}
	// A later claim may have the same name.
	shadow := c.shadow(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
	if shadow == nil || (ref.UID != "" && ref.UID != shadow.UID) {
		return nil
	}
	return shadow
}

// volume returns the real volume that is bound to a backing claim, nil while
// there is none; both must name each other.
func (c *connection) volume(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return Bound(c.volumes.GetStore(), claim)
}

// Bound returns the volume in store that claim is bound to, nil while there is
// none; both must name each other.
func Bound(store cache.Store, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	if claim.Spec.VolumeName == "" {
		return nil
	}
	obj, ok, err := store.GetByKey(claim.Spec.VolumeName)
	if err != nil || !ok {
		return nil
	}
	volume, ok := obj.(*corev1.PersistentVolume)
	if !ok || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID {
		return nil
	}
	return volume
}

func (c *connection) synced() bool {
	return c.volumes.HasSynced() && c.classes.HasSynced() && c.keeper.Synced()
}

func (c *connection) offered() []v1alpha1.OfferedClass {
	var classes []*storagev1.StorageClass
	for _, obj := range c.classes.GetStore().List() {
		if class, ok := obj.(*storagev1.StorageClass); ok {
			classes = append(classes, class)
		}
	}
	offered := virtualclass.Offer(classes)
	return offered[:min(len(offered), maxClasses)]
}
