package remote

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/home"
)

// Snapshot returns our VolumeSnapshot with this key from the cache, nil if there is none.
// Its namespace is watched from now on.
func (c *Cluster) Snapshot(key types.NamespacedName) *volumesnapshot.Snapshot {
	connection := c.current()
	if connection == nil {
		return nil
	}
	watched := connection.watchSnapshots(key.Namespace)
	return controller.Get[volumesnapshot.Snapshot](watched.SharedIndexInformer, key.String())
}

// SnapshotsSeen says whether the cache has all our VolumeSnapshots of a namespace. If not,
// it returns why as a clause, empty while the first list is still under way. A failed watch
// is restarted.
func (c *Cluster) SnapshotsSeen(namespace string) (bool, string) {
	connection := c.current()
	if connection == nil {
		return false, ""
	}
	watched := connection.watchSnapshots(namespace)
	if watched.HasSynced() {
		return true, ""
	}
	failed := watched.failed.Load()
	if failed == nil {
		return false, ""
	}
	connection.rewatchSnapshots(namespace)
	switch {
	case apierrors.IsNotFound(*failed):
		return false, "it has no VolumeSnapshots: let its administrator install their custom resources (" + volumesnapshot.GroupVersion.String() +
			"), the snapshot controller and the snapshotter of its CSI driver"
	case apierrors.IsForbidden(*failed):
		return false, "home may not read VolumeSnapshots in namespace " + namespace +
			" there: let its administrator apply the present roles of deploy/remote or deploy/remote-volumes"
	}
	return false, "VolumeSnapshots in namespace " + namespace + " there cannot be read: " + (*failed).Error()
}

// snapshotWatch watches our VolumeSnapshots in one namespace.
type snapshotWatch struct {
	cache.SharedIndexInformer
	stop context.CancelFunc
	// failed is the error of the last request; nil if it succeeded. The informer's next
	// attempt may be half a minute away.
	failed  atomic.Pointer[error]
	started time.Time
}

// snapshotRetry is the least time between restarts of a failed watch.
const snapshotRetry = 5 * time.Second

// snapshotBytes is about the most memory for one cached snapshot, besides its name.
const snapshotBytes = 4 << 10

func (c *connection) watchSnapshots(namespace string) *snapshotWatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	watched, ok := c.snapshots[namespace]
	if !ok {
		watched = c.startSnapshotWatch(namespace)
		c.snapshots[namespace] = watched
	}
	return watched
}

func (c *connection) rewatchSnapshots(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if watched, ok := c.snapshots[namespace]; ok && watched.failed.Load() != nil && !watched.HasSynced() &&
		time.Since(watched.started) > snapshotRetry {
		watched.stop()
		next := c.startSnapshotWatch(namespace)
		// Keep the old error until the new watch has failed or succeeded.
		next.failed.Store(watched.failed.Load())
		c.snapshots[namespace] = next
	}
}

func (c *connection) startSnapshotWatch(namespace string) *snapshotWatch {
	watched := &snapshotWatch{started: time.Now(), SharedIndexInformer: home.Informer[volumesnapshot.Snapshot](c.dynamic,
		volumesnapshot.Snapshots, namespace, c.selector(), TrustedSnapshot)}
	_, _ = controller.Watch(watched.SharedIndexInformer, func(was, now *volumesnapshot.Snapshot) {
		c.listeners.snapshotChanged(c.id, controller.Either(was, now))
	})
	_ = watched.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		watched.failed.Store(&err)
		cache.DefaultWatchErrorHandler(ctx, r, err)
		c.listeners.snapshotsSynced(c.id)
	})
	ctx, stop := context.WithCancel(c.ctx)
	watched.stop = stop
	go watched.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), watched.HasSynced) {
			c.listeners.snapshotsSynced(c.id)
		}
	}()
	return watched
}

// MadeFrom returns the backing claims without a volume whose data source is this
// VolumeSnapshot, in the same namespace.
func (c *Cluster) MadeFrom(snapshot types.NamespacedName) []*corev1.PersistentVolumeClaim {
	connection := c.current()
	if connection == nil {
		return nil
	}
	connection.mu.Lock()
	watched := connection.claims[snapshot.Namespace]
	connection.mu.Unlock()
	if watched == nil {
		return nil
	}
	var found []*corev1.PersistentVolumeClaim
	for claim := range controller.Each[corev1.PersistentVolumeClaim](watched.SharedIndexInformer) {
		if claim.Spec.DataSource != nil && claim.Spec.DataSource.Kind == volumesnapshot.Kind && claim.Spec.DataSource.Name == snapshot.Name &&
			claim.Status.Phase != corev1.ClaimBound && claim.DeletionTimestamp == nil {
			found = append(found, claim)
		}
	}
	return found
}

// Dynamic returns a client of the cluster for VolumeSnapshots, nil if there is none.
func (c *Cluster) Dynamic() dynamic.Interface {
	if connection := c.current(); connection != nil {
		return connection.dynamic
	}
	return nil
}
