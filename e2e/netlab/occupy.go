package netlab

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/network/agent/plan"
)

// Occupy has a table of nftables with our name be there of which somebody else is the owner, so that no agent of the node can set packet
// filters of IPv4, until it is released.
func (n *Namespace) Occupy() (release func(), err error) {
	socket := -1
	err = n.In(func() (err error) {
		socket, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		return err
	})
	if err != nil {
		return nil, err
	}
	const owner = 2 // NFT_TABLE_F_OWNER
	attribute := func(kind uint16, value []byte) []byte {
		head := binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, uint16(4+len(value))), kind)
		return append(append(head, value...), make([]byte, -len(value)&3)...)
	}
	message := func(kind, flags uint16, family byte, resource uint16, attributes ...byte) []byte {
		m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+4+len(attributes)))
		m = binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(m, kind), flags|unix.NLM_F_REQUEST)
		m = append(m, 0, 0, 0, 0, 0, 0, 0, 0, family, 0) // number, port, family, version
		return append(binary.BigEndian.AppendUint16(m, resource), attributes...)
	}
	table := append(attribute(unix.NFTA_TABLE_NAME, []byte(plan.FilterName+"\x00")),
		attribute(unix.NFTA_TABLE_FLAGS, binary.BigEndian.AppendUint32(nil, owner))...)
	batch := message(unix.NFNL_MSG_BATCH_BEGIN, 0, 0, unix.NFNL_SUBSYS_NFTABLES)
	batch = append(batch, message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK,
		unix.NFPROTO_IPV4, 0, table...)...)
	batch = append(batch, message(unix.NFNL_MSG_BATCH_END, 0, 0, unix.NFNL_SUBSYS_NFTABLES)...)
	release = func() { _ = unix.Close(socket) } // and the table is gone
	answer := make([]byte, 4096)
	if err := unix.Sendto(socket, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		release()
		return nil, err
	}
	if _, _, err := unix.Recvfrom(socket, answer, 0); err != nil {
		release()
		return nil, err
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); code != 0 {
		release()
		return nil, fmt.Errorf("take table %s: %w", plan.FilterName, unix.Errno(-code))
	}
	return release, nil
}
