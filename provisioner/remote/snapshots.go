package remote

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/home"
)

// Snapshot returns a VolumeSnapshot from the cache, nil if there is none. It may be anybody's: what
// tells ours is its labels, or its UID. Its namespace is watched from now on.
func (c *Cluster) Snapshot(key types.NamespacedName) *volumesnapshot.Snapshot {
	connection := c.current()
	if connection == nil {
		return nil
	}
	watched := connection.watchSnapshots(watchedSnapshots{namespace: key.Namespace})
	return controller.Get[volumesnapshot.Snapshot](watched.SharedIndexInformer, key.String())
}

// Group returns our VolumeGroupSnapshot with this key from the cache, nil if there is none, and the
// version of its API. Its namespace is watched from now on.
func (c *Cluster) Group(key types.NamespacedName) (*volumesnapshot.GroupSnapshot, schema.GroupVersion) {
	connection := c.current()
	if connection == nil {
		return nil, schema.GroupVersion{}
	}
	watched := connection.watchSnapshots(watchedSnapshots{groups: true, namespace: key.Namespace})
	return controller.Get[volumesnapshot.GroupSnapshot](watched.SharedIndexInformer, key.String()),
		volumesnapshot.GroupVersions[watched.version]
}

// MembersOf returns the VolumeSnapshots of a namespace that say that they were taken together, as
// parts of the VolumeGroupSnapshot with this UID.
func (c *Cluster) MembersOf(namespace string, group types.UID) []*volumesnapshot.Snapshot {
	connection := c.current()
	if connection == nil {
		return nil
	}
	watched := connection.watchSnapshots(watchedSnapshots{namespace: namespace})
	return controller.Indexed[volumesnapshot.Snapshot](watched.SharedIndexInformer, byGroup, string(group))
}

// byGroup is the index of snapshots by the UID of the VolumeGroupSnapshot that they were taken for.
const byGroup = "lodestone/group"

// SnapshotsSeen says whether the cache has all VolumeSnapshots of a namespace. If not, it returns why
// as a clause, empty while the first list is still under way. A failed watch is restarted.
func (c *Cluster) SnapshotsSeen(namespace string) (bool, string) {
	return c.seen(watchedSnapshots{namespace: namespace})
}

// GroupsSeen says the same of our VolumeGroupSnapshots, and of the VolumeSnapshots that are parts of
// them; absent says that the cluster does not serve them.
func (c *Cluster) GroupsSeen(namespace string) (seen, absent bool, why string) {
	if seen, why := c.seen(watchedSnapshots{namespace: namespace}); !seen {
		return false, false, why
	}
	seen, why = c.seen(watchedSnapshots{groups: true, namespace: namespace})
	return seen, !seen && why == noGroups, why
}

// noGroups is why a cluster takes no snapshot of several volumes.
var noGroups = fmt.Sprintf("it has no VolumeGroupSnapshots: let its administrator install their custom resources (%s or %s), and turn on "+
	"CSIVolumeGroupSnapshot in the snapshot controller and in the snapshotter of its CSI driver, or take a VolumeSnapshot of each claim",
	volumesnapshot.GroupVersions[0], volumesnapshot.GroupVersions[1].Version)

func (c *Cluster) seen(what watchedSnapshots) (bool, string) {
	connection := c.current()
	if connection == nil {
		return false, ""
	}
	watched := connection.watchSnapshots(what)
	if watched.HasSynced() {
		return true, ""
	}
	failed := watched.failed.Load()
	if failed == nil {
		return false, ""
	}
	connection.rewatchSnapshots(what)
	switch {
	case apierrors.IsNotFound(*failed) && what.groups:
		return false, noGroups
	case apierrors.IsNotFound(*failed):
		return false, "it has no VolumeSnapshots: let its administrator install their custom resources (" + volumesnapshot.GroupVersion.String() +
			"), the snapshot controller and the snapshotter of its CSI driver"
	case apierrors.IsForbidden(*failed):
		return false, "home may not read " + what.kind() + " in namespace " + what.namespace +
			" there: let its administrator apply the present roles of deploy/remote or deploy/remote-volumes"
	}
	return false, what.kind() + " in namespace " + what.namespace + " there cannot be read: " + (*failed).Error()
}

