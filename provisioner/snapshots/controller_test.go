package snapshots

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/snapshots/decide"
)

func TestASnapshotIsGoneOnlyIfItsOwnClusterSaysSo(t *testing.T) {
	west := &v1alpha1.RemoteCluster{Status: v1alpha1.RemoteClusterStatus{ClusterUID: "the west"}}
	at := types.NamespacedName{Namespace: "shop", Name: "snapshot-c1"}
	for name, row := range map[string]struct {
		remote  *v1alpha1.RemoteCluster
		asked   types.UID // identity of the cluster that the kubeconfig leads to
		content string    // the content of the snapshot with that name; empty: there is none
		says    string    // error; empty: the snapshot is gone
	}{
		"it is gone":           {remote: west, asked: "the west"},
		"it is there":          {remote: west, asked: "the west", content: "c1", says: "is there"},
		"another has its name": {remote: west, asked: "the west", content: "c2"},
		"the kubeconfig leads to another cluster": {remote: west, asked: "the east", says: "another cluster"},
		"which cluster it should be is not known": {remote: &v1alpha1.RemoteCluster{}, asked: "", says: "another cluster"},
		"the RemoteCluster is gone":               {asked: "the west", says: "another cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			var there []runtime.Object
			if row.content != "" {
				encoded, err := volumesnapshot.Write(&volumesnapshot.Snapshot{
					TypeMeta:   metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: volumesnapshot.Kind},
					ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name, Labels: map[string]string{keys.ContentUID: row.content}},
				})
				require.NoError(t, err)
				there = append(there, encoded)
			}
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
				map[schema.GroupVersionResource]string{volumesnapshot.Snapshots: "VolumeSnapshotList"}, there...)
			typed := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: row.asked}})
			o := decide.Observation{Content: &volumesnapshot.Content{ObjectMeta: metav1.ObjectMeta{UID: "c1"}},
				Ref: backing.Ref{Cluster: "west", Namespace: "shop", Name: "data", UID: "b1"}}
			err := proveGone(t.Context(), typed, client.Resource(volumesnapshot.Snapshots).Namespace(at.Namespace), "west", row.remote, at.Name,
				o.IsTaken)
			if row.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errChanged)
				assert.ErrorContains(t, err, row.says)
			}
		})
	}
}

func TestAClusterThatSaysSomethingNewAtEveryMomentIsNotWrittenDownEachTime(t *testing.T) {
	var r reports
	written := 0
	for range 10_000 {
		if r.allow("content") {
			written++
		}
	}
	assert.GreaterOrEqual(t, written, reportsInARow)
	assert.Less(t, written, reportsInARow+5)
	assert.True(t, r.allow("another"), "each has its own")
	r.forget("content")
	assert.True(t, r.allow("content"))
}
