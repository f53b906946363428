package lane_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/network/lane"
)

// datagram is a UDP packet as a lane carries it, behind a header that says nothing.
func datagram(from, to netip.Addr, port uint16, text string) []byte {
	udp := []byte{0, 1, byte(port >> 8), byte(port), 0, byte(8 + len(text)), 0, 0}
	udp = append(udp, text...)
	var ip []byte
	if from.Is4() {
		ip = []byte{0x45, 0, 0, byte(20 + len(udp)), 0, 0, 0, 0, 64, 17, 0, 0}
	} else {
		ip = []byte{0x60, 0, 0, 0, 0, byte(len(udp)), 17, 64}
	}
	ip = append(append(ip, from.AsSlice()...), to.AsSlice()...)
	if from.Is4() {
		binary.BigEndian.PutUint16(ip[10:], ^sum(ip))
	} else { // UDP of IPv6 needs a checksum
		pseudo := append(append([]byte{0, 17, 0, byte(len(udp))}, ip[8:]...), udp...)
		binary.BigEndian.PutUint16(udp[6:], ^sum(append(pseudo, make([]byte, len(pseudo)%2)...)))
	}
	return append(make([]byte, 10), append(ip, udp...)...)
}

func sum(words []byte) uint16 {
	total := uint32(0)
	for ; len(words) > 1; words = words[2:] {
		total += uint32(binary.BigEndian.Uint16(words))
		total = total&0xffff + total>>16
	}
	return uint16(total)
}

func TestOnlyIPv4ComesOutOfALane(t *testing.T) {
	a, b := pair(t)
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{b.key}}})
	require.NoError(t, a.Address("lane0", "fd00::1/64"))
	heard, err := a.ListenPacket("[::]:9001")
	require.NoError(t, err)
	defer heard.Close()
	end, err := lane.SendPackets(t.Context(), b.server, "192.0.2.1:7473", a.key, [][]byte{
		datagram(netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00::1"), 9001, "by IPv6"),
		datagram(netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("10.1.0.1"), 9001, "by IPv4"),
	})
	require.NoError(t, err)
	defer end()
	buffer := make([]byte, 100)
	require.NoError(t, heard.SetReadDeadline(time.Now().Add(5*time.Second)))
	n, err := heard.Read(buffer)
	require.NoError(t, err)
	assert.Equal(t, "by IPv4", string(buffer[:n]))
	assert.Positive(t, a.trunk.Status()[0].Dropped)
	links, err := b.Addresses6("lane0")
	require.NoError(t, err)
	assert.Empty(t, links, "the node is not reached by its lane")
}

