package cluster

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var key = strings.Repeat("A", 43) + "="

func node(name, address, pods string, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{PodCIDRs: []string{pods}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
}

var gateway = map[string]string{keys.Gateway: keys.GatewayEnabled}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func pod(namespace, address string) Pod {
	return Pod{Namespace: namespace, Node: "node-1", Addresses: []netip.Addr{netip.MustParseAddr(address)}}
}

func link(namespace, name string, spec networkv1alpha1.NetworkLinkSpec) *networkv1alpha1.NetworkLink {
	return &networkv1alpha1.NetworkLink{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
}

// home is a home cluster with one remote cluster, which has said all.
func home() Observation {
	return Observation{
		Namespace: keys.NetworkNamespace,
		Nodes: []*corev1.Node{
			node("node-1", "192.0.2.1", "10.1.0.0/24", gateway), node("node-2", "192.0.2.2", "10.1.1.0/24", nil),
			node("west", "192.0.2.9", "10.2.0.0/24", map[string]string{keys.Cluster: "west"}),
		},
		Links: []*networkv1alpha1.NetworkLink{link(keys.NetworkNamespace, "west", networkv1alpha1.NetworkLinkSpec{
			PodCIDRs: []string{"10.2.0.0/16"},
			Gateways: []networkv1alpha1.Gateway{{Name: "w1", Address: "198.51.100.1:7473", Keys: []string{key}, MTU: 1450}},
		})},
		Namespaces: map[string]*corev1.Namespace{
			"shop":                namespace("shop", map[string]string{keys.Offload: keys.OffloadEnabled}),
			"private":             namespace("private", nil),
			keys.NetworkNamespace: namespace(keys.NetworkNamespace, nil),
		},
		Pods: []Pod{pod("shop", "10.1.0.5"), pod("private", "10.1.0.6"),
			{Namespace: keys.NetworkNamespace, Node: "node-2", Probe: true, Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.7")}},
			{Namespace: "private", Node: "node-2", Probe: true, Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.8")}}},
	}
}

// remote is a remote cluster, which a home cluster of the ID h has told all.
func remote() Observation {
	o := home()
	tenant := keys.TenantPrefix + "h"
	o.Links = []*networkv1alpha1.NetworkLink{link(tenant, keys.Home, networkv1alpha1.NetworkLinkSpec{
		PodCIDRs: []string{"0.0.0.0/0"}, Gateways: []networkv1alpha1.Gateway{{Name: "g", Address: "10.0.0.1:22", Keys: []string{key}}}})}
	o.Homes = map[string]*remotev1alpha1.HomeCluster{"h": {ObjectMeta: metav1.ObjectMeta{Name: "h"}, Spec: remotev1alpha1.HomeClusterSpec{
		Network: &remotev1alpha1.NetworkPolicy{PodCIDRs: []string{"10.9.0.0/16", "fd00::/48"}}}}}
	o.Namespaces = map[string]*corev1.Namespace{
		"shop": namespace("shop", map[string]string{keys.HomeID: "h"}), "store": namespace("store", map[string]string{keys.HomeID: "h"}),
		"other": namespace("other", map[string]string{keys.HomeID: "i"}),
		"own":   namespace("own", map[string]string{keys.Offload: keys.OffloadEnabled}),
		tenant:  namespace(tenant, map[string]string{keys.HomeID: "h", keys.Tenant: "h"}),
	}
	o.Pods = []Pod{pod("shop", "10.1.0.5"), pod("store", "10.1.0.6"), pod("other", "10.1.0.7"), pod("own", "10.1.0.8"),
		pod(tenant, "10.1.0.9")}
	return o
}

func addresses(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func TestHomeReachesPodsOfOffloadedNamespacesAndProbes(t *testing.T) {
	s, verdicts := Make(home())
	require.Equal(t, map[Key]string{{keys.NetworkNamespace, "west"}: "Accepted"}, reasons(verdicts))
	require.NoError(t, s.Validate())
	require.Len(t, s.Nodes, 2, "the node that stands for west is none of this cluster")
	assert.Equal(t, site.Node{Name: "node-1", Address: netip.MustParseAddr("192.0.2.1"), Gateway: true,
		Pods: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}}, s.Nodes[0])
	require.Len(t, s.Remotes, 1)
	assert.Equal(t, "west", s.Remotes[0].Name)
	assert.Equal(t, 1450, s.Remotes[0].MTU)
	assert.Equal(t, "198.51.100.1:7473", s.Remotes[0].Gateways[0].Address)
	assert.Equal(t, addresses("10.1.0.5", "10.1.1.7"), s.Remotes[0].Pods)
	assert.Zero(t, s.Remotes[0].Limit)

	o := home()
	o.Links[0].Spec.BandwidthLimit = ptr.To(resource.MustParse("50Mi"))
	s, _ = Make(o)
	assert.EqualValues(t, 50<<20, s.Remotes[0].Limit)
}

// TestAPodOnANodeThatNobodyKnowsIsNotHomes has pods come before their virtual node, or stay after it: what another cluster calls their
// addresses is let in nowhere.
func TestAPodOnANodeThatNobodyKnowsIsNotHomes(t *testing.T) {
	o := home()
	for _, node := range []string{"east", ""} {
		p := pod("shop", "10.3.0.5")
		p.Node = node
		o.Pods = append(o.Pods, p)
	}
	s, _ := Make(o)
	require.Len(t, s.Remotes, 1)
	assert.Equal(t, addresses("10.1.0.5", "10.1.1.7"), s.Remotes[0].Pods)
}

func TestANamespaceTakesPartWithoutBeingOffloaded(t *testing.T) {
	o := home()
	o.Namespaces["private"].Labels = map[string]string{keys.Fabric: keys.FabricEnabled}
	pods := func() []netip.Addr {
		s, _ := Make(o)
		require.Len(t, s.Remotes, 1)
		return s.Remotes[0].Pods
	}
	assert.Equal(t, addresses("10.1.0.5", "10.1.0.6", "10.1.1.7", "10.1.1.8"), pods())
	o.Namespaces["private"].Annotations = map[string]string{keys.OffloadClusters: "north, west"}
	assert.Contains(t, pods(), netip.MustParseAddr("10.1.0.6"))
	o.Namespaces["private"].Annotations[keys.OffloadClusters] = "north"
	assert.NotContains(t, pods(), netip.MustParseAddr("10.1.0.6"))
	o = home()
	o.Namespaces["private"].Labels = map[string]string{keys.Fabric: "yes"}
	assert.NotContains(t, pods(), netip.MustParseAddr("10.1.0.6"))

	o = remote()
	o.Namespaces["own"].Labels[keys.Fabric] = keys.FabricEnabled
	assert.NotContains(t, pods(), netip.MustParseAddr("10.1.0.8"), "in a remote cluster its owner says who takes part")
	b := between()
	b.Namespaces["private"].Labels = map[string]string{keys.Fabric: keys.FabricEnabled}
	s, _ := Make(b)
	assert.NotContains(t, s.Remotes[1].Transit[0].Pods, netip.MustParseAddr("10.2.0.8"), "what runs elsewhere is of offloaded namespaces")
}

func TestWhereNodesHaveNoRangesTheWayToEachPodIsKnown(t *testing.T) {
	o := home()
	o.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	at := func(node string, created int64, p Pod) Pod {
		p.Node, p.Created = node, time.Unix(created, 0)
		return p
	}
	o.Pods = []Pod{
		at("node-2", 1, pod("shop", "10.1.0.9")), at("node-2", 1, pod("shop", "10.1.0.5")), at("node-1", 1, pod("shop", "10.1.0.6")),
		at("node-1", 2, pod("shop", "10.1.0.7")), at("node-2", 1, pod("shop", "10.1.0.7")), // the older one is gone in a moment
		at("node-1", 1, pod("private", "10.1.0.8")), at("node-1", 1, pod("shop", "10.3.0.1")), at("west", 1, pod("shop", "10.2.0.1")),
		at("node-3", 1, pod("shop", "10.1.0.10")),
	}
	hosts := func(texts ...string) (all []netip.Prefix) {
		for _, address := range addresses(texts...) {
			all = append(all, netip.PrefixFrom(address, 32))
		}
		return all
	}
	s, verdicts := Make(o)
	require.Equal(t, map[Key]string{{keys.NetworkNamespace, "west"}: "Accepted"}, reasons(verdicts))
	require.NoError(t, s.Validate())
	assert.Equal(t, o.PodRanges, s.PodRanges)
	assert.Equal(t, hosts("10.1.0.6", "10.1.0.7"), s.Nodes[0].Pods, "podCIDRs say nothing, and who is not on the list needs no route")
	assert.Equal(t, hosts("10.1.0.5", "10.1.0.9"), s.Nodes[1].Pods)
	assert.Equal(t, addresses("10.1.0.5", "10.1.0.6", "10.1.0.7", "10.1.0.9"), s.Remotes[0].Pods, "none outside of the ranges")
	slices.Reverse(o.Pods)
	again, _ := Make(o)
	assert.Equal(t, s, again, "in whatever order pods are listed")

	o.Pods, o.Namespaces = nil, nil // as a node that is no gateway knows it
	for _, n := range o.Nodes[:2] {
		n.Spec.PodCIDRs = nil
	}
	s, verdicts = Make(o)
	assert.Equal(t, map[Key]string{{keys.NetworkNamespace, "west"}: "Accepted"}, reasons(verdicts))
	assert.Empty(t, s.Nodes[0].Pods)
	o.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	_, verdicts = Make(o)
	assert.Equal(t, map[Key]string{{keys.NetworkNamespace, "west"}: "Unusable"}, reasons(verdicts),
		"all nodes know that the other cluster has addresses of pods here, whichever pods there are")
}

func TestARemoteClusterHeedsItsOwnerAndNotHome(t *testing.T) {
	s, verdicts := Make(remote())
	require.Equal(t, map[Key]string{{keys.TenantPrefix + "h", keys.Home}: "Accepted"}, reasons(verdicts))
	require.Len(t, s.Remotes, 1)
	assert.Equal(t, "h", s.Remotes[0].Name)
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}, s.Remotes[0].Ranges, "not what home says of itself")
	assert.Empty(t, s.Remotes[0].Gateways[0].Address, "home has nobody dialed from here")
	assert.Equal(t, addresses("10.1.0.5", "10.1.0.6"), s.Remotes[0].Pods, "only of namespaces that were made for this home cluster")

	o := remote()
	o.Homes["h"].Spec.Network.Namespaces = []string{"store", "own", "other"}
	s, _ = Make(o)
	assert.Equal(t, addresses("10.1.0.6"), s.Remotes[0].Pods, "the owner narrows, and does not widen")

	o.Links[0].Spec.BandwidthLimit = ptr.To(resource.MustParse("1Gi"))
	s, _ = Make(o)
	assert.Zero(t, s.Remotes[0].Limit, "the limit of this cluster is not home's to set")
	o.Homes["h"].Spec.Network.BandwidthLimit = ptr.To(resource.MustParse("1Mi"))
	s, _ = Make(o)
	assert.EqualValues(t, 1<<20, s.Remotes[0].Limit)
}

func reasons(verdicts map[Key]Verdict) map[Key]string {
	found := map[Key]string{}
	for key, verdict := range verdicts {
		found[key] = verdict.Reason
	}
	return found
}

func TestWhyAClusterTakesNoPart(t *testing.T) {
	for _, row := range []struct {
		name   string
		of     func() Observation
		change func(o *Observation)
		reason string
	}{
		{"its owner has not allowed it", remote, func(o *Observation) { o.Homes["h"].Spec.Network = nil }, "Refused"},
		{"there is no such home cluster", remote, func(o *Observation) { o.Homes = nil }, "Refused"},
		{"its owner has listed IPv6 alone, which pods here have not", remote, func(o *Observation) {
			o.Homes["h"].Spec.Network.PodCIDRs = []string{"fd00::/48"}
		}, "NoPodCIDRs"},
		{"the ranges are those of its own pods", remote, func(o *Observation) { o.Homes["h"].Spec.Network.PodCIDRs = []string{"10.1.0.0/16"} },
			"Unusable"},
		{"its pods are to be reached as a range of another length", home, func(o *Observation) {
			o.Links[0].Spec.PodTranslations = []networkv1alpha1.PodTranslation{{PodCIDR: "10.1.0.0/16", ReachedAs: "100.64.0.0/17"}}
		}, "Unusable"},
		{"its pods are to be reached as the range of the other one", home, func(o *Observation) {
			o.Links[0].Spec.PodTranslations = []networkv1alpha1.PodTranslation{{PodCIDR: "10.1.0.0/16", ReachedAs: "10.2.0.0/16"}}
		}, "Unusable"},
		{"the ranges are those of its nodes", home, func(o *Observation) { o.Links[0].Spec.PodCIDRs = []string{"192.0.2.0/24"} }, "Unusable"},
		{"there are no ranges", home, func(o *Observation) { o.Links[0].Spec.PodCIDRs = nil }, "NoPodCIDRs"},
		{"the ranges overlap with each other", home, func(o *Observation) {
			o.Links[0].Spec.PodCIDRs = []string{"10.2.0.0/16", "10.2.3.0/24"}
		}, "Unusable"},
		{"the ranges are of hosts themselves", home, func(o *Observation) { o.Links[0].Spec.PodCIDRs = []string{"127.0.0.0/8"} }, "Unusable"},
		{"the ranges have addresses of its Services", home, func(o *Observation) { o.Service = netip.MustParseAddr("10.2.0.1") }, "Unusable"},
		{"nodes have no ranges of pods", home, func(o *Observation) { o.Nodes[0].Spec.PodCIDRs, o.Nodes[1].Spec.PodCIDRs = nil, nil },
			"NoPodCIDRs"},
		{"the other side has named no gateway", home, func(o *Observation) { o.Links[0].Spec.Gateways = nil }, "Waiting"},
		{"the other side's gateway has no address to dial", home, func(o *Observation) { o.Links[0].Spec.Gateways[0].Address = "" }, "Waiting"},
		{"the other side's gateway has no key that is one", home, func(o *Observation) { o.Links[0].Spec.Gateways[0].Keys = []string{"x"} },
			"Waiting"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := row.of()
			row.change(&o)
			s, verdicts := Make(o)
			require.Len(t, verdicts, 1)
			verdict := verdicts[KeyOf(o.Links[0])]
			assert.Equal(t, row.reason, verdict.Reason, verdict.Message)
			assert.Empty(t, s.Remotes)
		})
	}
}

func TestWithoutGatewaysNothingIsJoined(t *testing.T) {
	o := home()
	o.Nodes[0].Labels = nil
	s, verdicts := Make(o)
	assert.Empty(t, s.Remotes)
	assert.Empty(t, verdicts, "nobody could write them")
}

func TestOfTwoClustersWithOneKeyTheOlderOneIsJoined(t *testing.T) {
	o := home()
	other := o.Links[0].DeepCopy()
	other.Name, other.Spec.PodCIDRs = "copy", []string{"10.3.0.0/16"}
	other.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0))
	o.Links = append([]*networkv1alpha1.NetworkLink{other}, o.Links...)
	s, verdicts := Make(o)
	require.Len(t, s.Remotes, 1)
	assert.Equal(t, "west", s.Remotes[0].Name)
	assert.True(t, verdicts[Key{keys.NetworkNamespace, "west"}].Accepted)
	assert.Contains(t, verdicts[Key{keys.NetworkNamespace, "copy"}].Message,
		"gateway w1 of cluster copy has the key of a gateway of cluster west")
}

