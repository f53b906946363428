package volumesnapshot_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

func content() *volumesnapshot.Content {
	return &volumesnapshot.Content{
		ObjectMeta: metav1.ObjectMeta{Name: "content-f1", UID: "c1", Annotations: map[string]string{volumesnapshot.AllowModeChange: "true",
			"deletion-secret": "s"}},
		Spec: volumesnapshot.ContentSpec{
			Snapshot: corev1.ObjectReference{Namespace: "shop", Name: "friday", UID: "f1"}, DeletionPolicy: volumesnapshot.Delete,
			Driver:    "disk.csi.dev",
			ClassName: ptr.To("nightly"), Source: volumesnapshot.ContentSource{VolumeHandle: ptr.To("volume-1")},
			SourceMode: ptr.To(corev1.PersistentVolumeBlock),
		},
		Status: volumesnapshot.ContentStatus{SnapshotHandle: ptr.To("handle-1")},
	}
}

func TestAStandInNamesTheDataAndNeverOwnsIt(t *testing.T) {
	of := content()
	snapshot, standIn := volumesnapshot.StandIn(of, types.NamespacedName{Namespace: "lodestone-storage", Name: "pvc-u1"}, "u1", "h1")
	assert.Equal(t, volumesnapshot.Retain, standIn.Spec.DeletionPolicy)
	assert.Equal(t, "handle-1", *standIn.Spec.Source.SnapshotHandle)
	assert.Nil(t, standIn.Spec.Source.VolumeHandle)
	assert.Equal(t, map[string]string{volumesnapshot.AllowModeChange: "true"}, standIn.Annotations, "nothing else crosses")
	assert.Equal(t, standIn.Name, *snapshot.Spec.Source.ContentName)
	assert.Equal(t, types.NamespacedName{Namespace: "lodestone-storage", Name: "pvc-u1"},
		types.NamespacedName{Namespace: standIn.Spec.Snapshot.Namespace, Name: standIn.Spec.Snapshot.Name})
	assert.True(t, volumesnapshot.StandsFor(standIn, of))
	assert.True(t, volumesnapshot.Ours(snapshot, "u1", "h1") && volumesnapshot.Ours(standIn, "u1", "h1"))
	assert.False(t, volumesnapshot.Ours(snapshot, "u2", "h1") || volumesnapshot.Ours(snapshot, "u1", "h2"))
	of.Status.SnapshotHandle = ptr.To("handle-2")
	assert.False(t, volumesnapshot.StandsFor(standIn, of))
	of.Status.SnapshotHandle = nil
	assert.False(t, volumesnapshot.StandsFor(standIn, of))

	encoded, err := volumesnapshot.Write(standIn)
	require.NoError(t, err)
	assert.NotContains(t, encoded.Object, "status")
	again, err := volumesnapshot.Read[volumesnapshot.Content](encoded)
	require.NoError(t, err)
	assert.Equal(t, standIn, again)
}

func TestASnapshotAndAContentBelongToEachOtherOnlyIfBothSaySo(t *testing.T) {
	for name, row := range map[string]struct {
		alter func(*volumesnapshot.Snapshot, *volumesnapshot.Content)
		want  bool
	}{
		"both say so":                {func(*volumesnapshot.Snapshot, *volumesnapshot.Content) {}, true},
		"a snapshot names another's": {func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.Snapshot.UID = "f2" }, false},
		"… of its own name elsewhere": {func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.Snapshot.Namespace = "bank" },
			false},
		"… of another name": {func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.Snapshot.Name = "monday" },
			false},
		"a content is not yet bound": {func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.Snapshot.UID = "" }, false},
		"neither has a UID": {func(s *volumesnapshot.Snapshot, c *volumesnapshot.Content) { s.UID, c.Spec.Snapshot.UID = "", "" },
			false},
		"a snapshot names none": {func(s *volumesnapshot.Snapshot, _ *volumesnapshot.Content) { s.Status.ContentName = nil }, false},
		"a snapshot names another there": {func(s *volumesnapshot.Snapshot, _ *volumesnapshot.Content) { s.Status.ContentName = ptr.To("other") },
			false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "friday", UID: "f1"},
				Status: volumesnapshot.SnapshotStatus{ContentName: ptr.To("content-f1")}}
			c := content()
			row.alter(s, c)
			assert.Equal(t, row.want, volumesnapshot.BelongTo(s, c))
		})
	}
}
