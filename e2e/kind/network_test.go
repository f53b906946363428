package kind

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// answering is a pod that says, by TCP and UDP, which address it sees. Pods of a namespace are in one headless Service.
const answering = `apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: %[2]s, labels: {app: db}}
spec:
%[3]s
  hostname: %[2]s
  subdomain: db
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: %[4]s
    command: [sh, -c, "udpsvd -E 0.0.0.0 9001 sh -c 'echo $UDPREMOTEADDR' & exec tcpsvd -E 0.0.0.0 9000 sh -c 'echo $TCPREMOTEADDR'"]
    readinessProbe: {tcpSocket: {port: 9000}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: db}
spec:
  clusterIP: None
  selector: {app: db}
  ports: [{name: tcp, port: 9000}, {name: udp, port: 9001, protocol: UDP}]
---
apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: db-any}
spec:
  selector: {app: db}
  ports: [{name: tcp, port: 9000}]
`

// says runs a command in a pod, and returns what it printed.
func (c *cluster) says(ctx context.Context, namespace, pod, command string) (string, error) {
	said, err := c.try(ctx, "", "exec", pod, "-n", namespace, "--", "timeout", "5", "sh", "-c", command)
	return strings.TrimSpace(said), err
}

// numbers are those that the kernel gives, and counts.
var numbers = regexp.MustCompile(`^\d+: |@if\d+|packets \d+ bytes \d+|expires \d+sec`)

// network is what the fabric could leave on a node: links but those of pods, addresses, rules, routes, and tables of nftables but those that
// the cluster's own network writes all the time.
func (c *cluster) network(t *testing.T) string {
	t.Helper()
	said, err := c.inNode(t.Context(), "sh", "-c", "ip -o link | grep -v veth | cut -d: -f2; ip -o -4 addr show scope link; ip -4 rule; "+
		"ip -4 route show table all; nft list tables")
	require.NoError(t, err)
	return numbers.ReplaceAllString(said, "")
}

// routed has the nodes route pods of the other cluster, or not.
func routed(t *testing.T, verb string) {
	t.Helper()
	for _, way := range [][2]*cluster{{home, west}, {west, home}} {
		from, to := way[0], way[1]
		node, err := to.client.CoreV1().Nodes().Get(context.Background(), to.node, metav1.GetOptions{})
		require.NoError(t, err)
		args := []string{"ip", "route", verb, node.Spec.PodCIDR}
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP && verb != "delete" {
				args = append(args, "via", address.Address)
			}
		}
		_, err = from.inNode(context.Background(), args...)
		require.NoError(t, err)
	}
}

// joined has the networks joined in a way.
func joined(t *testing.T, network string) {
	t.Helper()
	said, code := lodestone(t, "peer", "--remote-context", "kind-west", "--name", "west", "--pod-network", network)
	require.Zero(t, code, said)
}

