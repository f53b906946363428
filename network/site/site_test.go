package site

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatCannotBeIsRefused(t *testing.T) {
	const key = `"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="`
	const gateways = `"gateways": [{"name": "g", "address": "192.0.2.1:7473", "keys": [` + key + `]}]`
	for _, row := range []struct{ name, text, want string }{
		{"ranges of two clusters overlap", `{"remotes": [{"name": "a", "ranges": ["10.0.0.0/8"], ` + gateways + `}, {"name": "b", "ranges": ["10.1.0.0/16"], ` +
			gateways + `}]}`, "the range 10.1.0.0/16 of cluster b overlaps with 10.0.0.0/8 of cluster a"},
		{"a cluster has the range of the pods here", `{"nodes": [{"name": "n", "address": "192.0.2.1", "pods": ["10.244.0.0/24"]}], "remotes": [
			{"name": "b", "ranges": ["10.244.0.0/16"], ` + gateways + `}]}`, "have it reached as a range of its own, by podTranslations"},
		{"pods here are reached as a range of another length", `{"remotes": [{"name": "a", "ranges": ["10.1.0.0/16"], "translations": [
			{"podCIDR": "10.244.0.0/16", "reachedAs": "100.64.0.0/17"}], ` + gateways + `}]}`, "give a range of /16"},
		{"pods here are reached as the range of a cluster", `{"remotes": [{"name": "a", "ranges": ["10.1.0.0/16"], "translations": [
			{"podCIDR": "10.244.0.0/16", "reachedAs": "10.1.0.0/16"}], ` + gateways + `}]}`,
			"cluster a reaches pods here as 10.1.0.0/16, which overlaps with its own range"},
		{"the range of a cluster has a node in it", `{"nodes": [{"name": "n", "address": "10.1.2.3"}], "remotes": [{"name": "b", "ranges": ["10.1.0.0/16"], ` +
			gateways + `}]}`, "the range 10.1.0.0/16 of cluster b overlaps with 10.1.2.3/32 of node n"},
		{"a range with bits after its length", `{"remotes": [{"name": "a", "ranges": ["10.1.0.1/16"], ` + gateways + `}]}`, "not a range from /8 on"},
		{"a range that is everything", `{"remotes": [{"name": "a", "ranges": ["0.0.0.0/0"], ` + gateways + `}]}`, "not a range from /8 on"},
		{"a range that is all of IPv6", `{"remotes": [{"name": "a", "ranges": ["::/0"], ` + gateways + `}]}`, "not a range from /8 on"},
		{"a range of neighbours", `{"remotes": [{"name": "a", "ranges": ["fe80::/64"], ` + gateways + `}]}`, "none has an address of fe80::/10"},
		{"a range of several", `{"remotes": [{"name": "a", "ranges": ["ff05::/16"], ` + gateways + `}]}`, "none has an address of ff00::/8"},
		{"a range of IPv4 in IPv6", `{"remotes": [{"name": "a", "ranges": ["::ffff:10.1.0.0/112"], ` + gateways + `}]}`, "not a range from /8 on"},
		{"a range of IPv6 of two", `{"nodes": [{"name": "n", "address": "192.0.2.1", "pods": ["fd00:1::/64"]}], "remotes": [
			{"name": "a", "ranges": ["fd00:1::/48"], ` + gateways + `}]}`,
			"the range fd00:1::/48 of cluster a overlaps with fd00:1::/64 of the pods of node n: IPv6 is not translated"},
		{"a pod at an address of one link", `{"remotes": [{"name": "a", "ranges": ["fd00:1::/48"], "pods": ["fe80::1%eth0"], ` + gateways + `}]}`,
			"the pod fe80::1%eth0 that cluster a may reach has no such address"},
		{"a node with an address of IPv6", `{"nodes": [{"name": "n", "address": "fd00::1"}]}`, "give an IPv4 address"},
		{"a field that there is not", `{"node": []}`, "unknown field"},
		{"a key that is none", `{"remotes": [{"name": "a", "gateways": [{"name": "g", "keys": ["x"]}]}]}`, "is not the key of a gateway"},
		{"two nodes of a name", `{"nodes": [{"name": "a", "address": "192.0.2.3"}, {"name": "a", "address": "192.0.2.4"}]}`, "two of the name"},
		{"a cluster without ranges", `{"remotes": [{"name": "a", ` + gateways + `}]}`, "no ranges or no gateways"},
		{"a node without an address", `{"nodes": [{"name": "a"}]}`, "give an IPv4 address"},
		{"an MTU below that of all networks", `{"remotes": [{"name": "a", "ranges": ["10.1.0.0/16"], "mtu": 500, ` + gateways + `}]}`, "from 1280 to 65535"},
		{"what is behind a cluster overlaps with another one", `{"remotes": [{"name": "a", "ranges": ["10.1.0.0/16"], "behind": [
			{"name": "c", "ranges": ["10.2.0.0/16"]}], ` + gateways + `}, {"name": "b", "ranges": ["10.2.0.0/16"], ` + gateways + `}]}`,
			"the range 10.2.0.0/16 of cluster b overlaps with 10.2.0.0/16 of cluster c behind cluster a"},
		{"what is behind a cluster has the range of pods here", `{"nodes": [{"name": "n", "address": "192.0.2.1", "pods": ["10.244.0.0/24"]}],
			"remotes": [{"name": "a", "ranges": ["10.1.0.0/16"], "behind": [{"name": "c", "ranges": ["10.244.0.0/16"]}], ` + gateways + `}]}`,
			"overlaps with 10.244.0.0/24"},
		{"a cluster has addresses of the pods here, whose nodes have no ranges", `{"podRanges": ["10.244.0.0/16"], "remotes": [
			{"name": "b", "ranges": ["10.244.7.0/24"], ` + gateways + `}]}`, "of cluster b overlaps with 10.244.0.0/16 of the pods of this cluster"},
		{"a pod is outside of the ranges of all", `{"podRanges": ["10.244.0.0/16"], "nodes": [{"name": "n", "address": "192.0.2.1",
			"pods": ["10.245.0.7/32"]}]}`, "node n has pods at 10.245.0.7/32, which is not an address of the ranges of this cluster's pods"},
		{"a node has a range where nodes have none", `{"podRanges": ["10.244.0.0/16"], "nodes": [{"name": "n", "address": "192.0.2.1",
			"pods": ["10.244.0.0/24"]}]}`, "node n has pods at 10.244.0.0/24, which is not an address"},
		{"two clusters have a key", `{"remotes": [{"name": "a", "ranges": ["10.1.0.0/16"], ` + gateways + `}, {"name": "b", "ranges": ["10.2.0.0/16"], ` +
			gateways + `}]}`, "gateway g of cluster b has the key of a gateway of cluster a"},
		{"what is behind a cluster has no ranges", `{"remotes": [{"name": "a", "ranges": ["10.1.0.0/16"], "behind": [{"name": "c"}], ` +
			gateways + `}]}`, "cluster a has a cluster behind it without a name, ranges"},
		{"what is reached directly has the key of another cluster", `{"remotes": [{"name": "a", "ranges": ["10.1.0.0/16"], "behind": [
			{"name": "c", "ranges": ["10.2.0.0/16"], "direct": [{"name": "c1", "keys": [` + key + `]}]}], ` + gateways + `}]}`,
			"gateway c1 of cluster a/c has the key of a gateway of cluster a"},
		{"a gateway that is reached directly has no key", `{"remotes": [{"name": "a", "ranges": ["10.1.0.0/16"], "behind": [{"name": "c",
			"ranges": ["10.2.0.0/16"], "direct": [{"name": "c1"}]}], ` + gateways + `}]}`, "cluster a/c has a gateway without a name or a key"},
		{"a name is one of what is reached directly", `{"remotes": [{"name": "a/c", "ranges": ["10.1.0.0/16"], ` + gateways + `}]}`, "without /"},
		{"a pod of one cluster passes with an address of another", `{"remotes": [{"name": "a", "ranges": ["10.1.0.0/16"], "transit": [{"to": "b",
			"pods": ["10.2.0.5"]}], ` + gateways + `}, {"name": "b", "ranges": ["10.2.0.0/16"], ` + gateways + `}]}`,
			"the pod 10.2.0.5 that reaches cluster b from cluster a is in none of its ranges"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := Parse([]byte(row.text))
			assert.ErrorContains(t, err, row.want)
		})
	}
	s, err := Parse([]byte(`{"nodes": [{"name": "n", "address": "192.0.2.1", "pods": ["10.2.0.0/24"], "gateway": true}],
		"remotes": [{"name": "a", "ranges": ["10.1.0.0/16"], ` + gateways + `, "pods": ["10.2.0.5"]}]}`))
	require.NoError(t, err)
	assert.True(t, s.Node("n").Gateway)
	assert.Nil(t, s.Node("m"))

	_, err = Parse([]byte(`{"podRanges": ["10.2.0.0/16"], "nodes": [{"name": "n", "address": "192.0.2.1", "pods": ["10.2.0.5/32"]},
		{"name": "m", "address": "192.0.2.2"}]}`))
	require.NoError(t, err)

	_, err = Parse([]byte(`{"nodes": [{"name": "n", "address": "192.0.2.1", "pods": ["10.2.0.0/24", "fd00:2::/64"]}],
		"remotes": [{"name": "a", "ranges": ["10.1.0.0/16", "fd00:1::/48"], ` + gateways + `, "pods": ["10.2.0.5", "fd00:2::5"]}]}`))
	require.NoError(t, err, "both families")

	const as = `"translations": [{"podCIDR": "10.244.0.0/16", "reachedAs": "100.64.0.0/16"}]`
	s, err = Parse([]byte(`{"nodes": [{"name": "n", "address": "192.0.2.1", "pods": ["10.244.0.0/24"]}],
		"remotes": [{"name": "a", "ranges": ["100.65.0.0/16"], ` + as + `, ` + gateways + `},
		{"name": "b", "ranges": ["100.66.0.0/16"], ` + as + `, ` + strings.Replace(gateways, "AAAA", "BAAA", 1) + `}]}`))
	require.NoError(t, err, "three clusters with one range")
	assert.Equal(t, "10.244.0.0/16 as 100.64.0.0/16", s.Remotes[1].Translations[0].String())
}

