package volumesnapshot

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

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
			// Its secrets let the driver look at the snapshot.
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

// StandsFor says whether a stand-in's content names the data of another content.
func StandsFor(standIn, of *Content) bool {
	return standIn.Spec.Driver == of.Spec.Driver && standIn.Spec.Source.SnapshotHandle != nil && of.Status.SnapshotHandle != nil &&
		*standIn.Spec.Source.SnapshotHandle == *of.Status.SnapshotHandle
}

// Ours says whether an object was made as a stand-in for a claim of this home.
func Ours(object metav1.Object, claim types.UID, homeID string) bool {
	labels := object.GetLabels()
	return labels[keys.ClaimUID] == string(claim) && labels[keys.HomeID] == homeID
}
