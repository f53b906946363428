package claims

import (
	"errors"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/nodeaccess"
)

// Watch adds event handlers to the sources, which queue the claims that a change affects.
// Call it once, before the sources are started.
func (f *Controller) Watch() error {
	return errors.Join(
		watch(f.Sources.Claims, f.claimChanged), watch(f.Sources.Volumes, f.volumeChanged), watch(f.Sources.Classes, f.classChanged),
		watch(f.Sources.Nodes, f.nodeChanged), watch(f.Sources.Namespaces, f.namespaceChanged), watch(f.Sources.Attachments, f.attachmentChanged))
}

func watch[T any](informer cache.SharedIndexInformer, changed func(was, now *T)) error {
	_, err := controller.Watch(informer, changed)
	return err //nolint:wrapcheck // it says which informer failed
}

// Enqueue queues a claim.
func (f *Controller) Enqueue(uid types.UID) {
	if uid != "" {
		f.queue.Add(uid)
	}
}

func (f *Controller) claimChanged(before, after *corev1.PersistentVolumeClaim) {
	claim := controller.Either(before, after)
	switch {
	case claim == nil:
	case claim.Labels[keys.ClaimUID] != "" && claim.Namespace == f.Place.StorageNamespace:
		f.BackingChanged(claim)
	default:
		f.Enqueue(claim.UID)
		self := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
		f.sourceChanged(self)
		if before != nil && after != nil && becameCopyable(before, after) {
			for _, waiting := range f.Sources.CopiesOf(self) {
				f.requeuePodsSoon(waiting, "claim "+claim.Name)
			}
		}
		if before != nil && after != nil && mayOpenPods(before, after) {
			f.requeuePodsSoon(after, "claim "+after.Name)
		}
	}
}

// BackingChanged is called when a backing claim, or its real volume, changed.
func (f *Controller) BackingChanged(b *corev1.PersistentVolumeClaim) {
	uid := types.UID(b.Labels[keys.ClaimUID])
	if owner, ok := f.Place.OwnerOf(b); ok && uid != "" {
		f.memory.update(uid, func(r *remembered) { r.owners = added(r.owners, owner) })
		if backing.WasMoved(b.Name) {
			f.memory.update(uid, func(r *remembered) { r.moved = added(r.moved, b.Name) })
		}
		f.sourceChanged(owner)
		// A later claim of the same name may be waiting until this name is free.
		if later := controller.Get[corev1.PersistentVolumeClaim](f.Sources.Claims, owner.String()); later != nil && later.UID != uid {
			f.Enqueue(later.UID)
		}
	}
	f.Enqueue(uid)
	if f.Sources.Virtual(uid) == nil {
		// A volume that was restored from a backup may name it, for a claim with another UID.
		f.BackingVolumeChanged(b.UID)
	}
}

// BackingVolumeChanged is called when a real volume changed whose backing claim is gone;
// uid is that backing claim's.
func (f *Controller) BackingVolumeChanged(uid types.UID) {
	for _, volume := range f.Sources.VolumesOf(uid) {
		if volume.Spec.ClaimRef != nil {
			f.Enqueue(volume.Spec.ClaimRef.UID)
		}
	}
}

