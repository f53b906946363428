package kind

import (
	"fmt"
	"net/netip"
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

// dualStack is a pod that is answering, in a headless Service of both families.
const dualStack = answeringPod + `apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: db}
spec:
  clusterIP: None
  ipFamilyPolicy: RequireDualStack
  selector: {app: db}
  ports: [{port: 6379}]
`

// ipv6 is a pod's address of that family.
func ipv6(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	for _, at := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(at.IP); err == nil && address.Is6() {
			return at.IP
		}
	}
	require.Fail(t, "no address of IPv6", "pod %s has %v", pod.Name, pod.Status.PodIPs)
	return ""
}

// TestPodsReachEachOtherByIPv6 has clusters whose nodes, pods and Services have addresses of both families, by one of which nothing but the
// fabric leads to pods of the other cluster: these are of make e2e-dual.
func TestPodsReachEachOtherByIPv6(t *testing.T) {
	if os.Getenv("LODESTONE_DUAL") == "" {
		t.Skip("clusters have IPv6 with make e2e-dual")
	}
	shop, private := namespace(t), namespace(t)
	home.kubectl(t, "label", "namespace", private, keys.Offload+"-")
	t.Cleanup(func() {
		joined(t, "Routed", "--pod-cidrs", must.Get(t, west.client.CoreV1().Nodes(), west.node).Spec.PodCIDR)
	})
	onlyFabric(t, "--pod-cidrs", podRange(t, west), "--home-pod-cidrs", podRange(t, home))
	t.Log(home.kubectl(t, "get", "remotecluster", "west", "-o", `jsonpath={.status.conditions[?(@.type=="NetworkReady")].message}`))

	home.apply(t, fmt.Sprintf(dualStack, shop, "db-0", side(atHome), image)+"---\n"+fmt.Sprintf(dualStack, shop, "db-1", side(inWest), image))
	home.apply(t, fmt.Sprintf(dualStack, private, "db-2", side(atHome), image))
	near, far, hidden := readyPod(t, shop, "db-0"), readyPod(t, shop, "db-1"), readyPod(t, private, "db-2")
	inside := must.Get(t, west.client.CoreV1().Pods(shop), "db-1")
	assert.Equal(t, inside.Status.PodIPs, far.Status.PodIPs, "home has both addresses of the pod there")

	t.Log("Pods reach each other by TCP and UDP, by address and by name, and are seen by their own address.")
	for _, way := range []struct {
		in       *cluster
		from, to *corev1.Pod
	}{{home, near, far}, {west, far, near}} {
		from, to := ipv6(t, way.from), ipv6(t, way.to)
		what := fmt.Sprintf("%s reaches %s", way.from.Name, way.to.Name)
		requireChecked(t, way.in, shop, way.from.Name, from, to, what)
		for _, name := range []string{way.to.Name + ".db." + shop + ".svc.cluster.local", "db." + shop + ".svc.cluster.local"} {
			eventually(t, fmt.Sprintf("%s, and finds it by %s", what, name), func(c *assert.CollectT) {
				for _, at := range way.to.Status.PodIPs {
					kind := map[bool]string{true: "aaaa", false: "a"}[strings.Contains(at.IP, ":")]
					said, err := way.in.says(t.Context(), shop, way.from.Name, "nslookup -type="+kind+" "+name)
					require.NoError(c, err)
					assert.Contains(c, said+"\n", "Address: "+at.IP+"\n")
				}
			})
		}
		eventually(t, what+" by that name", func(c *assert.CollectT) {
			said, err := way.in.says(t.Context(), shop, way.from.Name, "redis-cli -h $(nslookup -type=aaaa "+way.to.Name+".db."+shop+
				".svc.cluster.local | sed -n 's/^Address: //p') CLIENT INFO")
			require.NoError(c, err)
			assert.Contains(c, said, "addr=["+from+"]:")
		})
	}

	t.Log("Nobody else is reached by IPv6, nor reaches anybody.")
	dials := func(in *cluster, namespace, from, to string, port int) error {
		_, err := in.says(t.Context(), namespace, from, fmt.Sprintf("nc -w 3 %s %d </dev/null", to, port))
		return err
	}
	stranger := must.List(t, west.client.CoreV1().Pods("kube-system"), metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"}).Items[0]
	gateway := func(c *cluster) string { // the node by the address that it has for its pods, where its kubelet listens
		ranges := must.Get(t, c.client.CoreV1().Nodes(), c.node).Spec.PodCIDRs
		return netip.MustParsePrefix(ranges[len(ranges)-1]).Addr().Next().String()
	}
	const kubelet, health = 10250, 8080
	for name, way := range map[string]struct {
		in                  *cluster
		namespace, from, to string
		port                int
		dials               bool
	}{
		"a pod here its own node":                            {home, shop, "db-0", gateway(home), kubelet, true},
		"a pod there its own node":                           {west, shop, "db-1", gateway(west), kubelet, true},
		"a pod there another one there":                      {west, shop, "db-1", ipv6(t, &stranger), health, true},
		"a pod here another one here":                        {home, private, "db-2", ipv6(t, near), 6379, true},
		"a pod here one there that home did not put there":   {home, shop, "db-0", ipv6(t, &stranger), health, false},
		"a pod here a node there":                            {home, shop, "db-0", gateway(west), kubelet, false},
		"a pod there a node here":                            {west, shop, "db-1", gateway(home), kubelet, false},
		"a pod there one here whose namespace is not joined": {west, shop, "db-1", ipv6(t, hidden), 6379, false},
		"a pod here whose namespace is not joined one there": {home, private, "db-2", ipv6(t, far), 6379, false},
	} {
		err := dials(way.in, way.namespace, way.from, way.to, way.port)
		assert.Equal(t, way.dials, err == nil, "%s: %v", name, err)
	}
}
