package lane

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// OnlyIPv4 has a link have no addresses of IPv6, by which the node would be reached over it. It is called before the link is set up, when
// the kernel would make one, and takes those away that there are. Over netlink it needs no writable /proc/sys.
func OnlyIPv4(link netlink.Link) error {
	if !HasIPv6() {
		return nil
	}
	const none = 1 // IN6_ADDR_GEN_MODE_NONE
	err := netlink.LinkSetIP6AddrGenMode(link, none)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil // it has none at all, as those with an MTU of less than 1280
	}
	if err != nil {
		return fmt.Errorf("have %s make no addresses of IPv6: %w", link.Attrs().Name, err)
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V6)
	if err != nil {
		return fmt.Errorf("list addresses of IPv6 of %s: %w", link.Attrs().Name, err)
	}
	for _, a := range addresses {
		if err := netlink.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("take address %s from %s: %w", a.IPNet, link.Attrs().Name, err)
		}
	}
	return nil
}

// RemoveLink removes a link, if it is there.
func RemoveLink(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	var missing netlink.LinkNotFoundError
	if err != nil && !errors.As(err, &missing) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove link %s: %w", name, err)
	}
	return nil
}

// HasIPv6 says whether the kernel has IPv6 at all.
func HasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return !errors.Is(err, os.ErrNotExist)
}
