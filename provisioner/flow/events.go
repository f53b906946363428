package flow

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// Watch has the sources bring back claims when something that matters to them
// changes. Call it once, before the sources are started.
func (f *Flow) Watch() error {
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		changed  func(old, obj any)
	}{
		{f.Sources.Claims, f.claimChanged},
		{f.Sources.Volumes, f.volumeChanged},
		{f.Sources.Classes, f.classChanged},
		{f.Sources.Nodes, f.nodeChanged},
		{f.Sources.Namespaces, f.namespaceChanged},
		{f.Sources.Attachments, f.attachmentChanged},
	} {
		_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { w.changed(nil, obj) },
			UpdateFunc: w.changed,
			DeleteFunc: func(obj any) {
				if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = gone.Obj
				}
				w.changed(obj, nil)
			},
		})
		if err != nil {
			return fmt.Errorf("watch home cluster: %w", err)
		}
	}
	return nil
}

func either[T any](old, obj any) *T {
	if typed, ok := obj.(*T); ok {
		return typed
	}
	typed, _ := old.(*T)
	return typed
}

func (f *Flow) claimChanged(old, obj any) {
	claim := either[corev1.PersistentVolumeClaim](old, obj)
	switch {
	case claim == nil:
	case claim.Labels[keys.ClaimUID] != "" && claim.Namespace == f.Place.StorageNamespace:
		f.BackingChanged(claim)
	default:
		f.Enqueue(claim.UID)
		self := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
		f.sourceChanged(self)
		before, _ := old.(*corev1.PersistentVolumeClaim)
		after, _ := obj.(*corev1.PersistentVolumeClaim)
		if before != nil && after != nil && copyable(before, after) {
			for _, waiting := range f.copiesOf(self) {
				f.rouse(waiting, "claim "+claim.Name)
			}
		}
		if before != nil && after != nil && opened(before, after) {
			f.rouse(after, "claim "+after.Name)
		}
	}
}

// BackingChanged is called when a backing claim, or the real volume behind it,
// changed.
func (f *Flow) BackingChanged(b *corev1.PersistentVolumeClaim) {
	uid := types.UID(b.Labels[keys.ClaimUID])
	if owner, ok := f.Place.OwnerOf(b); ok && uid != "" {
		f.memory.addOwner(uid, owner)
		if backing.WasMoved(b.Name) {
			f.memory.addMoved(uid, b.Name)
		}
		f.sourceChanged(owner)
		// A later claim of that name may wait for the name of this one.
		if later := one[corev1.PersistentVolumeClaim](f.Sources.Claims, owner.String()); later != nil && later.UID != uid {
			f.Enqueue(later.UID)
		}
	}
	f.Enqueue(uid)
}

// BackingVolumeChanged is called when the real volume of a backing claim that is
// gone changed; uid is that of the backing claim.
func (f *Flow) BackingVolumeChanged(uid types.UID) {
	for _, volume := range f.Sources.volumesOf(uid) {
		if volume.Spec.ClaimRef != nil {
			f.Enqueue(volume.Spec.ClaimRef.UID)
		}
	}
}

