package kind

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cordon keeps new pods off a node of home until the returned function is called,
// which may be done twice.
func cordon(t *testing.T, node string) (uncordon func()) {
	t.Helper()
	home.kubectl(t, "cordon", node)
	uncordon = func() {
		_, err := home.try(context.Background(), "", "uncordon", node)
		require.NoError(t, err)
	}
	t.Cleanup(uncordon)
	return uncordon
}

// requirePending checks that a pod waits for a node for a while.
func requirePending(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, "pod "+name+" waits for a node", func(c *assert.CollectT) {
		pod, err := home.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(c, err)
		assert.Nil(c, pod.DeletionTimestamp)
		assert.Empty(c, pod.Spec.NodeName)
	})
	consistently(t, "pod "+name+" goes on waiting, and nowhere else", func() bool {
		pod, err := home.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && pod.Spec.NodeName == "" && pod.Status.Phase == corev1.PodPending
	})
}

func TestPodWaitsForItsCordonedNodeOnEitherSide(t *testing.T) {
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db"}
	volumes, index := spread(t, db)
	for name, node := range map[string]string{"west": virtualNode, "home": home.node} {
		t.Log("The node of the replica in " + name + " takes no new pods.")
		before := volumes[name].sum(t, "blob")
		uncordon := cordon(t, node)
		deletePod(t, readyPod(t, shop, db.pod(index[name])))
		requirePending(t, shop, db.pod(index[name]))

		uncordon()
		pod := readyPod(t, shop, db.pod(index[name]))

		assert.Equal(t, node, pod.Spec.NodeName)
		assert.Equal(t, before, volumes[name].sum(t, "blob"))
		assert.Len(t, volumes[name].starts(t), 2)
	}

	t.Log("The namespace is deleted with pods and claims in it.")
	removeNamespace(t, home, shop)
	for _, data := range volumes {
		data.requireGone(t)
	}
	eventually(t, "the namespace in west is given back", func(c *assert.CollectT) {
		assert.NoError(c, gone(west.client.CoreV1().Namespaces().Get(t.Context(), shop, metav1.GetOptions{})))
	})
}

func TestDrainOfTheVirtualNodeEndsItsPodsAndTheyComeBack(t *testing.T) {
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: inWest}
	home.apply(t, db.manifest())
	pod := db.ready(t, 1)[0]
	data := volumeOf(t, shop, db.claim(0))
	before := data.sum(t, "blob")
	uncordon := cordon(t, virtualNode)

	home.kubectl(t, "drain", virtualNode, "--ignore-daemonsets", "--timeout=120s", "--pod-selector=app=db")

	requireNoPods(t, west, shop)
	requirePending(t, shop, db.pod(0))
	uncordon()
	next := db.ready(t, 1)[0]
	assert.NotEqual(t, pod.UID, next.UID)
	assert.Equal(t, before, data.sum(t, "blob"))
	assert.Len(t, data.starts(t), 2)
}

// inWest and atHome choose a pod's cluster, as lines of its spec.
const (
	inWest = "      nodeSelector: {lodestone.dev/cluster: west}\n"
	atHome = "      nodeSelector: {kubernetes.io/hostname: home-control-plane}\n"
)
