package namespaces

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

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
