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
