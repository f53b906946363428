package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/path"
	"github.com/lodestone-storage/lodestone/network/site"
	"github.com/lodestone-storage/lodestone/pkg/pathcheck"
)

// await6 waits until each pod at home that may reaches each of the other clusters by IPv6, and is reached.
func await6(t *testing.T, l *netlab.Lab) {
	t.Helper()
	for _, c := range l.Clusters()[1:] {
		for _, from := range l.Home.Nodes {
			for _, to := range c.Nodes {
				for _, way := range [][2]*netlab.Node{{from, to}, {to, from}} {
					require.NoError(t, netlab.Hear(way[0].Pods[0].Namespace, way[1].Pods[0].IPv6(), patience), "%s does not reach %s by IPv6",
						way[0].Name, way[1].Name)
				}
			}
		}
	}
}

func TestPodsReachEachOtherByIPv4AndIPv6(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		settings netlab.Settings
	}{
		{"nodes have ranges", netlab.Settings{Dual: true, Strict: true}},
		{"nodes have no ranges", netlab.Settings{Dual: true, Scattered: true}},
		{"addresses of IPv4 are translated", netlab.Settings{Dual: true, OneRange: true}},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := joined(t, row.settings)
			await6(t, l)
			// From each gateway to each other node: only routes there say which packets are too large.
			for _, from := range l.Home.Nodes {
				for _, to := range l.West.Nodes {
					for _, way := range [][2]*netlab.Node{{from, to}, {to, from}} {
						reaches(t, way[0].Pods[0].IPv6(), way[1].Pods[0].IPv6())
					}
				}
			}
			reaches(t, l.Home.Nodes[1].Pods[0], l.West.Nodes[2].Pods[0])
			reaches(t, l.West.Nodes[0].Pods[0], l.Home.Nodes[0].Pods[0])
			probes(t, l.Home.Nodes[0].Pods[0], l.West.Nodes[0].Pods[0])
			for _, n := range l.Nodes() {
				addresses, err := n.Addresses6("lode")
				require.NoError(t, err)
				assert.Empty(t, addresses, n.Name)
			}
		})
	}
}

// probes has one pod probe another one by IPv6, as those of the program do.
func probes(t *testing.T, from, to *netlab.Pod) {
	t.Helper()
	require.NoError(t, to.In(func() error { return path.Serve(t.Context(), netip.AddrPortFrom(to.Address6, path.Port)) }))
	var results []pathcheck.Result
	require.NoError(t, from.In(func() error {
		results = path.Check(t.Context(), from.Address6, to.Address6, patience)
		return nil
	}))
	assert.NotEmpty(t, results)
	for _, r := range results {
		assert.Empty(t, r.Problem, "%s of %d bytes", r.Protocol, r.Bytes)
	}
}

