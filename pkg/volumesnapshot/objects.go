// Package volumesnapshot holds what Lodestone reads and writes of the VolumeSnapshot
// API, which is a set of custom resources that a cluster may or may not have. It is
// pure: objects in, objects out.
package volumesnapshot

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// Group is the API group of snapshots.
	Group = "snapshot.storage.k8s.io"
	// Kind is the kind of the snapshots that claims name.
	Kind = "VolumeSnapshot"

	// AllowModeChange is the annotation of a content with which an administrator
	// allows claims of the other volumeMode to be made from it.
	AllowModeChange = "snapshot.storage.kubernetes.io/allow-volume-mode-change"
	// BeingDeleted is, on a content, the snapshot controller's word that its
	// snapshot is being deleted: without it, whoever takes snapshots deletes none.
	BeingDeleted = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"
	// ContentFinalizer holds a content until whoever takes snapshots is done with it.
	ContentFinalizer = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"

	// DefaultClass is the annotation of a class that snapshots get which name none.
	DefaultClass = "snapshot.storage.kubernetes.io/is-default-class"

	// Delete is the deletion policy that lets the data go with its snapshot.
	Delete = "Delete"
	// Retain is the deletion policy that keeps it.
	Retain = "Retain"
)

// GroupVersion is the version of the API that is used.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1"}

// The resources of the API.
var (
	Snapshots = GroupVersion.WithResource("volumesnapshots")
	Contents  = GroupVersion.WithResource("volumesnapshotcontents")
	Classes   = GroupVersion.WithResource("volumesnapshotclasses")
)

// Failure is what went wrong last.
type Failure struct {
	Time    *metav1.Time `json:"time,omitempty"`
	Message *string      `json:"message,omitempty"`
}

// Snapshot is a VolumeSnapshot, as far as it matters here.
type Snapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SnapshotSpec   `json:"spec"`
	Status            SnapshotStatus `json:"status,omitzero"`
}

// SnapshotSpec says what a snapshot is of.
type SnapshotSpec struct {
	Source    SnapshotSource `json:"source"`
	ClassName *string        `json:"volumeSnapshotClassName,omitempty"`
}

// SnapshotSource is a claim or a content.
type SnapshotSource struct {
	ClaimName   *string `json:"persistentVolumeClaimName,omitempty"`
	ContentName *string `json:"volumeSnapshotContentName,omitempty"`
}

// SnapshotStatus is what became of a snapshot. Whoever may write the status of
// snapshots may be a tenant: nothing follows from it alone.
type SnapshotStatus struct {
	ContentName  *string            `json:"boundVolumeSnapshotContentName,omitempty"`
	CreationTime *metav1.Time       `json:"creationTime,omitempty"`
	ReadyToUse   *bool              `json:"readyToUse,omitempty"`
	RestoreSize  *resource.Quantity `json:"restoreSize,omitempty"`
	Error        *Failure           `json:"error,omitempty"`
}

// Content is a VolumeSnapshotContent: what a driver has of a snapshot.
type Content struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ContentSpec   `json:"spec"`
	Status            ContentStatus `json:"status,omitzero"`
}

// ContentSpec says whose a content is, and what of.
type ContentSpec struct {
	Snapshot       corev1.ObjectReference       `json:"volumeSnapshotRef"`
	DeletionPolicy string                       `json:"deletionPolicy"`
	Driver         string                       `json:"driver"`
	ClassName      *string                      `json:"volumeSnapshotClassName,omitempty"`
	Source         ContentSource                `json:"source"`
	SourceMode     *corev1.PersistentVolumeMode `json:"sourceVolumeMode,omitempty"`
}

// ContentSource is the volume that a snapshot is to be taken of, or a snapshot that
// exists.
type ContentSource struct {
	VolumeHandle   *string `json:"volumeHandle,omitempty"`
	SnapshotHandle *string `json:"snapshotHandle,omitempty"`
}

// ContentStatus is what became of a snapshot; only cluster-wide rights reach it.
type ContentStatus struct {
	SnapshotHandle *string  `json:"snapshotHandle,omitempty"`
	CreationTime   *int64   `json:"creationTime,omitempty"` // ns since 1970
	RestoreSize    *int64   `json:"restoreSize,omitempty"`  // bytes
	ReadyToUse     *bool    `json:"readyToUse,omitempty"`
	Error          *Failure `json:"error,omitempty"`
}

// Class is a VolumeSnapshotClass.
type Class struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Driver            string            `json:"driver"`
	DeletionPolicy    string            `json:"deletionPolicy,omitempty"`
	Parameters        map[string]string `json:"parameters,omitempty"`
}

// Read turns what a dynamic client read into an object.
func Read[T any](from *unstructured.Unstructured) (*T, error) {
	to := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, to); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", from.GetKind(), from.GetName(), err)
	}
	return to, nil
}

// Write turns an object into what a dynamic client writes.
func Write(object any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", object, err)
	}
	// Nobody but the owner of a status writes it.
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}

// BelongTo says whether a content and a snapshot name each other. One that does not
// is anybody's: a tenant can name any content.
func BelongTo(s *Snapshot, c *Content) bool {
	return s.Status.ContentName != nil && *s.Status.ContentName == c.Name && s.UID != "" &&
		c.Spec.Snapshot.UID == s.UID && c.Spec.Snapshot.Namespace == s.Namespace && c.Spec.Snapshot.Name == s.Name
}
