package network

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

var now = time.Unix(1_800_000_000, 0)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// observed are three clusters, of which west is joined, by a gateway that runs and one that does not.
func observed() ([]v1alpha1.RemoteCluster, []networkv1alpha1.NetworkLink) {
	remote := func(name string, network v1alpha1.PodNetwork, conditions ...metav1.Condition) v1alpha1.RemoteCluster {
		return v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RemoteClusterSpec{PodNetwork: network},
			Status: v1alpha1.RemoteClusterStatus{Conditions: conditions}}
	}
	gateway := func(name string, renewed time.Duration, lanes ...networkv1alpha1.LaneStatus) networkv1alpha1.GatewayStatus {
		return networkv1alpha1.GatewayStatus{Gateway: networkv1alpha1.Gateway{Name: name}, RenewTime: ago(renewed), Lanes: lanes}
	}
	up := networkv1alpha1.LaneStatus{Gateway: "w1", Up: true, Since: ago(time.Hour), Connections: 4, RoundTripMicroseconds: 210, MTU: 1464,
		SentBytesPerSecond: 1_250_000, ReceivedBytesPerSecond: 900, CongestionControl: "bbr"}
	down := networkv1alpha1.LaneStatus{Gateway: "w2", Since: ago(time.Minute), MTU: 1414, Message: "connection refused"}
	path := func(micros int64, loss int32) []networkv1alpha1.PathStatus {
		return []networkv1alpha1.PathStatus{{Address: "10.2.0.9", Up: true, Since: ago(time.Hour), RoundTripMicroseconds: micros,
			LossPercent: loss}}
	}
	return []v1alpha1.RemoteCluster{
			remote("east", v1alpha1.Routed),
			remote("north", v1alpha1.Fabric, metav1.Condition{Type: v1alpha1.NetworkReady, Status: metav1.ConditionFalse, Reason: "NoLane",
				Message: "no lane to cluster north is up: open the port", LastTransitionTime: ago(time.Minute)}),
			remote("west", v1alpha1.Fabric, metav1.Condition{Type: v1alpha1.NetworkReady, Status: metav1.ConditionTrue, Reason: "Probed",
				LastTransitionTime: ago(time.Hour)}),
		}, []networkv1alpha1.NetworkLink{{ObjectMeta: metav1.ObjectMeta{Name: "west"}, Status: networkv1alpha1.NetworkLinkStatus{
			PodCIDRs: []string{"10.2.0.0/16"},
			Gateways: []networkv1alpha1.GatewayStatus{gateway("h1", 20*time.Second, up, down), gateway("h2", 5*time.Minute, up)},
			Probes: []networkv1alpha1.ProbeStatus{
				{Name: "p1", Node: "n1", RenewTime: ago(10 * time.Second), Paths: path(400, 0)},
				{Name: "p2", Node: "n2", RenewTime: ago(10 * time.Second), Paths: path(600, 2)},
				{Name: "gone", RenewTime: ago(time.Hour), Paths: path(9000, 90)},
			},
		}}}
}

func TestStatusCountsOnlyWhatIsKnownNow(t *testing.T) {
	remotes, links := observed()
	west := networksOf(remotes, links, now).Clusters[2]
	assert.Equal(t, 1, west.LanesUp, "nobody knows of the lanes of a gateway that is silent")
	assert.Equal(t, 3, west.Lanes)
	assert.Equal(t, int32(1414), west.MTU)
	assert.Equal(t, int64(600), west.RoundTripMicroseconds)
	assert.Equal(t, int32(2), *west.LossPercent)
	assert.Equal(t, int64(1_250_000), west.SentBytesPerSecond)
	assert.Len(t, west.Probes, 2)
	links[0].Status.Gateways[1].RenewTime = ago(time.Second)
	assert.Equal(t, 2, networksOf(remotes, links, now).Clusters[2].LanesUp)
}

func TestStatusIsShownToPeople(t *testing.T) {
	remotes, links := observed()
	var out bytes.Buffer
	require.NoError(t, tables(&out, networksOf(remotes, links, now), false, now))
	assert.Equal(t, `NAME    NETWORK   READY    REASON   LANES    LATENCY   LOSS     MTU      SENT      RECEIVED   SINCE
east    Routed    <none>   <none>   <none>   <none>    <none>   <none>   <none>    <none>     <none>
north   Fabric    False    NoLane   0/0      <none>    <none>   <none>   0B/s      0B/s       60s
west    Fabric    True     Probed   1/3      0.60ms    2%       1414     1.2MB/s   900B/s     60m

CLUSTER   GATEWAY   TO    UP        CONNECTIONS   LATENCY   MTU      SENT      RECEIVED   SINCE
west      h1        w1    True      4             0.21ms    1464     1.2MB/s   900B/s     60m
west      h1        w2    False     0             <none>    1414     0B/s      0B/s       60s
west      h2        w1    Unknown   <none>        <none>    <none>   <none>    <none>     <none>

north: no lane to cluster north is up: open the port
west: gateway h1 does not reach w2: connection refused
west: gateway h2 has written nothing for 5m: see whether its pod runs (kubectl get pods -n lodestone-network -o wide)
`, out.String())

	out.Reset()
	require.NoError(t, tables(&out, networksOf(remotes, links, now), true, now))
	assert.Contains(t, out.String(), "10.2.0.0/16")
	assert.Regexp(t, `west +p2 +n2 +10.2.0.9 +True +0.60ms +2% +60m`, out.String())

	out.Reset()
	require.NoError(t, tables(&out, networksOf(nil, nil, now), false, now))
	assert.Equal(t, "There are no remote clusters: kubectl lodestone peer --help says how to get one.\n", out.String())
}

