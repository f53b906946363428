// Package netlab makes networks out of network namespaces, in which the network fabric is tested and measured: clusters of nodes and
// pods, without kubelets and API servers. Nothing of it has a name outside of the process that made it, and all of it is gone when
// that ends. It needs root. Read lab.go first.
package netlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace: a node, a pod, or what is between them.
type Namespace struct {
	Name   string
	handle netns.NsHandle
	links  *netlink.Handle
}

// Need skips a test that needs namespaces where there is no right to make them, or fails it where nothing is to be skipped.
func Need(t *testing.T) {
	t.Helper()
	n, err := NewNamespace("try")
	if err == nil {
		n.Close()
		_, err = os.Stat("/dev/net/tun")
	}
	if err == nil {
		return
	}
	why := fmt.Sprintf("network namespaces and /dev/net/tun need root: %v", err)
	require.Empty(t, os.Getenv("LODESTONE_COMPLETE"), why+"; and nothing is to be skipped")
	t.Skip(why)
}

// NewNamespace makes a namespace in which nothing but loopback is up.
func NewNamespace(name string) (n *Namespace, err error) {
	n = &Namespace{Name: name, handle: netns.None()}
	err = onThread(func() error {
		var err error
		if n.handle, err = netns.New(); err != nil {
			return fmt.Errorf("make network namespace %s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if n.links, err = netlink.NewHandleAt(n.handle); err != nil {
		return nil, errors.Join(fmt.Errorf("reach network namespace %s: %w", name, err), n.handle.Close())
	}
	loopback, err := n.links.LinkByName("lo")
	if err == nil {
		err = n.links.LinkSetUp(loopback)
	}
	if err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Close lets the namespace go once no process and no socket is in it any more.
func (n *Namespace) Close() {
	n.links.Close()
	_ = n.handle.Close()
}

// onThread runs a function on a thread of its own, which ends with it: it may go to another namespace.
func onThread(run func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		done <- run()
	}()
	return <-done
}

// In runs a function in the namespace. Sockets that it opens and programs that it starts stay there.
func (n *Namespace) In(run func() error) error {
	return onThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("go to network namespace %s: %w", n.Name, err)
		}
		return run()
	})
}

// Sysctl sets a kernel parameter of the namespace, by its path below /proc/sys/net.
func (n *Namespace) Sysctl(path, value string) error {
	return n.In(func() error { return os.WriteFile("/proc/sys/net/"+path, []byte(value), 0) })
}

// Start starts a program in the namespace.
func (n *Namespace) Start(command *exec.Cmd) error {
	return n.In(command.Start)
}

// Listen listens for TCP in the namespace.
func (n *Namespace) Listen(address string) (listener net.Listener, err error) {
	err = n.In(func() error {
		listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
		return err
	})
	return listener, err
}

// Dial opens a connection from the namespace, and from an address there, if one is given.
func (n *Namespace) Dial(network, from, to string) (conn net.Conn, err error) {
	dialer := &net.Dialer{Timeout: 2 * time.Second, Control: reuse}
	if from != "" {
		local := netip.MustParseAddrPort(from)
		if network == "udp" {
			dialer.LocalAddr = net.UDPAddrFromAddrPort(local)
		} else {
			dialer.LocalAddr = net.TCPAddrFromAddrPort(local)
		}
	}
	err = n.In(func() error {
		conn, err = dialer.Dial(network, to)
		return err
	})
	return conn, err
}

// Forward has an address of the namespace lead to one outside of it, by TCP, until ctx ends.
func (n *Namespace) Forward(ctx context.Context, from, to string) error {
	listener, err := n.Listen(from)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			inside, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer inside.Close()
				outside, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
				if err != nil {
					return
				}
				defer outside.Close()
				defer context.AfterFunc(ctx, func() { _ = inside.Close() })()
				go func() {
					_, _ = io.Copy(outside, inside)
					_ = outside.Close()
				}()
				_, _ = io.Copy(inside, outside)
			}()
		}
	}()
	return nil
}

// reuse lets a socket have an address that one before it had: a program that is being started at the moment, in whatever namespace, has
// what was open until it is.
func reuse(_, _ string, conn syscall.RawConn) (err error) {
	failed := conn.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	return errors.Join(failed, err)
}

// ListenPacket listens for UDP in the namespace.
func (n *Namespace) ListenPacket(address string) (conn *net.UDPConn, err error) {
	err = n.In(func() error {
		packets, err := (&net.ListenConfig{Control: reuse}).ListenPacket(context.Background(), "udp", address)
		if err == nil {
			conn = packets.(*net.UDPConn)
		}
		return err
	})
	return conn, err
}

