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
		{"options of IP", 100, func(p, ip []byte) { order(p, 1, 0, 0, 0, 24, 16); ip[0] = 0x46 }, 140},
		{"ICMP", 100, func(p, ip []byte) { order(p, 0, 0); ip[9] = 1 }, 140},
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
			bytes, ok := judge(packet)
			assert.Equal(t, row.bytes, bytes)
			assert.Equal(t, row.bytes > 0, ok)
		})
	}
	for length := range frame(0) {
		judge(frame(0)[:length]) // and never more than there is
	}
}
