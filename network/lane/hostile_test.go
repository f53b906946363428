package lane_test

import (
	"encoding/binary"
	"errors"
	"fmt"
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
