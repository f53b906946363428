package lane

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

var pods = remotecluster.Translations{
	{PodCIDR: netip.MustParsePrefix("10.244.0.0/16"), ReachedAs: netip.MustParsePrefix("100.64.0.0/16")},
	{PodCIDR: netip.MustParsePrefix("10.9.8.0/23"), ReachedAs: netip.MustParsePrefix("100.65.2.0/23")},
}

// total is the sum of ones' complement of some bytes.
func total(parts ...[]byte) (sum uint16) {
	for _, part := range parts {
		for ; len(part) > 1; part = part[2:] {
			sum = add(sum, binary.BigEndian.Uint16(part))
		}
		if len(part) == 1 {
			sum = add(sum, uint16(part[0])<<8)
		}
	}
	return sum
}

// pseudo is what TCP and UDP have in their sums of the header before them.
func pseudo(ip []byte, length int) uint16 {
	return total(ip[addressSource:addressDestination+4], []byte{0, ip[9]}, binary.BigEndian.AppendUint16(nil, uint16(length)))
}

// packetOf makes an IPv4 packet with right checksums; options have a multiple of four bytes.
func packetOf(protocol byte, from, to string, content, options []byte) []byte {
	ip := make([]byte, ipHeader, ipHeader+len(options)+len(content))
	ip = append(append(ip, options...), content...)
	ip[0], ip[8], ip[9] = byte(0x40|(ipHeader+len(options))/4), 64, protocol
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	source, destination := netip.MustParseAddr(from).As4(), netip.MustParseAddr(to).As4()
	copy(ip[addressSource:], source[:])
	copy(ip[addressDestination:], destination[:])
	header := ipHeader + len(options)
	binary.BigEndian.PutUint16(ip[checksumIP:], ^total(ip[:header]))
	if at, has := checksumAt(protocol, ip[header:]); has {
		binary.BigEndian.PutUint16(ip[header+at:], 0)
		binary.BigEndian.PutUint16(ip[header+at:], ^add(pseudo(ip, len(ip)-header), total(ip[header:])))
	}
	if protocol == unix.IPPROTO_ICMP {
		binary.BigEndian.PutUint16(ip[header+2:], 0)
		binary.BigEndian.PutUint16(ip[header+2:], ^total(ip[header:]))
	}
	return ip
}

// right says whether all checksums are; unfinished: that of TCP or UDP has only the sum of the pseudo header.
func right(t *testing.T, ip []byte, unfinished bool) {
	t.Helper()
	content, ok := split(ip)
	require.True(t, ok)
	assert.Equal(t, uint16(0xffff), total(ip[:len(ip)-len(content)]), "of the IP header")
	at, has := checksumAt(ip[9], content)
	switch {
	case ip[9] == unix.IPPROTO_ICMP:
		assert.Equal(t, uint16(0xffff), total(content), "of ICMP")
	case !has || fragment(ip) != 0:
	case unfinished:
		assert.Equal(t, pseudo(ip, len(content)), binary.BigEndian.Uint16(content[at:]), "of the pseudo header")
	default:
		assert.Equal(t, uint16(0xffff), add(pseudo(ip, len(content)), total(content)), "of what is in the packet")
	}
}

func addressesOf(ip []byte) string {
	return netip.AddrFrom4([4]byte(ip[addressSource:])).String() + " > " + netip.AddrFrom4([4]byte(ip[addressDestination:])).String()
}