// keyed are gateways with another key.
func keyed(gateways []networkv1alpha1.Gateway, letter string) []networkv1alpha1.Gateway {
	one := gateways[0]
	one.Keys = []string{letter + key[1:]}
	return []networkv1alpha1.Gateway{one}
}

func TestClustersWithOneRangeAreJoinedByOthers(t *testing.T) {
	o := home() // its pods are from 10.1.0.0/16, as those of both others
	as := []networkv1alpha1.PodTranslation{{PodCIDR: "10.1.0.0/16", ReachedAs: "100.64.0.0/16"}}
	o.Links[0].Spec.PodCIDRs, o.Links[0].Spec.PodTranslations = []string{"100.65.0.0/16"}, as
	o.Links = append(o.Links, link(keys.NetworkNamespace, "zoo", networkv1alpha1.NetworkLinkSpec{PodCIDRs: []string{"100.66.0.0/16"},
		PodTranslations: as, Gateways: keyed(o.Links[0].Spec.Gateways, "B")}))
	s, verdicts := Make(o)
	require.Len(t, s.Remotes, 2)
	for _, r := range s.Remotes {
		assert.Equal(t, "10.1.0.0/16 as 100.64.0.0/16", r.Translations[0].String())
		assert.Equal(t, addresses("10.1.0.5", "10.1.1.7"), r.Pods, "who may is said by the pods' own addresses")
	}
	verdict := verdicts[Key{keys.NetworkNamespace, "zoo"}]
	assert.Equal(t, "this cluster takes part; the other cluster reaches pods of 10.1.0.0/16 here as 100.64.0.0/16, and not by the address "+
		"that such a pod has itself", verdict.Message)
	status := statusOf(o.Links[1], verdict, networkv1alpha1.GatewayStatus{}, nil)
	assert.Equal(t, as, status.PodTranslations)
	verdict.Accepted = false
	assert.Empty(t, statusOf(o.Links[1], verdict, networkv1alpha1.GatewayStatus{}, nil).PodTranslations)

	// A home cluster cannot keep another one out by what it calls the pods here.
	o = remote()
	o.Links[0].Spec.PodTranslations = []networkv1alpha1.PodTranslation{{PodCIDR: "10.1.0.0/16", ReachedAs: "10.7.0.0/16"}}
	second := link(keys.TenantPrefix+"i", keys.Home, o.Links[0].Spec)
	second.Spec.PodTranslations, second.Spec.Gateways = nil, keyed(second.Spec.Gateways, "B")
	o.Links = append(o.Links, second)
	o.Homes["i"] = o.Homes["h"].DeepCopy()
	o.Homes["i"].Name, o.Homes["i"].Spec.Network.PodCIDRs = "i", []string{"10.7.0.0/16"}
	s, _ = Make(o)
	assert.Len(t, s.Remotes, 2)
}

