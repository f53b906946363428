package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// snapshotsOf is a client of a cluster with snapshots, that has these objects.
func snapshotsOf(t *testing.T, objects ...any) *dynamicfake.FakeDynamicClient {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{
		volumesnapshot.Snapshots: "VolumeSnapshotList", volumesnapshot.Contents: "VolumeSnapshotContentList",
	}
	for _, version := range volumesnapshot.GroupVersions {
		lists[volumesnapshot.GroupSnapshots(version)] = "VolumeGroupSnapshotList"
		lists[volumesnapshot.GroupClasses(version)] = "VolumeGroupSnapshotClassList"
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		require.NoError(t, err)
		encoded := &unstructured.Unstructured{Object: content}
		resource := map[string]schema.GroupVersionResource{
			volumesnapshot.Kind: volumesnapshot.Snapshots, "VolumeSnapshotContent": volumesnapshot.Contents,
			volumesnapshot.GroupKind:   volumesnapshot.GroupSnapshots(encoded.GroupVersionKind().GroupVersion()),
			"VolumeGroupSnapshotClass": volumesnapshot.GroupClasses(encoded.GroupVersionKind().GroupVersion()),
		}[encoded.GetKind()]
		require.NoError(t, client.Tracker().Create(resource, encoded, encoded.GetNamespace()))
	}
	return client
}

// ofTwo is the record of a move of two claims that are copied from snapshots.
func ofTwo() *record.Record {
	claim := func(name string) record.Claim {
		ref := backing.Ref{Cluster: keys.Home, Namespace: "n", Name: name, UID: types.UID("b-" + name)}
		return record.Claim{Name: name, Source: record.Copy{Ref: ref}, Snapshot: &record.Snapshot{Driver: "a.test", Handle: "vol-" + name}}
	}
	return &record.Record{UID: "m1", Claims: []record.Claim{claim("data"), claim("logs")}}
}

func TestOneSnapshotOfAllIsTakenWhereAClassFits(t *testing.T) {
	class := func(version, driver, policy string) *volumesnapshot.Class {
		return &volumesnapshot.Class{
			TypeMeta:   metav1.TypeMeta{APIVersion: volumesnapshot.GroupGroup + "/" + version, Kind: "VolumeGroupSnapshotClass"},
			ObjectMeta: metav1.ObjectMeta{Name: "together"}, Driver: driver, DeletionPolicy: policy,
		}
	}
	for name, row := range map[string]struct {
		alter   func(*record.Record)
		classes []any
		refused int32 // status with which the cluster answers
		want    *record.Group
		fails   bool
	}{
		"it fits": {classes: []any{class("v1", "a.test", "Delete")}, want: &record.Group{By: "together", Version: "v1"}},
		"it fits, in an earlier version of the API": {classes: []any{class("v1beta2", "a.test", "Delete")}, refused: 404,
			want: &record.Group{By: "together", Version: "v1beta2"}},
		"there is none":                        {},
		"it is of another driver":              {classes: []any{class("v1", "b.test", "Delete")}},
		"it keeps what was taken":              {classes: []any{class("v1", "a.test", "Retain")}},
		"home may not read classes there":      {classes: []any{class("v1", "a.test", "Delete")}, refused: 403},
		"the cluster does not answer just now": {classes: []any{class("v1", "a.test", "Delete")}, refused: 500, fails: true},
		"one claim alone": {classes: []any{class("v1", "a.test", "Delete")},
			alter: func(r *record.Record) { r.Claims = r.Claims[:1] }},
		"one of the claims is not copied from a snapshot": {classes: []any{class("v1", "a.test", "Delete")},
			alter: func(r *record.Record) { r.Claims[1].Snapshot = nil }},
		"volumes of two drivers": {classes: []any{class("v1", "a.test", "Delete")},
			alter: func(r *record.Record) { r.Claims[1].Snapshot.Driver = "b.test" }},
	} {
		t.Run(name, func(t *testing.T) {
			client := snapshotsOf(t, row.classes...)
			client.PrependReactor("list", "volumegroupsnapshotclasses", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if row.refused == 0 || row.refused == 404 && action.GetResource().Version != "v1" {
					return false, nil, nil
				}
				return true, nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: row.refused,
					Reason: map[int32]metav1.StatusReason{403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound,
						500: metav1.StatusReasonInternalError}[row.refused]}}
			})
			r := ofTwo()
			if row.alter != nil {
				row.alter(r)
			}
			c := &Controller{sites: site.New(remote.Access{Dynamic: client}, nil)}
			got, err := c.inspectGroup(t.Context(), r)
			assert.Equal(t, row.fails, err != nil, err)
			assert.Equal(t, row.want, got)
		})
	}
}