func TestPacketsAreTranslatedWithTheirChecksums(t *testing.T) {
	filled := func(size int) []byte {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(rand.Uint())
		}
		return b
	}
	echo := func() []byte { return append([]byte{8, 0, 0, 0, 0, 1, 0, 1}, filled(56)...) }
	for _, row := range []struct {
		name     string
		protocol byte
		content  func() []byte
		options  []byte
	}{
		{"TCP", unix.IPPROTO_TCP, func() []byte { return filled(1200) }, nil},
		{"TCP with an odd length", unix.IPPROTO_TCP, func() []byte { return filled(701) }, nil},
		{"TCP behind IP options", unix.IPPROTO_TCP, func() []byte { return filled(64) }, []byte{1, 1, 1, 0}},
		{"UDP", unix.IPPROTO_UDP, func() []byte { return filled(100) }, nil},
		{"UDP with nothing in it", unix.IPPROTO_UDP, func() []byte { return filled(8) }, nil},
		{"an echo", unix.IPPROTO_ICMP, echo, nil},
		{"SCTP, whose checksum has no addresses", unix.IPPROTO_SCTP, func() []byte { return filled(48) }, nil},
		{"less than a header", unix.IPPROTO_TCP, func() []byte { return filled(5) }, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			for range 200 { // of all sums that there may be
				sent := packetOf(row.protocol, "10.244.3.4", "100.66.1.2", row.content(), row.options)
				packet := append(make([]byte, vnetHeader), sent...)
				require.True(t, outgoing(packet, pods))
				require.Equal(t, "100.64.3.4 > 100.66.1.2", addressesOf(packet[vnetHeader:]))
				right(t, packet[vnetHeader:], false)
				answer := append(make([]byte, vnetHeader), packetOf(row.protocol, "100.66.1.2", "100.64.3.4", row.content(), row.options)...)
				require.True(t, incoming(answer, pods))
				require.Equal(t, "100.66.1.2 > 10.244.3.4", addressesOf(answer[vnetHeader:]))
				right(t, answer[vnetHeader:], false)
			}
		})
	}
}

func TestWhatTheKernelHasStillToComputeStaysSo(t *testing.T) {
	for protocol, offset := range map[byte]uint16{unix.IPPROTO_TCP: 16, unix.IPPROTO_UDP: 6} {
		ip := packetOf(protocol, "10.244.3.4", "100.66.1.2", make([]byte, 4000), nil)
		binary.BigEndian.PutUint16(ip[ipHeader+offset:], pseudo(ip, 4000))
		packet := append(make([]byte, vnetHeader), ip...)
		packet[0] = needsChecksum
		binary.NativeEndian.PutUint16(packet[6:], ipHeader)
		binary.NativeEndian.PutUint16(packet[8:], offset)
		require.True(t, outgoing(packet, pods))
		right(t, packet[vnetHeader:], true)
	}
}

func TestUDPWithoutChecksumStaysSo(t *testing.T) {
	packet := append(make([]byte, vnetHeader), packetOf(unix.IPPROTO_UDP, "10.244.3.4", "100.66.1.2", make([]byte, 20), nil)...)
	binary.BigEndian.PutUint16(packet[vnetHeader+ipHeader+6:], 0)
	require.True(t, outgoing(packet, pods))
	assert.Zero(t, binary.BigEndian.Uint16(packet[vnetHeader+ipHeader+6:]))
}

func TestALaterFragmentHasNoChecksumOfItsOwn(t *testing.T) {
	ip := packetOf(unix.IPPROTO_UDP, "10.244.3.4", "100.66.1.2", make([]byte, 64), nil)
	binary.BigEndian.PutUint16(ip[checksumIP:], 0)
	binary.BigEndian.PutUint16(ip[6:], 0x2000|185)
	binary.BigEndian.PutUint16(ip[checksumIP:], ^total(ip[:ipHeader]))
	packet := append(make([]byte, vnetHeader), ip...)
	require.True(t, outgoing(packet, pods))
	right(t, packet[vnetHeader:], false)
	assert.Equal(t, ip[ipHeader:], packet[vnetHeader+ipHeader:], "what is in it is not touched")
}

