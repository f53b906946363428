package volumesnapshot

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// This file is the VolumeGroupSnapshot API: snapshots of several volumes, taken at one moment. It is
// a second set of custom resources, which clusters have less often than that of snapshots.

const (
	// GroupGroup is the API group of snapshots of several volumes.
	GroupGroup = "groupsnapshot.storage.k8s.io"
	// GroupKind is the kind of such a snapshot.
	GroupKind = "VolumeGroupSnapshot"

	// MemberOf is the annotation by which the snapshot controller marks the content of a
	// snapshot that was taken as one of several: it is not taken, nor deleted, by itself.
	MemberOf = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle"
	// GroupBeingDeleted is for contents of several volumes what BeingDeleted is for others.
	GroupBeingDeleted = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted"
	// GroupContentFinalizer keeps such a content until the CSI snapshotter is done with it.
	GroupContentFinalizer = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection"
	// DefaultGroupClass is the annotation of the class that such snapshots get which name none.
	DefaultGroupClass = "groupsnapshot.storage.kubernetes.io/is-default-class"
)

// GroupVersions are the versions of the API whose objects are those of this package, best first. In
// v1beta1 a content does not say which snapshots were taken as its own objects do.
var GroupVersions = []schema.GroupVersion{{Group: GroupGroup, Version: "v1"}, {Group: GroupGroup, Version: "v1beta2"}}

// GroupSnapshots are the snapshots of several volumes, in a version of the API.
func GroupSnapshots(v schema.GroupVersion) schema.GroupVersionResource {
	return v.WithResource("volumegroupsnapshots")
}

// GroupContents are the contents of snapshots of several volumes.
func GroupContents(v schema.GroupVersion) schema.GroupVersionResource {
	return v.WithResource("volumegroupsnapshotcontents")
}

// GroupClasses are their classes, whose fields are those of Class.
func GroupClasses(v schema.GroupVersion) schema.GroupVersionResource {
	return v.WithResource("volumegroupsnapshotclasses")
}

// GroupSnapshot is a VolumeGroupSnapshot with the fields that Lodestone uses.
type GroupSnapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GroupSnapshotSpec   `json:"spec"`
	Status            GroupSnapshotStatus `json:"status,omitzero"`
}

// GroupSnapshotSpec is what a snapshot of several volumes is taken of.
type GroupSnapshotSpec struct {
	Source    GroupSnapshotSource `json:"source"`
	ClassName *string             `json:"volumeGroupSnapshotClassName,omitempty"`
}

// GroupSnapshotSource is the claims of a namespace that have labels, or a content. The snapshot
// controller heeds no expressions in the selector, only labels: with expressions alone it would take
// all claims.
type GroupSnapshotSource struct {
	Selector    *metav1.LabelSelector `json:"selector,omitempty"`
	ContentName *string               `json:"volumeGroupSnapshotContentName,omitempty"`
}

// GroupSnapshotStatus is the state of a snapshot of several volumes. As that of a snapshot, tenants
// may have the right to write it.
type GroupSnapshotStatus struct {
	ContentName  *string      `json:"boundVolumeGroupSnapshotContentName,omitempty"`
	CreationTime *metav1.Time `json:"creationTime,omitempty"`
	ReadyToUse   *bool        `json:"readyToUse,omitempty"`
	Error        *Failure     `json:"error,omitempty"`
}

// GroupContent is a VolumeGroupSnapshotContent: the driver's record of a snapshot of several volumes.
type GroupContent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GroupContentSpec   `json:"spec"`
	Status            GroupContentStatus `json:"status,omitzero"`
}

// GroupContentSpec says which snapshot a content belongs to, and of which volumes it is one.
type GroupContentSpec struct {
	Snapshot       corev1.ObjectReference `json:"volumeGroupSnapshotRef"`
	DeletionPolicy string                 `json:"deletionPolicy"`
	Driver         string                 `json:"driver"`
	ClassName      *string                `json:"volumeGroupSnapshotClassName,omitempty"`
	Source         GroupContentSource     `json:"source"`
}

// GroupContentSource is the volumes that a snapshot is to be taken of, or snapshots that exist.
type GroupContentSource struct {
	VolumeHandles []string      `json:"volumeHandles,omitempty"`
	Handles       *GroupHandles `json:"groupSnapshotHandles,omitempty"`
}

// GroupHandles are snapshots that exist.
type GroupHandles struct {
	Group   string   `json:"volumeGroupSnapshotHandle"`
	Members []string `json:"volumeSnapshotHandles"`
}

// GroupContentStatus is the state of a snapshot of several volumes as its driver reports it; only
// cluster-wide rights allow to write it.
type GroupContentStatus struct {
	Handle       *string      `json:"volumeGroupSnapshotHandle,omitempty"`
	CreationTime *metav1.Time `json:"creationTime,omitempty"`
	ReadyToUse   *bool        `json:"readyToUse,omitempty"`
	Error        *Failure     `json:"error,omitempty"`
	Members      []Member     `json:"volumeSnapshotInfoList,omitempty"`
}

// Member is one of the snapshots that were taken together.
type Member struct {
	VolumeHandle   string `json:"volumeHandle,omitempty"`
	SnapshotHandle string `json:"snapshotHandle,omitempty"`
	CreationTime   *int64 `json:"creationTime,omitempty"` // ns since 1970
	ReadyToUse     *bool  `json:"readyToUse,omitempty"`
	RestoreSize    *int64 `json:"restoreSize,omitempty"` // bytes
}

// GroupOf returns the UID of the snapshot of several volumes that a snapshot was taken as a part of;
// empty if it was taken by itself.
func GroupOf(s *Snapshot) string {
	for _, owner := range s.OwnerReferences {
		if version, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && version.Group == GroupGroup && owner.Kind == GroupKind {
			return string(owner.UID)
		}
	}
	return ""
}
