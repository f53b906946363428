package lane

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
)

// frame is a packet of TCP with so much data, behind the header that the kernel makes of it where it has still to be cut.
func frame(data int) []byte {
	packet := make([]byte, vnetHeader+ipHeader+tcpHeader+data)
	order(packet, needsChecksum, 1, 40, 1424, 20, 16)
	ip := packet[vnetHeader:]
	ip[0], ip[9], ip[ipHeader+tcpOffset] = 0x45, 6, 5<<4
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	return packet
}

// order writes the header before a packet.
func order(packet []byte, flags, kind byte, words ...uint16) {
	packet[0], packet[1] = flags, kind
	for i, w := range words {
		binary.NativeEndian.PutUint16(packet[2+2*i:], w)
	}
}

func TestOnlyWhatKernelsMakeComesOutOfALane(t *testing.T) {
	for _, row := range []struct {
		name   string
		data   int
		change func(packet, ip []byte)
		bytes  int // 0: it is dropped
	}{
		{"TCP that is to be cut", 60000, func([]byte, []byte) {}, 60000 + 43*40},
		{"and the checksum was right", 60000, func(p, _ []byte) { order(p, 2, 1, 40, 1424, 0, 0) }, 60000 + 43*40},
		{"small TCP", 100, func(p, _ []byte) { order(p, 1, 0, 0, 0, 20, 16) }, 140},
		{"nothing is to be done", 100, func(p, _ []byte) { order(p, 0, 0) }, 140},
		{"UDP without checksum yet", 100, func(p, ip []byte) { order(p, 1, 0, 0, 0, 20, 6); ip[9] = 17 }, 140},
		{"a fragment", 100, func(p, ip []byte) { order(p, 0, 0); ip[6] = 0x20; ip[9] = 17 }, 140},
		{"ICMP", 100, func(p, ip []byte) { order(p, 0, 0); ip[9] = 1 }, 140},
		{"a route that the sender chose", 100, func(p, ip []byte) {
			order(p, 0, 0)
			ip[0] = 0x47
			copy(ip[ipHeader:], []byte{131, 7, 4, 10, 1, 0, 3})
		}, 0},
		{"options that say nothing", 100, func(p, ip []byte) { order(p, 1, 0, 0, 0, 24, 16); ip[0] = 0x46 }, 0},
		{"a length that is longer than the packet", 100, func(p, ip []byte) { order(p, 0, 0); ip[3]++ }, 0},
		{"a length that is shorter than the packet", 100, func(p, ip []byte) { order(p, 0, 0); ip[3]-- }, 0},
		{"segments of one byte", 60000, func(p, _ []byte) { order(p, 1, 1, 40, 1, 20, 16) }, 0},
		{"segments of no byte", 60000, func(p, _ []byte) { order(p, 1, 1, 40, 0, 20, 16) }, 0},
		{"segments that are larger than all", 1000, func(p, _ []byte) { order(p, 1, 1, 40, 1424, 20, 16) }, 0},
		{"UDP that is to be cut", 60000, func(p, _ []byte) { order(p, 1, 5, 28, 1424, 20, 6) }, 0},
		{"IPv6 that is to be cut", 60000, func(p, _ []byte) { order(p, 1, 4, 40, 1424, 20, 16) }, 0},
		{"UDP that is to be cut as TCP", 60000, func(_, ip []byte) { ip[9] = 17 }, 0},
		{"a fragment that is to be cut", 60000, func(_, ip []byte) { ip[6] = 0x20 }, 0},
		{"a TCP header beyond the packet", 20, func(p, ip []byte) { order(p, 0, 1, 40, 256, 0, 0); ip[ipHeader+tcpOffset] = 0xf0 }, 0},
		{"a flag that there is not", 100, func(p, _ []byte) { order(p, 4, 0) }, 0},
		{"a header that is longer than the packet", 100, func(p, _ []byte) { order(p, 0, 0, 141) }, 0},
		{"a checksum over the addresses", 100, func(p, _ []byte) { order(p, 1, 0, 0, 0, 12, 0) }, 0},
		{"a checksum elsewhere", 100, func(p, _ []byte) { order(p, 1, 0, 0, 0, 20, 18) }, 0},
		{"a checksum of ICMP", 100, func(p, ip []byte) { order(p, 1, 0, 0, 0, 20, 2); ip[9] = 1 }, 0},
		{"a checksum in a fragment", 100, func(p, ip []byte) { order(p, 1, 0, 0, 0, 20, 16); ip[7] = 1 }, 0},
		{"IPv6", 100, func(p, ip []byte) { order(p, 0, 0); ip[0] = 0x65 }, 0},
		{"half a header", 100, func(p, ip []byte) { order(p, 0, 0); ip[0] = 0x44 }, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			packet := frame(row.data)
			row.change(packet, packet[vnetHeader:])
			bytes, ok := judge(packet, false)
			assert.Equal(t, row.bytes, bytes)
			assert.Equal(t, row.bytes > 0, ok)
		})
	}
	for length := range frame(0) {
		judge(frame(0)[:length], true) // and never more than there is
	}
}