func TestALinkThatCannotBeDisturbsNoOther(t *testing.T) {
	o := home()
	o.Links = append(o.Links, link(keys.NetworkNamespace, "zoo", networkv1alpha1.NetworkLinkSpec{PodCIDRs: []string{"10.2.3.0/24"},
		Gateways: o.Links[0].Spec.Gateways}))
	s, verdicts := Make(o)
	require.Len(t, s.Remotes, 1)
	assert.Equal(t, "west", s.Remotes[0].Name)
	assert.Contains(t, verdicts[Key{keys.NetworkNamespace, "zoo"}].Message, "overlaps")
}

func TestANodeThatIsWrongPartsNoClusters(t *testing.T) {
	at := func(n *corev1.Node, created int64, ready corev1.ConditionStatus) *corev1.Node {
		n.CreationTimestamp = metav1.NewTime(time.Unix(created, 0))
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		return n
	}
	yes, no := corev1.ConditionTrue, corev1.ConditionUnknown
	for _, row := range []struct {
		name        string
		left, right *corev1.Node
		kept        string
		says        string
	}{
		{"two have one address: the one that is ready", at(node("a", "192.0.2.7", "10.1.7.0/24", nil), 1, no),
			at(node("b", "192.0.2.7", "10.1.8.0/24", nil), 2, yes), "b",
			"node a is left out: its 192.0.2.7 overlaps with 192.0.2.7 of node b: see to its InternalIP and podCIDRs"},
		{"both are: the older one", at(node("b", "192.0.2.7", "10.1.7.0/24", nil), 1, yes),
			at(node("a", "192.0.2.7", "10.1.8.0/24", nil), 2, yes),
			"b", "node a is left out"},
		{"the pods of one are those of another", at(node("a", "192.0.2.7", "10.1.7.0/24", nil), 1, yes),
			at(node("b", "192.0.2.8", "10.1.7.0/25", nil), 2, yes), "a", "node b is left out: its 10.1.7.0/25 overlaps with 10.1.7.0/24 of node a"},
		{"a node has the address of a pod", at(node("a", "192.0.2.7", "10.1.7.0/24", nil), 1, yes),
			at(node("b", "10.1.7.9", "10.1.8.0/24", nil), 2, yes), "a", "node b is left out: its 10.1.7.9 overlaps with 10.1.7.0/24 of node a"},
		{"the pods of one have the address of another", at(node("a", "192.0.2.7", "10.1.7.0/24", nil), 1, yes),
			at(node("b", "192.0.3.8", "192.0.2.0/24", nil), 2, yes), "a", "node b is left out: its 192.0.2.0/24 overlaps with 192.0.2."},
		{"one is wrong by itself", at(node("a", "192.0.2.7", "10.1.7.0/24", nil), 2, yes),
			at(node("b", "192.0.2.8", "8.0.0.0/5", nil), 1, yes), "a",
			"node b is left out: the pods of node b has the range 8.0.0.0/5"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := home()
			o.Nodes = append(o.Nodes, row.left, row.right)
			s, verdicts := Make(o)
			require.Len(t, s.Remotes, 1, "the clusters stay joined")
			require.NoError(t, s.Validate())
			require.Len(t, s.Nodes, 3)
			assert.NotNil(t, s.Node(row.kept))
			verdict := verdicts[KeyOf(o.Links[0])]
			assert.True(t, verdict.Accepted)
			assert.Contains(t, verdict.Message, "this cluster takes part; "+row.says)
		})
	}
	assert.Equal(t, "; a; b; c; and 1 more", leftOut([]string{"a", "b", "c", "d"}))
}