func TestStatusShowsWhichRemoteClustersAreJoinedThroughHome(t *testing.T) {
	remotes, links := observed()
	links[0].Status.Transit = []networkv1alpha1.TransitStatus{{Cluster: "east", Message: "cluster east: not allowed"},
		{Cluster: "north", Accepted: true}}
	links = append(links, networkv1alpha1.NetworkLink{ObjectMeta: metav1.ObjectMeta{Name: "north"}, Status: networkv1alpha1.NetworkLinkStatus{
		Transit: []networkv1alpha1.TransitStatus{{Cluster: "west", Accepted: true}}}})
	var out bytes.Buffer
	require.NoError(t, tables(&out, networksOf(remotes, links, now), false, now))
	assert.Contains(t, out.String(), `
CLUSTER   OTHER   THROUGH   JOINED   LANES
north     west    home      True     <none>
west      east    home      False    <none>

CLUSTER   GATEWAY`)
	assert.Contains(t, out.String(), "\nwest: pods there do not reach east through home: cluster east: not allowed\n")
}

func TestStatusShowsWhichRemoteClustersAreJoinedDirectly(t *testing.T) {
	for _, row := range []struct {
		name, line string
		change     func(west, north *networkv1alpha1.NetworkLink)
		says       string
	}{
		{"both say that lanes are up", `north +west +direct +True +2/4`, func(_, _ *networkv1alpha1.NetworkLink) {}, ""},
		{"though home carries nothing", `north +west +direct +True +2/4`, func(west, north *networkv1alpha1.NetworkLink) {
			west.Status.Transit[0].Accepted, north.Status.Transit[0].Accepted = false, false
		}, ""},
		{"the other one says that none is", `north +west +home +True +2/4`, func(west, _ *networkv1alpha1.NetworkLink) {
			west.Spec.Transit[0].Direct = &networkv1alpha1.DirectLanes{Lanes: 4, Message: "gateway w does not reach n: no answer"}
		}, "west: no lane from there to north is up: gateway w does not reach n: no answer"},
		{"the other one is to have none", `north +west +home +True +2/4`, func(west, _ *networkv1alpha1.NetworkLink) {
			west.Spec.Transit[0].Direct = nil
		}, ""},
		{"none is up", `north +west +home +True +0/4`, func(_, north *networkv1alpha1.NetworkLink) {
			north.Spec.Transit[0].Direct.Up = 0
		}, "north: no lane from there to west is up: what it sends is not answered"},
	} {
		t.Run(row.name, func(t *testing.T) {
			remotes, links := observed()
			links = append(links, networkv1alpha1.NetworkLink{ObjectMeta: metav1.ObjectMeta{Name: "north"}})
			west, north := &links[0], &links[len(links)-1]
			for link, other := range map[*networkv1alpha1.NetworkLink]string{west: "north", north: "west"} {
				link.Spec.Transit = []networkv1alpha1.Transit{{Cluster: other, Direct: &networkv1alpha1.DirectLanes{Lanes: 4, Up: 2}}}
				link.Status.Transit = []networkv1alpha1.TransitStatus{{Cluster: other, Accepted: true}}
			}
			row.change(west, north)
			var out bytes.Buffer
			require.NoError(t, tables(&out, networksOf(remotes, links, now), false, now))
			assert.Regexp(t, row.line, out.String())
			if row.says == "" {
				assert.NotContains(t, out.String(), "no lane from there")
			} else {
				assert.Contains(t, out.String(), row.says)
			}
		})
	}
}

func TestRatesAreReadable(t *testing.T) {
	for bytes, text := range map[int64]string{0: "0B/s", 999: "999B/s", 1000: "1.0kB/s", 12_345: "12.3kB/s", 345_678: "346kB/s",
		999_900: "1.0MB/s", 2_500_000_000: "2.5GB/s"} {
		assert.Equal(t, text, rate(bytes))
	}
}
