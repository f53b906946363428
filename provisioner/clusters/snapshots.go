package clusters

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/snapshots"
)

// taken watches our VolumeSnapshots in one namespace.
type taken struct {
	cache.SharedIndexInformer
	stop context.CancelFunc
	// failed is why the last request failed; nil if none did. The next one may be
	// half a minute away.
	failed  atomic.Pointer[error]
	started time.Time
}

// takenAgain is how soon a watch that failed is begun anew where somebody asks.
const takenAgain = 5 * time.Second

// takenBytes is about what is kept of one snapshot, at most, beside its name.
const takenBytes = 4 << 10

// Snapshot returns our VolumeSnapshot of the given name as last seen, nil if none is
// seen. Its namespace is watched from now on.
func (c *Cluster) Snapshot(key types.NamespacedName) *volumesnapshot.Snapshot {
	connection := c.current()
	if connection == nil {
		return nil
	}
	watched := connection.watchTaken(key.Namespace)
	obj, ok, err := watched.GetStore().GetByKey(key.String())
	if err != nil || !ok {
		return nil
	}
	snapshot, _ := obj.(*volumesnapshot.Snapshot)
	return snapshot
}

// SnapshotsSeen says whether it is known which VolumeSnapshots of ours a namespace
// has, and if not, why in one clause; empty while that is only a matter of time.
// What failed before is tried again.
func (c *Cluster) SnapshotsSeen(namespace string) (bool, string) {
	connection := c.current()
	if connection == nil {
		return false, ""
	}
	watched := connection.watchTaken(namespace)
	if watched.HasSynced() {
		return true, ""
	}
	failed := watched.failed.Load()
	if failed == nil {
		return false, ""
	}
	connection.watchTakenAgain(namespace)
	switch {
	case apierrors.IsNotFound(*failed):
		return false, "it has no VolumeSnapshots: let its administrator install their custom resources (" + volumesnapshot.GroupVersion.String() + "), the snapshot controller and the snapshotter of its CSI driver"
	case apierrors.IsForbidden(*failed):
		return false, "home may not read VolumeSnapshots in namespace " + namespace + " there: let its administrator apply the present roles of deploy/remote or deploy/remote-volumes"
	}
	return false, "VolumeSnapshots in namespace " + namespace + " there cannot be read: " + (*failed).Error()
}

// Dynamic returns a client of the cluster for VolumeSnapshots, nil while there is
// none.
func (c *Cluster) Dynamic() dynamic.Interface {
	if connection := c.current(); connection != nil {
		return connection.dynamic
	}
	return nil
}

// MadeFrom returns the backing claims that are to be made from a VolumeSnapshot
// beside them and have no volume yet.
func (c *Cluster) MadeFrom(snapshot types.NamespacedName) []*corev1.PersistentVolumeClaim {
	connection := c.current()
	if connection == nil {
		return nil
	}
	connection.mu.Lock()
	watched := connection.shadows[snapshot.Namespace]
	connection.mu.Unlock()
	if watched == nil {
		return nil
	}
	var found []*corev1.PersistentVolumeClaim
	for _, obj := range watched.GetStore().List() {
		claim, ok := obj.(*corev1.PersistentVolumeClaim)
		if ok && claim.Spec.DataSource != nil && claim.Spec.DataSource.Kind == volumesnapshot.Kind && claim.Spec.DataSource.Name == snapshot.Name &&
			claim.Status.Phase != corev1.ClaimBound && claim.DeletionTimestamp == nil {
			found = append(found, claim)
		}
	}
	return found
}

// kept returns how many volumes and snapshots have their data in a cluster.
func (r *Registry) kept(id string) int {
	n := r.volumes(id)
	if r.snapshots != nil {
		taken, _ := r.snapshots(id)
		n += taken
	}
	return n
}

// heldBySnapshots says which snapshots keep a RemoteCluster; empty if none does.
func (r *Registry) heldBySnapshots(id string) string {
	if r.snapshots == nil {
		return ""
	}
	switch n, known := r.snapshots(id); {
	case !known:
		return "it is not known yet whether VolumeSnapshots have their data there"
	case n > 0:
		return fmt.Sprintf("%d VolumeSnapshots have their data there (kubectl get volumesnapshotcontents): delete them, then it goes", n)
	}
	return ""
}

// TrustedSnapshot leaves of a snapshot of a remote cluster what is looked at, and of
// that what an API server stores: whoever runs that cluster may answer anything. A
// broken one keeps its name alone.
func TrustedSnapshot(s *volumesnapshot.Snapshot) {
	const maxMessage = 1024
	labels, annotations := s.Labels, s.Annotations
	s.TypeMeta, s.ObjectMeta = metav1.TypeMeta{}, metav1.ObjectMeta{
		Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion,
		CreationTimestamp: s.CreationTimestamp, DeletionTimestamp: s.DeletionTimestamp,
	}
	long := func(name *string) bool { return name != nil && len(*name) > validation.DNS1123SubdomainMaxLength }
	if !sound(s, 0) || s.Namespace == "" || slices.ContainsFunc([]*string{s.Spec.Source.ClaimName, s.Spec.Source.ContentName, s.Spec.ClassName, s.Status.ContentName}, long) {
		*s = volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
		return
	}
	s.Labels = only(labels, keys.HomeID, keys.ContentUID, keys.MoveOf)
	s.Annotations = only(annotations, keys.Content, keys.MadeBy, keys.Unpublished)
	if size := s.Status.RestoreSize; size != nil && !soundSize(*size) {
		s.Status.RestoreSize = nil
	}
	if failed := s.Status.Error; failed != nil && failed.Message != nil && len(*failed.Message) > maxMessage {
		failed.Message = ptr.To(strings.ToValidUTF8((*failed.Message)[:maxMessage], ""))
	}
}

// only returns some keys of a map, with values that are no longer than names.
func only(of map[string]string, wanted ...string) map[string]string {
	found := map[string]string{}
	for _, key := range wanted {
		if value, ok := of[key]; ok && len(value) <= validation.DNS1123SubdomainMaxLength {
			found[key] = value
		}
	}
	return found
}

func (c *connection) watchTaken(namespace string) *taken {
	c.mu.Lock()
	defer c.mu.Unlock()
	watched, ok := c.taken[namespace]
	if !ok {
		watched = c.startTaken(namespace)
		c.taken[namespace] = watched
	}
	return watched
}

func (c *connection) watchTakenAgain(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if watched, ok := c.taken[namespace]; ok && watched.failed.Load() != nil && !watched.HasSynced() && time.Since(watched.started) > takenAgain {
		watched.stop()
		next := c.startTaken(namespace)
		// Until it fails too, nothing better is known.
		next.failed.Store(watched.failed.Load())
		c.taken[namespace] = next
	}
}

func (c *connection) startTaken(namespace string) *taken {
	watched := &taken{started: time.Now(), SharedIndexInformer: snapshots.Informer[volumesnapshot.Snapshot](c.dynamic, volumesnapshot.Snapshots, namespace, c.selector(), TrustedSnapshot)}
	_, _ = watched.AddEventHandler(snapshots.Handler(func(s *volumesnapshot.Snapshot) { c.hooks.Snapshot(c.id, s) }))
	_ = watched.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		watched.failed.Store(&err)
		cache.DefaultWatchErrorHandler(ctx, r, err)
		c.hooks.Taken(c.id, namespace)
	})
	ctx, stop := context.WithCancel(c.ctx)
	watched.stop = stop
	go watched.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), watched.HasSynced) {
			c.hooks.Taken(c.id, namespace)
		}
	}()
	return watched
}