func TestNobodyElseIsReachedByIPv6(t *testing.T) {
	l := joined(t, netlab.Settings{Dual: true})
	await6(t, l)
	home, west := l.Home.Nodes[0], l.West.Nodes[0]
	gateway := l.West.Nodes[1]
	inside, outside := home.Pods[0], home.Pods[1]
	unheard(t, map[string][2]*netlab.Pod{
		"a pod there that is not named reaches a pod here":   {west.Pods[1], inside.IPv6()},
		"a pod there reaches a pod here that is not named":   {west.Pods[0], outside.IPv6()},
		"a pod here that is not named reaches a pod there":   {outside, west.Pods[0].IPv6()},
		"a pod here that is not named reaches another there": {outside, west.Pods[1].IPv6()},
	})

	// A gateway there that is in the hands of somebody sends what it likes: nothing filters what it sends itself.
	device := plan.Device("home")
	require.NoError(t, gateway.Address4("lo", "fd00:10:2:1::77/128", "fd00:10:9::9/128", "fd00:10:1::3/128"))
	heard, err := inside.ListenPacket(netip.AddrPortFrom(inside.Address6, 9001).String())
	require.NoError(t, err)
	defer heard.Close()
	says := func(source string, to netip.Addr) { say(t, gateway.Namespace, source, source, to) }
	says("[fd00:10:9::9]:1", inside.Address6)
	says("[fd00:10:1::3]:1", inside.Address6) // an address of home
	says("[fd00:30:2::11]:1", inside.Address6)
	buffer := make([]byte, 100)
	n := 0
	for tries := 0; n == 0 && tries < 20; tries++ {
		says("[fd00:10:2:1::77]:1", inside.Address6)
		require.NoError(t, heard.SetReadDeadline(time.Now().Add(time.Second)))
		n, _ = heard.Read(buffer)
	}
	assert.Equal(t, "[fd00:10:2:1::77]:1", string(buffer[:n]), "only what comes from west's ranges arrives")

	// It reaches no node either, by none of their addresses.
	require.NoError(t, gateway.Route("fd00:30:1::/48", "", device))
	for i, n := range l.Home.Nodes {
		for _, at := range []netip.Addr{netip.MustParseAddr(fmt.Sprintf("fd00:30:1::%d", 10+i)), n.Range6.Addr().Next()} {
			server, err := n.ListenPacket(netip.AddrPortFrom(at, 9002).String())
			require.NoError(t, err)
			conn, err := gateway.Dial("udp", "[fd00:10:2:1::77]:2", netip.AddrPortFrom(at, 9002).String())
			require.NoError(t, err)
			_, _ = conn.Write([]byte("x"))
			require.NoError(t, server.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
			_, err = server.Read(buffer)
			assert.Error(t, err, "a gateway there reaches %s of node %s", at, n.Name)
			_, _ = conn.Close(), server.Close()
		}
	}
}

// only has a cluster be told of the ranges and pods of some family alone.
func only(s *site.Site, is func(netip.Addr) bool) *site.Site {
	of := func(ranges []netip.Prefix) []netip.Prefix {
		return slices.DeleteFunc(slices.Clone(ranges), func(r netip.Prefix) bool { return !is(r.Addr()) })
	}
	for i := range s.Nodes {
		s.Nodes[i].Pods = of(s.Nodes[i].Pods)
	}
	for i := range s.Remotes {
		r := &s.Remotes[i]
		r.Ranges = of(r.Ranges)
		r.Pods = slices.DeleteFunc(r.Pods, func(a netip.Addr) bool { return !is(a) })
	}
	return s
}

// TestNothingOfIPv6PassesWhereRangesAreOfIPv4 has home know ranges of IPv4 alone, and west of both: then nothing that west sends by IPv6
// arrives, and home sends nothing.
func TestNothingOfIPv6PassesWhereRangesAreOfIPv4(t *testing.T) {
	l := newLab(t, netlab.Settings{Dual: true})
	require.NoError(t, l.Join())
	await(t, l)
	await6(t, l)
	require.NoError(t, l.Tell(l.Home, only(l.Site(l.Home), netip.Addr.Is4)))
	awaitRange(t, l.Home, "fd00:10:2::/48", false)
	await(t, l)
	// It leads into the fabric all the same, as somebody who is at home on the gateways could have it.
	for _, n := range l.Home.Nodes[1:] {
		require.NoError(t, n.Route("fd00:10:2::/48", "", plan.Device("west")))
	}
	ways := map[string][2]*netlab.Pod{}
	for i, n := range l.Home.Nodes {
		to := l.West.Nodes[i]
		ways[n.Name+" is reached"] = [2]*netlab.Pod{to.Pods[0], n.Pods[0].IPv6()}
		ways[n.Name+" reaches west"] = [2]*netlab.Pod{n.Pods[0], to.Pods[0].IPv6()}
	}
	unheard(t, ways)
	for _, n := range l.Home.Nodes {
		assert.NotContains(t, n.Agent.Log(), "could not be brought in line")
	}
}

// awaitRange waits until all nodes of a cluster lead to a range, or none.
func awaitRange(t *testing.T, c *netlab.Cluster, to string, leads bool) {
	t.Helper()
	for _, n := range c.Nodes {
		require.Eventually(t, func() bool {
			state, err := n.State()
			return err == nil && strings.Contains(state, to) == leads
		}, patience, 50*time.Millisecond, "%s: %s", n.Name, to)
	}
}

// TestIPv6BeginsAndEndsAndDropsNoConnection has clusters that are joined by IPv4 be joined by IPv6, too, and then by that alone.
func TestIPv6BeginsAndEndsAndDropsNoConnection(t *testing.T) {
	l := newLab(t, netlab.Settings{Dual: true})
	before := states(t, l)
	tell := func(is func(netip.Addr) bool) {
		for _, c := range l.Clusters() {
			require.NoError(t, l.Tell(c, only(l.Site(c), is)))
		}
	}
	both := func(netip.Addr) bool { return true }
	from, to := l.Home.Nodes[0].Pods[0], l.West.Nodes[0].Pods[0]
	require.NoError(t, l.Join())
	tell(netip.Addr.Is4)
	await(t, l)
	talk, err := netlab.NewTalk(from.Namespace, to)
	require.NoError(t, err)
	defer talk.Close()
	tell(both)
	await6(t, l)
	talk6, err := netlab.NewTalk(from.Namespace, to.IPv6())
	require.NoError(t, err)
	defer talk6.Close()
	tell(netip.Addr.Is4)
	awaitRange(t, l.Home, "fd00:10:2::/48", false)
	tell(both)
	require.NoError(t, talk6.GoesOn(patience))
	require.NoError(t, talk.GoesOn(patience))
	_, err = talk.Gap()
	require.NoError(t, err, "the connection by IPv4 is kept")
	tell(netip.Addr.Is6)
	awaitRange(t, l.Home, "10.2.0.0/16", false)
	awaitRange(t, l.West, "10.1.0.0/16", false)
	await6(t, l)
	reaches(t, from.IPv6(), to.IPv6())
	require.NoError(t, talk6.GoesOn(patience))
	_, err = talk6.Gap()
	require.NoError(t, err, "the connection by IPv6 is kept")
	part(t, l)
	requireStates(t, l, before)
}
