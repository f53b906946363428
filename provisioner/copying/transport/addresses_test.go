package transport_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/provisioner/copying/transport"
)

// ranges are those of the remote clusters.
var ranges = remotecluster.PodRanges{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/64")}

func TestWhichClustersMoversDialEachOther(t *testing.T) {
	home := transport.Place{Cluster: keys.Home}
	west := func(network v1alpha1.PodNetwork) transport.Place {
		return transport.Place{Cluster: "west", Network: network, Ranges: ranges}
	}
	east := transport.Place{Cluster: "east", Network: v1alpha1.Routed, Ranges: ranges}
	west2 := transport.Place{Cluster: "west2", Network: v1alpha1.Fabric, Ranges: ranges}
	for name, row := range map[string]struct {
		source, target transport.Place
		direct         bool
	}{
		"within home":                             {source: home, target: home, direct: true},
		"within a cluster that is apart":          {source: west(v1alpha1.Isolated), target: west(v1alpha1.Isolated), direct: true},
		"to a cluster that is apart":              {source: home, target: west(v1alpha1.Isolated)},
		"to one of which nothing is said":         {source: home, target: west("")},
		"from a cluster that is apart":            {source: west(v1alpha1.Isolated), target: home},
		"to a cluster that shares networks":       {source: home, target: east, direct: true},
		"from a cluster that shares networks":     {source: east, target: home, direct: true},
		"between two that share those of home":    {source: west(v1alpha1.Routed), target: east, direct: true},
		"between two of which one is apart":       {source: west(v1alpha1.Isolated), target: east},
		"between two of which the other is apart": {source: east, target: west(v1alpha1.Isolated)},
		"between two that the fabric joins":       {source: west(v1alpha1.Fabric), target: west2},
		"between two of which it joins one":       {source: west(v1alpha1.Fabric), target: east},
	} {
		t.Run(name, func(t *testing.T) {
			addresses, why := transport.Peers(row.source, row.target, []string{"10.1.2.3", "fd00::7"}, 8440, nil)
			if !row.direct {
				assert.Empty(t, addresses)
				assert.Regexp(t, "cluster west have no addresses for other clusters|no movers of cluster west reach those of cluster", why)
				return
			}
			assert.Equal(t, []string{"10.1.2.3:8440", "[fd00::7]:8440"}, addresses)
			assert.Empty(t, why)
			assert.NoError(t, moverapi.Peers{Addresses: addresses}.Check())
		})
	}
}

// hostile are addresses that no pod can have.
var hostile = []string{
	"127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "169.254.169.254", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1",
	"255.255.255.255",
	"::ffff:169.254.169.254", "fd00:ec2::254", "fd00:ec2::23", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "100.100.100.200", "db.shop", "",
	"10.0.0.1:22", "10.0.0.0/8",
}

func TestAClusterChoosesNoAddressThatIsNoPods(t *testing.T) {
	home := transport.Place{Cluster: keys.Home}
	addresses, why := transport.Peers(home, home, hostile, 8440, nil)
	assert.Empty(t, addresses)
	assert.Contains(t, why, "--mover-networks")
	every := transport.Networks{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	addresses, _ = transport.Peers(home, home, hostile, 8440, every)
	assert.Equal(t, []string{"127.0.0.1:8440", "[::1]:8440", "127.0.0.1:8440"}, addresses, "loopback, for it is listed, and nothing else")

	many := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}
	addresses, _ = transport.Peers(home, home, many, 8440, nil)
	assert.Len(t, addresses, moverapi.MaxPeers)
	addresses, _ = transport.Peers(home, home, many, 8440, transport.Networks{netip.MustParsePrefix("10.0.0.2/32"),
		netip.MustParsePrefix("192.0.2.0/24")})
	assert.Equal(t, []string{"10.0.0.2:8440"}, addresses)
}

func TestMoversDialAClusterOnlyInItsPodRanges(t *testing.T) {
	home, ips := transport.Place{Cluster: keys.Home}, []string{"10.2.2.3", "10.1.2.3"}
	known := transport.Place{Cluster: "west", Network: v1alpha1.Routed, Ranges: ranges}
	unknown := transport.Place{Cluster: "west", Network: v1alpha1.Routed}
	listed := transport.Networks{netip.MustParsePrefix("10.2.0.0/16")}
	for name, row := range map[string]struct {
		source, target transport.Place
		networks       transport.Networks
		ips            []string
		want           []string
		why            string
	}{
		"an address of its ranges and one of none": {source: home, target: known, ips: ips, want: []string{"10.1.2.3:8440"}},
		"an address of none of them": {source: home, target: known, ips: ips[:1],
			why: "says that the mover at the target has address 10.2.2.3, which is in none of its pod ranges"},
		"… though the network is listed":      {source: home, target: known, networks: listed, ips: ips[:1], why: "in none of its pod ranges"},
		"ranges that are not known":           {source: home, target: unknown, ips: ips, why: "name them in spec.podCIDRs"},
		"… in a network that is listed":       {source: home, target: unknown, networks: listed, ips: ips, want: []string{"10.2.2.3:8440"}},
		"home's own address":                  {source: known, target: home, ips: ips, want: []string{"10.2.2.3:8440", "10.1.2.3:8440"}},
		"within the cluster that says it all": {source: known, target: known, ips: ips, want: []string{"10.2.2.3:8440", "10.1.2.3:8440"}},
	} {
		t.Run(name, func(t *testing.T) {
			addresses, why := transport.Peers(row.source, row.target, row.ips, 8440, row.networks)
			assert.Equal(t, row.want, addresses)
			assert.Contains(t, why, row.why)
			assert.Equal(t, row.why == "", why == "")
		})
	}
}

func TestMoversDialEachOtherThroughTheFabric(t *testing.T) {
	translations := func(pods, as string) remotecluster.Translations {
		return remotecluster.Translations{{PodCIDR: netip.MustParsePrefix(pods), ReachedAs: netip.MustParsePrefix(as)}}
	}
	listed := func(network string) transport.Networks { return transport.Networks{netip.MustParsePrefix(network)} }
	home, west := transport.Place{Cluster: keys.Home}, transport.Place{Cluster: "west", Network: v1alpha1.Fabric, Ranges: ranges}
	overlapping := west
	overlapping.Translations = translations("10.1.0.0/16", "100.64.0.0/16")
	overlapping.HomeTranslations = translations("10.1.0.0/16", "100.65.0.0/16")
	for name, row := range map[string]struct {
		source, target transport.Place
		networks       transport.Networks
		ips            []string
		want           []string
		why            string
	}{
		"to the remote cluster": {source: home, target: west, ips: []string{"10.1.2.3"}, want: []string{"10.1.2.3:8440"}},
		"from there":            {source: west, target: home, ips: []string{"10.2.2.3"}, want: []string{"10.2.2.3:8440"}},
		"within it, by all addresses": {source: overlapping, target: overlapping, ips: []string{"10.1.2.3", "fd00::7"},
			want: []string{"10.1.2.3:8440", "[fd00::7]:8440"}},
		"not by IPv6":                      {source: home, target: west, ips: []string{"fd00::7"}, why: "no address that another one may dial"},
		"not to an address of none of its": {source: home, target: west, ips: []string{"10.2.2.3"}, why: "in none of its pod ranges"},
		"where ranges overlap":             {source: home, target: overlapping, ips: []string{"10.1.2.3"}, want: []string{"100.64.2.3:8440"}},
		"… and from there":                 {source: overlapping, target: home, ips: []string{"10.1.2.3"}, want: []string{"100.65.2.3:8440"}},
		"… not to what stands for others": {source: home, target: overlapping, ips: []string{"100.64.2.3"},
			why: "no address that another one may dial"},
		"… in a network that is listed": {source: home, target: overlapping, networks: listed("100.64.0.0/16"), ips: []string{"10.1.2.3"},
			want: []string{"100.64.2.3:8440"}},
		"… not in one that is not": {source: home, target: overlapping, networks: listed("10.1.0.0/16"), ips: []string{"10.1.2.3"},
			why: "--mover-networks"},
		"not where its address is no pod's": {source: home, target: west, ips: hostile, why: "no address that another one may dial"},
	} {
		t.Run(name, func(t *testing.T) {
			addresses, why := transport.Peers(row.source, row.target, row.ips, 8440, row.networks)
			assert.Equal(t, row.want, addresses)
			assert.Contains(t, why, row.why)
			assert.Equal(t, row.why == "", why == "")
		})
	}
}

func TestTheProvisionerDialsNoAddressThatAClusterChooses(t *testing.T) {
	apart := transport.Place{Cluster: "west", Network: v1alpha1.Isolated}
	shared := transport.Place{Cluster: "west", Network: v1alpha1.Routed, Ranges: ranges}
	unknown := transport.Place{Cluster: "west", Network: v1alpha1.Routed}
	fabric := transport.Place{Cluster: "west", Network: v1alpha1.Fabric, Ranges: ranges}
	listed := transport.Networks{netip.MustParsePrefix("10.1.0.0/16")}
	for name, row := range map[string]struct {
		place    transport.Place
		networks transport.Networks
		ip, want string
	}{
		"a pod at home":                               {place: transport.Place{Cluster: keys.Home}, ip: "fd00::7", want: "[fd00::7]:8440"},
		"a pod in networks that are shared":           {place: shared, ip: "10.1.2.3", want: "10.1.2.3:8440"},
		"a pod in networks that are apart":            {place: apart, ip: "10.1.2.3"},
		"… of a cluster of which nothing is said":     {place: transport.Place{Cluster: "west"}, ip: "10.1.2.3"},
		"a pod that only the fabric reaches":          {place: fabric, ip: "10.1.2.3"},
		"… and in one that is listed":                 {place: apart, networks: listed, ip: "10.1.2.3", want: "10.1.2.3:8440"},
		"a pod in a network of none of its ranges":    {place: shared, ip: "10.2.2.3"},
		"… of a cluster whose ranges nobody knows":    {place: unknown, ip: "10.1.2.3"},
		"… in a network that is listed":               {place: unknown, networks: listed, ip: "10.1.2.3", want: "10.1.2.3:8440"},
		"an address that is not listed":               {place: apart, networks: listed, ip: "10.2.2.3"},
		"… though networks are shared":                {place: shared, networks: listed, ip: "10.2.2.3"},
		"a name, which anybody could be looked up by": {place: transport.Place{Cluster: keys.Home}, ip: "db.shop"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, row.want, transport.Reach(row.place, row.ip, 8440, row.networks)) })
	}
	for _, ip := range hostile {
		every := transport.Place{Cluster: "west", Network: v1alpha1.Routed, Ranges: remotecluster.PodRanges{netip.MustParsePrefix("0.0.0.0/0"),
			netip.MustParsePrefix("::/0")}}
		assert.Empty(t, transport.Reach(every, ip, 8440, nil), ip)
	}
}

func TestThePlaceOfAClusterIsThatOfItsRemoteCluster(t *testing.T) {
	west := transport.PlaceOf("west", &v1alpha1.RemoteCluster{
		Spec: v1alpha1.RemoteClusterSpec{PodNetwork: v1alpha1.Routed, PodCIDRs: []string{"10.1.0.0/16"},
			PodTranslations:     []networkv1alpha1.PodTranslation{{PodCIDR: "10.1.0.0/16", ReachedAs: "100.64.0.0/16"}},
			HomePodTranslations: []networkv1alpha1.PodTranslation{{PodCIDR: "10.3.0.0/16", ReachedAs: "100.65.0.0/16"}}}})
	assert.Equal(t, v1alpha1.Routed, west.Network)
	assert.True(t, west.Ranges.Has(netip.MustParseAddr("10.1.2.3")))
	assert.False(t, west.Ranges.Has(netip.MustParseAddr("10.2.2.3")))
	assert.Equal(t, "100.64.0.0/16", west.Translations[0].ReachedAs.String())
	assert.Equal(t, "100.65.0.0/16", west.HomeTranslations[0].ReachedAs.String())
	assert.Equal(t, transport.Place{Cluster: "gone"}, transport.PlaceOf("gone", nil))
}
