package flow

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
	"github.com/lodestone-storage/lodestone/provisioner/route"
	"github.com/lodestone-storage/lodestone/provisioner/snapshots"
)

// snapshot returns what is known of the snapshot that a claim is to be made from,
// nil if it is to be made from none.
func (f *Flow) snapshot(claim *corev1.PersistentVolumeClaim) *decide.Snapshot {
	name := route.SnapshotOf(claim)
	if name == "" {
		return nil
	}
	state := f.Snapshots.State()
	s := &decide.Snapshot{Unknown: state == snapshots.Unknown, Absent: state == snapshots.Absent, At: f.twin(claim.UID)}
	if s.Absent {
		f.Snapshots.Look()
	}
	if s.Object = f.Snapshots.Snapshot(types.NamespacedName{Namespace: claim.Namespace, Name: name}); s.Object == nil {
		return s
	}
	if s.Content = f.Snapshots.Content(ptr.Deref(s.Object.Status.ContentName, "")); s.Content == nil || s.Content.Spec.Driver != keys.Driver {
		return s
	}
	if ref, err := backing.ParseRef(ptr.Deref(s.Content.Status.SnapshotHandle, "")); err == nil {
		if cluster := f.Clusters.Get(ref.Cluster); cluster != nil {
			s.There = cluster.Snapshot(ref.Key())
		}
	}
	return s
}

func (f *Flow) twin(claim types.UID) types.NamespacedName {
	return f.Place.Of(keys.Home, "", types.NamespacedName{}, claim)
}

// standIn returns the stand-in that is seen for the twin of a claim. What others
// made under its name is none.
func (f *Flow) standIn(claim types.UID) decide.StandIn {
	at := f.twin(claim)
	in := decide.StandIn{Object: f.Snapshots.Snapshot(at), Content: f.Snapshots.Content(volumesnapshot.StandInContent(at.Name))}
	if in.Object != nil && !volumesnapshot.Ours(in.Object, claim, f.Place.HomeID) {
		in.Object = nil
	}
	if in.Content != nil && !volumesnapshot.Ours(in.Content, claim, f.Place.HomeID) {
		in.Content = nil
	}
	return in
}

// SnapshotChanged is called when a snapshot of the home cluster, or its content,
// changed: it brings back the claims that are to be made from it, or the one that it
// is a stand-in for.
func (f *Flow) SnapshotChanged(of types.NamespacedName) {
	if uid, ok := strings.CutPrefix(of.Name, "pvc-"); ok && of.Namespace == f.Place.StorageNamespace {
		f.Enqueue(types.UID(uid))
		return
	}
	for _, claim := range indexed[corev1.PersistentVolumeClaim](f.Sources.Claims, bySource, snapshotKey(of)) {
		f.Enqueue(claim.UID)
	}
}

// SnapshotsFound is called when it is known whether the home cluster has snapshots,
// or that changed.
func (f *Flow) SnapshotsFound() {
	for _, claim := range f.waiting() {
		if route.SnapshotOf(claim) != "" {
			f.Enqueue(claim.UID)
		}
	}
}

// snapshotKey is the key of a snapshot in the index of claims by their source.
func snapshotKey(of types.NamespacedName) string { return volumesnapshot.Kind + "/" + of.String() }
