package kind

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/must"
)

// opened is a Service of the pods with a label, which nodes have a port for.
const opened = `apiVersion: v1
kind: Service
metadata: {namespace: %s, name: %s}
spec:
  type: NodePort
  externalTrafficPolicy: %s
  selector: {%s}
  ports: [{port: 6379}]
`

// onNodeNetwork is a pod that has the address of its node, and listens at a port of its own.
const onNodeNetwork = `apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: host}
spec:
%s
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: %s
    command: [redis-server, --port, "16379", --protected-mode, "no", --save, "", --dir, /tmp]
    readinessProbe: {tcpSocket: {port: 16379}, periodSeconds: 1}
`

// TestNodePortsAndTheNetworkOfNodes: only pods with addresses of their own reach pods of the other cluster, so a port of a node leads there
// for pods of that node alone.
func TestNodePortsAndTheNetworkOfNodes(t *testing.T) {
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(answering, shop, "db-0", side(atHome), image)+"---\n"+fmt.Sprintf(answering, shop, "db-1", side(inWest), image)+
		"---\n"+fmt.Sprintf(opened, shop, "near", "Cluster", "pod: db-0")+"---\n"+fmt.Sprintf(opened, shop, "far", "Cluster", "pod: db-1")+
		"---\n"+fmt.Sprintf(opened, shop, "local", "Local", "app: db")+
		"---\n"+fmt.Sprintf(onNodeNetwork, shop, side(atHome), image))
	near, far, host := readyPod(t, shop, "db-0"), readyPod(t, shop, "db-1"), readyPod(t, shop, "host")
	onlyFabric(t)
	node := home.address(t)
	require.Equal(t, node, host.Status.PodIP)
	port := func(service string) string {
		return fmt.Sprintf("%s %d", node, must.Get(t, home.client.CoreV1().Services(shop), service).Spec.Ports[0].NodePort)
	}
	connect := func(in *cluster, from, to string) error {
		if from == "" {
			_, err := in.inNode(t.Context(), "timeout", "3", "bash", "-c", "</dev/tcp/"+strings.ReplaceAll(to, " ", "/"))
			return err
		}
		_, err := in.says(t.Context(), shop, from, "nc -w 3 "+to+" </dev/null")
		return err
	}
	type way struct {
		in       *cluster
		from, to string // a pod, or else the node; address and port
		reaches  bool
	}
	ways := map[string]way{
		"a pod at home, by the port of a pod there":                 {home, "db-0", port("far"), true},
		"a pod at home, by the port of a pod here":                  {home, "db-0", port("near"), true},
		"home's node, by the port of a pod here":                    {home, "", port("near"), true},
		"home's node, by the port of a pod there":                   {home, "", port("far"), false},
		"somebody outside, by the port of a pod here":               {west, "", port("near"), true},
		"somebody outside, by the port of a pod there":              {west, "", port("far"), false},
		"home's node, a pod there":                                  {home, "", far.Status.PodIP + " 6379", false},
		"west's node, a pod at home":                                {west, "", near.Status.PodIP + " 6379", false},
		"a pod on the network of home's node, a pod there":          {home, "host", far.Status.PodIP + " 6379", false},
		"a pod on the network of home's node, a pod here":           {home, "host", near.Status.PodIP + " 6379", true},
		"a pod at home, one on the network of home's node":          {home, "db-0", node + " 16379", true},
		"a pod there, one on the network of home's node, as always": {west, "db-1", node + " 16379", true},
	}
	for name, way := range ways {
		if way.reaches {
			eventually(t, name, func(c *assert.CollectT) { assert.NoError(c, connect(way.in, way.from, way.to)) })
		}
	}
	for name, way := range ways {
		if !way.reaches {
			assert.Error(t, connect(way.in, way.from, way.to), name)
		}
	}
	for range 20 {
		require.NoError(t, connect(west, "", port("local")), "with externalTrafficPolicy: Local nobody from outside is sent to pods there")
	}
}
