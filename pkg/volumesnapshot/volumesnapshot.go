// Package volumesnapshot has the types and names of the VolumeSnapshot API that Lodestone reads and
// writes (Snapshot, Content, Class), of the VolumeGroupSnapshot API (group.go), and makes the stand-in
// of a snapshot in the namespace of twins (StandIn). Each API is a set of custom resources that a
// cluster may or may not have. It is pure: objects in, objects out.
package volumesnapshot

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// Group is the API group of snapshots.
	Group = "snapshot.storage.k8s.io"
	// Kind is the kind of the snapshots that claims name.
	Kind = "VolumeSnapshot"

	// AllowModeChange is the annotation of a content with which an administrator
	// allows claims of the other volumeMode to be made from it.
	AllowModeChange = "snapshot.storage.kubernetes.io/allow-volume-mode-change"
	// BeingDeleted is the annotation by which the snapshot controller marks a content whose
	// snapshot is being deleted: without it, the CSI snapshotter deletes no snapshot.
	BeingDeleted = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"
	// ContentFinalizer keeps a content until the CSI snapshotter is done with it.
	ContentFinalizer = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"

	// DefaultClass is the annotation of the class that snapshots get which name none.
	DefaultClass = "snapshot.storage.kubernetes.io/is-default-class"

	// Delete is the deletion policy that deletes the data with its snapshot.
	Delete = "Delete"
	// Retain is the deletion policy that keeps the data.
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

// Failure is the last error.
type Failure struct {
	Time    *metav1.Time `json:"time,omitempty"`
	Message *string      `json:"message,omitempty"`
}

// Snapshot is a VolumeSnapshot with the fields that Lodestone uses.
type Snapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SnapshotSpec   `json:"spec"`
	Status            SnapshotStatus `json:"status,omitzero"`
}

// SnapshotSpec is what a snapshot is taken of.
type SnapshotSpec struct {
	Source    SnapshotSource `json:"source"`
	ClassName *string        `json:"volumeSnapshotClassName,omitempty"`
}

// SnapshotSource is a claim or a content.
type SnapshotSource struct {
	ClaimName   *string `json:"persistentVolumeClaimName,omitempty"`
	ContentName *string `json:"volumeSnapshotContentName,omitempty"`
}

// SnapshotStatus is the state of a snapshot. Tenants may have the right to write it, so nothing is
// decided by it alone.
type SnapshotStatus struct {
	ContentName  *string            `json:"boundVolumeSnapshotContentName,omitempty"`
	CreationTime *metav1.Time       `json:"creationTime,omitempty"`
	ReadyToUse   *bool              `json:"readyToUse,omitempty"`
	RestoreSize  *resource.Quantity `json:"restoreSize,omitempty"`
	Error        *Failure           `json:"error,omitempty"`
}

// Content is a VolumeSnapshotContent: the driver's record of a snapshot.
type Content struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ContentSpec   `json:"spec"`
	Status            ContentStatus `json:"status,omitzero"`
}

// ContentSpec says which snapshot a content belongs to, and what it is a snapshot of.
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

// ContentStatus is the state of a snapshot as its driver reports it; only cluster-wide rights allow
// to write it.
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

// In returns the class of a remote cluster that stands for this one of driver lodestone.dev there;
// empty: the default class there.
func (c *Class) In(cluster string) string {
	if name := c.Parameters[keys.RemoteClass+"."+cluster]; name != "" {
		return name
	}
	return c.Parameters[keys.RemoteClass]
}

// Volume is a volume of which a snapshot is taken, as its driver knows it.
type Volume struct {
	Driver string `json:"driver"`
	Handle string `json:"handle"`
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
	// Only the owner of a status writes it.
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}

// BelongTo reports whether a content and a snapshot name each other. A content that only the
// snapshot names may be anybody's: a tenant can name any content.
func BelongTo(s *Snapshot, c *Content) bool {
	return s.Status.ContentName != nil && *s.Status.ContentName == c.Name && s.UID != "" &&
		c.Spec.Snapshot.UID == s.UID && c.Spec.Snapshot.Namespace == s.Namespace && c.Spec.Snapshot.Name == s.Name
}

// HandleOf returns the handle of the snapshot that a content is of: the one that it was made with, or
// that its driver has reported; empty if there is none yet.
func HandleOf(c *Content) string {
	if handle := ptr.Deref(c.Spec.Source.SnapshotHandle, ""); handle != "" {
		return handle
	}
	return ptr.Deref(c.Status.SnapshotHandle, "")
}

// A claim can be made only from a snapshot of its own namespace. A twin is in the
// namespace of twins, so a snapshot of the user's namespace gets a stand-in there:
// a snapshot of the twin's name, and a content that names the same data. The
// stand-in never owns that data: its policy is Retain.

// StandInContent is the name of the content for a twin.
func StandInContent(twin string) string { return "lodestone-" + twin }

// StandIn returns the stand-in for what a content names, for a twin.
func StandIn(of *Content, twin types.NamespacedName, claim types.UID, homeID string) (*Snapshot, *Content) {
	labels := map[string]string{keys.ClaimUID: string(claim), keys.HomeID: homeID}
	content := &Content{
		TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "VolumeSnapshotContent"},
		ObjectMeta: metav1.ObjectMeta{Name: StandInContent(twin.Name), Labels: labels},
		Spec: ContentSpec{
			Snapshot:       corev1.ObjectReference{APIVersion: GroupVersion.String(), Kind: Kind, Namespace: twin.Namespace, Name: twin.Name},
			DeletionPolicy: Retain,
			Driver:         of.Spec.Driver,
			// The secrets of the class let the driver read the snapshot.
			ClassName:  of.Spec.ClassName,
			Source:     ContentSource{SnapshotHandle: of.Status.SnapshotHandle},
			SourceMode: of.Spec.SourceMode,
		},
	}
	if allowed, ok := of.Annotations[AllowModeChange]; ok {
		content.Annotations = map[string]string{AllowModeChange: allowed}
	}
	snapshot := &Snapshot{
		TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: twin.Namespace, Name: twin.Name, Labels: labels},
		Spec:       SnapshotSpec{Source: SnapshotSource{ContentName: ptr.To(content.Name)}, ClassName: of.Spec.ClassName},
	}
	return snapshot, content
}

// StandsFor reports whether a stand-in's content names the data of another content.
func StandsFor(standIn, of *Content) bool {
	return standIn.Spec.Driver == of.Spec.Driver && standIn.Spec.Source.SnapshotHandle != nil && of.Status.SnapshotHandle != nil &&
		*standIn.Spec.Source.SnapshotHandle == *of.Status.SnapshotHandle
}

// Ours reports whether an object was made as a stand-in for a claim of this home.
func Ours(object metav1.Object, claim types.UID, homeID string) bool {
	labels := object.GetLabels()
	return labels[keys.ClaimUID] == string(claim) && labels[keys.HomeID] == homeID
}
