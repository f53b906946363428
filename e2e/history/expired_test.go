package history

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// TestChangesThatNoWatchTellsAnyMoreAreSeen cuts the provisioner off from both
// clusters, and lets it back in when their API servers have forgotten what happened
// meanwhile.
func TestChangesThatNoWatchTellsAnyMoreAreSeen(t *testing.T) {
	testbed.Require(t)
	namespace := space(t)
	kept, doomed := create(t, namespace, "kept", fabric.WestNode), create(t, namespace, "doomed", fabric.WestNode)
	served(t, kept)
	gone := served(t, doomed)
	versions := map[*testbed.Cluster]string{bed.Home: version(t, bed.Home), bed.West: version(t, bed.West)}

	home.HangUp(true)
	west.HangUp(true)
	remove(t, doomed)
	late := create(t, namespace, "late", fabric.WestNode)
	// West's administrator makes a volume larger.
	ask(t, bed.West, kept, "2Gi")
	await.Until(t, "the real volume is larger", func() bool {
		return await.Claim(t, bed.West.Client(), namespace, kept.Name).Status.Capacity.Storage().String() == "2Gi"
	})
	for cluster, before := range versions {
		require.NoError(t, cluster.Forget(t.Context()))
		require.True(t, expired(t, cluster, before), "the API server of %s goes on from where the provisioner was cut off", cluster.Name())
	}
	assert.False(t, bound(t, bed.Home, late))
	assert.True(t, bed.WestStorage.Exists(gone))

	home.Mend()
	west.Mend()
	served(t, late)
	await.Until(t, "what was deleted is gone, with its data", func() bool { return volumeOf(t, doomed) == nil && !bed.WestStorage.Exists(gone) })
	await.Until(t, "the virtual volume is as large as the real one", func() bool {
		return volumeOf(t, kept).Spec.Capacity.Storage().String() == "2Gi"
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	served(t, create(t, namespace, "next", fabric.WestNode))
}

// version returns the resource version up to which watches have told all.
func version(t *testing.T, cluster *testbed.Cluster) string {
	t.Helper()
	claims, err := cluster.Client().CoreV1().PersistentVolumeClaims("").List(t.Context(), metav1.ListOptions{Limit: 1})
	require.NoError(t, err)
	return claims.ResourceVersion
}

// expired says whether a watch from a version on is told that this is gone.
func expired(t *testing.T, cluster *testbed.Cluster, version string) bool {
	t.Helper()
	watcher, err := cluster.Client().CoreV1().PersistentVolumeClaims("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return true
	}
	require.NoError(t, err)
	defer watcher.Stop()
	event := <-watcher.ResultChan()
	if event.Type != watch.Error {
		return false
	}
	err = apierrors.FromObject(event.Object)
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}
