package cluster

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/network/site"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// away is a pod of home's that runs in another cluster, with the address by which that is reached.
func away(node, namespace, address string) Pod {
	p := pod(namespace, address)
	p.Node = node
	return p
}

// between is a home cluster with two remote clusters that let in each other.
func between() Observation {
	o := home()
	o.Nodes = append(o.Nodes, node("east-node", "192.0.2.8", "10.3.0.0/24", map[string]string{keys.Cluster: "east"}))
	o.Links[0].Spec.Transit = []networkv1alpha1.Transit{{Cluster: "east"}}
	east := o.Links[0].DeepCopy()
	east.Name, east.Spec.PodCIDRs, east.Spec.Transit = "east", []string{"10.3.0.0/16"}, []networkv1alpha1.Transit{{Cluster: "west"}}
	east.Spec.Gateways = keyed(east.Spec.Gateways, "B")
	o.Links = append([]*networkv1alpha1.NetworkLink{east}, o.Links...)
	narrow := namespace("narrow", map[string]string{keys.Offload: keys.OffloadEnabled})
	narrow.Annotations = map[string]string{keys.OffloadClusters: "west, north"}
	both := namespace("both", map[string]string{keys.Offload: keys.OffloadEnabled})
	both.Annotations = map[string]string{keys.OffloadClusters: "west, east"}
	o.Namespaces["narrow"], o.Namespaces["both"] = narrow, both
	o.Pods = append(o.Pods, away("west", "shop", "10.2.0.5"), away("west", "both", "10.2.0.6"), away("west", "narrow", "10.2.0.7"),
		away("west", "private", "10.2.0.8"), away("west", "gone", "10.2.0.9"), away("east-node", "shop", "10.3.0.5"),
		// What a cluster calls an address of its pods may be anybody's.
		away("west", "shop", "10.3.0.6"), away("west", "shop", "10.1.0.77"), away("east-node", "shop", "192.0.2.1"))
	return o
}

func TestPodsOfNamespacesOfBothClustersPassThroughHome(t *testing.T) {
	s, verdicts := Make(between())
	require.NoError(t, s.Validate())
	require.Len(t, s.Remotes, 2)
	assert.Equal(t, []site.Transit{{To: "west", Pods: addresses("10.3.0.5")}}, s.Remotes[0].Transit)
	assert.Equal(t, []site.Transit{{To: "east", Pods: addresses("10.2.0.5", "10.2.0.6")}}, s.Remotes[1].Transit,
		"of namespaces that may run in both, and with addresses of that cluster's ranges")
	for _, r := range s.Remotes {
		assert.Equal(t, addresses("10.1.0.5", "10.1.1.7"), r.Pods, "pods that run elsewhere are none of home's own")
	}
	for name, other := range map[string]string{"west": "east", "east": "west"} {
		l := link(keys.NetworkNamespace, name, networkv1alpha1.NetworkLinkSpec{})
		status := statusOf(l, verdicts[KeyOf(l)], networkv1alpha1.GatewayStatus{}, nil)
		assert.Equal(t, []networkv1alpha1.TransitStatus{{Cluster: other, Accepted: true}}, status.Transit)
	}
}

func TestWhatHindersTransit(t *testing.T) {
	for _, row := range []struct {
		name       string
		change     func(o *Observation, east, west *networkv1alpha1.NetworkLink)
		west, east string
	}{
		{"east's owner refuses", func(_ *Observation, east, _ *networkv1alpha1.NetworkLink) {
			east.Spec.Transit[0].Refused = "not allowed"
		},
			"cluster east: not allowed", "cluster east: not allowed"},
		{"west's owner refuses", func(_ *Observation, _, west *networkv1alpha1.NetworkLink) {
			west.Spec.Transit[0].Refused = "not allowed"
		},
			"cluster west: not allowed", "cluster west: not allowed"},
		{"only west is told of the other", func(_ *Observation, east, _ *networkv1alpha1.NetworkLink) { east.Spec.Transit = nil },
			"cluster east has not yet been told of cluster west", ""},
		{"east takes no part", func(_ *Observation, east, _ *networkv1alpha1.NetworkLink) { east.Spec.PodCIDRs = nil },
			"cluster east is not joined with this one", ""},
		{"there is no east", func(o *Observation, _, _ *networkv1alpha1.NetworkLink) { o.Links = o.Links[1:] },
			"cluster east is not joined with this one", ""},
		{"it is to reach itself", func(_ *Observation, _, west *networkv1alpha1.NetworkLink) { west.Spec.Transit[0].Cluster = "west" },
			"cluster west is not joined with this one", "cluster west has not yet been told of cluster east"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := between()
			row.change(&o, o.Links[0], o.Links[1])
			s, verdicts := Make(o)
			for _, r := range s.Remotes {
				assert.Empty(t, r.Transit)
			}
			for name, message := range map[string]string{"west": row.west, "east": row.east} {
				verdict := verdicts[Key{keys.NetworkNamespace, name}]
				if message == "" {
					assert.Empty(t, verdict.Transit)
					continue
				}
				require.Len(t, verdict.Transit, 1)
				assert.False(t, verdict.Transit[0].Accepted)
				assert.Equal(t, message, verdict.Transit[0].Message)
				assert.True(t, verdict.Accepted, "home reaches it all the same")
			}
		})
	}
}