func TestWhatBelongsToASnapshotOfSeveralClaimsIsToldByTheirVolumes(t *testing.T) {
	group := func(labels map[string]string) *volumesnapshot.GroupSnapshot {
		return &volumesnapshot.GroupSnapshot{
			TypeMeta:   metav1.TypeMeta{APIVersion: volumesnapshot.GroupGroup + "/v1", Kind: volumesnapshot.GroupKind},
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "move-m1-snapshot", UID: "g1", Labels: labels},
			Status:     volumesnapshot.GroupSnapshotStatus{ReadyToUse: ptr.To(true)},
		}
	}
	ours := map[string]string{keys.MoveOf: "m1", keys.HomeID: "h1"}
	// For a volume of home the snapshot controller does not say which claim a snapshot is of.
	member := func(name, volume, owner string) []any {
		return []any{&volumesnapshot.Snapshot{
			TypeMeta: metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: volumesnapshot.Kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("u-" + name), OwnerReferences: []metav1.OwnerReference{{
				APIVersion: volumesnapshot.GroupGroup + "/v1", Kind: volumesnapshot.GroupKind, UID: types.UID(owner)}}},
			Status: volumesnapshot.SnapshotStatus{ContentName: ptr.To("c-" + name)},
		}, &volumesnapshot.Content{
			TypeMeta:   metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: "VolumeSnapshotContent"},
			ObjectMeta: metav1.ObjectMeta{Name: "c-" + name},
			Spec: volumesnapshot.ContentSpec{Driver: "a.test", DeletionPolicy: volumesnapshot.Delete,
				Source:   volumesnapshot.ContentSource{VolumeHandle: &volume},
				Snapshot: corev1.ObjectReference{Namespace: "n", Name: name, UID: types.UID("u-" + name)}},
		}}
	}
	for name, row := range map[string]struct {
		objects []any
		want    map[int]string
		says    string
		refused bool
	}{
		"of both volumes": {objects: append(member("s-1", "vol-logs", "g1"), member("s-2", "vol-data", "g1")...),
			want: map[int]string{0: "s-2", 1: "s-1"}},
		"one is not yet": {objects: member("s-1", "vol-logs", "g1"), want: map[int]string{1: "s-1"},
			says: "no VolumeSnapshot of claim n/data"},
		"of another group":  {objects: member("s-1", "vol-logs", "g2"), want: map[int]string{}, says: "no VolumeSnapshot of claim n/data"},
		"of another volume": {objects: member("s-1", "vol-x", "g1"), want: map[int]string{}, says: "no VolumeSnapshot of claim n/data"},
		"two of one volume": {objects: append(member("s-1", "vol-logs", "g1"), member("s-2", "vol-logs", "g1")...),
			says: "several VolumeSnapshots of claim n/logs"},
		"without a content":     {objects: member("s-1", "vol-logs", "g1")[:1], says: "its VolumeSnapshotContent is gone"},
		"another's of its name": {objects: []any{group(nil)}, says: "is not this move's", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := row.objects
			if !row.refused {
				objects = append(objects, group(ours))
			}
			c := &Controller{Config: Config{Place: backing.Place{HomeID: "h1"}}}
			r := ofTwo()
			r.Group = &record.Group{Version: "v1"}
			seen, err := c.readGroup(t.Context(), site.Site{Access: remote.Access{Dynamic: snapshotsOf(t, objects...)}, Home: true}, r)
			require.NoError(t, err)
			assert.Equal(t, row.refused, seen.Refused)
			assert.Equal(t, row.says == "", seen.Problem == "", seen.Problem)
			assert.Contains(t, seen.Problem, row.says)
			assert.Equal(t, row.want, seen.Members)
			assert.Equal(t, !row.refused, seen.Exists && seen.Ready && seen.UID == "g1")
		})
	}
}