// frame6 is frame of IPv6.
func frame6(data int) []byte {
	packet := make([]byte, vnetHeader+ip6Header+tcpHeader+data)
	order(packet, needsChecksum, 4, 60, 1404, 40, 16)
	ip := packet[vnetHeader:]
	copy(ip, []byte{0x60, 0, 0, 0, byte((tcpHeader + data) >> 8), byte(tcpHeader + data), 6, 64, 0xfd, 23: 2, 24: 0xfd, 39: 1})
	ip[ip6Header+tcpOffset] = 5 << 4
	return packet
}

func TestOnlyWhatKernelsMakeOfIPv6ComesOutOfALane(t *testing.T) {
	// header has something behind the header of IPv6, which has a protocol, in place of TCP.
	header := func(protocol byte, behind ...byte) func(p, ip []byte) {
		return func(p, ip []byte) {
			order(p, 0, 0)
			ip[6] = protocol
			copy(ip[ip6Header:], behind)
		}
	}
	for _, row := range []struct {
		name   string
		data   int
		change func(packet, ip []byte)
		bytes  int // 0: it is dropped
	}{
		{"TCP that is to be cut", 60000, func([]byte, []byte) {}, 60000 + 43*60},
		{"and the checksum was right", 60000, func(p, _ []byte) { order(p, 2, 4, 60, 1404, 0, 0) }, 60000 + 43*60},
		{"small TCP", 100, func(p, _ []byte) { order(p, 1, 0, 0, 0, 40, 16) }, 160},
		{"UDP without checksum yet", 100, func(p, ip []byte) { order(p, 1, 0, 0, 0, 40, 6); ip[6] = 17 }, 160},
		{"ICMPv6", 100, header(58), 160},
		{"the first fragment", 108, header(44, 17, 0, 0, 1), 168},
		{"the last fragment", 100, header(44, 17, 0, 4, 0), 160},
		{"a packet that says that it is a fragment, and is whole", 100, header(44, 58, 0, 0, 0), 160},
		{"ESP", 100, header(50), 160},
		{"orders to all on the way", 100, header(0, 6, 0, 1, 4), 0},
		{"a route that the sender chose", 100, header(43, 6, 0, 2, 1), 0},
		{"options for the destination", 100, header(60, 6, 0, 1, 4), 0},
		{"an authentication header", 100, header(51, 6, 1), 0},
		{"a header of mobility", 100, header(135), 0},
		{"a fragment that hides a header", 108, header(44, 60, 0, 0, 1), 0},
		{"a fragment in a fragment", 108, header(44, 44, 0, 0, 1), 0},
		{"a fragment whose end is not at 8 bytes", 101, header(44, 17, 0, 0, 1), 0},
		{"a fragment beyond all packets", 108, header(44, 17, 0, 0xff, 0xf8), 0},
		{"a jumbogram", 60000, func(_, ip []byte) { ip[4], ip[5] = 0, 0 }, 0},
		{"a length that is longer than the packet", 100, func(p, ip []byte) { order(p, 0, 0); ip[5]++ }, 0},
		{"a length that is shorter than the packet", 100, func(p, ip []byte) { order(p, 0, 0); ip[5]-- }, 0},
		{"segments of one byte", 60000, func(p, _ []byte) { order(p, 1, 4, 60, 1, 40, 16) }, 0},
		{"segments that are larger than all", 1000, func(p, _ []byte) { order(p, 1, 4, 60, 1404, 40, 16) }, 0},
		{"IPv4 that is to be cut", 60000, func(p, _ []byte) { order(p, 1, 1, 60, 1404, 40, 16) }, 0},
		{"UDP that is to be cut", 60000, func(p, _ []byte) { order(p, 1, 5, 48, 1404, 40, 6) }, 0},
		{"UDP that is to be cut as TCP", 60000, func(_, ip []byte) { ip[6] = 17 }, 0},
		{"a fragment that is to be cut", 60000, func(_, ip []byte) { ip[6], ip[ip6Header] = 44, 6 }, 0},
		{"a TCP header beyond the packet", 20, func(p, ip []byte) { order(p, 0, 4, 60, 256, 0, 0); ip[ip6Header+tcpOffset] = 0xf0 }, 0},
		{"a flag that there is not", 100, func(p, _ []byte) { order(p, 4, 0) }, 0},
		{"a header that is longer than the packet", 100, func(p, _ []byte) { order(p, 0, 0, 161) }, 0},
		{"a checksum over the addresses", 100, func(p, _ []byte) { order(p, 1, 0, 0, 0, 24, 0) }, 0},
		{"a checksum elsewhere", 100, func(p, _ []byte) { order(p, 1, 0, 0, 0, 40, 18) }, 0},
		{"a checksum of ICMPv6", 100, func(p, ip []byte) { order(p, 1, 0, 0, 0, 40, 2); ip[6] = 58 }, 0},
		{"a checksum in a fragment", 108, func(p, ip []byte) {
			header(44, 17, 0, 0, 1)(p, ip)
			order(p, 1, 0, 0, 0, 48, 6)
		}, 0},
		{"to several", 100, func(p, ip []byte) { order(p, 0, 0); ip[24], ip[25] = 0xff, 2 }, 0},
		{"to a neighbour", 100, func(p, ip []byte) { order(p, 0, 0); ip[24], ip[25] = 0xfe, 0xbf }, 0},
		{"from a neighbour", 100, func(p, ip []byte) { order(p, 0, 0); ip[8], ip[9] = 0xfe, 0x80 }, 0},
		{"from nobody", 100, func(p, ip []byte) { order(p, 0, 0); ip[8], ip[23] = 0, 0 }, 0},
		{"to loopback", 100, func(p, ip []byte) { order(p, 0, 0); ip[24], ip[39] = 0, 1 }, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			packet := frame6(row.data)
			row.change(packet, packet[vnetHeader:])
			bytes, ok := judge(packet, true)
			assert.Equal(t, row.bytes, bytes)
			assert.Equal(t, row.bytes > 0, ok)
			_, ok = judge(packet, false)
			assert.False(t, ok, "nothing of IPv6 where that is not carried")
		})
	}
	empty := frame6(0)
	order(empty, 0, 0)
	empty = empty[:vnetHeader+ip6Header+fragment6Header]
	copy(empty[vnetHeader+4:], []byte{0, fragment6Header, 44})
	_, ok := judge(empty, true)
	assert.False(t, ok, "nothing behind a fragment's header")
	for length := range frame6(0) {
		judge(frame6(0)[:length], true) // and never more than there is
	}
}

// FuzzJudge: whatever comes, no gateway ends of it.
func FuzzJudge(f *testing.F) {
	f.Add(frame(100))
	f.Add(frame6(100))
	f.Fuzz(func(_ *testing.T, packet []byte) {
		if _, ok := judge(packet, true); ok {
			incoming(packet, pods)
		}
	})
}