func TestANamespaceIsOpenOnlyToTheClustersThatItNames(t *testing.T) {
	o := home()
	o.Namespaces["shop"].Annotations = map[string]string{keys.OffloadClusters: "east"}
	s, _ := Make(o)
	assert.Equal(t, addresses("10.1.1.7"), s.Remotes[0].Pods, "west reaches the pods that probe")
	o.Namespaces["shop"].Annotations[keys.OffloadClusters] = "east, west"
	s, _ = Make(o)
	assert.Equal(t, addresses("10.1.0.5", "10.1.1.7"), s.Remotes[0].Pods)
}

func TestLinksElsewhereAreNotRead(t *testing.T) {
	o := home()
	for _, at := range []Key{{"shop", "west"}, {keys.TenantPrefix + "h", "other"}} {
		o.Links = append(o.Links, link(at.Namespace, at.Name, o.Links[0].Spec))
	}
	_, verdicts := Make(o)
	assert.Len(t, verdicts, 1)
}

func TestAGatewayTellsWhatItMeasured(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	before := &sample{began, []lane.Status{{Peer: "w1", Sent: 1000, Received: 0}, {Peer: "w2", Sent: 5000}}}
	now := &sample{began.Add(10 * time.Second), []lane.Status{
		{Peer: "w1", Up: true, Since: began, Connections: 4, RTT: 1500 * time.Microsecond, Sent: 41000, Received: 500, Congestion: "bbr"},
		{Peer: "w2", Sent: 10, Problem: "it has not yet answered"}, {Peer: "w3", Sent: 10}}}
	l := home().Links[0]
	assert.Equal(t, 1450-36, podMTU(1500, l, false), "the smaller network counts, less the tunnel's headers")
	told := lanes(now, before, podMTU(1500, l, false))
	assert.Equal(t, networkv1alpha1.LaneStatus{Gateway: "w1", Up: true, Since: metav1.NewTime(began), Connections: 4,
		RoundTripMicroseconds: 1500, SentBytesPerSecond: 4000, ReceivedBytesPerSecond: 50, MTU: 1414, Carrier: networkv1alpha1.TLS,
		CongestionControl: "bbr"}, told[0])
	assert.Zero(t, told[1].SentBytesPerSecond, "it counts from zero again")
	assert.Zero(t, told[2].SentBytesPerSecond, "it was not there before")
	assert.Zero(t, lanes(now, nil, 0)[0].SentBytesPerSecond)

	seen := func(change func(g *networkv1alpha1.GatewayStatus)) networkv1alpha1.NetworkLinkStatus {
		g := networkv1alpha1.GatewayStatus{Lanes: lanes(now, before, 1414)}
		change(&g)
		return unmeasured(networkv1alpha1.NetworkLinkStatus{Gateways: []networkv1alpha1.GatewayStatus{g}})
	}
	same := seen(func(*networkv1alpha1.GatewayStatus) {})
	assert.Equal(t, same, seen(func(g *networkv1alpha1.GatewayStatus) {
		g.RenewTime = metav1.NewTime(began)
		g.Lanes[0].RoundTripMicroseconds, g.Lanes[0].SentBytesPerSecond, g.Lanes[0].ReceivedBytesPerSecond = 7, 7, 7
	}), "what is measured is not written at once")
	assert.NotEqual(t, same, seen(func(g *networkv1alpha1.GatewayStatus) { g.Lanes[0].Connections = 3 }), "a connection that is lost is")
}

