package clusters

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

func TestOfASnapshotOfAnotherClusterOnlyWhatIsSoundIsKept(t *testing.T) {
	good := func() *volumesnapshot.Snapshot {
		return &volumesnapshot.Snapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "snapshot-c1", UID: "s1", ResourceVersion: "7",
				Labels: map[string]string{keys.HomeID: "h1", "other": "x"}, Annotations: map[string]string{keys.Content: "c", keys.MadeBy: "disk.csi.dev", "other": "x"}},
			Status: volumesnapshot.SnapshotStatus{ReadyToUse: ptr.To(true), RestoreSize: ptr.To(resource.MustParse("1Gi"))},
		}
	}
	s := good()
	TrustedSnapshot(s)
	assert.Equal(t, map[string]string{keys.HomeID: "h1"}, s.Labels)
	assert.Equal(t, map[string]string{keys.Content: "c", keys.MadeBy: "disk.csi.dev"}, s.Annotations)
	assert.True(t, *s.Status.ReadyToUse)
	assert.Equal(t, "1Gi", s.Status.RestoreSize.String())

	s = good()
	s.Status.RestoreSize = ptr.To(resource.MustParse("-1"))
	s.Status.Error = &volumesnapshot.Failure{Message: ptr.To(strings.Repeat("x", 5000))}
	s.Annotations[keys.MadeBy] = strings.Repeat("x", 5000)
	TrustedSnapshot(s)
	assert.Nil(t, s.Status.RestoreSize)
	assert.Len(t, *s.Status.Error.Message, 1024)
	assert.NotContains(t, s.Annotations, keys.MadeBy)

	for name, change := range map[string]func(*volumesnapshot.Snapshot, string){
		"a UID that is a path, and goes into a handle": func(s *volumesnapshot.Snapshot, _ string) { s.UID = "s1/shop/x" },
		"a long version":     func(s *volumesnapshot.Snapshot, long string) { s.ResourceVersion = long },
		"a long claim":       func(s *volumesnapshot.Snapshot, long string) { s.Spec.Source.ClaimName = &long },
		"a long content":     func(s *volumesnapshot.Snapshot, long string) { s.Spec.Source.ContentName = &long },
		"a long class":       func(s *volumesnapshot.Snapshot, long string) { s.Spec.ClassName = &long },
		"a long own content": func(s *volumesnapshot.Snapshot, long string) { s.Status.ContentName = &long },
	} {
		s = good()
		change(s, strings.Repeat("x", 1<<20))
		TrustedSnapshot(s)
		assert.Equal(t, &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "snapshot-c1"}}, s, name)
	}
	s = good()
	s.Kind, s.APIVersion, s.GenerateName = strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20)
	s.SetSelfLink(s.Kind)
	TrustedSnapshot(s)
	encoded, err := json.Marshal(s)
	require.NoError(t, err)
	assert.Less(t, len(encoded), takenBytes, "no more is kept than is counted")
}

func TestSnapshotsKeepTheirCluster(t *testing.T) {
	n, known := 0, true
	r := &Registry{volumes: func(string) int { return 2 }, snapshots: func(string) (int, bool) { return n, known }}
	assert.Empty(t, r.heldBySnapshots("west"))
	assert.Equal(t, 2, r.kept("west"))
	n = 3
	assert.Contains(t, r.heldBySnapshots("west"), "3 VolumeSnapshots")
	assert.Equal(t, 5, r.kept("west"))
	n, known = 0, false
	assert.Contains(t, r.heldBySnapshots("west"), "not known yet")
	r.snapshots = nil
	assert.Empty(t, r.heldBySnapshots("west"))
	assert.Equal(t, 2, r.kept("west"))
}
