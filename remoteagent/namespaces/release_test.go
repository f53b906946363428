package namespaces

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestSnapshotsKeepANamespace(t *testing.T) {
	snapshot := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1", Kind: "VolumeSnapshot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "before-the-upgrade"},
	}
	for name, test := range map[string]struct {
		namespace string
		answer    error
		want      bool
		fails     bool
	}{
		"a snapshot in the namespace": {namespace: "shop", want: true},
		"one in another namespace":    {namespace: "bank"},
		"a cluster without snapshots": {namespace: "shop", answer: apierrors.NewNotFound(snapshotResource.GroupResource(), "")},
		"an answer that says nothing": {namespace: "shop", answer: errors.New("no answer"), fails: true},
		"rights that are missing there": {namespace: "shop", answer: apierrors.NewForbidden(snapshotResource.GroupResource(), "", nil),
			fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := fake.NewTestScheme()
			require.NoError(t, metav1.AddMetaToScheme(scheme))
			client := fake.NewSimpleMetadataClient(scheme, snapshot)
			if test.answer != nil {
				client.PrependReactor("list", "volumesnapshots", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, test.answer
				})
			}
			got, err := New(Config{Metadata: client}).hasSnapshots(t.Context(), test.namespace)
			assert.Equal(t, test.fails, err != nil, "%v", err)
			assert.Equal(t, test.want, got)
		})
	}
}