func TestAGatewayWritesItsOwnEntryAndDropsThoseOfNodesThatAreNone(t *testing.T) {
	l := link("n", "l", networkv1alpha1.NetworkLinkSpec{})
	l.Generation = 3
	l.Status.Gateways = []networkv1alpha1.GatewayStatus{{Gateway: networkv1alpha1.Gateway{Name: "a", Address: "old"}},
		{Gateway: networkv1alpha1.Gateway{Name: "b"}}, {Gateway: networkv1alpha1.Gateway{Name: "gone"}}}
	l.Status.Probes = []networkv1alpha1.ProbeStatus{{Name: "p"}}
	_, verdicts := Make(home())
	status := statusOf(l, verdicts[Key{keys.NetworkNamespace, "west"}],
		networkv1alpha1.GatewayStatus{Gateway: networkv1alpha1.Gateway{Name: "a", Address: "new"}}, map[string]bool{"a": true, "b": true})
	require.Len(t, status.Gateways, 2)
	assert.Equal(t, "new", status.Gateways[0].Address)
	assert.Equal(t, "b", status.Gateways[1].Name)
	assert.Equal(t, []string{"10.2.0.0/16"}, status.PodCIDRs)
	assert.Len(t, status.Probes, 1, "what pods have written stays")
	assert.Equal(t, metav1.ConditionTrue, status.Conditions[0].Status)
	assert.EqualValues(t, 3, status.ObservedGeneration)
}