// TestNoOverlapIsOverlooked compares what is looked at fast, for thousands of nodes, with all pairs.
func TestNoOverlapIsOverlooked(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	found := map[bool]int{}
	for range 20000 {
		var ranges []owned
		overlap := false
		for range 2 + random.IntN(5) {
			address := netip.AddrFrom4([4]byte{10, byte(random.IntN(4) << 6), byte(random.IntN(4) << 6), byte(random.IntN(4) << 6)})
			if random.IntN(4) == 0 {
				address = netip.AddrFrom16([16]byte{0xfd, 0, byte(random.IntN(4) << 6), byte(random.IntN(4) << 6)})
			}
			prefix, err := address.Prefix(8 + random.IntN(25))
			require.NoError(t, err)
			one := owned{prefix, string(rune('a' + random.IntN(3)))}
			for _, other := range ranges {
				overlap = overlap || other.owner != one.owner && other.Overlaps(one.Prefix)
			}
			ranges = append(ranges, one)
		}
		found[overlap]++
		require.Equal(t, overlap, !apart(ranges), "%v", ranges)
		require.Equal(t, overlap, len(overlaps(ranges)) > 0, "%v", ranges)
	}
	assert.Greater(t, min(found[true], found[false]), 1000, "there are both: %v", found)
}