// Join makes a pair of links between two namespaces; an end with an address gets it.
func Join(a *Namespace, linkA, addressA string, b *Namespace, linkB, addressB string) error {
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: linkA}, PeerName: linkB, PeerNamespace: netlink.NsFd(b.handle)}
	if err := a.links.LinkAdd(pair); err != nil {
		return fmt.Errorf("join %s and %s: %w", a.Name, b.Name, err)
	}
	return errors.Join(a.setUp(linkA, addressA), b.setUp(linkB, addressB))
}

func (n *Namespace) setUp(name, address string) error {
	link, err := n.links.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s of %s: %w", name, n.Name, err)
	}
	if address != "" {
		if err := n.Address(name, address); err != nil {
			return err
		}
	}
	return n.links.LinkSetUp(link)
}

// Address gives a link an address.
func (n *Namespace) Address(name, address string) error {
	link, err := n.links.LinkByName(name)
	if err != nil {
		return err
	}
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	if parsed.IP.To4() == nil {
		parsed.Flags |= unix.IFA_F_NODAD // it is there at once: nobody else has it
	}
	if err := n.links.AddrAdd(link, parsed); err != nil {
		return fmt.Errorf("give link %s of %s an address: %w", name, n.Name, err)
	}
	return nil
}

// SetLink sets a link up or down.
func (n *Namespace) SetLink(name string, up bool) error {
	link, err := n.links.LinkByName(name)
	if err != nil {
		return err
	}
	if up {
		return n.links.LinkSetUp(link)
	}
	return n.links.LinkSetDown(link)
}

// MTU sets how large packets a link carries.
func (n *Namespace) MTU(name string, mtu int) error {
	link, err := n.links.LinkByName(name)
	if err != nil {
		return err
	}
	return n.links.LinkSetMTU(link, mtu)
}

// Sent is how many packets a link was given to send, those among them that it dropped.
func (n *Namespace) Sent(link string) (uint64, error) {
	l, err := n.links.LinkByName(link)
	if err != nil {
		return 0, err
	}
	s := l.Attrs().Statistics
	return s.TxPackets + s.TxDropped, nil
}

// Route adds a route, over an address or a link; an empty destination is the default.
func (n *Namespace) Route(to, via, link string) error {
	route := &netlink.Route{}
	if to != "" {
		_, prefix, err := net.ParseCIDR(to)
		if err != nil {
			return err
		}
		route.Dst = prefix
	}
	if route.Scope = netlink.SCOPE_LINK; via != "" {
		route.Scope, route.Gw = netlink.SCOPE_UNIVERSE, net.ParseIP(via)
	}
	if link != "" {
		found, err := n.links.LinkByName(link)
		if err != nil {
			return err
		}
		route.LinkIndex = found.Attrs().Index
	}
	if err := n.links.RouteAdd(route); err != nil {
		return fmt.Errorf("add a route from %s to %s: %w", n.Name, to, err)
	}
	return nil
}

// Lose has all packets to a range get lost, or no longer.
func (n *Namespace) Lose(to string, lost bool) error {
	_, prefix, err := net.ParseCIDR(to)
	if err != nil {
		return err
	}
	hole := &netlink.Route{Dst: prefix, Type: unix.RTN_BLACKHOLE}
	if lost {
		return n.links.RouteAdd(hole)
	}
	return n.links.RouteDel(hole)
}

// Address4 gives a link addresses.
func (n *Namespace) Address4(link string, addresses ...string) error {
	var errs []error
	for _, a := range addresses {
		errs = append(errs, n.Address(link, a))
	}
	return errors.Join(errs...)
}

// Bridge makes a bridge with an address.
func (n *Namespace) Bridge(name, address string) error {
	if err := n.links.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
		return fmt.Errorf("make bridge %s of %s: %w", name, n.Name, err)
	}
	return n.setUp(name, address)
}

// Master plugs a link into a bridge.
func (n *Namespace) Master(link, bridge string) error {
	port, err := n.links.LinkByName(link)
	if err != nil {
		return err
	}
	master, err := n.links.LinkByName(bridge)
	if err != nil {
		return err
	}
	return n.links.LinkSetMaster(port, master)
}

// Addresses6 are those of IPv6 that links have whose names begin with something.
func (n *Namespace) Addresses6(links string) (all []string, err error) {
	found, err := n.links.LinkList()
	if err != nil {
		return nil, err
	}
	for _, l := range found {
		if !strings.HasPrefix(l.Attrs().Name, links) {
			continue
		}
		addresses, err := n.links.AddrList(l, netlink.FAMILY_V6)
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			all = append(all, l.Attrs().Name+" has "+a.IPNet.String())
		}
	}
	return all, nil
}
