package kind

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// three says that there is a third cluster, east, and that the pods of all three have addresses of one range.
func three() bool { return os.Getenv("LODESTONE_THREE") != "" }

// address is that of the node of a cluster, by which nodes of others reach it.
func (c *cluster) address(t *testing.T) string {
	t.Helper()
	for _, address := range must.Get(t, c.client.CoreV1().Nodes(), c.node).Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	require.Fail(t, "node without an address", c.node)
	return ""
}

// TestRemoteClustersReachEachOther has pods of one namespace in three clusters, which all have the same range of addresses: those of west
// and east reach each other through home, and without it once all three say so, and nobody else does.
func TestRemoteClustersReachEachOther(t *testing.T) {
	if !three() {
		t.Skip("there is a third cluster with make e2e-three")
	}
	shop, apart := namespace(t), namespace(t)
	home.kubectl(t, "annotate", "namespace", apart, keys.OffloadClusters+"=west")
	inEast := strings.ReplaceAll(side(inWest), "west", "east")
	home.apply(t, fmt.Sprintf(answering, shop, "db-0", side(atHome), image)+"---\n"+fmt.Sprintf(answering, shop, "db-1", side(inWest), image)+
		"---\n"+fmt.Sprintf(answering, apart, "lone", side(inWest), image))
	lone := readyPod(t, apart, "lone")
	readyPod(t, shop, "db-0")
	readyPod(t, shop, "db-1")
	before := map[*cluster]string{home: home.network(t), west: west.network(t), east: east.network(t)}
	onlyFabric(t, "--pod-cidrs", podRange(t, west))
	withoutEast := map[*cluster]string{home: home.network(t), west: west.network(t), east: before[east]}

	began := time.Now()
	said, code := lodestone(t, "peer", "--remote-context", "kind-east", "--name", "east", "--namespaces", "*", "--remote-server",
		"https://"+east.address(t)+":6443", "--home-server", "https://"+home.address(t)+":6443", "--pod-network", "Fabric",
		"--pod-cidrs", podRange(t, east))
	require.Zero(t, code, said)
	t.Cleanup(func() { _, _ = lodestone(t, "unpeer", "east", "--remote-context", "kind-east") })
	t.Logf("peer has joined the third cluster in %s", time.Since(began).Round(time.Second))
	home.apply(t, fmt.Sprintf(answering, shop, "db-2", inEast, image))
	pods := map[*cluster]*corev1.Pod{home: readyPod(t, shop, "db-0"), west: readyPod(t, shop, "db-1"), east: readyPod(t, shop, "db-2")}

	// Each pod by its address for those of another cluster.
	remotes := map[*cluster]*v1alpha1.RemoteCluster{west: remoteCluster(t, "west"), east: remoteCluster(t, "east")}
	asHome := map[*cluster]string{}
	for c, remote := range remotes {
		require.Len(t, remote.Spec.PodTranslations, 1)
		require.Len(t, remote.Spec.HomePodTranslations, 1)
		asHome[c] = reachedAs(t, pods[home].Status.PodIP, remote.Spec.HomePodTranslations[0].ReachedAs)
		t.Logf("%s is reached by addresses of %s, and home from there by those of %s", c.name,
			remote.Spec.PodTranslations[0].ReachedAs, remote.Spec.HomePodTranslations[0].ReachedAs)
	}
	of := func(to, from *cluster) string {
		if to == home {
			return asHome[from]
		}
		return pods[to].Status.PodIP
	}
	reach := func(from, to *cluster) {
		t.Helper()
		for _, at := range []string{of(to, from), pods[to].Name + ".db", pods[to].Name + ".db." + shop + ".svc.cluster.local"} {
			eventually(t, fmt.Sprintf("%s reaches %s", pods[from].Name, at), func(c *assert.CollectT) {
				seen, err := from.sees(t.Context(), shop, pods[from].Name, at)
				require.NoError(c, err)
				assert.Equal(c, of(from, to), seen, "the other one sees the address by which it reaches this one")
			})
		}
	}
	// Where nothing leads to the other cluster, packets leave by the nodes' own network, in which somebody may take connections.
	refused := func(from *cluster, namespace, pod, to, why string) {
		t.Helper()
		seen, _ := from.sees(t.Context(), namespace, pod, to)
		assert.Empty(t, seen, "%s of %s reaches %s: %s", pod, from.name, to, why)
	}
	dials := func(from *cluster, pod, to string, port int) error {
		_, err := from.says(t.Context(), shop, pod, fmt.Sprintf("nc -w 3 %s %d </dev/null", to, port))
		return err
	}
	for _, way := range [][2]*cluster{{home, west}, {home, east}, {west, home}, {east, home}} {
		reach(way[0], way[1])
	}
	neither := func(why string) {
		t.Helper()
		refused(west, shop, "db-1", of(east, west), why)
		refused(east, shop, "db-2", of(west, east), why)
	}
	neither("nobody lets them reach each other")

	transit := func(how v1alpha1.PodTransit) {
		t.Helper()
		for _, name := range []string{"west", "east"} {
			home.kubectl(t, "patch", "remotecluster", name, "--type", "merge", "-p", fmt.Sprintf(`{"spec": {"podTransit": %q}}`, how))
		}
	}
	homeID := home.kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")[:8]
	owner := func(of *cluster, network string) {
		t.Helper()
		of.kubectl(t, "patch", "homecluster", homeID, "--type", "merge", "-p", `{"spec": {"network": `+network+`}}`)
	}
	letsIn := func(of, other *cluster) {
		t.Helper()
		owner(of, fmt.Sprintf(`{"transitPodCIDRs": [%q]}`, remotes[other].Spec.PodTranslations[0].ReachedAs))
	}
	transit(v1alpha1.TransitEnabled)
	letsIn(west, east)
	eventually(t, "home says that it is east that does not", func(c *assert.CollectT) {
		said, code := lodestone(t, "network", "status")
		require.Zero(c, code, said)
		assert.Regexp(c, `(?m)^east +west +home +False`, said)
		assert.Contains(c, said, "transitPodCIDRs")
	})
	neither("the owner of east does not let west in")
	letsIn(east, west)
	reach(west, east)
	reach(east, west)
	for _, flags := range [][]string{{"west", "--to", "east"}, {"east", "--to", "west"}} {
		said, code := lodestone(t, append([]string{"network", "test", "-n", shop}, flags...)...)
		require.Zero(t, code, said)
		require.Equal(t, 12, strings.Count(said, " ok "), "by UDP and TCP, each of both: %s", said)
	}

	t.Log("Nobody else is reached, nor reaches anybody.")
	dns := must.List(t, east.client.CoreV1().Pods("kube-system"), metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"}).Items[0]
	asEast := remotes[east].Spec.PodTranslations[0].ReachedAs
	const kubelet, health = 10250, 8080
	// The node has the first address of the range of its pods, too.
	node := netip.MustParsePrefix(must.Get(t, east.client.CoreV1().Nodes(), east.node).Spec.PodCIDR).Addr().Next().String()
	require.NoError(t, dials(east, "db-2", dns.Status.PodIP, health))
	require.NoError(t, dials(east, "db-2", node, kubelet))
	require.Error(t, dials(west, "db-1", reachedAs(t, dns.Status.PodIP, asEast), health), "home has not put that pod there")
	require.Error(t, dials(west, "db-1", reachedAs(t, node, asEast), kubelet), "it is a node")
	refused(west, apart, "lone", of(east, west), "its namespace may not run in east")
	refused(east, shop, "db-2", lone.Status.PodIP, "its namespace may not run in east")
	seen, err := west.sees(t.Context(), shop, "db-1", "lone.db."+apart)
	require.NoError(t, err)
	require.NotEmpty(t, seen, "pods of one cluster are not kept apart")
	reach(west, east)

	t.Log("Lanes between both lead not through home, to which they are cut.")
	transit(v1alpha1.TransitDirect)
	for _, c := range []*cluster{west, east} {
		owner(c, `{"directTransit": "Allowed"}`)
	}
	eventually(t, "direct lanes are up", func(c *assert.CollectT) {
		said, code := lodestone(t, "network", "status")
		require.Zero(c, code, said)
		assert.Regexp(c, `(?m)^east +west +direct +True +1/1`, said)
	})
	mend := cutLanes(t)
	eventually(t, "home reaches neither", func(c *assert.CollectT) {
		for _, to := range []*cluster{west, east} {
			_, err := home.sees(t.Context(), shop, "db-0", of(to, home))
			assert.Error(c, err)
		}
	})
	reach(west, east)
	reach(east, west)
	require.Error(t, dials(west, "db-1", reachedAs(t, dns.Status.PodIP, asEast), health), "home has not put that pod there")
	mend()
	for _, way := range [][2]*cluster{{home, west}, {home, east}, {west, home}, {east, home}} {
		reach(way[0], way[1])
	}

	t.Log("It ends once one does not want it any more, and nothing is left of east once that is parted.")
	home.kubectl(t, "patch", "remotecluster", "east", "--type", "merge", "-p", `{"spec": {"podTransit": "Disabled"}}`)
	eventually(t, "west does not reach east", func(c *assert.CollectT) {
		_, err := west.sees(t.Context(), shop, "db-1", of(east, west))
		assert.Error(c, err)
	})
	reach(home, east)
	home.kubectl(t, "delete", "pod", "db-2", "-n", shop)
	said, code = lodestone(t, "unpeer", "east", "--remote-context", "kind-east")
	require.Zero(t, code, said)
	requireNetwork(t, withoutEast)
	reach(home, west)
	joined(t, string(v1alpha1.Isolated))
	requireNetwork(t, before)
}
