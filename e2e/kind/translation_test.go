package kind

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// reachedAs returns the address of a translated range that has the same last bits as one of a pod.
func reachedAs(t *testing.T, address, translated string) string {
	t.Helper()
	own, err := netip.ParseAddr(address)
	require.NoError(t, err)
	to, err := netip.ParsePrefix(translated)
	require.NoError(t, err)
	require.Equal(t, 16, to.Bits())
	network, host := to.Addr().As4(), own.As4()
	return netip.AddrFrom4([4]byte{network[0], network[1], host[2], host[3]}).String()
}

// podRange is the range that the addresses of a cluster's pods are from.
func podRange(t *testing.T, c *cluster) string {
	t.Helper()
	var configuration struct {
		Networking struct {
			PodSubnet string `json:"podSubnet"`
		} `json:"networking"`
	}
	said := c.kubectl(t, "get", "configmap", "kubeadm-config", "-n", "kube-system", "-o", "jsonpath={.data.ClusterConfiguration}")
	require.NoError(t, yaml.Unmarshal([]byte(said), &configuration))
	return configuration.Networking.PodSubnet
}

// onSecondNode has a pod run on the node of home that only pods which ask for it run on.
const onSecondNode = `  nodeSelector: {kubernetes.io/hostname: home-worker}
  tolerations: [{key: e2e, operator: Exists}]`

// secondNode says that home has a second node, which is no gateway.
func secondNode() bool { return os.Getenv("LODESTONE_FABRIC") != "" }

// fabricAlone says that the pods of all clusters have addresses of one range, so that nothing but the fabric can join them. In other tests
// nodes have routes to each other's pods.
func fabricAlone() bool { return secondNode() || three() }

// TestPodsReachEachOtherByTranslatedAddresses has the pods of each cluster reached by addresses of another range, as it is where both
// clusters have the same one: these have with make e2e-fabric.
func TestPodsReachEachOtherByTranslatedAddresses(t *testing.T) {
	testbed.NotInShort(t)
	shop := namespace(t)
	const asHome, asWest = "100.64.0.0/16", "100.65.0.0/16"
	ofHome, ofWest := podRange(t, home), podRange(t, west)
	if !fabricAlone() { // west is known by the range of its node, to which there is a route
		t.Cleanup(func() {
			joined(t, "Routed", "--pod-cidrs", must.Get(t, west.client.CoreV1().Nodes(), west.node).Spec.PodCIDR)
		})
	}
	onlyFabric(t, "--pod-cidrs", ofWest, "--home-pod-translations", ofHome+"="+asHome, "--pod-translations", ofWest+"="+asWest)

	home.apply(t, fmt.Sprintf(answering, shop, "db-0", side(atHome), image)+"---\n"+fmt.Sprintf(answering, shop, "db-1", side(inWest), image))
	far, pods := readyPod(t, shop, "db-1"), []*corev1.Pod{readyPod(t, shop, "db-0")}
	if secondNode() {
		home.apply(t, fmt.Sprintf(answering, shop, "db-2", onSecondNode, image))
		pods = append(pods, readyPod(t, shop, "db-2"))
	}
	inside, err := west.client.CoreV1().Pods(shop).Get(t.Context(), "db-1", metav1.GetOptions{})
	require.NoError(t, err)
	fromHome := reachedAs(t, inside.Status.PodIP, asWest)
	assert.Equal(t, fromHome, far.Status.PodIP, "home has the address by which it reaches the pod")

	t.Log("Pods reach each other by that address and by name, and are seen by it.")
	for _, near := range pods {
		fromWest := reachedAs(t, near.Status.PodIP, asHome)
		for _, way := range []struct {
			in         *cluster
			from, to   *corev1.Pod
			at, seenAs string
		}{{home, near, far, fromHome, fromWest}, {west, far, near, fromWest, fromHome}} {
			for _, to := range []string{way.at, way.to.Name + ".db"} {
				eventually(t, fmt.Sprintf("%s reaches %s", way.from.Name, to), func(c *assert.CollectT) {
					seen, err := way.in.sees(t.Context(), shop, way.from.Name, to)
					require.NoError(c, err)
					assert.Equal(c, way.seenAs, seen)
				})
			}
		}
	}
	said, code := lodestone(t, "network", "test", "west", "-n", shop)
	require.Zero(t, code, said)

	if !fabricAlone() { // else these may be addresses of pods of the same cluster
		t.Log("They are not reached by their own.")
		_, err = home.sees(t.Context(), shop, "db-0", inside.Status.PodIP)
		require.Error(t, err)
		_, err = west.sees(t.Context(), shop, "db-1", pods[0].Status.PodIP)
		require.Error(t, err)
	}

	t.Log("A volume moves to west and back: the movers dial each other.")
	store := keepers{namespace: shop, name: "store", replicas: 1, spec: atHome}
	home.apply(t, store.manifest())
	store.unpin(t)
	// Home's node is named, for a mover tolerates the taint of the second one, and the pod does not.
	for _, to := range []v1alpha1.MoveTarget{{Cluster: west.name}, {Node: home.node}} {
		claim := requireMoved(t, move(t, shop, store.claim(0), "", func(spec *v1alpha1.VolumeMoveSpec) { spec.Target = to })).Status.Claims[0]
		assert.Equal(t, v1alpha1.TransportDirect, claim.Transport, "to %+v: %s", to, claim.TransportMessage)
		store.ready(t, 1)
	}
}
