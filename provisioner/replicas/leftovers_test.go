package replicas

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/copying"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

func TestWhatPointsThatNobodyKnowsHaveLeftAtTheSourceGoes(t *testing.T) {
	meta := func(name, label, value string, more ...string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "storage", Name: name, Labels: map[string]string{label: value, keys.HomeID: "h"},
			Annotations: map[string]string{}}
		for _, annotation := range more {
			m.Annotations[annotation] = "true"
		}
		return m
	}
	client := fake.NewClientset(
		&corev1.Pod{ObjectMeta: meta("replica-1-7-sender", keys.MoveOf, "1")},
		&corev1.Pod{ObjectMeta: meta("replica-2-7-sender", keys.MoveOf, "2")},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("replica-1-7-99", keys.ReplicaOf, "1", keys.Unpublished)},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("replica-1-7-98", keys.ReplicaOf, "1")}, // a virtual volume may stand for it
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("replica-1", keys.ReplicaOf, "1", keys.Unpublished)},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("replica-2-7-99", keys.ReplicaOf, "2", keys.Unpublished)},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("data", keys.ReplicaOf, "1", keys.Unpublished)})
	groups := volumesnapshot.GroupSnapshots(volumesnapshot.GroupVersions[0])
	snapshots := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		volumesnapshot.Snapshots: "VolumeSnapshotList", groups: "VolumeGroupSnapshotList",
		volumesnapshot.GroupSnapshots(volumesnapshot.GroupVersions[1]): "VolumeGroupSnapshotList"})
	of := func(resource schema.GroupVersionResource, kind, name string) {
		_, err := snapshots.Resource(resource).Namespace("storage").Create(t.Context(), objectOf(t, &volumesnapshot.Snapshot{
			TypeMeta:   metav1.TypeMeta{APIVersion: resource.GroupVersion().String(), Kind: kind},
			ObjectMeta: meta(name, keys.ReplicaOf, "1")}), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	of(volumesnapshot.Snapshots, volumesnapshot.Kind, "replica-1-7-99")
	of(volumesnapshot.Snapshots, volumesnapshot.Kind, "replica-1-v7-99")
	of(groups, "VolumeGroupSnapshot", "replica-1-7-99")

	access := remote.Access{Client: client, Dynamic: snapshots}
	sites := site.New(access, nil)
	c := &Controller{Config: Config{Place: backing.Place{HomeID: "h"}}, sites: sites, copier: &copying.Copier{Sites: sites}}
	w := &activeReplica{}
	r := &record.Record{UID: "1", Others: make([]record.Part, 1), Point: &record.Point{
		Session: record.Session{Source: backing.Ref{Cluster: keys.Home, Namespace: "storage", Name: "data"}}}}
	c.clearSource(t.Context(), w, r)
	assert.True(t, w.cleared)

	var left []string
	pods, err := client.CoreV1().Pods("storage").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, pod := range pods.Items {
		left = append(left, pod.Name)
	}
	claims, err := client.CoreV1().PersistentVolumeClaims("storage").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, claim := range claims.Items {
		left = append(left, claim.Name)
	}
	assert.ElementsMatch(t, []string{"replica-2-7-sender", "replica-1-7-98", "replica-1", "replica-2-7-99", "data"}, left)
	list, err := snapshots.Resource(volumesnapshot.Snapshots).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	assert.Equal(t, "replica-1-v7-99", list.Items[0].GetName(), "a version stays")
	list, err = snapshots.Resource(groups).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, list.Items)
}

func TestStraysAreMoversOfTheReplicaAlone(t *testing.T) {
	pod := func(name, replica, home string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name,
			Labels: map[string]string{keys.MoveOf: replica, keys.HomeID: home}}}
	}
	leaving := pod("replica-1-7-receiver", "1", "h")
	leaving.DeletionTimestamp = &metav1.Time{}
	client := fake.NewClientset(leaving, pod("replica-1-8-receiver-1", "1", "h"), pod("replica-2-8-receiver", "2", "h"),
		pod("replica-1-9-receiver", "1", "another"), pod("move-3-target", "1", "h"))
	c := &Controller{Config: Config{Place: backing.Place{HomeID: "h"}}}
	r := &record.Record{UID: "1", Part: record.Part{Head: backing.Ref{Cluster: keys.Home, Namespace: "storage"}}}
	found, err := c.moversIn(t.Context(), site.Site{Access: remote.Access{Client: client}, Home: true}, r, "storage")
	require.NoError(t, err)
	assert.Equal(t, []decide.Stray{{Name: "replica-1-7-receiver", Leaving: true}, {Name: "replica-1-8-receiver-1"}}, found)
}
