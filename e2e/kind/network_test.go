package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/pathcheck"
)

// answeringPod says which address it sees (redis: CLIENT INFO), and answers what lodestone-network check asks.
const answeringPod = `apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: %[2]s, labels: {app: db, pod: %[2]s}}
spec:
%[3]s
  hostname: %[2]s
  subdomain: db
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: %[4]s
    command: [redis-server, --protected-mode, "no", --save, "", --dir, /tmp]
    readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}
  - name: network
    image: lodestone-network:dev
    args: [answer]
---
`

// answering is such a pod, in a headless Service with others, and in one with an address.
const answering = answeringPod + `apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: db}
spec:
  clusterIP: None
  selector: {app: db}
  ports: [{port: 6379}]
---
apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: any}
spec:
  selector: {app: db}
  ports: [{port: 6379}]
`

// checked is a Service of one of them, for what lodestone-network check asks.
const checked = `apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  selector: {pod: %[2]s}
  ports: [{name: tcp, port: 7476}, {name: udp, port: 7476, protocol: UDP}]
`

// requireChecked waits until packets of UDP and connections of all sizes come through from one of them, which is seen by an address, to
// another one or a Service.
func requireChecked(t *testing.T, in *cluster, namespace, pod, seenAs, to, what string) {
	t.Helper()
	eventually(t, what, func(c *assert.CollectT) {
		said, err := in.try(t.Context(), "", "exec", pod, "-n", namespace, "-c", "network", "--",
			"/lodestone-network", "check", "--address="+seenAs, "--to="+to)
		require.NoError(c, err)
		var results []pathcheck.Result
		require.NoError(c, json.Unmarshal([]byte(said), &results), said)
		protocols := map[string]bool{}
		for _, r := range results {
			protocols[r.Protocol] = true
			assert.Empty(c, r.Problem, "%s, %d bytes", r.Protocol, r.Bytes)
		}
		assert.Equal(c, map[string]bool{"TCP": true, "UDP": true}, protocols)
	})
}

// says runs a command in a pod, and returns what it printed.
func (c *cluster) says(ctx context.Context, namespace, pod, command string) (string, error) {
	said, err := c.try(ctx, "", "exec", pod, "-n", namespace, "--", "timeout", "5", "sh", "-c", command)
	return strings.TrimSpace(said), err
}

// sees asks a pod which address another one has for it.
func (c *cluster) sees(ctx context.Context, namespace, from, to string) (string, error) {
	said, err := c.says(ctx, namespace, from, "redis-cli -h "+to+" CLIENT INFO")
	_, rest, _ := strings.Cut(said, "addr=")
	address, _, _ := strings.Cut(rest, ":")
	return address, err
}

// numbers are those that the kernel gives, and counts.
var numbers = regexp.MustCompile(`^\d+: |@if\d+|packets \d+ bytes \d+|expires \d+sec`)

// network is what the fabric could leave on a node: links but those of pods, addresses of links, rules, routes, which tables nftables has,
// and what is in its own. Others' change with each pod.
func (c *cluster) network(t *testing.T) string {
	t.Helper()
	said, err := c.inNode(t.Context(), "sh", "-c", "ip -o link | grep -v veth | cut -d: -f2; ip -o -4 addr show scope link; ip -4 rule; "+
		"ip -4 route show table all; ip -6 rule; ip -6 route show table all proto 74; "+
		"nft list tables; nft list tables | grep ' lodestone$' | while read -r table; do nft list $table; done")
	require.NoError(t, err)
	return numbers.ReplaceAllString(said, "")
}

// routed has the nodes route pods of the other cluster, or not.
func routed(t *testing.T, verb string) {
	t.Helper()
	for _, way := range [][2]*cluster{{home, west}, {west, home}} {
		from, to := way[0], way[1]
		var node *corev1.Node
		eventually(t, to.name+" answers", func(c *assert.CollectT) { // it may just have been switched on
			var err error
			node, err = to.client.CoreV1().Nodes().Get(context.Background(), to.node, metav1.GetOptions{})
			require.NoError(c, err)
		})
		args := []string{"ip", "route", verb, node.Spec.PodCIDR}
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP && verb != "delete" { // the first is that of IPv4
				args = append(args, "via", address.Address)
				break
			}
		}
		_, err := from.inNode(context.Background(), args...)
		require.NoError(t, err)
	}
}

