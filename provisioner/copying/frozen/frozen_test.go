package frozen

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
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

func TestTheClassOfASnapshotRemovesWhatWasTaken(t *testing.T) {
	class := func(name, driver, policy string, normal bool) volumesnapshot.Class {
		found := volumesnapshot.Class{ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driver, DeletionPolicy: policy}
		if normal {
			found.Annotations = map[string]string{volumesnapshot.DefaultClass: "true"}
		}
		return found
	}
	for name, row := range map[string]struct {
		classes []volumesnapshot.Class
		want    string
	}{
		"none":               {},
		"of another driver":  {classes: []volumesnapshot.Class{class("a", "b.test", "Delete", true)}},
		"one that keeps all": {classes: []volumesnapshot.Class{class("a", "a.test", "Retain", true)}},
		"the default one": {classes: []volumesnapshot.Class{class("a", "a.test", "Delete", false), class("b", "a.test", "Delete", true)},
			want: "b"},
		"the first by name": {classes: []volumesnapshot.Class{class("c", "a.test", "Delete", false), class("b", "a.test", "Delete", false)},
			want: "b"},
		"one without a name": {classes: []volumesnapshot.Class{class("../x", "a.test", "Delete", true)}},
		"not the default one": {classes: []volumesnapshot.Class{class("a", "a.test", "Retain", true), class("b", "a.test", "Delete", false)},
			want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.want, ClassFor(row.classes, "a.test", volumesnapshot.DefaultClass))
		})
	}
}

func TestASnapshotOfSomethingElseIsNotCopied(t *testing.T) {
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
			why := WhyForeign("data", volumesnapshot.Volume{Driver: "a.test", Handle: "v1"}, s, c)
			assert.Equal(t, row.says == "", why == "", why)
			assert.Contains(t, why, row.says)
		})
	}
}

func TestOnlyTheSourcesOfAGroupGetItsLabel(t *testing.T) {
	ref := func(name string) backing.Ref {
		return backing.Ref{Namespace: "n", Name: name, UID: types.UID("b-" + name)}
	}
	g := Group{Label: keys.GroupPrefix + "m1", Of: []Frozen{{Ref: ref("data")}, {Ref: ref("logs")}}}
	client := fake.NewClientset()
	claims := client.CoreV1().PersistentVolumeClaims("n")
	for _, name := range []string{"data", "logs", "else"} {
		_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("b-" + name),
			Labels: map[string]string{"team": "red"}}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, g.label(t.Context(), claims))
	found, err := claims.List(t.Context(), metav1.ListOptions{LabelSelector: g.Label + "=true,team=red"})
	require.NoError(t, err)
	require.Len(t, found.Items, 2)

	require.NoError(t, setLabel(t.Context(), claims, ref("else"), g.Label, "true"))
	why, err := RefusalOf(g.label(t.Context(), claims))
	require.NoError(t, err, "it is refused for good")
	assert.Contains(t, why, "claim else has label "+keys.GroupPrefix+"m1 too")
}

func TestOnlyItsContentSaysThatASnapshotWasTakenAndIsReady(t *testing.T) {
	for name, row := range map[string]struct {
		alter func(*volumesnapshot.Snapshot, *volumesnapshot.Content)
		taken bool
		ready bool
		says  string
	}{
		"both say it": {alter: func(*volumesnapshot.Snapshot, *volumesnapshot.Content) {}, taken: true, ready: true},
		"the snapshot does not": {alter: func(s *volumesnapshot.Snapshot, _ *volumesnapshot.Content) {
			s.Status.ReadyToUse, s.Status.CreationTime = nil, nil
		}},
		"its content is taken and not ready": {alter: func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) {
			c.Status.ReadyToUse = ptr.To(false)
		}, taken: true, says: "it says that it is ready, and its VolumeSnapshotContent does not"},
		"its driver has said nothing yet": {alter: func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) {
			c.Status = volumesnapshot.ContentStatus{}
		}, says: "it says that it is ready, and its VolumeSnapshotContent does not"},
		"it names no content": {alter: func(s *volumesnapshot.Snapshot, _ *volumesnapshot.Content) { s.Status.ContentName = nil },
			says: "it says that it is ready, and its VolumeSnapshotContent does not"},
		"its content is gone": {alter: func(s *volumesnapshot.Snapshot, _ *volumesnapshot.Content) { s.Status.ContentName = ptr.To("none") },
			says: "its VolumeSnapshotContent is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			now := metav1.Now()
			s := &volumesnapshot.Snapshot{
				TypeMeta:   metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: volumesnapshot.Kind},
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s", UID: "s1"},
				Status:     volumesnapshot.SnapshotStatus{ContentName: ptr.To("c"), ReadyToUse: ptr.To(true), CreationTime: &now},
			}
			c := &volumesnapshot.Content{
				TypeMeta:   metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: "VolumeSnapshotContent"},
				ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: volumesnapshot.ContentSpec{
					Snapshot: corev1.ObjectReference{Namespace: "shop", Name: "s", UID: "s1"}, DeletionPolicy: "Delete", Driver: "a.test",
					Source: volumesnapshot.ContentSource{VolumeHandle: ptr.To("v1")},
				}, Status: volumesnapshot.ContentStatus{ReadyToUse: ptr.To(true), CreationTime: ptr.To(now.UnixNano())}}
			row.alter(s, c)
			objects := []runtime.Object{}
			for _, object := range []any{s, c} {
				content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
				require.NoError(t, err)
				objects = append(objects, &unstructured.Unstructured{Object: content})
			}
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
				volumesnapshot.Snapshots: "VolumeSnapshotList", volumesnapshot.Contents: "VolumeSnapshotContentList"}, objects...)
			seen, problem, wrong, err := Look(t.Context(), site.Site{Access: remote.Access{Dynamic: client}, Home: true}, Wanted{
				NamespacedName: types.NamespacedName{Namespace: "shop", Name: "s"}, Volume: volumesnapshot.Volume{Driver: "a.test", Handle: "v1"},
				Ours: func(*volumesnapshot.Snapshot) bool { return true },
			})
			require.NoError(t, err)
			assert.False(t, wrong)
			assert.Equal(t, row.says, problem)
			assert.Equal(t, row.taken, seen.Status.CreationTime != nil)
			assert.Equal(t, row.ready, ptr.Deref(seen.Status.ReadyToUse, false))
		})
	}
}
