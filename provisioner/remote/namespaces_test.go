package remote

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestClaimsWithoutDataAreCountedInPages uses a server that never returns more items than
// the limit of the request.
func TestClaimsWithoutDataAreCountedInPages(t *testing.T) {
	pages := map[string]string{"": "second", "second": "third", "third": ""}
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		token := query.Get("continue")
		asked = append(asked, query.Get("limit")+token)
		w.Header().Set("Content-Type", "application/json")
		assert.Equal(t, keys.HomeID+"=here", query.Get("labelSelector"))
		_, _ = fmt.Fprintf(w, `{"kind":"PersistentVolumeClaimList","apiVersion":"v1","metadata":{"continue":%q},"items":[
			{"metadata":{"name":"a%s","annotations":{%q:"true"}}},{"metadata":{"name":"b%s"}}]}`, pages[token], token, keys.Unpublished, token)
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	n, err := (&connection{client: client, homeID: "here"}).unpublishedIn(t.Context(), "shop")
	require.NoError(t, err)
	assert.Equal(t, 3, n, "one on each page")
	assert.Equal(t, []string{"250", "250second", "250third"}, asked)
}