// joined has the networks joined in a way, with more flags.
func joined(t *testing.T, network string, flags ...string) {
	t.Helper()
	args := append([]string{"peer", "--remote-context", "kind-west", "--name", "west", "--pod-network", network}, flags...)
	said, code := lodestone(t, args...)
	require.Zero(t, code, said)
}

// gateways makes the nodes gateways until the test ends, when they are joined as before again.
func gateways(t *testing.T) {
	t.Helper()
	for _, c := range every() {
		c.kubectl(t, "label", "node", c.node, keys.Gateway+"="+keys.GatewayEnabled)
		t.Cleanup(func() {
			_, _ = c.try(context.Background(), "", "label", "node", c.node, keys.Gateway+"-")
		})
	}
	before := "Routed"
	if fabricAlone() {
		before = "Isolated"
	}
	t.Cleanup(func() { joined(t, before) })
}

// onlyFabric has the fabric join the clusters until the test ends, and no routes; flags are more of peer.
func onlyFabric(t *testing.T, flags ...string) {
	t.Helper()
	if !fabricAlone() {
		t.Cleanup(func() { routed(t, "replace") })
		routed(t, "delete")
	}
	gateways(t)
	joined(t, "Fabric", flags...)
}

// gatewayPods selects the pods of the network program on nodes, of which each cluster has one.
const gatewayPods = "app.kubernetes.io/component=network"

// loseGateways takes the network program of some clusters away by what lose does, and waits until it runs again and is ready, which a
// gateway is once its lanes are up.
func loseGateways(t *testing.T, lose func(), of ...*cluster) {
	t.Helper()
	runs := func(c *cluster, t require.TestingT) (container string, ready bool) {
		pods, err := c.client.CoreV1().Pods(keys.NetworkNamespace).List(context.Background(), metav1.ListOptions{LabelSelector: gatewayPods})
		require.NoError(t, err)
		require.Len(t, pods.Items, 1)
		require.Len(t, pods.Items[0].Status.ContainerStatuses, 1)
		return pods.Items[0].Status.ContainerStatuses[0].ContainerID, isReady(&pods.Items[0])
	}
	before := map[*cluster]string{}
	for _, c := range of {
		before[c], _ = runs(c, t)
	}
	lose()
	for _, c := range of {
		eventually(t, "another gateway of "+c.name+" is ready", func(collect *assert.CollectT) {
			container, ready := runs(c, collect)
			assert.NotEqual(collect, before[c], container)
			assert.True(collect, ready)
		})
	}
}