func TestWireGuardCarriesWhereHomeSaysSo(t *testing.T) {
	end := &networkv1alpha1.WireGuardEnd{PublicKey: key, Port: 7477}
	o := home()
	o.Links[0].Spec.Carrier, o.Links[0].Spec.Gateways[0].WireGuard = networkv1alpha1.WireGuard, end
	s, verdicts := Make(o)
	assert.Equal(t, site.WireGuard, s.Remotes[0].Carrier)
	assert.Equal(t, &lane.WireGuardEnd{Port: 7477}, s.Remotes[0].Gateways[0].WireGuard)
	assert.Equal(t, "this cluster takes part", verdicts[KeyOf(o.Links[0])].Message)
	assert.Equal(t, 1370, podMTU(1500, o.Links[0], verdicts[KeyOf(o.Links[0])].WireGuard))

	end.PublicKey = "x"
	s, _ = Make(o)
	assert.Nil(t, s.Remotes[0].Gateways[0].WireGuard, "a key that is none is nobody's")

	o.Links[0].Spec.BandwidthLimit = ptr.To(resource.MustParse("50Mi"))
	_, verdicts = Make(o)
	assert.True(t, verdicts[KeyOf(o.Links[0])].Accepted)
	assert.Equal(t, "this cluster takes part; TLS carries packets, and not WireGuard: there is a bandwidth limit here, which WireGuard does "+
		"not keep", verdicts[KeyOf(o.Links[0])].Message)

	told := lanes(&sample{time.Now(), []lane.Status{{Peer: "w1", WireGuard: true}, {Peer: "w2", Instead: "it stands by"}}}, nil, 1420)
	assert.Equal(t, networkv1alpha1.WireGuard, told[0].Carrier)
	assert.Equal(t, networkv1alpha1.TLS, told[1].Carrier)
	assert.Equal(t, "it stands by", told[1].CarrierMessage)
}

