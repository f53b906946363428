package main

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/network/agent/plan"
)

// TestNobodyElseIsReachedAfterPacketFiltersAreFlushed has somebody flush all packet filters of home again and again, while a gateway of
// west sends all the time: to pods that are not named, to nodes, and under an address that is none of west's.
func TestNobodyElseIsReachedAfterPacketFiltersAreFlushed(t *testing.T) {
	t.Parallel()
	for _, wireGuard := range []bool{false, true} {
		t.Run("by "+map[bool]string{false: "TLS", true: "WireGuard"}[wireGuard], func(t *testing.T) {
			var l *netlab.Lab
			if wireGuard {
				l = guarded(t, netlab.Settings{Dual: true})
			} else {
				l = joined(t, netlab.Settings{Dual: true})
			}
			await6(t, l)
			node, at, hostile := l.Home.Nodes[0], l.Home.Nodes[1], l.West.Nodes[1]
			require.NoError(t, hostile.Address4("lo", "10.2.1.77/32", "10.9.9.9/32", "fd00:10:2:1::77/128"))
			told := l.Site(l.West) // as far as west has a say, this node is a pod
			told.Remotes[0].Ranges = append(told.Remotes[0].Ranges, netip.PrefixFrom(node.Address, 32), netip.MustParsePrefix("fd00:30:1::/48"))
			require.NoError(t, l.Tell(l.West, told))
			awaitRange(t, l.West, "fd00:30:1::/48", true)
			if wireGuard {
				awaitWireGuard(t, l, true)
			}
			inside := at.Pods[0]
			var all []hearing
			listen := func(who string, in *netlab.Namespace, to netip.Addr) {
				all = append(all, hear(t, who, in, to))
			}
			for _, n := range []*netlab.Node{node, at} {
				listen("a pod that is not named", n.Pods[1].Namespace, n.Pods[1].Address)
				listen("a pod that is not named", n.Pods[1].Namespace, n.Pods[1].Address6)
				listen("a node, by the address that it has for its pods", n.Namespace, n.Range.Addr().Next())
				listen("a node, by IPv6", n.Namespace, n.Range6.Addr().Next())
			}
			listen("a node", node.Namespace, node.Address)
			var everybody []hearing
			for _, n := range l.Home.Nodes[1:] {
				everybody = append(everybody, hear(t, "a gateway, as one of all", n.Namespace, netip.IPv4Unspecified()),
					hear(t, "a gateway, as one of all", n.Namespace, netip.IPv6Unspecified()))
			}
			toAll := []netip.Addr{netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("ff02::1"),
				netip.MustParseAddr("ff05::2")}
			device := plan.Device("home")
			if wireGuard {
				device = plan.WireGuardDevice("home")
			}
			named := hear(t, "a pod that is named", inside.Namespace, inside.Address)
			sends := func() {
				for _, h := range all {
					source := "10.2.1.77:1"
					if h.at.Addr().Is6() {
						source = "[fd00:10:2:1::77]:1"
					}
					say(t, hostile.Namespace, source, "x", h.at.Addr())
				}
				say(t, hostile.Namespace, "10.9.9.9:1", "under another address", inside.Address)
				for _, to := range toAll {
					source := "10.2.1.77"
					if to.Is6() {
						source = "fd00:10:2:1::77"
					}
					require.NoError(t, hostile.Inject(device, datagram(source, to, "to all, "+to.String(), nil)))
				}
			}
			flush := func() {
				for _, n := range l.Home.Nodes {
					require.NoError(t, n.FlushRuleset())
				}
				for range 10 {
					sends()
					time.Sleep(5 * time.Millisecond)
				}
			}
			for range 10 {
				flush()
			}
			killed := append([]*netlab.Node{hostile}, l.Home.Nodes...)
			if wireGuard { // nobody is there to put filters back, and what the gateway sends goes on by WireGuard
				awaitWireGuard(t, l, true)
				for _, n := range killed {
					n.Kill()
				}
				require.NoError(t, hostile.Widen(device, toAll...))
				flush()
			}
			var said []string
			require.Eventually(t, func() bool {
				say(t, hostile.Namespace, "10.2.1.77:1", "right", inside.Address)
				said = append(said, named.heard(t)...)
				return slices.Contains(said, "right")
			}, patience, time.Millisecond, "what was sent was right: who is named hears it, all the time")
			assert.Subset(t, []string{"right"}, said)
			for _, h := range append(all, everybody...) {
				assert.Empty(t, h.heard(t), "%s, %s, is reached", h.who, h.at)
			}
			if wireGuard {
				for _, n := range killed {
					require.NoError(t, l.Start(n))
				}
			}
			await(t, l)
			await6(t, l)
		})
	}
}

// hearing is somebody who listens at port 9001 of an address.
type hearing struct {
	who  string
	at   netip.AddrPort
	conn *net.UDPConn
}

func hear(t *testing.T, who string, in *netlab.Namespace, at netip.Addr) hearing {
	t.Helper()
	conn, err := in.ListenPacket(netip.AddrPortFrom(at, 9001).String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return hearing{who, netip.AddrPortFrom(at, 9001), conn}
}

// heard is what was said since it was asked last, each once.
func (h hearing) heard(t *testing.T) (said []string) {
	t.Helper()
	buffer := make([]byte, 100)
	for {
		require.NoError(t, h.conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		n, err := h.conn.Read(buffer)
		if err != nil {
			return said
		}
		if one := string(buffer[:n]); !slices.Contains(said, one) {
			said = append(said, one)
		}
	}
}