func TestPodsReachEachOtherThroughTheFabric(t *testing.T) {
	shop := namespace(t)
	private := namespace(t)
	home.kubectl(t, "label", "namespace", private, keys.Offload+"-")
	home.apply(t, fmt.Sprintf(answering, shop, "db-0", side(atHome), image)+"---\n"+fmt.Sprintf(answering, shop, "db-1", side(inWest), image))
	home.apply(t, fmt.Sprintf(answering, private, "db-2", side(atHome), image)+"---\n"+
		fmt.Sprintf(checked, shop, "db-0")+"---\n"+fmt.Sprintf(checked, shop, "db-1"))
	near, far, hidden := readyPod(t, shop, "db-0"), readyPod(t, shop, "db-1"), readyPod(t, private, "db-2")
	for in, name := range map[*cluster]string{home: near.Name, west: far.Name} {
		_, err := in.says(t.Context(), shop, name, "redis-cli SET name "+name)
		require.NoError(t, err)
	}

	routed(t, "delete")
	t.Cleanup(func() { routed(t, "replace") })
	before := map[*cluster]string{home: home.network(t), west: west.network(t)}
	_, err := home.sees(t.Context(), shop, "db-0", far.Status.PodIP)
	require.Error(t, err, "without routes nothing arrives")

	gateways(t)
	// The pod asks all the time, also before peer is done.
	began, met := time.Now(), make(chan time.Duration, 1)
	go func() {
		defer close(met)
		for ; time.Since(began) < long && t.Context().Err() == nil; time.Sleep(poll) {
			if _, err := home.sees(t.Context(), shop, "db-0", far.Status.PodIP); err == nil {
				met <- time.Since(began)
				return
			}
		}
	}()
	joined(t, "Fabric")
	t.Logf("peer was done after %s", time.Since(began).Round(time.Second))
	contact, ok := <-met
	require.True(t, ok, "db-0 reaches db-1")
	t.Logf("db-0 reached db-1 %s after peer had begun", contact.Round(time.Second))
	t.Log(home.kubectl(t, "get", "remotecluster", "west", "-o", `jsonpath={.status.conditions[?(@.type=="NetworkReady")].message}`))

	t.Log("Pods reach each other by address and by the same name on both sides, and are seen by their own address. Probes do so by UDP, too.")
	for _, way := range []struct {
		in       *cluster
		from, to *corev1.Pod
	}{{home, near, far}, {west, far, near}} {
		for _, to := range []string{way.to.Status.PodIP, way.to.Name + ".db." + shop + ".svc.cluster.local", way.to.Name + ".db"} {
			eventually(t, fmt.Sprintf("%s reaches %s", way.from.Name, to), func(c *assert.CollectT) {
				seen, err := way.in.sees(t.Context(), shop, way.from.Name, to)
				require.NoError(c, err)
				assert.Equal(c, way.from.Status.PodIP, seen)
			})
		}
		eventually(t, fmt.Sprintf("%s reaches %s by ICMP", way.from.Name, way.to.Name), func(c *assert.CollectT) {
			_, err := way.in.says(t.Context(), shop, way.from.Name, "ping -c 1 -W 2 "+way.to.Status.PodIP)
			require.NoError(c, err)
		})
		// Each cluster has an address of its own for a Service.
		service := must.Get(t, way.in.client.CoreV1().Services(shop), way.to.Name)
		requireChecked(t, way.in, shop, way.from.Name, way.from.Status.PodIP, service.Spec.ClusterIP,
			fmt.Sprintf("%s reaches %s by the address of a Service, by UDP and TCP", way.from.Name, way.to.Name))
		// One address for both: connections go to either of them.
		eventually(t, fmt.Sprintf("%s reaches all that are in a Service", way.from.Name), func(c *assert.CollectT) {
			names := map[string]bool{}
			for range 20 {
				name, err := way.in.says(t.Context(), shop, way.from.Name, "redis-cli -h any GET name")
				require.NoError(c, err)
				names[name] = true
			}
			assert.Equal(c, map[string]bool{near.Name: true, far.Name: true}, names)
		})
	}

	t.Log("The plugin says the same, and leaves no pod.")
	eventually(t, "gateways have written what they measured", func(c *assert.CollectT) {
		said, code := lodestone(t, "network", "status", "west", "-o", "wide")
		assert.Zero(c, code, said)
		assert.Regexp(c, `(?m)^west +Fabric +True +Probed +1/1 +[\d.]+ms +\d+% +1\d{3} +[\d.]+[kM]?B/s +[\d.]+[kM]?B/s `, said)
	})
	said, _ := lodestone(t, "network", "status", "west", "-o", "wide")
	t.Log("\n" + said)
	for _, flags := range [][]string{nil, {"--to", keys.Home}} {
		said, code := lodestone(t, append([]string{"network", "test", "west", "-n", shop}, flags...)...)
		t.Log("\n" + said)
		require.Zero(t, code, said)
		require.Equal(t, 12, strings.Count(said, " ok "), said)
	}
	said, code := lodestone(t, "network", "test", "west", "--to", "west", "-n", shop)
	require.Equal(t, 2, code, said)
	for _, c := range []*cluster{home, west} {
		require.NotContains(t, c.kubectl(t, "get", "pods", "-A", "-o", "name"), "lodestone-network-test")
	}
	said, code = lodestone(t, "network", "test", "west", "-n", private)
	assert.Equal(t, 1, code)
	assert.Contains(t, said, "it is not offloaded")

	t.Log("A volume moves through it: the movers dial each other, to west and back.")
	store := keepers{namespace: shop, name: "store", replicas: 1, spec: atHome}
	home.apply(t, store.manifest())
	store.unpin(t)
	for _, cluster := range []string{"west", keys.Home} {
		done := requireMoved(t, move(t, shop, store.claim(0), cluster))
		claim := done.Status.Claims[0]
		assert.Equal(t, v1alpha1.TransportDirect, claim.Transport, "to %s: %s", cluster, claim.TransportMessage)
		store.ready(t, 1)
	}

	t.Log("Nobody else is reached, nor reaches anybody.")
	for _, way := range []struct {
		in              *cluster
		namespace, from string
		to              string
	}{{home, private, "db-2", far.Status.PodIP}, {west, shop, "db-1", hidden.Status.PodIP}} {
		_, err := way.in.sees(t.Context(), way.namespace, way.from, way.to)
		assert.Error(t, err, "%s reaches %s", way.from, way.to)
	}

	t.Log("The network programs are restarted: packets come through again.")
	for _, c := range []*cluster{home, west} {
		c.kubectl(t, "rollout", "restart", "-n", keys.NetworkNamespace, "daemonset/lodestone-network")
		c.kubectl(t, "rollout", "status", "-n", keys.NetworkNamespace, "daemonset/lodestone-network", "--timeout=120s")
	}
	eventually(t, "db-0 reaches db-1 again", func(c *assert.CollectT) {
		_, err := home.sees(t.Context(), shop, "db-0", far.Status.PodIP)
		require.NoError(c, err)
	})

	t.Log("Parted, the nodes are as they were before.")
	joined(t, "Routed")
	requireNetwork(t, before)
}