// dual is a cluster whose pods have addresses of both families, as those of the other one.
func dual(o Observation, other string) Observation {
	for i, n := range o.Nodes[:2] {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, []string{"fd00:1:0:1::/64", "fd00:1:0:2::/64"}[i])
	}
	if own := o.Homes["h"]; own != nil {
		own.Spec.Network.PodCIDRs = append(own.Spec.Network.PodCIDRs[:1], other)
	} else {
		o.Links[0].Spec.PodCIDRs = append(o.Links[0].Spec.PodCIDRs, other)
	}
	o.Pods[0].Addresses = append(o.Pods[0].Addresses, netip.MustParseAddr("fd00:1:0:1::5"))
	return o
}

func TestIPv6IsCarriedWherePodsOfBothClustersHaveIt(t *testing.T) {
	for name, of := range map[string]func() Observation{"home": home, "a remote cluster": remote} {
		t.Run(name, func(t *testing.T) {
			o := dual(of(), "fd00:2::/48")
			s, verdicts := Make(o)
			require.Len(t, s.Remotes, 1)
			require.NoError(t, s.Validate())
			assert.Equal(t, "this cluster takes part", verdicts[KeyOf(o.Links[0])].Message)
			assert.Contains(t, s.Remotes[0].Ranges, netip.MustParsePrefix("fd00:2::/48"))
			assert.Contains(t, s.Remotes[0].Pods, netip.MustParseAddr("fd00:1:0:1::5"))
			assert.Contains(t, s.Nodes[0].Pods, netip.MustParsePrefix("fd00:1:0:1::/64"))
			verdict := verdicts[KeyOf(o.Links[0])]
			assert.Contains(t, statusOf(o.Links[0], verdict, networkv1alpha1.GatewayStatus{}, nil).PodCIDRs, "fd00:2::/48")

			o.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/48")}
			o.Pods[0].Node = "node-1"
			s, _ = Make(o)
			assert.Contains(t, s.Nodes[0].Pods, netip.MustParsePrefix("fd00:1:0:1::5/128"), "the way to each pod")

			o = dual(of(), "fd00:2::/48")
			for _, n := range o.Nodes {
				n.Spec.PodCIDRs = n.Spec.PodCIDRs[:1]
			}
			s, _ = Make(o)
			assert.NotContains(t, s.Remotes[0].Ranges, netip.MustParsePrefix("fd00:2::/48"), "pods here have none")
			assert.NotContains(t, s.Remotes[0].Pods, netip.MustParseAddr("fd00:1:0:1::5"))

			o = dual(of(), "10.77.0.0/16")
			s, _ = Make(o)
			assert.Len(t, s.Nodes[0].Pods, 1, "nobody looks at what nodes have of IPv6 where none is asked for")
			assert.NotContains(t, s.Remotes[0].Pods, netip.MustParseAddr("fd00:1:0:1::5"))
		})
	}
	o := dual(home(), "fd00:2::/48")
	o.Links[0].Spec.PodCIDRs = []string{"fd00:2::/48"}
	s, _ := Make(o)
	require.Len(t, s.Remotes, 1)
	assert.Equal(t, addresses("fd00:1:0:1::5"), s.Remotes[0].Pods, "IPv6 alone")
	for _, n := range o.Nodes {
		n.Spec.PodCIDRs = n.Spec.PodCIDRs[:1]
	}
	_, verdicts := Make(o)
	assert.Contains(t, verdicts[KeyOf(o.Links[0])].Message, "names only ranges of IPv6, and pods of this cluster have no addresses of that")
}

func TestRangesOfIPv6ThatOverlapPartNothingByIPv4(t *testing.T) {
	o := dual(home(), "fd00:1::/48")
	s, verdicts := Make(o)
	require.Len(t, s.Remotes, 1)
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, s.Remotes[0].Ranges)
	assert.Equal(t, addresses("10.1.0.5", "10.1.1.7"), s.Remotes[0].Pods)
	verdict := verdicts[KeyOf(o.Links[0])]
	assert.True(t, verdict.Accepted)
	assert.Contains(t, verdict.Message, "this cluster takes part; nothing of IPv6 is carried: the range fd00:1::/48 of cluster west overlaps "+
		"with fd00:1:0:1::/64 of the pods of node node-1")
	assert.Len(t, verdict.Ranges, 1)

	o = dual(home(), "fd00:2::/48")
	o.Nodes[1].Status.Addresses = append(o.Nodes[1].Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fd00:2::99"})
	s, verdicts = Make(o)
	require.Len(t, s.Remotes, 1)
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, s.Remotes[0].Ranges)
	assert.Contains(t, verdicts[KeyOf(o.Links[0])].Message, "nothing of IPv6 is carried: ranges of cluster west have the address fd00:2::99 "+
		"of node node-2")
}
