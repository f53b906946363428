package tenancy

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
)

func TestAStatusIsWrittenForEachGenerationAndNotAgain(t *testing.T) {
	var written []remotev1alpha1.HomeCluster
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, http.MethodPut, r.Method)
		var home remotev1alpha1.HomeCluster
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&home))
		written = append(written, home)
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(home))
	}))
	t.Cleanup(server.Close)
	remote, err := clients.NewRemoteClient(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	c := &Controller{Config: Config{Remote: remote}}
	home := &remotev1alpha1.HomeCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: remotev1alpha1.GroupVersion.String(), Kind: "HomeCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: "h1", Generation: 1}}
	ready := metav1.Condition{Type: remotev1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Served"}
	for _, generation := range []int64{1, 1, 2, 2} {
		home.Generation = generation
		require.NoError(t, c.report(t.Context(), home, ready))
		// Without a condition nothing but the generation can be new.
		require.NoError(t, c.report(t.Context(), home))
	}
	require.Len(t, written, 2)
	for i, home := range written {
		assert.Equal(t, int64(i+1), home.Status.ObservedGeneration)
		assert.Equal(t, int64(i+1), home.Status.Conditions[0].ObservedGeneration)
	}
}
