package lane

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// Addresses of pods here are translated one to one, in packets as they come from the device and before they go into it, so nothing is
// remembered of connections: any gateway takes over those of another one. Checksums are changed by what the address changes (RFC 1624),
// and never computed anew: a packet that was wrong stays wrong, and what the kernel has still to compute it computes.

// outgoing gives a packet that leaves this cluster the address by which the pod that sends it is reached; false: it is to be dropped.
func outgoing(packet []byte, pods remotecluster.Translations) bool {
	return translate(packet, addressSource, pods.Reached)
}

// incoming gives a packet from the other cluster the own address of the pod that it is for; false: it is to be dropped.
func incoming(packet []byte, pods remotecluster.Translations) bool {
	return translate(packet, addressDestination, pods.Pod)
}

const (
	// Where addresses and the checksum are in an IPv4 header.
	addressSource, addressDestination, checksumIP = 12, 16, 10
	ipHeader                                      = 20
	// needsChecksum is of virtio_net_hdr: at csum_start + csum_offset there is only the sum of the pseudo header.
	needsChecksum = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
)

// translate changes the address at some place of a packet behind its vnetHeader, and where the packet is an ICMP error, that at the
// opposite place of the packet that it speaks of.
func translate(packet []byte, place int, to func(netip.Addr) (netip.Addr, bool)) bool {
	ip := packet[vnetHeader:]
	if len(ip) > 0 && ip[0]>>4 == 6 {
		return true // only addresses of IPv4 are translated
	}
	content, ok := split(ip)
	if !ok {
		return false
	}
	delta, ok := replace(ip, place, to)
	if !ok {
		return false
	}
	if first := fragment(ip) == 0; !first {
		return true
	}
	unfinished := -1
	if packet[0]&needsChecksum != 0 {
		start, offset := binary.NativeEndian.Uint16(packet[6:]), binary.NativeEndian.Uint16(packet[8:])
		unfinished = int(start) + int(offset) - (len(ip) - len(content))
	}
	if at, has := checksumAt(ip[9], content); has {
		if at == unfinished {
			adjustSum(content[at:], delta)
		} else {
			adjustChecksum(content[at:], delta, ip[9] == unix.IPPROTO_UDP)
		}
	}
	if ip[9] == unix.IPPROTO_ICMP && isError(content) {
		return translateError(content, addressSource+addressDestination-place, to)
	}
	return true
}

// translateError changes an address of the packet that an ICMP error speaks of, of which there may be no more than its first bytes. Its
// sender knows it with the same address that the error now goes to, or comes from.
func translateError(icmp []byte, place int, to func(netip.Addr) (netip.Addr, bool)) bool {
	ip := icmp[icmpHeader:]
	content, ok := split(ip)
	if !ok {
		return false
	}
	// The ICMP checksum stays right: what the address adds, the header's own checksum takes away.
	delta, ok := replace(ip, place, to)
	if !ok {
		return false
	}
	at, has := checksumAt(ip[9], content)
	if fragment(ip) != 0 || !has {
		return true
	}
	before := binary.BigEndian.Uint16(content[at:])
	adjustChecksum(content[at:], delta, ip[9] == unix.IPPROTO_UDP)
	adjustChecksum(icmp[2:], difference(before, binary.BigEndian.Uint16(content[at:])), false)
	return true
}

const icmpHeader = 8

// isError says that an ICMP message has the beginning of the packet that it speaks of.
func isError(icmp []byte) bool {
	if len(icmp) < icmpHeader+ipHeader {
		return false
	}
	switch icmp[0] {
	case 3, 4, 5, 11, 12: // destination unreachable, source quench, redirect, time exceeded, parameter problem
		return true
	}
	return false
}

// split returns what is behind the header of an IPv4 packet; false: that is no such packet.
func split(ip []byte) (content []byte, ok bool) {
	if len(ip) < ipHeader || ip[0]>>4 != 4 {
		return nil, false
	}
	length := int(ip[0]&0x0f) * 4
	if length < ipHeader || length > len(ip) {
		return nil, false
	}
	return ip[length:], true
}

// fragment is which part of a packet this is; 0: the first one.
func fragment(ip []byte) uint16 { return binary.BigEndian.Uint16(ip[6:]) & 0x1fff }

// replace changes an address of an IPv4 header, and its checksum. It returns what that adds to a sum that has the address in it.
func replace(ip []byte, place int, to func(netip.Addr) (netip.Addr, bool)) (delta uint16, ok bool) {
	was := [4]byte(ip[place:])
	now, ok := to(netip.AddrFrom4(was))
	if !ok {
		return 0, false
	}
	bytes := now.As4()
	delta = add(difference(binary.BigEndian.Uint16(was[0:]), binary.BigEndian.Uint16(bytes[0:])),
		difference(binary.BigEndian.Uint16(was[2:]), binary.BigEndian.Uint16(bytes[2:])))
	copy(ip[place:], bytes[:])
	adjustChecksum(ip[checksumIP:], delta, false)
	return delta, true
}

// checksumAt is where a protocol has a checksum that has the addresses in it; false: nowhere, or beyond what there is.
func checksumAt(protocol byte, content []byte) (at int, has bool) {
	switch protocol {
	case unix.IPPROTO_TCP:
		at = 16
	case unix.IPPROTO_UDP, unix.IPPROTO_UDPLITE, unix.IPPROTO_DCCP:
		at = 6
	default:
		return 0, false
	}
	return at, len(content) >= at+2
}

// add is the sum of ones' complement; difference is what to add for a word that has changed.
func add(a, b uint16) uint16 {
	sum := uint32(a) + uint32(b)
	return uint16(sum + sum>>16)
}

func difference(was, now uint16) uint16 { return add(^was, now) }

// adjustSum changes a sum, adjustChecksum one that was complemented. UDP that has none, which is 0, still has none.
func adjustSum(field []byte, delta uint16) {
	binary.BigEndian.PutUint16(field, add(binary.BigEndian.Uint16(field), delta))
}

func adjustChecksum(field []byte, delta uint16, udp bool) {
	was := binary.BigEndian.Uint16(field)
	if udp && was == 0 {
		return
	}
	now := ^add(^was, delta)
	if udp && now == 0 {
		now = 0xffff
	}
	binary.BigEndian.PutUint16(field, now)
}
