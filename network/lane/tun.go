package lane

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// packetLimit is the largest packet that a device hands over: 64 KiB, which the kernel has not yet cut into
	// segments, behind vnetHeader bytes that say how to cut it.
	packetLimit = vnetHeader + 1<<16
	vnetHeader  = 10
	// offloads says that checksums may be missing, and TCP need not be cut.
	offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6
)

// queue is one of the queues of a TUN device. The kernel puts all packets of a connection into the same.
type queue struct {
	file *os.File
	raw  syscall.RawConn
}

// deviceMTU is as large as can be: what is too large for the network of the other cluster is for routes to say.
const deviceMTU = 1<<16 - 1

// openTUN makes a TUN device with some queues, and sets it up. It is there until all of them are closed.
func openTUN(device string, queues int) (opened []*queue, err error) {
	defer func() {
		if err != nil {
			closeTUN(opened)
			opened, err = nil, fmt.Errorf("make device %s: %w", device, err)
		}
	}()
	for range queues {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return opened, fmt.Errorf("open /dev/net/tun (the pod needs it, and CAP_NET_ADMIN): %w", err)
		}
		if err := setupTUN(fd, device); err != nil {
			return opened, errors.Join(err, unix.Close(fd))
		}
		q := &queue{file: os.NewFile(uintptr(fd), device)}
		opened = append(opened, q)
		if q.raw, err = q.file.SyscallConn(); err != nil {
			return opened, err
		}
	}
	link, err := netlink.LinkByName(device)
	if err != nil {
		return opened, err
	}
	if err := OnlyIPv4(link); err != nil {
		return opened, err
	}
	return opened, errors.Join(netlink.LinkSetMTU(link, deviceMTU), netlink.LinkSetUp(link))
}

func setupTUN(fd int, device string) error {
	request, err := unix.NewIfreq(device)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_MULTI_QUEUE)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return err
	}
	return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads)
}

func closeTUN(queues []*queue) {
	for _, q := range queues {
		_ = q.file.Close()
	}
}

// read reads one packet. If wait is false and there is none, it returns 0.
func (q *queue) read(packet []byte, wait bool) (n int, err error) {
	outer := q.raw.Read(func(fd uintptr) bool {
		for {
			n, err = unix.Read(int(fd), packet)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if errors.Is(err, unix.EAGAIN) {
			n, err = 0, nil
			return !wait
		}
		return true
	})
	return n, errors.Join(outer, err)
}

// write writes one packet. A packet that the kernel refuses is lost, as packets are.
func (q *queue) write(packet []byte) error {
	_, err := q.file.Write(packet)
	if errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