func (f *Flow) volumeChanged(old, obj any) {
	volume := either[corev1.PersistentVolume](old, obj)
	if volume == nil || volume.Spec.ClaimRef == nil {
		return
	}
	if obj == nil {
		f.publisher.ForgetVolume(volume.UID)
	}
	ref := volume.Spec.ClaimRef
	if volume.Annotations[keys.Backing] != "" {
		f.Enqueue(ref.UID)
		f.sourceChanged(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
		return
	}
	if ref.Namespace != f.Place.StorageNamespace {
		return
	}
	if twin := one[corev1.PersistentVolumeClaim](f.Sources.Claims, ref.Namespace+"/"+ref.Name); twin != nil {
		f.BackingChanged(twin)
		return
	}
	f.BackingVolumeChanged(ref.UID)
	// One that is being healed is bound to no claim.
	if uid, ok := backing.TwinOf(ref.Name); ok && ref.UID == "" {
		f.Enqueue(uid)
	}
}

// classChanged brings back all waiting claims: a class, virtual or real, is
// mended so that they can go on. Where it allows expansion now, or no longer, that
// is said on the claims whose volumes it may concern.
func (f *Flow) classChanged(old, obj any) {
	before, _ := old.(*storagev1.StorageClass)
	after, _ := obj.(*storagev1.StorageClass)
	if before != nil && after != nil && before.ResourceVersion == after.ResourceVersion {
		return
	}
	virtual := virtualclass.Is(before) || virtualclass.Is(after)
	if virtualclass.Is(after) && (before == nil || before.UID != after.UID) {
		// It may say otherwise what claims with a volume carry, too.
		for _, obj := range f.Sources.Claims.GetStore().List() {
			if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && className(claim) == after.Name {
				f.Enqueue(claim.UID)
			}
		}
	}
	madeAnew := !virtual && (before == nil || after == nil)
	if madeAnew || before != nil && after != nil && ptr.Deref(before.AllowVolumeExpansion, false) != ptr.Deref(after.AllowVolumeExpansion, false) {
		for _, obj := range f.Sources.Volumes.GetStore().List() {
			if volume, ok := obj.(*corev1.PersistentVolume); ok && volume.Spec.ClaimRef != nil && volume.Annotations[keys.Backing] != "" {
				f.Enqueue(volume.Spec.ClaimRef.UID)
			}
		}
	}
	for _, claim := range f.waiting() {
		if !virtual || className(claim) == either[storagev1.StorageClass](old, obj).Name {
			f.Enqueue(claim.UID)
		}
	}
}

func (f *Flow) waiting() []*corev1.PersistentVolumeClaim {
	return indexed[corev1.PersistentVolumeClaim](f.Sources.Claims, byWaiting, waitingKey)
}

// nodeChanged brings back the claims of a node that came, went or now stands for
// another cluster.
func (f *Flow) nodeChanged(old, obj any) {
	before, _ := old.(*corev1.Node)
	after, _ := obj.(*corev1.Node)
	f.nodeMoved(before, after)
	if before != nil && after != nil && before.Labels[keys.Cluster] == after.Labels[keys.Cluster] {
		return
	}
	name := either[corev1.Node](old, obj).Name
	for _, claim := range f.waiting() {
		if claim.Annotations[keys.SelectedNode] == name {
			f.Enqueue(claim.UID)
		}
	}
}

func (f *Flow) attachmentChanged(old, obj any) {
	attachment := either[storagev1.VolumeAttachment](old, obj)
	if attachment == nil || attachment.Spec.Source.PersistentVolumeName == nil {
		return
	}
	if volume := one[corev1.PersistentVolume](f.Sources.Volumes, *attachment.Spec.Source.PersistentVolumeName); volume != nil && volume.Spec.ClaimRef != nil {
		f.Enqueue(volume.Spec.ClaimRef.UID)
	}
}

// ClusterChanged is called when what can be asked of a cluster changed; ready
// says whether new volumes can be made there. It brings back whatever has to do
// with the cluster: its volumes, the claims that are bound for it, what is left
// of claims that are gone and, since a place to go may have opened, the claims
// that wait for any node.
func (f *Flow) ClusterChanged(id string, ready bool) {
	for _, volume := range indexed[corev1.PersistentVolume](f.Sources.Volumes, byCluster, id) {
		if volume.Spec.ClaimRef != nil {
			f.Enqueue(volume.Spec.ClaimRef.UID)
		}
	}
	for _, uid := range f.memory.allOrphans() {
		f.Enqueue(uid)
	}
	for _, claim := range f.waiting() {
		switch {
		case claim.Annotations[keys.SelectedNode] != "" || claim.Annotations[keys.Routed] != "":
			f.Enqueue(claim.UID)
		case ready:
			f.rouse(claim, "cluster "+id)
		}
	}
}

// NamespaceSeen is called when it has become known which backing claims exist in
// a namespace of a cluster: what waited for that goes on.
func (f *Flow) NamespaceSeen(id, namespace string) {
	for _, volume := range indexed[corev1.PersistentVolume](f.Sources.Volumes, byCluster, id) {
		if ref, err := backing.RefOf(volume); err == nil && ref.Namespace == namespace && volume.Spec.ClaimRef != nil {
			f.Enqueue(volume.Spec.ClaimRef.UID)
		}
	}
	for _, claim := range f.waiting() {
		if claim.Annotations[keys.Routed] == id {
			f.Enqueue(claim.UID)
		}
	}
}

// NamespaceGiven is called when it changed whether the namespace of a cluster
// that belongs to a home namespace may be used.
func (f *Flow) NamespaceGiven(id, home string, given bool) {
	for _, claim := range f.waiting() {
		switch {
		case claim.Namespace != home:
		case claim.Annotations[keys.SelectedNode] != "" || claim.Annotations[keys.Routed] != "":
			f.Enqueue(claim.UID)
		case given:
			f.rouse(claim, "cluster "+id)
		}
	}
}
