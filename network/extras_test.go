package main

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/network/agent/plan"
)

// TestNoOptionsAndNoExtensionHeadersComeByWireGuard has a gateway there send packets to a pod that it may reach, as lanes over TLS take
// none: with options of IPv4, by which the sender chose the way, which all nodes would heed, and with extension headers of IPv6.
func TestNoOptionsAndNoExtensionHeadersComeByWireGuard(t *testing.T) {
	l := guarded(t, netlab.Settings{Dual: true})
	await6(t, l)
	inside, hostile := l.Home.Nodes[1].Pods[0], l.West.Nodes[1]
	for _, n := range []*netlab.Namespace{l.Home.Nodes[1].Namespace, inside.Namespace} {
		require.NoError(t, n.Sysctl("ipv4/conf/all/accept_source_route", "1"))
	}
	awaitWireGuard(t, l, true)
	// A way of one more node, which was there already.
	way := func(kind byte) []byte { return []byte{kind, 7, 8, 10, 2, 1, 77, 0} }
	extension := func(kind byte) func() []byte {
		return func() []byte {
			p := datagram("fd00:10:2:1::77", inside.Address6, "extended", nil)
			p[5], p[6] = p[5]+8, kind
			return append(append(append([]byte{}, p[:40]...), 17, 0, 1, 4, 0, 0, 0, 0), p[40:]...)
		}
	}
	for _, row := range []struct {
		name   string
		packet func() []byte
	}{
		{"a loose source route", func() []byte { return datagram("10.2.1.77", inside.Address, "routed", way(131)) }},
		{"a strict source route", func() []byte { return datagram("10.2.1.77", inside.Address, "routed", way(137)) }},
		{"options for all on the way", extension(0)},
		{"options for the destination", extension(60)},
	} {
		packet, right := row.packet(), datagram("10.2.1.77", inside.Address, "right", nil)
		at := inside.Address
		if packet[0]>>4 == 6 {
			at, right = inside.Address6, datagram("fd00:10:2:1::77", inside.Address6, "right", nil)
		}
		heard := hear(t, row.name, inside.Namespace, at)
		require.Eventually(t, func() bool {
			for range 3 {
				require.NoError(t, hostile.Inject(plan.WireGuardDevice("home"), packet))
			}
			require.NoError(t, hostile.Inject(plan.WireGuardDevice("home"), right))
			said := heard.heard(t)
			assert.Subset(t, []string{"right"}, said, row.name)
			return len(said) > 0
		}, patience, time.Millisecond, "%s: another packet comes through", row.name)
		_ = heard.conn.Close()
	}
}

// datagram is a UDP packet to port 9001, of IPv4 with some options, or of IPv6.
func datagram(from string, to netip.Addr, text string, options []byte) []byte {
	source := netip.MustParseAddr(from)
	udp := append([]byte{0, 1, 9001 >> 8, 9001 & 0xff, 0, byte(8 + len(text)), 0, 0}, text...)
	if to.Is4() {
		ip := []byte{0x45 + byte(len(options)/4), 0, 0, byte(20 + len(options) + len(udp)), 0, 0, 0, 0, 64, 17, 0, 0}
		ip = append(append(append(ip, source.AsSlice()...), to.AsSlice()...), options...)
		binary.BigEndian.PutUint16(ip[10:], ^onesSum(ip))
		return append(ip, udp...)
	}
	addresses := append(source.AsSlice(), to.AsSlice()...)
	pseudo := append(append([]byte{0, 17, 0, byte(len(udp))}, addresses...), udp...)
	binary.BigEndian.PutUint16(udp[6:], ^onesSum(append(pseudo, make([]byte, len(pseudo)%2)...)))
	return append(append([]byte{0x60, 0, 0, 0, 0, byte(len(udp)), 17, 64}, addresses...), udp...)
}

// onesSum is the sum of ones' complement, of an even number of bytes.
func onesSum(words []byte) uint16 {
	total := uint32(0)
	for ; len(words) > 1; words = words[2:] {
		total += uint32(binary.BigEndian.Uint16(words))
		total = total&0xffff + total>>16
	}
	return uint16(total)
}