// watchedSnapshots is what is watched in one namespace: VolumeGroupSnapshots, ours alone, or
// VolumeSnapshots, all: those that are taken for a group have no label of ours.
type watchedSnapshots struct {
	groups    bool
	namespace string
}

func (w watchedSnapshots) kind() string {
	if w.groups {
		return "VolumeGroupSnapshots"
	}
	return "VolumeSnapshots"
}

// snapshotWatch watches one kind in one namespace.
type snapshotWatch struct {
	cache.SharedIndexInformer
	stop context.CancelFunc
	// failed is the error of the last request; nil if it succeeded. The informer's next
	// attempt may be half a minute away.
	failed  atomic.Pointer[error]
	started time.Time
	// version is, for VolumeGroupSnapshots, the index of the version of their API.
	version int
}

// snapshotRetry is the least time between restarts of a failed watch.
const snapshotRetry = 5 * time.Second

// snapshotBytes is about the most memory for one cached snapshot, besides its name.
const snapshotBytes = 4 << 10

func (c *connection) watchSnapshots(what watchedSnapshots) *snapshotWatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	watched, ok := c.snapshots[what]
	if !ok {
		watched = c.startSnapshotWatch(what, 0)
		c.snapshots[what] = watched
	}
	return watched
}

func (c *connection) rewatchSnapshots(what watchedSnapshots) {
	c.mu.Lock()
	defer c.mu.Unlock()
	watched, ok := c.snapshots[what]
	if !ok || watched.failed.Load() == nil || watched.HasSynced() {
		return
	}
	// Where one version of the API is not served, another one may be.
	absent := what.groups && apierrors.IsNotFound(*watched.failed.Load())
	version := watched.version
	if absent {
		version = (version + 1) % len(volumesnapshot.GroupVersions)
	}
	if !(absent && version != 0) && time.Since(watched.started) <= snapshotRetry {
		return
	}
	watched.stop()
	next := c.startSnapshotWatch(what, version)
	if version == 0 || !absent {
		// Keep the old error until the new watch has failed or succeeded.
		next.failed.Store(watched.failed.Load())
	}
	c.snapshots[what] = next
}

func (c *connection) startSnapshotWatch(what watchedSnapshots, version int) *snapshotWatch {
	watched := &snapshotWatch{started: time.Now(), version: version}
	if what.groups {
		watched.SharedIndexInformer = home.Informer[volumesnapshot.GroupSnapshot](c.dynamic,
			volumesnapshot.GroupSnapshots(volumesnapshot.GroupVersions[version]), what.namespace, c.selector(), TrustedGroup)
		_, _ = controller.Watch(watched.SharedIndexInformer, func(was, now *volumesnapshot.GroupSnapshot) {
			c.listeners.groupChanged(c.id, controller.Either(was, now))
		})
	} else {
		watched.SharedIndexInformer = home.Informer[volumesnapshot.Snapshot](c.dynamic, volumesnapshot.Snapshots, what.namespace, "",
			TrustedSnapshot)
		_ = watched.AddIndexers(cache.Indexers{byGroup: func(obj any) ([]string, error) {
			if s, ok := obj.(*volumesnapshot.Snapshot); ok {
				if group := volumesnapshot.GroupOf(s); group != "" {
					return []string{group}, nil
				}
			}
			return nil, nil
		}})
		_, _ = controller.Watch(watched.SharedIndexInformer, func(was, now *volumesnapshot.Snapshot) {
			c.listeners.snapshotChanged(c.id, controller.Either(was, now))
		})
	}
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
