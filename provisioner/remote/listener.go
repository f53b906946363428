package remote

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// Listener has the callbacks for changes of a remote cluster; leave nil what is not needed.
// Informers call them, so they must not block.
type Listener struct {
	// BackingChanged: a backing claim, or the real volume behind it, changed.
	BackingChanged func(claim *corev1.PersistentVolumeClaim)
	// BackingVolumeChanged: a real volume changed whose backing claim is gone; backing is
	// that claim's UID.
	BackingVolumeChanged func(backing types.UID)
	// NamespaceSynced: the cache now has all backing claims of a namespace.
	NamespaceSynced func(cluster, namespace string)
	// NamespaceGiven: the namespace that belongs to a home namespace was granted (given is
	// true) or withdrawn.
	NamespaceGiven func(cluster, home string, given bool)
	// SnapshotChanged: a VolumeSnapshot changed, which may be anybody's.
	SnapshotChanged func(cluster string, s *volumesnapshot.Snapshot)
	// GroupChanged: a VolumeGroupSnapshot of ours changed.
	GroupChanged func(cluster string, s *volumesnapshot.GroupSnapshot)
	// SnapshotsSynced: the cache of VolumeSnapshots or VolumeGroupSnapshots in a namespace has
	// become complete or has failed.
	SnapshotsSynced func(cluster string)
	// ClusterChanged: the state of a cluster changed; ready says whether new volumes can be
	// created there.
	ClusterChanged func(cluster string, ready bool)
}

// Subscribe adds the callbacks of a Listener. Call it before Run.
func (r *Clusters) Subscribe(l Listener) { r.listeners = append(r.listeners, l) }

// listeners are called in the order of their subscription.
type listeners []Listener

func (ls listeners) backingChanged(claim *corev1.PersistentVolumeClaim) {
	for _, l := range ls {
		if l.BackingChanged != nil {
			l.BackingChanged(claim)
		}
	}
}

func (ls listeners) backingVolumeChanged(backing types.UID) {
	for _, l := range ls {
		if l.BackingVolumeChanged != nil {
			l.BackingVolumeChanged(backing)
		}
	}
}

func (ls listeners) namespaceSynced(cluster, namespace string) {
	for _, l := range ls {
		if l.NamespaceSynced != nil {
			l.NamespaceSynced(cluster, namespace)
		}
	}
}

func (ls listeners) namespaceGiven(cluster, home string, given bool) {
	for _, l := range ls {
		if l.NamespaceGiven != nil {
			l.NamespaceGiven(cluster, home, given)
		}
	}
}

func (ls listeners) snapshotChanged(cluster string, s *volumesnapshot.Snapshot) {
	for _, l := range ls {
		if l.SnapshotChanged != nil {
			l.SnapshotChanged(cluster, s)
		}
	}
}

func (ls listeners) groupChanged(cluster string, s *volumesnapshot.GroupSnapshot) {
	for _, l := range ls {
		if l.GroupChanged != nil {
			l.GroupChanged(cluster, s)
		}
	}
}

func (ls listeners) snapshotsSynced(cluster string) {
	for _, l := range ls {
		if l.SnapshotsSynced != nil {
			l.SnapshotsSynced(cluster)
		}
	}
}

func (ls listeners) clusterChanged(cluster string, ready bool) {
	for _, l := range ls {
		if l.ClusterChanged != nil {
			l.ClusterChanged(cluster, ready)
		}
	}
}
