package lane

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Lanes carry IPv4 and nothing else: routes, translations and packet filters are of IPv4. The kernel makes other packets for each link, and
// a gateway of another cluster may send what it likes. The header before a packet (virtio_net_hdr) is an order to the kernel, to cut the
// packet into segments, and to write a checksum into it after packet filters have judged it. So it has to be one that the kernel of the
// other gateway makes.

// isIPv4 says that a packet behind its vnetHeader is one of IPv4.
func isIPv4(packet []byte) bool { return len(packet) > vnetHeader && packet[vnetHeader]>>4 == 4 }

const (
	// leastSegment is the smallest piece that a packet may be cut into: TCP has segments of 536 bytes, less up to 40 for options, where it
	// knows nothing of the way.
	leastSegment = 256
	// tcpHeader is the size of a header without options; tcpOffset is where its size is told.
	tcpHeader, tcpOffset = 20, 12
	// checksumRight says that somebody has looked at the checksum.
	checksumRight = unix.VIRTIO_NET_HDR_F_DATA_VALID
)

// judge returns how many bytes of packets come out of one that came by a lane, behind its vnetHeader; false: it is to be dropped.
func judge(packet []byte) (bytes int, ok bool) {
	if !isIPv4(packet) {
		return 0, false
	}
	header, ip := packet[:vnetHeader], packet[vnetHeader:]
	content, ok := split(ip)
	flags, kind := header[0], header[1]
	word := func(at int) int { return int(binary.NativeEndian.Uint16(header[at:])) }
	length, size, start, offset := word(2), word(4), word(6), word(8)
	if !ok || flags&^(needsChecksum|checksumRight) != 0 || length > len(ip) {
		return 0, false
	}
	before := len(ip) - len(content)
	whole := binary.BigEndian.Uint16(ip[6:])&0x3fff == 0 // no fragment
	if flags&needsChecksum != 0 {
		at, has := checksumAt(ip[9], content)
		if !has || !whole || start != before || offset != at {
			return 0, false
		}
	}
	switch kind {
	case unix.VIRTIO_NET_HDR_GSO_NONE:
		return len(ip), true
	case unix.VIRTIO_NET_HDR_GSO_TCPV4:
	default:
		return 0, false
	}
	if !whole || ip[9] != unix.IPPROTO_TCP || len(content) < tcpHeader || size < leastSegment || size > len(content) {
		return 0, false
	}
	headers := int(content[tcpOffset]>>4) * 4
	if headers < tcpHeader || headers > len(content) {
		return 0, false
	}
	data := len(content) - headers
	segments := max(1, (data+size-1)/size)
	return data + segments*(before+headers), true
}
