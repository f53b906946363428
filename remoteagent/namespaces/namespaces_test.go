package namespaces

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

func TestAStatusIsWrittenForEachGenerationAndNotAgain(t *testing.T) {
	var written []remotev1alpha1.NamespaceRequest
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, http.MethodPut, r.Method)
		var request remotev1alpha1.NamespaceRequest
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&request))
		written = append(written, request)
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(request))
	}))
	t.Cleanup(server.Close)
	remote, err := clients.NewRemoteClient(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	c := New(Config{Remote: remote})
	request := &remotev1alpha1.NamespaceRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: remotev1alpha1.GroupVersion.String(), Kind: "NamespaceRequest"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-home-h1", Name: "shop"}}
	preparing := &policy.Refusal{Reason: reasonPreparing, Message: "It is being made."}
	for _, turn := range []struct {
		generation int64
		refusal    *policy.Refusal
	}{{1, preparing}, {1, preparing}, {1, nil}, {1, nil}, {2, nil}, {2, nil}} {
		request.Generation = turn.generation
		require.NoError(t, c.report(t.Context(), request, turn.refusal, false))
	}
	require.Len(t, written, 3)
	for i, generation := range []int64{1, 1, 2} {
		assert.Equal(t, generation, written[i].Status.ObservedGeneration)
		assert.Equal(t, generation, written[i].Status.Conditions[0].ObservedGeneration)
	}
}

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