func TestALinkOfAHomeClusterMakesNoTransit(t *testing.T) {
	o := between()
	theirs := remote()
	o.Homes = theirs.Homes
	theirs.Links[0].Spec.Transit = []networkv1alpha1.Transit{{Cluster: "west"}}
	theirs.Links[0].Spec.Gateways = keyed(theirs.Links[0].Spec.Gateways, "C")
	o.Links = append(o.Links, theirs.Links[0])
	o.Links[1].Spec.Transit = []networkv1alpha1.Transit{{Cluster: "h"}}
	s, _ := Make(o)
	require.Len(t, s.Remotes, 3)
	for _, r := range s.Remotes {
		assert.Empty(t, r.Transit, "who has this cluster as a remote one is carried nowhere")
	}
}

// announced is a remote cluster that is told of two others.
func announced(allowed ...string) Observation {
	o := remote()
	o.Homes["h"].Spec.Network.TransitPodCIDRs = allowed
	o.Links[0].Spec.Transit = []networkv1alpha1.Transit{{Cluster: "east", PodCIDRs: []string{"10.3.0.0/16", "100.66.0.0/16"}, MTU: 1400},
		{Cluster: "north", PodCIDRs: []string{"10.4.0.0/16"}}}
	return o
}

func TestOnlyWhatTheOwnerLetsInIsBehindHome(t *testing.T) {
	key := Key{keys.TenantPrefix + "h", keys.Home}
	s, verdicts := Make(announced())
	require.True(t, verdicts[key].Accepted)
	assert.Empty(t, s.Remotes[0].Behind, "nothing, if they say nothing")
	assert.Equal(t, networkv1alpha1.TransitStatus{Cluster: "north", Message: "the owner of this cluster has not allowed 10.4.0.0/16 of " +
		"cluster north: they add it to spec.network.transitPodCIDRs of HomeCluster h"}, verdicts[key].Transit[1])

	s, verdicts = Make(announced("10.3.0.0/16", "10.4.0.0/16"))
	assert.Equal(t, []site.Behind{{Name: "north", Ranges: []netip.Prefix{netip.MustParsePrefix("10.4.0.0/16")}}}, s.Remotes[0].Behind,
		"all ranges of a cluster, or none")
	assert.Contains(t, verdicts[key].Transit[0].Message, "has not allowed 100.66.0.0/16 of cluster east")

	s, verdicts = Make(announced("10.0.0.0/8", "100.64.0.0/10"))
	require.Len(t, s.Remotes[0].Behind, 2, "what they let in may be wider")
	assert.Equal(t, 1400, s.Remotes[0].Behind[0].MTU)
	assert.Equal(t, networkv1alpha1.TransitStatus{Cluster: "east", Accepted: true, PodCIDRs: []string{"10.3.0.0/16", "100.66.0.0/16"}},
		verdicts[key].Transit[0])
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}, s.Remotes[0].Ranges)
}

