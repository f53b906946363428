package links

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

var now = time.Unix(1_800_000_000, 0)

// side is what one cluster says where all is well.
func side(gateway, probe string) *networkv1alpha1.NetworkLink {
	return &networkv1alpha1.NetworkLink{Status: networkv1alpha1.NetworkLinkStatus{
		Conditions: []metav1.Condition{{Type: networkv1alpha1.Accepted, Status: metav1.ConditionTrue}},
		Gateways: []networkv1alpha1.GatewayStatus{{
			Gateway:   networkv1alpha1.Gateway{Name: gateway, Address: gateway + ":7473", Keys: []string{"k"}, MTU: 1500},
			RenewTime: metav1.NewTime(now.Add(-30 * time.Second)),
			Lanes:     []networkv1alpha1.LaneStatus{{Gateway: "other", Up: true}}}},
		Probes: []networkv1alpha1.ProbeStatus{{Name: "p", Node: "n", Address: probe, RenewTime: metav1.NewTime(now.Add(-10 * time.Second)),
			Paths: []networkv1alpha1.PathStatus{{Address: "x", Up: true}}}},
	}}
}

func TestEachSideIsToldOfTheOther(t *testing.T) {
	set := func(spec v1alpha1.RemoteClusterSpec) terms {
		set, problem := termsOf(spec)
		require.Empty(t, problem)
		return set
	}
	home, west := side("h1", "10.1.0.9"), side("w1", "10.2.0.9")
	west.Status.Gateways = append(west.Status.Gateways, networkv1alpha1.GatewayStatus{Gateway: networkv1alpha1.Gateway{Name: "w2"}})
	assert.Equal(t, networkv1alpha1.NetworkLinkSpec{PodCIDRs: []string{"10.2.0.0/16"}, Probes: []string{"10.2.0.9"},
		Gateways: []networkv1alpha1.Gateway{{Name: "w1", Address: "w1:7473", Keys: []string{"k"}, MTU: 1500}}},
		here(set(v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.2.0.0/16"}}), west, nil), "w2 has no key yet")
	assert.Equal(t, networkv1alpha1.NetworkLinkSpec{Probes: []string{"10.1.0.9"},
		Gateways: []networkv1alpha1.Gateway{{Name: "h1", Keys: []string{"k"}, MTU: 1500}}}, there(terms{}, home, nil), "home dials")
	assert.Equal(t, "h1:7473", home.Status.Gateways[0].Address, "what was read is not changed")
	limit := resource.MustParse("50Mi")
	assert.Equal(t, networkv1alpha1.NetworkLinkSpec{PodCIDRs: []string{"10.2.0.0/16"}, BandwidthLimit: &limit},
		here(set(v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.2.0.0/16"}, PodBandwidthLimit: &limit}), nil, nil))
	for i := range 100 {
		more := west.Status.Gateways[0]
		more.Name = fmt.Sprint("more-", i)
		west.Status.Gateways = append(west.Status.Gateways, more)
	}
	assert.Len(t, here(terms{}, west, nil).Gateways, maxGateways)
}

func TestClustersWithOneRangeAreToldByWhichOthersPodsAreReached(t *testing.T) {
	home, west := side("h1", "10.244.0.9"), side("w1", "10.244.0.9")
	there1 := []networkv1alpha1.PodTranslation{{PodCIDR: "10.244.0.0/16", ReachedAs: "100.65.0.0/16"}}
	here1 := []networkv1alpha1.PodTranslation{{PodCIDR: "10.244.0.0/16", ReachedAs: "100.64.0.0/16"}}
	spec := v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.244.0.0/16", "10.9.0.0/16"}, PodTranslations: there1, HomePodTranslations: here1}
	set, problem := termsOf(spec)
	require.Empty(t, problem)
	said := here(set, west, nil)
	assert.Equal(t, []string{"100.65.0.0/16", "10.9.0.0/16"}, said.PodCIDRs)
	assert.Equal(t, []string{"100.65.0.9"}, said.Probes)
	assert.Equal(t, here1, said.PodTranslations, "each cluster translates for its own pods")
	said = there(set, home, nil)
	assert.Equal(t, []string{"100.64.0.9"}, said.Probes)
	assert.Equal(t, there1, said.PodTranslations)
	assert.Equal(t, "pods of both clusters reach each other: 2 ways between pods are probed all the time; pods of 10.244.0.0/16 there are "+
		"reached from home as 100.65.0.0/16; pods of 10.244.0.0/16 at home are reached from there as 100.64.0.0/16",
		ready("west", set, home, west, now).Message)
	for text, says := range map[string]string{"10.9.7.0/24": "overlaps with 10.9.0.0/16", "127.0.0.0/8": "none has an address of"} {
		_, problem = termsOf(v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.9.0.0/16", text}})
		assert.Contains(t, problem, "spec.podCIDRs of the RemoteCluster: ")
		assert.Contains(t, problem, says)
	}
	spec.PodTranslations = []networkv1alpha1.PodTranslation{{PodCIDR: "10.244.0.0/16", ReachedAs: "10.244.0.0/16"}}
	_, problem = termsOf(spec)
	assert.Contains(t, problem, "spec.podTranslations of the RemoteCluster: 10.244.0.0/16 overlaps with 10.244.0.0/16")
}

func TestLanesAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	require.NoError(t, err)
	home := side("h1", "10.1.0.9")
	home.Status.Gateways[0].RenewTime = metav1.NewTime(now.Add(-20 * time.Second))
	home.Status.Gateways[0].Lanes[0].SentBytesPerSecond = 7
	home.Status.Gateways[0].Lanes = append(home.Status.Gateways[0].Lanes, networkv1alpha1.LaneStatus{Gateway: "w2", SentBytesPerSecond: 9})
	home.Status.Gateways = append(home.Status.Gateways, networkv1alpha1.GatewayStatus{RenewTime: metav1.NewTime(now.Add(-time.Hour)),
		Lanes: []networkv1alpha1.LaneStatus{{Gateway: "w1", Up: true, SentBytesPerSecond: 9}}})
	m.measured("west", home, now)
	for _, state := range []string{"up", "down", "unknown"} {
		assert.InDelta(t, 1, testutil.ToFloat64(m.lanes.WithLabelValues("west", state)), 0, state)
	}
	assert.InDelta(t, 7, testutil.ToFloat64(m.rate.WithLabelValues("west", "sent")), 0, "of lanes that are known to be up")
	m.condition("west", metav1.ConditionTrue)
	m.forget("west")
	left, err := registry.Gather()
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestTheNetworkIsReadyOnlyWhileAllWaysAreProbedWithSuccess(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(home, west *networkv1alpha1.NetworkLink)
		reason string
		says   string
	}{
		{"all is well", func(_, _ *networkv1alpha1.NetworkLink) {}, "Probed", "2 ways"},
		{"home has no gateway", func(home, _ *networkv1alpha1.NetworkLink) { home.Status.Conditions = nil }, "NoGateway", "of home"},
		{"west has no gateway", func(_, west *networkv1alpha1.NetworkLink) { west.Status.Conditions = nil }, "NoGateway", "of cluster west"},
		{"home's gateways are gone", func(home, _ *networkv1alpha1.NetworkLink) {
			home.Status.Gateways[0].RenewTime = metav1.NewTime(now.Add(-11 * time.Minute))
		}, "NoGateway", "no gateway of home has said anything for 10m0s: see whether nodes have the label"},
		{"the owner of west refuses", func(_, west *networkv1alpha1.NetworkLink) {
			west.Status.Conditions[0].Status, west.Status.Conditions[0].Message = metav1.ConditionFalse, "no, thanks"
		}, "NotAccepted", "cluster west: no, thanks"},
		{"no lane is up", func(home, _ *networkv1alpha1.NetworkLink) {
			home.Status.Gateways[0].Lanes[0] = networkv1alpha1.LaneStatus{Gateway: "w1", Message: "connection refused"}
		}, "NoLane", "gateway h1 does not reach w1: connection refused"},
		{"a pod at home does not get through", func(home, _ *networkv1alpha1.NetworkLink) {
			home.Status.Probes[0].Paths[0] = networkv1alpha1.PathStatus{Message: "UDP packets of 9000 bytes get lost"}
		}, "PathDown", "pod p of home, on node n, does not reach cluster west: UDP packets of 9000 bytes get lost"},
		{"a pod in west does not get through", func(_, west *networkv1alpha1.NetworkLink) { west.Status.Probes[0].Paths[0].Up = false },
			"PathDown", "of cluster west"},
		{"nobody at home has probed for long", func(home, _ *networkv1alpha1.NetworkLink) {
			home.Status.Probes[0].RenewTime = metav1.NewTime(now.Add(-2 * time.Minute))
		}, "NotProbed", "no pod of home"},
		{"nobody in west probes", func(_, west *networkv1alpha1.NetworkLink) { west.Status.Probes = nil }, "NotProbed", "no pod of cluster west"},
		{"nobody is probed", func(home, _ *networkv1alpha1.NetworkLink) { home.Status.Probes[0].Paths = nil }, "NotProbed", "no pod of home"},
	} {
		t.Run(row.name, func(t *testing.T) {
			home, west := side("h1", "10.1.0.9"), side("w1", "10.2.0.9")
			row.change(home, west)
			condition := ready("west", terms{}, home, west, now)
			assert.Equal(t, row.reason, condition.Reason)
			assert.Contains(t, condition.Message, row.says)
			assert.Equal(t, row.reason == "Probed", condition.Status == metav1.ConditionTrue)
		})
	}
	assert.Equal(t, "NoGateway", ready("west", terms{}, nil, nil, now).Reason)
}

func TestTheNetworkIsReadyOnlyWhileIPv6ComesThroughWhereBothHaveIt(t *testing.T) {
	set, problem := termsOf(v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.2.0.0/16", "fd00:2::/48"}})
	require.Empty(t, problem)
	way := networkv1alpha1.PathStatus{Up: true, Address: "fd00::7"}
	for _, row := range []struct {
		name   string
		change func(home, west *networkv1alpha1.NetworkLink)
		reason string
		says   string
	}{
		{"all is well", func(_, _ *networkv1alpha1.NetworkLink) {}, "Probed", "4 ways between pods are probed all the time"},
		{"nothing comes through by IPv6 from home", func(home, _ *networkv1alpha1.NetworkLink) {
			home.Status.Probes[0].Paths[1].Up, home.Status.Probes[0].Paths[1].Message = false, "UDP packets of 64 bytes by IPv6 get lost"
		}, "PathDown", "does not reach cluster west: UDP packets of 64 bytes by IPv6 get lost"},
		{"nothing comes through by IPv6 from west", func(_, west *networkv1alpha1.NetworkLink) {
			west.Status.Probes[0].Paths[1].Up, west.Status.Probes[0].Paths[1].Message = false, "TCP by IPv6"
		}, "PathDown", "does not reach home: TCP by IPv6"},
		{"nobody at home probes by IPv6", func(home, _ *networkv1alpha1.NetworkLink) {
			home.Status.Probes[0].Paths = home.Status.Probes[0].Paths[:1]
		}, "NotProbed", "no pod of home has probed the way to cluster west by IPv6"},
		{"nobody in west probes by IPv6", func(_, west *networkv1alpha1.NetworkLink) {
			west.Status.Probes[0].Paths = west.Status.Probes[0].Paths[:1]
		}, "NotProbed", "no pod of cluster west has probed the way to home by IPv6"},
		{"west takes no part in IPv6", func(home, west *networkv1alpha1.NetworkLink) {
			west.Status.PodCIDRs = []string{"10.1.0.0/16"}
			home.Status.Probes[0].Paths = home.Status.Probes[0].Paths[:1]
		}, "Probed", "nothing comes through by IPv6, for cluster west takes no part in that"},
		{"home takes no part in IPv6", func(home, _ *networkv1alpha1.NetworkLink) { home.Status.PodCIDRs = nil }, "Probed",
			"nothing comes through by IPv6, for home takes no part in that"},
	} {
		t.Run(row.name, func(t *testing.T) {
			home, west := side("h1", "10.1.0.9"), side("w1", "10.2.0.9")
			home.Status.PodCIDRs, west.Status.PodCIDRs = []string{"10.2.0.0/16", "fd00:2::/48"}, []string{"10.1.0.0/16", "fd00:1::/48"}
			for _, link := range []*networkv1alpha1.NetworkLink{home, west} {
				link.Status.Probes[0].Paths = append(link.Status.Probes[0].Paths, way)
			}
			row.change(home, west)
			condition := ready("west", set, home, west, now)
			assert.Equal(t, row.reason, condition.Reason)
			assert.Contains(t, condition.Message, row.says)
		})
	}
	home := side("h1", "10.1.0.9")
	home.Status.Probes[0].SecondAddress = "fd00:1::9"
	assert.Equal(t, []string{"10.1.0.9"}, there(set, home, nil).Probes, "home takes no part in IPv6: nobody there is to try that")
	home.Status.PodCIDRs = []string{"10.2.0.0/16", "fd00:2::/48"}
	assert.Equal(t, []string{"10.1.0.9", "fd00:1::9"}, there(set, home, nil).Probes)
	home.Status.Probes[0].SecondAddress = "fe80::1%eth0"
	assert.Equal(t, []string{"10.1.0.9"}, there(set, home, nil).Probes)
}

func TestWhatCarriesPackets(t *testing.T) {
	set, problem := termsOf(v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.2.0.0/16"}, PodCarrier: networkv1alpha1.WireGuard})
	require.Empty(t, problem)
	home, west := side("h1", "10.1.0.9"), side("w1", "10.2.0.9")
	end := &networkv1alpha1.WireGuardEnd{PublicKey: fmt.Sprintf("%044d", 1), Port: 7477}
	west.Status.Gateways[0].WireGuard = end
	assert.Equal(t, networkv1alpha1.WireGuard, there(set, home, nil).Carrier)
	spec := here(set, west, nil)
	assert.Equal(t, networkv1alpha1.WireGuard, spec.Carrier)
	assert.Equal(t, end, spec.Gateways[0].WireGuard)
	for _, wrong := range []networkv1alpha1.WireGuardEnd{{PublicKey: "x"}, {PublicKey: end.PublicKey, Port: -1},
		{PublicKey: end.PublicKey, Port: 1 << 16}} {
		west.Status.Gateways[0].WireGuard = &wrong
		spec := here(set, west, nil)
		require.Len(t, spec.Gateways, 1, "TLS is not concerned")
		assert.Nil(t, spec.Gateways[0].WireGuard, "%+v would have the whole object refused", wrong)
	}

	says := func() string { return ready("west", set, home, west, now).Message }
	assert.Contains(t, says(), "; TLS carries packets, and not WireGuard: no gateway of home has said anything of it")
	home.Status.Gateways[0].Lanes[0].CarrierMessage = "the kernel of this node has no WireGuard"
	assert.Contains(t, says(), "; TLS carries packets, and not WireGuard: gateway h1: the kernel of this node has no WireGuard")
	home.Status.Gateways[0].Lanes[0].Carrier = networkv1alpha1.WireGuard
	assert.Contains(t, says(), "; WireGuard carries packets")
	for _, carrier := range []networkv1alpha1.Carrier{"", networkv1alpha1.TLS} {
		set, _ := termsOf(v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.2.0.0/16"}, PodCarrier: carrier})
		assert.NotContains(t, ready("west", set, home, west, now).Message, "WireGuard")
		assert.Empty(t, there(set, home, nil).Carrier)
	}
}

func TestOthersAreToldOfSmallerPacketsByWireGuard(t *testing.T) {
	for _, row := range []struct{ home, there, told int32 }{
		{1500, 1500, 1456}, {1500, 0, 1456}, {9000, 9000, 1456}, {1450, 9000, 1406}, {1500, 1300, 1280},
	} {
		link := side("h1", "10.1.0.9")
		link.Status.Gateways[0].MTU = row.home
		link.Spec.Gateways = []networkv1alpha1.Gateway{{Name: "e1", MTU: row.there}}
		told := transitOf("other", terms{}, []other{{"east", terms{carrier: networkv1alpha1.WireGuard}, link}})
		assert.Equal(t, row.told, told[0].MTU, "%+v", row)
	}
}
