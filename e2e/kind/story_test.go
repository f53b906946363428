package kind

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// spread runs keepers with one replica each side and returns where their files are,
// by cluster name, with the index of the replica.
func spread(t *testing.T, k keepers) (volumes map[string]*volume, index map[string]int) {
	t.Helper()
	k.replicas = 2
	home.apply(t, k.manifest())
	volumes, index = map[string]*volume{}, map[string]int{}
	for i, pod := range k.ready(t, 2) {
		data := volumeOf(t, k.namespace, k.claim(i))
		assert.Equal(t, pod.Spec.NodeName == virtualNode, data.in == west, "pod %s is on node %s, its files in %s", pod.Name, pod.Spec.NodeName, data.in.name)
		volumes[data.in.name], index[data.in.name] = data, i
	}
	require.Len(t, volumes, 2, "one replica each side")
	return volumes, index
}

func TestStatefulSetKeepsItsFilesWhereverItsReplicasRan(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db"}
	volumes, index := spread(t, db)
	before := map[string]string{}
	for name, data := range volumes {
		before[name] = data.sum(t, "blob")
	}
	requireSame := func(starts int) {
		t.Helper()
		for name, data := range volumes {
			i := index[name]
			require.Equal(t, data, volumeOf(t, shop, db.claim(i)), "claim %d has the volume that it had", i)
			assert.Equal(t, before[name], data.sum(t, "blob"), "in %s", name)
			assert.Len(t, data.starts(t), starts, "starts in %s", name)
		}
	}

	t.Log("Pods that are deleted come back to their files.")
	for _, pod := range db.ready(t, 2) {
		deletePod(t, pod)
	}
	db.ready(t, 2)
	requireSame(2)

	t.Log("Scaled to 0 and back, they do so too.")
	db.scale(t, 0)
	requireNoPods(t, west, shop)
	db.scale(t, 2)
	db.ready(t, 2)
	requireSame(3)

	t.Log("A claim that its user deletes takes its files with it, and only its own.")
	db.scale(t, 0)
	home.kubectl(t, "delete", "pvc", db.claim(index["west"]), "-n", shop)
	volumes["west"].requireGone(t)
	there, err := volumes["home"].there(t.Context())
	require.NoError(t, err)
	assert.True(t, there)
	home.kubectl(t, "delete", "pvc", db.claim(index["home"]), "-n", shop)
	volumes["home"].requireGone(t)
}

// requireNoPods waits until a namespace of a cluster has no pods.
func requireNoPods(t *testing.T, in *cluster, namespace string) {
	t.Helper()
	eventually(t, "no pods are left in "+in.name, func(c *assert.CollectT) {
		pods, err := in.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		assert.Empty(c, pods.Items)
	})
}