func (f *Controller) volumeChanged(was, now *corev1.PersistentVolume) {
	volume := controller.Either(was, now)
	if volume == nil || volume.Spec.ClaimRef == nil {
		return
	}
	if now == nil {
		f.Publisher.ForgetVolume(volume.UID)
	}
	ref := volume.Spec.ClaimRef
	if named, err := backing.RefOf(volume); err == nil && (was == nil || now == nil) {
		// Another volume may name the same backing claim.
		f.BackingVolumeChanged(named.UID)
	}
	if volume.Annotations[keys.Backing] != "" {
		f.Enqueue(ref.UID)
		f.sourceChanged(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
		return
	}
	if ref.Namespace != f.Place.StorageNamespace {
		return
	}
	if twin := controller.Get[corev1.PersistentVolumeClaim](f.Sources.Claims, ref.Namespace+"/"+ref.Name); twin != nil {
		f.BackingChanged(twin)
		return
	}
	f.BackingVolumeChanged(ref.UID)
	// During healing the real volume is bound to no claim.
	if uid, ok := backing.TwinOf(ref.Name); ok && ref.UID == "" {
		f.Enqueue(uid)
		if restored := f.Sources.MadeFor(uid); restored != nil {
			f.Enqueue(restored.Spec.ClaimRef.UID)
		}
	}
}

// classChanged queues all waiting claims: a virtual or real class may have been corrected.
// If its allowVolumeExpansion changed, it also queues the bound claims that must say so.
func (f *Controller) classChanged(before, after *storagev1.StorageClass) {
	if before != nil && after != nil && before.ResourceVersion == after.ResourceVersion {
		return
	}
	virtual := virtualclass.Is(before) || virtualclass.Is(after)
	if virtualclass.Is(after) && (before == nil || before.UID != after.UID) {
		// A virtual class may list other labels and annotations to copy, also for claims
		// with a volume.
		for claim := range controller.Each[corev1.PersistentVolumeClaim](f.Sources.Claims) {
			if className(claim) == after.Name {
				f.Enqueue(claim.UID)
			}
		}
	}
	madeAnew := !virtual && (before == nil || after == nil)
	if madeAnew || before != nil && after != nil && ptr.Deref(before.AllowVolumeExpansion, false) != ptr.Deref(after.AllowVolumeExpansion,
		false) {
		for volume := range controller.Each[corev1.PersistentVolume](f.Sources.Volumes) {
			if volume.Spec.ClaimRef != nil && volume.Annotations[keys.Backing] != "" {
				f.Enqueue(volume.Spec.ClaimRef.UID)
			}
		}
	}
	for _, claim := range f.Sources.Waiting() {
		if !virtual || className(claim) == controller.Either(before, after).Name {
			f.Enqueue(claim.UID)
		}
	}
}

// nodeChanged queues the claims of a node that was created or deleted or now represents
// another cluster.
func (f *Controller) nodeChanged(before, after *corev1.Node) {
	f.enqueueByNode(before, after)
	if before != nil && after != nil && before.Labels[keys.Cluster] == after.Labels[keys.Cluster] {
		return
	}
	name := controller.Either(before, after).Name
	for _, claim := range f.Sources.Waiting() {
		if claim.Annotations[keys.SelectedNode] == name {
			f.Enqueue(claim.UID)
		}
	}
}

func (f *Controller) attachmentChanged(was, now *storagev1.VolumeAttachment) {
	attachment := controller.Either(was, now)
	if attachment == nil || attachment.Spec.Source.PersistentVolumeName == nil {
		return
	}
	if volume := controller.Get[corev1.PersistentVolume](f.Sources.Volumes, *attachment.Spec.Source.PersistentVolumeName); volume != nil &&
		volume.Spec.ClaimRef != nil {
		f.Enqueue(volume.Spec.ClaimRef.UID)
	}
}

// ClusterChanged is called when the usability of a cluster changed; ready says whether new
// volumes can be created there. It queues the claims with volumes there, the claims with a
// node there, claims that are gone but left a backing claim there and, since the cluster
// may now be an option, the claims without a node.
func (f *Controller) ClusterChanged(id string, ready bool) {
	for volume := range f.Sources.VolumesWithDataIn(id) {
		if volume.Spec.ClaimRef != nil {
			f.Enqueue(volume.Spec.ClaimRef.UID)
		}
	}
	for _, uid := range f.memory.orphans() {
		f.Enqueue(uid)
	}
	for _, claim := range f.Sources.Waiting() {
		switch {
		case claim.Annotations[keys.SelectedNode] != "" || claim.Annotations[keys.Routed] != "":
			f.Enqueue(claim.UID)
		case ready:
			f.requeuePodsSoon(claim, "cluster "+id)
		}
	}
}

// NamespaceSeen is called when the cache has become complete for the backing claims of a
// namespace of a cluster; it queues the claims that waited for that.
func (f *Controller) NamespaceSeen(id, namespace string) {
	for volume := range f.Sources.VolumesWithDataIn(id) {
		if ref, err := backing.RefOf(volume); err == nil && ref.Namespace == namespace && volume.Spec.ClaimRef != nil {
			f.Enqueue(volume.Spec.ClaimRef.UID)
		}
	}
	for _, claim := range f.Sources.Waiting() {
		if claim.Annotations[keys.Routed] == id {
			f.Enqueue(claim.UID)
		}
	}
}

// NamespaceGiven is called when the namespace of a cluster that belongs to a home namespace
// was granted or withdrawn.
func (f *Controller) NamespaceGiven(id, home string, given bool) {
	for _, claim := range f.Sources.Waiting() {
		switch {
		case claim.Namespace != home:
		case claim.Annotations[keys.SelectedNode] != "" || claim.Annotations[keys.Routed] != "":
			f.Enqueue(claim.UID)
		case given:
			f.requeuePodsSoon(claim, "cluster "+id)
		}
	}
}

// settleTime is the delay between a change and queueing the waiting pods again: by then the
// extender has seen the change, too.
const settleTime = 500 * time.Millisecond

// mayOpenPods says whether a change of a claim may make schedulable the pods that the
// extender refused. kube-scheduler retries them at once and may ask the extender before
// that has seen the change, so they are queued once more.
func mayOpenPods(before, after *corev1.PersistentVolumeClaim) bool {
	if before.Annotations[keys.Move] != "" && after.Annotations[keys.Move] == "" {
		return true
	}
	if after.Spec.VolumeName != "" || after.Annotations[keys.SelectedNode] != "" {
		return false
	}
	was, is := before.Annotations[keys.Refused], after.Annotations[keys.Refused]
	return before.Annotations[keys.Class] != after.Annotations[keys.Class] ||
		(was != is && len(locality.DecodeRefusals(is)) < len(locality.DecodeRefusals(was)))
}

// namespaceChanged requeues the pods of a namespace whose permitted clusters changed: those
// that use unbound claims, and waiting pods that use bound ones.
func (f *Controller) namespaceChanged(before, after *corev1.Namespace) {
	if before == nil || after == nil || sameOpenness(before, after) {
		return
	}
	for _, claim := range f.Sources.Waiting() {
		if claim.Namespace == after.Name {
			f.requeuePodsSoon(claim, "namespace "+after.Name)
		}
	}
	for _, claim := range f.Sources.BoundOfWaitingPods(after.Name) {
		f.requeuePodsSoon(claim, "namespace "+after.Name)
	}
}

// RoomReleased is called when kube-scheduler stops checking capacities: it requeues the
// pods that wait for claims without a node.
func (f *Controller) RoomReleased() {
	for _, claim := range f.Sources.Waiting() {
		if claim.Annotations[keys.SelectedNode] == "" {
			f.requeuePodsSoon(claim, "room")
		}
	}
}

func sameOpenness(a, b *corev1.Namespace) bool {
	before, narrowed := a.Annotations[keys.OffloadClusters]
	after, narrow := b.Annotations[keys.OffloadClusters]
	return a.Labels[keys.Offload] == b.Labels[keys.Offload] && narrowed == narrow && before == after
}

// requeuePodsSoon writes a virtual claim after settleTime, so that its pods are retried.
func (f *Controller) requeuePodsSoon(claim *corev1.PersistentVolumeClaim, what string) {
	if claim.Spec.VolumeName != "" && f.Sources.Virtual(claim.UID) == nil {
		return
	}
	if virtualclass.Is(controller.Get[storagev1.StorageClass](f.Sources.Classes, className(claim))) {
		f.memory.setChange(claim.UID, what, time.Now().Add(settleTime))
		f.queue.AddAfter(claim.UID, settleTime+time.Millisecond)
	}
}

// readyChangesTogether is how long changes of node readiness are collected: where one node
// changes many do, and then one pass over all volumes is enough.
const readyChangesTogether = 2 * time.Second

// enqueueByNode queues the claims with data on a home node that is gone or was relabelled,
// and those whose lost node may be back.
func (f *Controller) enqueueByNode(before, after *corev1.Node) {
	if before != nil && after != nil && maps.Equal(before.Labels, after.Labels) {
		if nodeaccess.Down(before) != nodeaccess.Down(after) {
			f.readyChanges.AddAfter(after.Name, readyChangesTogether)
		}
		return
	}
	if before != nil {
		for volume := range f.Sources.VolumesWithDataIn(keys.Home) {
			if volume.Spec.ClaimRef != nil && nodeaccess.Allows(volume, before) {
				f.Enqueue(volume.Spec.ClaimRef.UID)
			}
		}
	}
	if after != nil {
		for _, reason := range []string{decide.BackingNodeGone, decide.BackingNodeNotReady} {
			for _, claim := range f.Metrics.troubled(keys.Home, reason) {
				f.Enqueue(claim)
			}
		}
	}
}

// followReadiness queues the claims with data on home nodes that became ready or not ready,
// until the queue is shut down.
func (f *Controller) followReadiness() {
	for {
		first, shutdown := f.readyChanges.Get()
		if shutdown {
			return
		}
		names := []string{first}
		for more := f.readyChanges.Len(); more > 0; more-- {
			name, _ := f.readyChanges.Get()
			names = append(names, name)
		}
		places := map[string]bool{}
		for _, name := range names {
			f.readyChanges.Done(name)
			if node := controller.Get[corev1.Node](f.Sources.Nodes, name); node != nil {
				nodeaccess.AddNames(places, node)
			}
		}
		for volume := range f.Sources.VolumesWithDataIn(keys.Home) {
			if volume.Spec.ClaimRef != nil && nodeaccess.Confined(volume) && nodeaccess.MayBeConfinedTo(volume, places) {
				f.Enqueue(volume.Spec.ClaimRef.UID)
			}
		}
	}
}

// becameCopyable says whether a change of a claim may allow pods that use copies of it to
// run: it now has a volume, or is no longer being moved.
func becameCopyable(before, after *corev1.PersistentVolumeClaim) bool {
	return (before.Spec.VolumeName == "" && after.Spec.VolumeName != "") ||
		(before.Annotations[keys.Move] != "" && after.Annotations[keys.Move] == "")
}

// sourceChanged queues the claims that are to be copies of a claim that changed.
func (f *Controller) sourceChanged(source types.NamespacedName) {
	for _, claim := range f.Sources.CopiesOf(source) {
		f.Enqueue(claim.UID)
	}
}

// SnapshotChanged is called when a snapshot of the home cluster, or its content, changed:
// it queues the claims that are to be made from it or, if it is a stand-in, the claim that
// it is for.
func (f *Controller) SnapshotChanged(of types.NamespacedName) {
	if uid, ok := strings.CutPrefix(of.Name, "pvc-"); ok && of.Namespace == f.Place.StorageNamespace {
		f.Enqueue(types.UID(uid))
		return
	}
	for _, claim := range f.Sources.MadeFrom(of) {
		f.Enqueue(claim.UID)
	}
}

// RemoteSnapshotChanged is called when a snapshot in a remote cluster changed.
func (f *Controller) RemoteSnapshotChanged(_ string, s *volumesnapshot.Snapshot) {
	for _, content := range f.Snapshots.ContentsWith(s.UID) {
		f.SnapshotChanged(types.NamespacedName{Namespace: content.Spec.Snapshot.Namespace, Name: content.Spec.Snapshot.Name})
	}
}

// SnapshotsFound is called when it has become known whether the home cluster has snapshots,
// and when that changed.
func (f *Controller) SnapshotsFound() {
	for _, claim := range f.Sources.Waiting() {
		if route.SnapshotOf(claim) != "" {
			f.Enqueue(claim.UID)
		}
	}
}
