package largecluster

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/clients"
)

func TestFeedsReadAClusterAndFollowItsChanges(t *testing.T) {
	const claims = 20
	cluster := New(claims)
	api := httptest.NewServer(cluster)
	t.Cleanup(func() {
		api.CloseClientConnections()
		api.Close()
	})
	config := &rest.Config{Host: api.URL}
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	clusters, err := clients.NewRemoteClusters(config)
	require.NoError(t, err)
	view := snapshot.New()
	feeds := snapshot.NewFeeds(client, clusters, view)
	go feeds.Run(t.Context())
	require.Eventually(t, func() bool { return len(feeds.Missing()) == 0 }, soon, 10*time.Millisecond)
	assert.Equal(t, claims, view.Claims.Len())
	assert.Equal(t, claims, view.Volumes.Len())
	assert.Equal(t, Nodes, view.Nodes.Len())
	assert.Equal(t, RemoteClusters, view.Clusters.Len())

	added := fmt.Sprintf("%s/%s", Namespace, ClaimName(claims))
	require.NoError(t, cluster.Change(ClaimsPath, watch.Added, claims))
	require.Eventually(t, func() bool { _, ok := view.Claims.Get(added); return ok }, soon, time.Millisecond)
	require.NoError(t, cluster.Change(ClaimsPath, watch.Deleted, claims))
	require.Eventually(t, func() bool { _, ok := view.Claims.Get(added); return !ok }, soon, time.Millisecond)

	// What changed while connections were lost is put right by reading anew.
	require.NoError(t, cluster.Change(ClaimsPath, watch.Added, claims))
	require.Eventually(t, func() bool { _, ok := view.Claims.Get(added); return ok }, soon, time.Millisecond)
	api.CloseClientConnections()
	require.Eventually(t, func() bool { return view.Claims.Len() == claims }, soon, 10*time.Millisecond)
}