func TestOnlyWhatIsBetweenPodsComesOutOfALaneByIPv6(t *testing.T) {
	a, b := pair(t)
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{b.key}}})
	a.trunk.From([]netip.Prefix{netip.MustParsePrefix("fd00::/48"), netip.MustParsePrefix("fe80::/64")})
	require.NoError(t, a.Address("lane0", "fd00::1/64"))
	require.NoError(t, a.Address("lane0", "fe80::1/64"))
	heard, err := a.ListenPacket("[::]:9001")
	require.NoError(t, err)
	defer heard.Close()
	send := func(t require.TestingT, packets ...[]byte) (text string) {
		end, err := lane.SendPackets(context.Background(), b.server, "192.0.2.1:7473", a.key, packets)
		require.NoError(t, err)
		defer end()
		buffer := make([]byte, 100)
		require.NoError(t, heard.SetReadDeadline(time.Now().Add(5*time.Second)))
		n, err := heard.Read(buffer)
		require.NoError(t, err)
		return string(buffer[:n])
	}
	from, to := netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00::1")
	last := datagram(from, to, 9001, "right")
	// hidden has options of some kind, which say nothing, before what is in a packet.
	hidden := func(kind byte) []byte {
		packet := datagram(from, to, 9001, "hidden")
		next := packet[10+6]
		packet[10+5] += 8
		packet[10+6] = kind
		return append(append(append([]byte{}, packet[:50]...), next, 0, 1, 4, 0, 0, 0, 0), packet[50:]...)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // on a busy machine the addresses are not yet there
		require.Equal(c, "right", send(c, last), "and so that any other is heard that comes before it")
	}, 30*time.Second, 10*time.Millisecond)
	for name, packet := range map[string][]byte{
		"from a neighbour":            datagram(netip.MustParseAddr("fe80::2"), to, 9001, "x"),
		"to a neighbour":              datagram(from, netip.MustParseAddr("fe80::1"), 9001, "x"),
		"to all":                      datagram(from, netip.MustParseAddr("ff02::1"), 9001, "x"),
		"orders to all on the way":    hidden(0),
		"options for the destination": hidden(60),
		"from elsewhere":              datagram(netip.MustParseAddr("fd01::2"), to, 9001, "x"),
		"from elsewhere, by IPv4":     datagram(netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("10.1.0.1"), 9001, "x"),
	} {
		dropped := a.trunk.Status()[0].Dropped
		assert.Equal(t, "right", send(t, packet, last), name)
		assert.Greater(t, a.trunk.Status()[0].Dropped, dropped, name)
	}
	// The kernel itself says things to neighbours: nothing of it leaves.
	b.trunk.From([]netip.Prefix{netip.MustParsePrefix("fd00::/48")})
	b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: []lane.Key{a.key}}})
	awaitUp(t, true, a.trunk, b.trunk)
	require.NoError(t, b.Address("lane0", "fe80::2/64"))
	received := a.trunk.Status()[0].Received
	var index int
	require.NoError(t, b.In(func() error {
		link, err := net.InterfaceByName("lane0")
		if err == nil {
			index = link.Index
		}
		return err
	}))
	conn, err := b.Dial("udp", "", fmt.Sprintf("[ff02::1%%%d]:9001", index))
	require.NoError(t, err)
	defer conn.Close()
	for range 3 {
		_, err = conn.Write([]byte("to all"))
		require.NoError(t, err)
	}
	assert.Never(t, func() bool { return a.trunk.Status()[0].Received != received }, 300*time.Millisecond, 50*time.Millisecond)
}

func TestOneSourceDoesNotKeepGatewaysOut(t *testing.T) {
	a, b := pair(t)
	require.NoError(t, b.Address("eth0", "192.0.2.3/24"))
	for range 300 { // each of them says nothing for as long as it may
		conn, err := b.Dial("tcp", "192.0.2.3:0", "192.0.2.1:7473")
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{b.key}}})
	b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: []lane.Key{a.key}}})
	awaitUp(t, true, a.trunk, b.trunk)
}

func TestManySourcesDoNotKeepGatewaysOut(t *testing.T) {
	a, b := pair(t)
	for i := range 40 {
		source := fmt.Sprintf("192.0.2.%d", 100+i)
		require.NoError(t, b.Address("eth0", source+"/24"))
		for range 8 { // each of them says nothing for as long as it may
			conn, err := b.Dial("tcp", source+":0", "192.0.2.1:7473")
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
		}
	}
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{b.key}}})
	b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: []lane.Key{a.key}}})
	awaitUp(t, true, a.trunk, b.trunk)
}

func TestALinkThatIsTooSmallForIPv6HasNone(t *testing.T) {
	netlab.Need(t)
	n, err := netlab.NewNamespace("small")
	require.NoError(t, err)
	defer n.Close()
	for _, mtu := range []int{1200, 1500} {
		require.NoError(t, n.In(func() error {
			link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprint("lode", mtu), MTU: mtu}, PeerName: fmt.Sprint("other", mtu)}
			if err := netlink.LinkAdd(link); err != nil {
				return err
			}
			return errors.Join(lane.OnlyIPv4(link), netlink.LinkSetUp(link), lane.OnlyIPv4(link))
		}), mtu)
	}
	addresses, err := n.Addresses6("lode")
	require.NoError(t, err)
	assert.Empty(t, addresses)
}