func TestAClusterBehindHomeThatCannotBeDisturbsNoOther(t *testing.T) {
	key := Key{keys.TenantPrefix + "h", keys.Home}
	for name, row := range map[string]struct {
		change func(o *Observation)
		says   string
	}{
		"its ranges are those of pods here": {func(o *Observation) { o.Links[0].Spec.Transit[0].PodCIDRs = []string{"10.1.0.0/16"} },
			"overlaps with 10.1.0.0/24"},
		"its ranges are those of nodes here": {func(o *Observation) {
			o.Links[0].Spec.Transit[0].PodCIDRs = []string{"192.0.2.0/24"}
			o.Homes["h"].Spec.Network.TransitPodCIDRs = append(o.Homes["h"].Spec.Network.TransitPodCIDRs, "192.0.2.0/24")
		}, "overlaps with 192.0.2.1/32"},
		"its ranges are home's":     {func(o *Observation) { o.Links[0].Spec.Transit[0].PodCIDRs = []string{"10.9.1.0/24"} }, "overlaps"},
		"its ranges are another's":  {func(o *Observation) { o.Links[0].Spec.Transit[0].PodCIDRs = []string{"10.4.1.0/24"} }, ""},
		"it has no ranges":          {func(o *Observation) { o.Links[0].Spec.Transit[0].PodCIDRs = nil }, "names no ranges"},
		"it has what is no range":   {func(o *Observation) { o.Links[0].Spec.Transit[0].PodCIDRs = []string{"pods"} }, "is no range"},
		"its MTU cannot be":         {func(o *Observation) { o.Links[0].Spec.Transit[0].MTU = 600 }, "MTU"},
		"its ranges are not let in": {func(o *Observation) { o.Links[0].Spec.Transit[0].PodCIDRs = []string{"11.0.0.0/16"} }, "not allowed"},
		"its ranges have Services here": {func(o *Observation) {
			o.Service, o.Links[0].Spec.Transit[0].PodCIDRs = netip.MustParseAddr("10.96.0.1"), []string{"10.96.0.0/16"}
		}, "has addresses of Services of this cluster, such as 10.96.0.1"},
		"its ranges are of IPv6, as the address of a node here": {func(o *Observation) {
			o.Nodes[0].Status.Addresses = append(o.Nodes[0].Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fd00:5::1"})
			o.Links[0].Spec.Transit[0].PodCIDRs = []string{"fd00:5::/48"}
			o.Homes["h"].Spec.Network.TransitPodCIDRs = append(o.Homes["h"].Spec.Network.TransitPodCIDRs, "fd00::/8")
		}, "fd00:5::/48 is of IPv6, which does not pass home"},
		"its ranges are how home calls the pods here": {func(o *Observation) {
			o.Links[0].Spec.PodTranslations = []networkv1alpha1.PodTranslation{{PodCIDR: "10.1.0.0/16", ReachedAs: "100.66.0.0/16"}}
		}, "overlaps with its own range 100.66.0.0/16"},
	} {
		t.Run(name, func(t *testing.T) {
			o := announced("10.0.0.0/8", "100.64.0.0/10")
			row.change(&o)
			s, verdicts := Make(o)
			require.True(t, verdicts[key].Accepted, "home is reached all the same")
			require.Len(t, s.Remotes, 1)
			require.Len(t, s.Remotes[0].Behind, 1)
			if row.says == "" {
				assert.Equal(t, "east", s.Remotes[0].Behind[0].Name, "the first one that is told of has the range")
				return
			}
			assert.Equal(t, "north", s.Remotes[0].Behind[0].Name)
			assert.False(t, verdicts[key].Transit[0].Accepted)
			assert.Contains(t, verdicts[key].Transit[0].Message, row.says)
			assert.True(t, verdicts[key].Transit[1].Accepted)
		})
	}
}

// joinedBySecond has another home cluster, i, of other gateways and ranges be let in, and returns its link.
func joinedBySecond(o Observation, podCIDR string) *networkv1alpha1.NetworkLink {
	second := o.Links[0].DeepCopy()
	second.Namespace, second.Spec.Transit, second.Spec.Gateways = keys.TenantPrefix+"i", nil, keyed(second.Spec.Gateways, "I")
	other := o.Homes["h"].DeepCopy()
	other.Name, other.Spec.Network.PodCIDRs, other.Spec.Network.TransitPodCIDRs = "i", []string{podCIDR}, nil
	o.Homes["i"] = other
	return second
}

// TestAClusterBehindAHomeKeepsOutNoOtherHome has the older home say that the ranges of the other one are behind it.
func TestAClusterBehindAHomeKeepsOutNoOtherHome(t *testing.T) {
	o := announced("10.0.0.0/8")
	second := joinedBySecond(o, "10.4.0.0/16")
	o.Links = append(o.Links, second)
	s, verdicts := Make(o)
	require.Len(t, s.Remotes, 2)
	assert.True(t, verdicts[KeyOf(second)].Accepted)
	require.Len(t, verdicts[KeyOf(o.Links[0])].Transit, 2)
	assert.Contains(t, verdicts[KeyOf(o.Links[0])].Transit[1].Message, "10.4.0.0/16 of cluster i overlaps with 10.4.0.0/16 of cluster north")
}

func TestANamespaceKeepsWhichClustersItMayUse(t *testing.T) {
	n := namespace("shop", nil)
	n.Annotations = map[string]string{keys.OffloadClusters: "west", "other": "x"}
	kept, err := transform(n)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{keys.OffloadClusters: "west"}, kept.(*corev1.Namespace).Annotations)
	p, err := transform(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "west"},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.2.0.5"}}}})
	require.NoError(t, err)
	found, ok := podOf(p.(*corev1.Pod))
	require.True(t, ok)
	assert.Equal(t, "west", found.Node)
}