func TestAnICMPErrorSpeaksOfThePacketAsItsSenderKnowsIt(t *testing.T) {
	for _, row := range []struct {
		name     string
		protocol byte
		size     int
		quoted   int // of the packet
	}{
		{"a UDP packet", unix.IPPROTO_UDP, 32, 60},
		{"a TCP packet", unix.IPPROTO_TCP, 40, 60},
		{"a TCP packet of which there are eight bytes", unix.IPPROTO_TCP, 40, 28},
		{"an echo", unix.IPPROTO_ICMP, 40, 28},
	} {
		t.Run(row.name, func(t *testing.T) {
			refuse := func(inner []byte, from, to string) []byte {
				content := append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, inner[:min(row.quoted, len(inner))]...)
				return append(make([]byte, vnetHeader), packetOf(unix.IPPROTO_ICMP, from, to, content, nil)...)
			}
			// A pod there has sent to one here, which refuses.
			packet := refuse(packetOf(row.protocol, "100.66.1.2", "10.244.3.4", make([]byte, row.size), nil), "10.244.3.4", "100.66.1.2")
			require.True(t, outgoing(packet, pods))
			assert.Equal(t, "100.64.3.4 > 100.66.1.2", addressesOf(packet[vnetHeader:]))
			inner := packet[vnetHeader+ipHeader+icmpHeader:]
			assert.Equal(t, "100.66.1.2 > 100.64.3.4", addressesOf(inner))
			right(t, packet[vnetHeader:], false)
			assert.Equal(t, packetOf(row.protocol, "100.66.1.2", "100.64.3.4", make([]byte, row.size), nil)[:len(inner)], inner,
				"it is the packet that was sent")
			// And the other way round.
			packet = refuse(packetOf(row.protocol, "100.64.3.4", "100.66.1.2", make([]byte, row.size), nil), "100.66.1.2", "100.64.3.4")
			require.True(t, incoming(packet, pods))
			assert.Equal(t, "100.66.1.2 > 10.244.3.4", addressesOf(packet[vnetHeader:]))
			inner = packet[vnetHeader+ipHeader+icmpHeader:]
			right(t, packet[vnetHeader:], false)
			assert.Equal(t, packetOf(row.protocol, "10.244.3.4", "100.66.1.2", make([]byte, row.size), nil)[:len(inner)], inner)
		})
	}
}

func TestWhatWouldBeTakenForAnotherIsDropped(t *testing.T) {
	packet := func(from, to string) []byte {
		return append(make([]byte, vnetHeader), packetOf(unix.IPPROTO_UDP, from, to, make([]byte, 8), nil)...)
	}
	assert.False(t, outgoing(packet("100.64.3.4", "100.66.1.2"), pods), "another pod is reached by this source")
	assert.False(t, incoming(packet("100.66.1.2", "10.244.3.4"), pods), "the pod is reached by another address")
	assert.True(t, outgoing(packet("10.77.0.1", "100.66.1.2"), pods), "what is in no range stays as it is")
	for name, broken := range map[string][]byte{
		"nothing": nil, "one byte": {0x45},
		"neither IPv4 nor IPv6":           append([]byte{0x50}, make([]byte, 60)...),
		"a header that is cut":            packet("10.244.3.4", "10.1.1.1")[vnetHeader:][:19],
		"a header longer than the packet": append([]byte{0x4f}, make([]byte, 30)...),
		"a header that is too short":      append([]byte{0x41}, make([]byte, 30)...),
	} {
		assert.False(t, outgoing(append(make([]byte, vnetHeader), broken...), pods), name)
		assert.False(t, incoming(append(make([]byte, vnetHeader), broken...), pods), name)
	}
	ipv6 := append(make([]byte, vnetHeader+1), make([]byte, 60)...)
	ipv6[vnetHeader] = 0x60
	assert.True(t, outgoing(ipv6, pods) && incoming(ipv6, pods), "IPv6 stays as it is")
	bad := append(make([]byte, vnetHeader), packetOf(unix.IPPROTO_ICMP, "10.244.3.4", "100.66.1.2",
		append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, make([]byte, 40)...), nil)...)
	assert.False(t, outgoing(bad, pods), "an error that speaks of no packet")
}

// FuzzTranslate: whatever comes, no gateway ends of it.
func FuzzTranslate(f *testing.F) {
	f.Add(packetOf(unix.IPPROTO_ICMP, "10.244.3.4", "100.66.1.2", append([]byte{3, 3, 0, 0, 0, 0, 0, 0},
		packetOf(unix.IPPROTO_TCP, "10.244.3.4", "100.66.1.2", make([]byte, 20), nil)...), nil))
	f.Fuzz(func(_ *testing.T, ip []byte) {
		outgoing(append(make([]byte, vnetHeader), ip...), pods)
		incoming(append(make([]byte, vnetHeader), ip...), pods)
	})
}