// requireNetwork waits until what the fabric could leave on nodes is as it was.
func requireNetwork(t *testing.T, was map[*cluster]string) {
	t.Helper()
	for c, was := range was {
		eventually(t, "the network of the node of "+c.name+" is as it was", func(collect *assert.CollectT) {
			assert.Equal(collect, was, c.network(t))
		})
	}
}

// side makes what chooses a pod's cluster lines of a pod's spec.
func side(of string) string { return strings.TrimPrefix(strings.TrimSuffix(of, "\n"), "    ") }

// remoteCluster is one of home's, as it is now.
func remoteCluster(t *testing.T, name string) (remote *v1alpha1.RemoteCluster) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(home.kubectl(t, "get", "remotecluster", name, "-o", "json")), &remote))
	return remote
}

// awaitNetwork waits until NetworkReady of west is so, for a reason and with a sentence that has some words.
func awaitNetwork(t *testing.T, status metav1.ConditionStatus, reason, words string) {
	t.Helper()
	var said string
	eventually(t, "NetworkReady of west is "+string(status), func(c *assert.CollectT) {
		is := meta.FindStatusCondition(remoteCluster(t, "west").Status.Conditions, "NetworkReady")
		require.NotNil(c, is)
		assert.Equal(c, []any{status, reason}, []any{is.Status, is.Reason}, is.Message)
		assert.Contains(c, is.Message, words)
		said = is.Message
	})
	t.Logf("NetworkReady of west is %s: %s", status, said)
}

// changeKey has the gateway of a cluster change its key, and waits until it has the new one alone.
func changeKey(t *testing.T, c *cluster) {
	t.Helper()
	key := func(args ...string) []string {
		pod := strings.TrimSpace(c.kubectl(t, "get", "pods", "-n", keys.NetworkNamespace, "-l", gatewayPods, "-o", "name"))
		command := []string{"exec", "-n", keys.NetworkNamespace, pod, "--", "/lodestone-network", "key"}
		return strings.Fields(c.kubectl(t, append(command, args...)...))
	}
	before, began := key(), time.Now()
	require.Len(t, before, 1)
	key("--rotate")
	eventually(t, "the gateway of "+c.name+" has another key", func(collect *assert.CollectT) {
		now := key()
		require.Len(collect, now, 1)
		assert.NotEqual(collect, before, now)
	})
	t.Logf("the gateway of %s has another key %s after it was told to", c.name, time.Since(began).Round(time.Second))
}