func TestPodsReachEachOtherThroughTheFabric(t *testing.T) {
	shop := namespace(t)
	private := namespace(t)
	home.kubectl(t, "label", "namespace", private, keys.Offload+"-")
	home.apply(t, fmt.Sprintf(answering, shop, "db-0", side(atHome), image)+"---\n"+fmt.Sprintf(answering, shop, "db-1", side(inWest), image))
	home.apply(t, fmt.Sprintf(answering, private, "db-2", side(atHome), image))
	near, far, hidden := readyPod(t, shop, "db-0"), readyPod(t, shop, "db-1"), readyPod(t, private, "db-2")

	routed(t, "delete")
	t.Cleanup(func() { routed(t, "replace") })
	before := map[*cluster]string{home: home.network(t), west: west.network(t)}
	_, err := home.says(t.Context(), shop, "db-0", "nc "+far.Status.PodIP+" 9000 </dev/null")
	require.Error(t, err, "without routes nothing arrives")

	for _, c := range []*cluster{home, west} {
		c.kubectl(t, "label", "node", c.node, keys.Gateway+"="+keys.GatewayEnabled)
		t.Cleanup(func() {
			_, _ = c.try(context.Background(), "", "label", "node", c.node, keys.Gateway+"-")
		})
	}
	t.Cleanup(func() {
		if t.Failed() {
			joined(t, "Routed")
		}
	})
	joined(t, "Fabric")
	t.Log(home.kubectl(t, "get", "remotecluster", "west", "-o", `jsonpath={.status.conditions[?(@.type=="NetworkReady")].message}`))

	t.Log("Pods reach each other by address, by TCP, UDP and ICMP, and are seen by their own.")
	for _, way := range []struct {
		in       *cluster
		from, to *corev1.Pod
	}{{home, near, far}, {west, far, near}} {
		for what, command := range map[string]string{
			"TCP": "nc %s 9000 </dev/null", "UDP": "echo x | nc -u -w 1 %s 9001",
		} {
			eventually(t, fmt.Sprintf("%s reaches %s by %s", way.from.Name, way.to.Name, what), func(c *assert.CollectT) {
				seen, err := way.in.says(t.Context(), shop, way.from.Name, fmt.Sprintf(command, way.to.Status.PodIP))
				require.NoError(c, err)
				assert.Equal(c, way.from.Status.PodIP, strings.Split(seen, ":")[0])
			})
		}
		eventually(t, fmt.Sprintf("%s reaches %s by ICMP", way.from.Name, way.to.Name), func(c *assert.CollectT) {
			_, err := way.in.says(t.Context(), shop, way.from.Name, "ping -c 1 -W 2 "+way.to.Status.PodIP)
			require.NoError(c, err)
		})
		t.Log("And by the same name on both sides.")
		for _, to := range []*corev1.Pod{near, far} {
			eventually(t, fmt.Sprintf("%s reaches %s by its name", way.from.Name, to.Name), func(c *assert.CollectT) {
				seen, err := way.in.says(t.Context(), shop, way.from.Name, fmt.Sprintf("nc %s.db.%s.svc.cluster.local 9000 </dev/null", to.Name, shop))
				require.NoError(c, err)
				assert.Equal(c, way.from.Status.PodIP, strings.Split(seen, ":")[0])
			})
		}
	}

	t.Log("Nobody else is reached, nor reaches anybody.")
	for _, way := range []struct {
		in              *cluster
		namespace, from string
		to              string
	}{{home, private, "db-2", far.Status.PodIP}, {west, shop, "db-1", hidden.Status.PodIP}} {
		_, err := way.in.says(t.Context(), way.namespace, way.from, fmt.Sprintf("nc %s 9000 </dev/null", way.to))
		assert.Error(t, err, "%s reaches %s", way.from, way.to)
	}

	t.Log("While the network programs are away, packets go on as far as they go through no gateway's lane; they come back by themselves.")
	for _, c := range []*cluster{home, west} {
		c.kubectl(t, "rollout", "restart", "-n", keys.NetworkNamespace, "daemonset/lodestone-network")
		c.kubectl(t, "rollout", "status", "-n", keys.NetworkNamespace, "daemonset/lodestone-network", "--timeout=120s")
	}
	eventually(t, "db-0 reaches db-1 again", func(c *assert.CollectT) {
		_, err := home.says(t.Context(), shop, "db-0", "nc "+far.Status.PodIP+" 9000 </dev/null")
		require.NoError(c, err)
	})

	t.Log("Parted, the nodes are as they were before.")
	joined(t, "Routed")
	for c, was := range before {
		eventually(t, "nothing of the fabric is left on the node of "+c.name, func(collect *assert.CollectT) {
			assert.Equal(collect, was, c.network(t))
		})
	}
}

// side makes what chooses a pod's cluster lines of a pod's spec.
func side(of string) string { return strings.TrimPrefix(strings.TrimSuffix(of, "\n"), "    ") }
