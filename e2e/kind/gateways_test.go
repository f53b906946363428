package kind

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// second is the node of home that only pods which ask for it run on.
const second = "home-worker"

// carried returns how many bytes the gateway of a cluster has sent to one of another cluster since its program began.
func (c *cluster) carried(t require.TestingT, gateway string) int {
	said, err := c.inNode(context.Background(), "timeout", "10", "bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/7475
		printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
		sed -n 's/^lodestone_network_lane_sent_bytes_total{.*gateway="`+gateway+`"} //p' <&3`)
	require.NoError(t, err)
	bytes, err := strconv.ParseFloat(strings.TrimSpace(said), 64)
	require.NoError(t, err)
	return int(bytes)
}

// requireCarried waits until the gateway of a cluster sends the packets of a customer to a gateway of another one.
func requireCarried(t *testing.T, from *cluster, to string) {
	t.Helper()
	before := from.carried(t, to)
	eventually(t, "packets go from "+from.name+" to gateway "+to, func(c *assert.CollectT) {
		assert.Greater(c, from.carried(c, to), before+20_000, "more than signs of life")
	})
}

// postgresInWest is PostgreSQL in west on claim pg, and the customer at home.
func postgresInWest(t *testing.T, shop string) {
	t.Helper()
	home.apply(t, fmt.Sprintf(shared, shop, "pg"))
	pod := fmt.Sprintf(postgresPod, shop, "pg") + fmt.Sprintf(postgres, image, "pg", "/data/pg")
	home.apply(t, strings.Replace(pod, "kubernetes.io/hostname: home-control-plane", "lodestone.dev/cluster: west", 1))
	require.Equal(t, virtualNode, readyPod(t, shop, "pg").Spec.NodeName)
	home.apply(t, fmt.Sprintf(customers, shop, image))
	readyPod(t, shop, "customer")
}

// TestOneOfTwoGatewaysIsLostUnderADatabase: PostgreSQL in west, which a customer at home writes to all the time, and home has two gateways.
// The program of the one that carries this is killed, and then the node of the other, which has taken over what comes back, stands still.
func TestOneOfTwoGatewaysIsLostUnderADatabase(t *testing.T) {
	needsClusters(t)
	if !secondNode() {
		t.Skip("home has two nodes with make e2e-fabric")
	}
	shop := namespace(t)
	home.kubectl(t, "label", "node", second, keys.Gateway+"="+keys.GatewayEnabled)
	t.Cleanup(func() { _, _ = home.try(context.Background(), "", "label", "node", second, keys.Gateway+"-") })
	onlyFabric(t, "--pod-cidrs", podRange(t, west))
	together := func() {
		t.Helper()
		eventually(t, "both lanes are up", func(c *assert.CollectT) {
			said, code := lodestone(t, "network", "status", "west", "-o", "wide")
			assert.Zero(c, code, said)
			assert.Regexp(c, `(?m)^west +Fabric +True +Probed +2/2 `, said)
		})
	}
	postgresInWest(t, shop)
	together()

	requireCarried(t, home, west.node)
	requireCarried(t, west, home.node)
	during(t, shop, "The program of the gateway on the customer's node is killed, which carries both ways.", func() {
		_, err := home.inNode(t.Context(), "pkill", "-KILL", "-f", "^/lodestone-network agent")
		require.NoError(t, err)
		requireCarried(t, west, second)
	})
	requireAllRows(t, shop)
	together()

	requireCarried(t, west, second)
	during(t, shop, "The node of the other one, which carries what comes back, stands still.", func() {
		unpause := func() error {
			_, err := run(context.Background(), "", "docker", "unpause", second)
			return err
		}
		_, err := run(t.Context(), "", "docker", "pause", second)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unpause() })
		requireCarried(t, west, home.node)
		awaitRows(t, shop, 20)
		require.NoError(t, unpause())
	})
	requireAllRows(t, shop)
	together()
}

// TestLanesAreCutAndKeysChangeUnderADatabase: PostgreSQL in west, which a customer at home writes to all the time.
func TestLanesAreCutAndKeysChangeUnderADatabase(t *testing.T) {
	shop := namespace(t)
	onlyFabric(t)
	postgresInWest(t, shop)

	during(t, shop, "The lanes are cut.", func() {
		mend := cutLanes(t)
		awaitNetwork(t, metav1.ConditionFalse, "NoLane", "no lane to cluster west is up")
		t.Log("Volumes do not depend on it: a new claim gets one in west, and its pod runs.")
		store := keepers{namespace: shop, name: "store", replicas: 1, spec: inWest}
		home.apply(t, store.manifest())
		store.ready(t, 1)
		require.Equal(t, west, volumeOf(t, shop, store.claim(0)).in)
		mend()
		awaitNetwork(t, metav1.ConditionTrue, "Probed", "")
	})
	requireAllRows(t, shop)

	during(t, shop, "The gateways of both change their keys.", func() {
		for _, c := range []*cluster{home, west} {
			changeKey(t, c)
		}
	})
	requireAllRows(t, shop)
}
