package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestASnapshotOfSomethingElseIsNotCopied(t *testing.T) {
	known := &record.Claim{Source: record.Copy{Ref: backing.Ref{Name: "data"}}, Snapshot: &record.Snapshot{Driver: "a.test", Handle: "v1"}}
	for name, row := range map[string]struct {
		alter func(*volumesnapshot.Snapshot, *volumesnapshot.Content)
		says  string
	}{
		"of the volume": {alter: func(*volumesnapshot.Snapshot, *volumesnapshot.Content) {}},
		"of another claim": {alter: func(s *volumesnapshot.Snapshot, _ *volumesnapshot.Content) { s.Spec.Source.ClaimName = ptr.To("other") },
			says: "of another claim than data"},
		"of a content": {alter: func(s *volumesnapshot.Snapshot, _ *volumesnapshot.Content) { s.Spec.Source.ClaimName = nil },
			says: "of another claim than data"},
		"another's content": {alter: func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.Snapshot.UID = "s2" },
			says: "c is not its own"},
		"of another volume": {alter: func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.Source.VolumeHandle = ptr.To("v2") },
			says: "c is of another volume"},
		"of a snapshot": {alter: func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.Source.VolumeHandle = nil },
			says: "c is of another volume"},
		"of another driver": {alter: func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.Driver = "b.test" },
			says: "c is of another volume"},
		"one that is to stay": {alter: func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.DeletionPolicy = "Retain" },
			says: "remove it by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &volumesnapshot.Snapshot{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s", UID: "s1"}, Status: volumesnapshot.SnapshotStatus{ContentName: ptr.To("c")},
				Spec: volumesnapshot.SnapshotSpec{Source: volumesnapshot.SnapshotSource{ClaimName: ptr.To("data")}},
			}
			c := &volumesnapshot.Content{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: volumesnapshot.ContentSpec{
				Snapshot: corev1.ObjectReference{Namespace: "shop", Name: "s", UID: "s1"}, DeletionPolicy: "Delete", Driver: "a.test",
				Source: volumesnapshot.ContentSource{VolumeHandle: ptr.To("v1")},
			}}
			row.alter(s, c)
			why := whyForeign(known, s, c)
			assert.Equal(t, row.says == "", why == "", why)
			assert.Contains(t, why, row.says)
		})
	}
}

func TestWhatAnAPIServerHasAgainstASnapshotIsRemembered(t *testing.T) {
	w := &activeMove{}
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "volumesnapshots"}, "s", assert.AnError)
	require.NoError(t, w.noteRefusal(1, quota))
	assert.Contains(t, w.refused[1], "forbidden")
	require.Error(t, w.noteRefusal(1, apierrors.NewInternalError(assert.AnError)), "that is tried again")
	require.NoError(t, w.noteRefusal(2, apierrors.NewAlreadyExists(schema.GroupResource{}, "s")))
	assert.NotContains(t, w.refused, 2)
}
