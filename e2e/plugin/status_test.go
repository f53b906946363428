package plugin

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestStatusShowsClustersVolumesAndPods(t *testing.T) {
	peered(t)
	namespace := openNamespace(t)
	volumeInWest(t, namespace, "data")
	podInWest(t, namespace, "web", "data")

	var status struct {
		APIVersion, Kind, HomeID string
		Clusters                 []map[string]any
		Waiting                  []map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(lodestone(t, "status", "-o", "json").ends(t, done).out), &status))
	id, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	assert.Equal(t, id, status.HomeID)
	assert.Equal(t, "cli.lodestone.dev/v1alpha1 Status", status.APIVersion+" "+status.Kind)
	require.Len(t, status.Clusters, 1)
	west := status.Clusters[0]
	assert.Equal(t, "west", west["name"])
	assert.Equal(t, true, west["ready"])
	assert.EqualValues(t, 1, west["volumes"])
	assert.EqualValues(t, 1, west["pods"])
	assert.ElementsMatch(t, []any{"west-wait (default)", "west-now"}, west["storageClasses"])
	login, _ := west["credentials"].(map[string]any)
	assert.Equal(t, "token", login["kind"])
	assert.NotEmpty(t, login["expires"])
	nodes, _ := west["nodes"].([]any)
	require.Len(t, nodes, 1)
	node, _ := nodes[0].(map[string]any)
	assert.Equal(t, true, node["ready"])
	assert.NotEmpty(t, node["allocatable"])
	assert.NotEmpty(t, node["heartbeat"])
	assert.NotNil(t, status.Waiting)

	table := lodestone(t, "status").ends(t, done).out
	assert.Contains(t, table, "NAME   READY   REASON   VERSION")
	assert.NotContains(t, table, "HEARTBEAT")
	assert.Contains(t, lodestone(t, "status", "-o", "wide").ends(t, done).out, "HEARTBEAT")
	assert.Contains(t, lodestone(t, "status", "-o", "yaml").ends(t, done).out, "kind: Status")
	assert.Equal(t, "remotecluster.lodestone.dev/west\n", lodestone(t, "status", "-o", "name").ends(t, done).out)

	t.Run("and unpeer is refused while the pod runs", func(t *testing.T) {
		r := lodestone(t, "unpeer", "west").ends(t, refused)
		assert.Contains(t, r.stderr, "1 volume(s) and 1 pod(s)")
		assert.Contains(t, r.stderr, "pod "+namespace+"/web")
	})
	t.Run("and a pod whose node is Ready is not released", func(t *testing.T) {
		r := lodestone(t, "release", "pod", "web", "-n", namespace, "--yes").ends(t, refused)
		assert.Contains(t, r.stderr, "kubectl delete pod")
		assert.Nil(t, podOf(t, namespace, "web").DeletionTimestamp)
	})
	endPod(t, namespace, "web")
	_, err = bed.Home.Kubectl(t.Context(), "", "delete", "pvc", "data", "-n", namespace)
	require.NoError(t, err)
}

func TestStatusBeforeThereIsAnything(t *testing.T) {
	assert.Contains(t, lodestone(t, "status").ends(t, done).out, "kubectl lodestone peer --help")
	assert.Contains(t, lodestone(t, "status", "-o", "json").ends(t, done).out, `"clusters": []`)
	lodestone(t, "status", "-o", "table").ends(t, usage)
	testbed.Require(t)
	r := lodestone(t, "status", "--context", "home-guest").ends(t, failed)
	assert.Contains(t, r.stderr, "ask its administrator")
}
