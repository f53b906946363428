package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// ofLiqo reports whether the node that stands for west is one of Liqo, as e2e/liqo/install.sh has it.
func ofLiqo() bool { return os.Getenv("LODESTONE_LIQO") != "" }

// needsLiqo skips a test unless Liqo runs.
func needsLiqo(t *testing.T) {
	t.Helper()
	if !ofLiqo() {
		t.Skip("needs Liqo: run make e2e-liqo")
	}
	needsClusters(t)
}

// offloading has Liqo map a namespace of home to one in west, and lets its pods run on either side.
const offloading = `apiVersion: offloading.liqo.io/v1beta1
kind: NamespaceOffloading
metadata: {namespace: %s, name: offloading}
spec:
  namespaceMappingStrategy: %s
  podOffloadingStrategy: LocalAndRemote
  clusterSelector: {nodeSelectorTerms: []}
`

// offload has Liqo map a namespace, and waits until that is done. It returns the name that the NamespaceMap has for it.
func offload(t *testing.T, namespace, strategy string) string {
	t.Helper()
	home.apply(t, fmt.Sprintf(offloading, namespace, strategy))
	var mapped string
	eventually(t, "Liqo has mapped namespace "+namespace, func(c *assert.CollectT) {
		output, err := home.try(t.Context(), "", "get", "namespacemap", "west", "-n", "liqo-tenant-west", "-o",
			"jsonpath={.status.currentMapping."+namespace+"}")
		require.NoError(c, err)
		var found struct{ RemoteNamespace, Phase string }
		require.NoError(c, json.Unmarshal([]byte(output), &found), output)
		require.Equal(c, "Accepted", found.Phase)
		mapped = found.RemoteNamespace
	})
	return mapped
}

// bare makes a namespace at home that is open to west for Lodestone, and not offloaded by Liqo.
func bare(t *testing.T) string {
	t.Helper()
	made := must.Create(t, home.client.CoreV1().Namespaces(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: map[string]string{keys.Offload: keys.OffloadEnabled}},
	})
	t.Cleanup(func() {
		if !t.Failed() {
			removeNamespace(t, home, made.Name)
		}
	})
	return made.Name
}

func TestANodeOfLiqoTakesOnlyPodsOfNamespacesThatLiqoOffloads(t *testing.T) {
	needsLiqo(t)
	node := must.Get(t, home.client.CoreV1().Nodes(), virtualNode)
	assert.Contains(t, node.Spec.Taints, corev1.Taint{Key: "virtual-node.liqo.io/not-allowed", Value: "true",
		Effect: corev1.TaintEffectNoExecute})
	assert.Equal(t, "virtual-node", node.Labels["liqo.io/type"])
	assert.Equal(t, "west", node.Labels["liqo.io/remote-cluster-id"])
	assert.Equal(t, "west", node.Labels[keys.Cluster], "as it was labelled, also once its virtual kubelet was started again")

	shop := bare(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: inWest}
	home.apply(t, db.manifest())
	requirePending(t, shop, db.pod(0))
	assert.Equal(t, "Pending", home.kubectl(t, "get", "pvc", db.claim(0), "-n", shop, "-o", "jsonpath={.status.phase}"))

	offload(t, shop, "EnforceSameName")
	// Liqo gives pods the toleration when they are made.
	home.kubectl(t, "delete", "pod", db.pod(0), "-n", shop)
	pod := db.ready(t, 1)[0]
	assert.Equal(t, virtualNode, pod.Spec.NodeName)
	assert.Equal(t, west, volumeOf(t, shop, db.claim(0)).in)
}

// TestNamespacesAreThoseOfLiqosNamespaceMap: of a namespace that Lodestone maps in another way claims are refused in west.
func TestNamespacesAreThoseOfLiqosNamespaceMap(t *testing.T) {
	needsLiqo(t)
	id, _, _ := strings.Cut(home.kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"), "-")
	peered := func(strategy string) {
		t.Helper()
		output, err := run(context.Background(), "", "../liqo/peer.sh", strategy)
		require.NoError(t, err, output)
	}
	t.Cleanup(func() { peered("SameName") })
	for _, test := range []struct{ strategy, liqo, suffix string }{
		{strategy: "SameName", liqo: "DefaultName", suffix: "-" + id},
		{strategy: "Suffixed", liqo: "DefaultName", suffix: "-" + id},
	} {
		t.Run(test.liqo+" and "+test.strategy, func(t *testing.T) {
			peered(test.strategy)
			shop := bare(t)
			assert.Equal(t, shop+test.suffix, offload(t, shop, test.liqo))
			db := keepers{namespace: shop, name: "db", replicas: 1, spec: inWest}
			home.apply(t, db.manifest())
			if test.strategy == "SameName" {
				eventually(t, "the claim says that it gets no namespace there", func(c *assert.CollectT) {
					events, err := home.client.CoreV1().Events(shop).List(t.Context(),
						metav1.ListOptions{FieldSelector: "involvedObject.name=" + db.claim(0) + ",reason=NamespaceRefused"})
					require.NoError(c, err)
					require.NotEmpty(c, events.Items)
					assert.Contains(c, events.Items[0].Message, "no namespace "+shop)
				})
				assert.Equal(t, "Pending", home.kubectl(t, "get", "pvc", db.claim(0), "-n", shop, "-o", "jsonpath={.status.phase}"))
				db.scale(t, 0)
				return
			}
			db.ready(t, 1)
			data := volumeOf(t, shop, db.claim(0))
			assert.Equal(t, west, data.in)
			assert.Equal(t, shop+test.suffix+"/"+db.claim(0), data.backing)
			db.scale(t, 0)
			home.kubectl(t, "delete", "pvc", db.claim(0), "-n", shop)
			data.requireGone(t)
		})
	}
}

// TestFilesOutliveThatLiqosNamespaceInWestIsDeleted: the pod is not replaced, which the volume there says.
func TestFilesOutliveThatLiqosNamespaceInWestIsDeleted(t *testing.T) {
	needsLiqo(t)
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: inWest}
	home.apply(t, db.manifest())
	db.ready(t, 1)
	data := volumeOf(t, shop, db.claim(0))

	must.Delete(t, west.client.CoreV1().Namespaces(), shop)

	eventually(t, "the volume in west says why its claim is not made anew", func(c *assert.CollectT) {
		events, err := west.client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.name=" + data.real + ",reason=NotHealed"})
		require.NoError(c, err)
		require.NotEmpty(c, events.Items)
		assert.Contains(c, events.Items[0].Message, "its namespace would not be given again")
	})
	consistently(t, "the files stay", func() bool {
		there, err := data.there(t.Context())
		return err == nil && there
	})
	db.scale(t, 0)
	home.kubectl(t, "delete", "pvc", db.claim(0), "-n", shop)
	data.requireGone(t)
}
