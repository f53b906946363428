package lane

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Lanes carry IPv4, and IPv6 where both clusters have that, and nothing else: routes and packet filters are of these. The kernel makes
// other packets for each link, and a gateway of another cluster may send what it likes. The header before a packet (virtio_net_hdr) is an
// order to the kernel, to cut the packet into segments, and to write a checksum into it after packet filters have judged it. So it has to
// be one that the kernel of the other gateway makes.

// carried says that a packet behind its vnetHeader is one that lanes carry. Of IPv6 it is one from an address of a pod or node to another:
// nothing of multicast and of single links, by which neighbours find each other.
func carried(packet []byte, ipv6 bool) bool {
	if len(packet) <= vnetHeader {
		return false
	}
	switch ip := packet[vnetHeader:]; ip[0] >> 4 {
	case 4:
		return true
	case 6:
		return ipv6 && len(ip) >= ip6Header && unicast6(ip[8:]) && unicast6(ip[24:])
	}
	return false
}

// unicast6 says that an address of IPv6 is none of ::/8, which has those of nobody, of loopback and of IPv4, nor of a single link or of
// several.
func unicast6(address []byte) bool {
	return address[0] != 0 && address[0] != 0xff && (address[0] != 0xfe || address[1]&0xc0 != 0x80)
}

// comesFrom says that the source of such a packet, of which the whole header is there, is of one of some ranges.
func comesFrom(packet []byte, ranges []netip.Prefix) bool {
	ip := packet[vnetHeader:]
	source := ip[addressSource:addressDestination]
	if ip[0]>>4 == 6 {
		source = ip[8:24]
	}
	from, _ := netip.AddrFromSlice(source)
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(from) })
}

const (
	// leastSegment is the smallest piece that a packet may be cut into: TCP has segments of 536 bytes, less up to 40 for options, where it
	// knows nothing of the way.
	leastSegment = 256
	// ip6Header and fragment6Header are the sizes of the header of IPv6 and of that of its fragments.
	ip6Header, fragment6Header = 40, 8
	// tcpHeader is the size of a header without options; tcpOffset is where its size is told.
	tcpHeader, tcpOffset = 20, 12
	// checksumRight says that somebody has looked at the checksum.
	checksumRight = unix.VIRTIO_NET_HDR_F_DATA_VALID
)

// opened is a packet as its headers say it is.
type opened struct {
	protocol byte
	content  []byte // behind the headers of IP
	whole    bool   // it is no fragment
	cut      byte   // how the kernel is told to cut TCP in it
}

// open reads the headers of a packet that is carried; false: they cannot be.
func open(ip []byte) (opened, bool) {
	if ip[0]>>4 == 6 {
		return open6(ip)
	}
	content, ok := split(ip)
	if !ok || int(binary.BigEndian.Uint16(ip[2:])) != len(ip) || len(ip)-len(content) > ipHeader {
		return opened{}, false // options are orders to those on the way, as to send it by another one
	}
	return opened{ip[9], content, binary.BigEndian.Uint16(ip[6:])&0x3fff == 0, unix.VIRTIO_NET_HDR_GSO_TCPV4}, true
}

// open6 takes no extension header but that of a fragment, which is alone: others are orders to those on the way (hop-by-hop, routing,
// jumbo), or hide from packet filters what is behind them. The length that is told is the one that the packet has.
func open6(ip []byte) (opened, bool) {
	content := ip[ip6Header:]
	if int(binary.BigEndian.Uint16(ip[4:])) != len(content) {
		return opened{}, false
	}
	o := opened{ip[6], content, true, unix.VIRTIO_NET_HDR_GSO_TCPV6}
	if o.protocol == unix.IPPROTO_FRAGMENT {
		if len(content) <= fragment6Header {
			return opened{}, false
		}
		o.protocol, o.content, o.whole = content[0], content[fragment6Header:], false
		if more, length := content[3]&1 != 0, len(o.content); more && length%8 != 0 ||
			int(binary.BigEndian.Uint16(content[2:])&^7)+length > 0xffff {
			return opened{}, false
		}
	}
	return o, !extends6(o.protocol)
}

// Extensions are the extension headers of IPv6 that no packet may have: all but that of a fragment. The last ones are HIP, Shim6, and two
// to try others with.
var Extensions = []byte{unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_AH, unix.IPPROTO_DSTOPTS, unix.IPPROTO_MH,
	139, 140, 253, 254}

// extends6 says that what follows is an extension header.
func extends6(protocol byte) bool {
	return protocol == unix.IPPROTO_FRAGMENT || slices.Contains(Extensions, protocol)
}

// judge returns how many bytes of packets come out of one that came by a lane, behind its vnetHeader; false: it is to be dropped.
func judge(packet []byte, ipv6 bool) (bytes int, ok bool) {
	if !carried(packet, ipv6) {
		return 0, false
	}
	header, ip := packet[:vnetHeader], packet[vnetHeader:]
	o, ok := open(ip)
	content := o.content
	flags, kind := header[0], header[1]
	word := func(at int) int { return int(binary.NativeEndian.Uint16(header[at:])) }
	length, size, start, offset := word(2), word(4), word(6), word(8)
	if !ok || flags&^(needsChecksum|checksumRight) != 0 || length > len(ip) {
		return 0, false
	}
	before := len(ip) - len(content)
	if flags&needsChecksum != 0 {
		at, has := checksumAt(o.protocol, content)
		if !has || !o.whole || start != before || offset != at {
			return 0, false
		}
	}
	switch kind {
	case unix.VIRTIO_NET_HDR_GSO_NONE:
		return len(ip), true
	case o.cut:
	default:
		return 0, false
	}
	if !o.whole || o.protocol != unix.IPPROTO_TCP || len(content) < tcpHeader || size < leastSegment || size > len(content) {
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
