package replicas

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// objectOf is what a dynamic client reads.
func objectOf(t *testing.T, object any) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: content}
}

func TestAVersionWhoseContentIsGoneIsSeen(t *testing.T) {
	volume := volumesnapshot.Volume{Driver: "a.test", Handle: "h1"}
	for name, row := range map[string]struct {
		alter func(*volumesnapshot.Snapshot, *volumesnapshot.Content)
		want  decide.Fault
	}{
		"all is well": {func(*volumesnapshot.Snapshot, *volumesnapshot.Content) {}, decide.Fault{}},
		"somebody deleted its content": {func(s *volumesnapshot.Snapshot, _ *volumesnapshot.Content) { s.Status.ContentName = ptr.To("other") },
			decide.Fault{Why: "its VolumeSnapshotContent is gone", Gone: true}},
		"its content is in error": {func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) {
			c.Status.ReadyToUse, c.Status.Error = ptr.To(false), &volumesnapshot.Failure{Message: ptr.To("no such snapshot")}
		}, decide.Fault{Why: "its VolumeSnapshotContent is not ready: no such snapshot"}},
		"its content does not say that it is ready": {func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) {
			c.Status.ReadyToUse = nil
		}, decide.Fault{Why: "its VolumeSnapshotContent is not ready"}},
		"it is not ready": {func(s *volumesnapshot.Snapshot, _ *volumesnapshot.Content) { s.Status.ReadyToUse = nil },
			decide.Fault{Why: "it is not ready"}},
		"it names no content": {func(s *volumesnapshot.Snapshot, _ *volumesnapshot.Content) { s.Status.ContentName = nil },
			decide.Fault{Why: "it names no VolumeSnapshotContent"}},
		"its content is another's": {func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.Snapshot.UID = "s2" },
			decide.Fault{Why: "VolumeSnapshotContent c1 is not its own: see who made it"}},
		"its content is of another volume": {func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) {
			c.Spec.Source.VolumeHandle = ptr.To("h2")
		},
			decide.Fault{Why: "VolumeSnapshotContent c1 is not its own: see who made it"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &volumesnapshot.Snapshot{
				TypeMeta: metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: volumesnapshot.Kind},
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "v1", UID: "s1",
					Labels: map[string]string{keys.ReplicaOf: "r1", keys.HomeID: "home1"}},
				Status: volumesnapshot.SnapshotStatus{ContentName: ptr.To("c1"), ReadyToUse: ptr.To(true)},
			}
			content := &volumesnapshot.Content{
				TypeMeta:   metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: "VolumeSnapshotContent"},
				ObjectMeta: metav1.ObjectMeta{Name: "c1"},
				Spec: volumesnapshot.ContentSpec{Snapshot: corev1.ObjectReference{Namespace: "shop", Name: "v1", UID: "s1"}, Driver: "a.test",
					DeletionPolicy: "Delete", Source: volumesnapshot.ContentSource{VolumeHandle: ptr.To("h1")}},
				Status: volumesnapshot.ContentStatus{ReadyToUse: ptr.To(true)},
			}
			row.alter(s, content)
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
				volumesnapshot.Snapshots: "VolumeSnapshotList", volumesnapshot.Contents: "VolumeSnapshotContentList",
			}, objectOf(t, s), objectOf(t, content))
			c := &Controller{Config: Config{Place: backing.Place{HomeID: "home1"}}}
			o := decide.Observation{Record: &record.Record{UID: "r1", Part: record.Part{Head: backing.Ref{Namespace: "shop"}},
				Sealed: []record.Version{{Number: 1, Content: record.Content{Name: "v1", UID: "s1", Volume: volume}}}}}
			require.NoError(t, c.readSealed(t.Context(), site.Site{Access: remote.Access{Dynamic: client}, Home: true}, &activeReplica{}, &o))
			assert.Equal(t, map[string]types.UID{"v1": "s1"}, o.Sealed)
			assert.Equal(t, map[string]decide.Fault{"v1": row.want}, o.Faults)
		})
	}
}

func TestContentsAreLookedAtInTurnAndThatOfTheNewestEachTime(t *testing.T) {
	r := &record.Record{Sealed: []record.Version{{Number: 1}, {Number: 2}, {Number: 3}, {Number: 4}}}
	w, seen := &activeReplica{}, map[int64]int{}
	for range 8 {
		versions := w.versionsToLookAt(r)
		assert.LessOrEqual(t, len(versions), 2)
		for _, version := range versions {
			seen[version.Number]++
		}
	}
	assert.Equal(t, map[int64]int{1: 2, 2: 2, 3: 2, 4: 8}, seen)
}
