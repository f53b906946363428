// This file stands in for WireGuard of kernels that have none: wireguard-go, in the process of the test, so that it stays when an agent
// ends, as the kernel's does. Agents reach it by its sockets in /var/run/wireguard, of which each node has its own.

package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/lodestone-storage/lodestone/network/agent/plan"
)

// run is what programs on the node have for /run, sockets what is in /var/run/wireguard.
func (n *Node) run() string     { return filepath.Join(n.dir, "run") }
func (n *Node) sockets() string { return filepath.Join(n.run(), "wireguard") }

// start starts a program on the node, which has a /run of its own.
func (n *Node) start(command *exec.Cmd) error { return n.withRun(command.Start) }

// withRun runs a function on the node, with its /run.
func (n *Node) withRun(run func() error) error {
	return n.In(func() error {
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		if err == nil {
			err = unix.Mount(n.run(), "/run", "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("give %s a /run: %w", n.Name, err)
		}
		return run()
	})
}

// Widen has WireGuard at a link send to these addresses, too, as somebody could have it who has a gateway in their hands.
func (n *Node) Widen(link string, to ...netip.Addr) error {
	return n.withRun(func() error {
		control, err := wgctrl.New()
		if err != nil {
			return err
		}
		defer control.Close()
		found, err := control.Device(link)
		if err != nil {
			return err
		}
		var peers []wgtypes.PeerConfig
		for _, p := range found.Peers {
			peer := wgtypes.PeerConfig{PublicKey: p.PublicKey, UpdateOnly: true}
			for _, a := range to {
				peer.AllowedIPs = append(peer.AllowedIPs, net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())})
			}
			peers = append(peers, peer)
		}
		return control.ConfigureDevice(link, wgtypes.Config{Peers: peers})
	})
}

// HasWireGuard says whether the kernel has it itself.
func (n *Node) HasWireGuard() bool {
	link := &netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: "try"}}
	err := n.links.LinkAdd(link)
	if err != nil {
		return false
	}
	_ = n.links.LinkDel(link)
	return true
}

// bind has sockets be opened on a node.
type bind struct {
	conn.Bind
	node *Node
}

func (b *bind) Open(port uint16) (receive []conn.ReceiveFunc, actual uint16, err error) {
	err = b.node.In(func() error {
		receive, actual, err = b.Bind.Open(port)
		return err
	})
	return receive, actual, err
}

// ProvideWireGuard gives gateways of all clusters WireGuard for the lane to each other one, without keys and without peers. It is gone when
// somebody removes its link.
func (l *Lab) ProvideWireGuard() error {
	for _, c := range l.Clusters() {
		for _, r := range l.Site(c).Remotes {
			for _, n := range c.Nodes {
				if !n.Gateway {
					continue
				}
				if err := n.provideWireGuard(plan.WireGuardDevice(r.Name)); err != nil {
					return fmt.Errorf("provide WireGuard on %s: %w", n.Name, err)
				}
			}
		}
	}
	return nil
}

func (n *Node) provideWireGuard(name string) error {
	if n.HasLink(name) {
		return nil
	}
	if n.HasWireGuard() {
		return n.links.LinkAdd(&netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: name}})
	}
	var link tun.Device
	err := n.In(func() (err error) {
		link, err = tun.CreateTUN(name, device.DefaultMTU)
		return err
	})
	if err != nil {
		return err
	}
	d := device.NewDevice(link, &bind{conn.NewDefaultBind(), n}, device.NewLogger(device.LogLevelSilent, ""))
	path := filepath.Join(n.sockets(), name+".sock")
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chown(path, user, user)
	}
	if err != nil {
		d.Close()
		return err
	}
	go func() {
		<-d.Wait()
		_ = listener.Close() // and its file is gone
	}()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go d.IpcHandle(c)
		}
	}()
	return nil
}

// HasLink says whether there is a link of this name.
func (n *Node) HasLink(name string) bool {
	_, err := n.links.LinkByName(name)
	return err == nil
}

// Sends says whether packets for other clusters leave the node by a link.
func (n *Node) Sends(link string) bool {
	found, err := n.links.LinkByName(link)
	if err != nil {
		return false
	}
	routes, err := n.links.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: 7472, LinkIndex: found.Attrs().Index},
		netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
	return err == nil && slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Priority == 0 })
}

// RemoveLink removes a link.
func (n *Node) RemoveLink(name string) error {
	link, err := n.links.LinkByName(name)
	if err != nil {
		return err
	}
	return n.links.LinkDel(link)
}

// ForgetWireGuardKey has a gateway make another key when it is asked next.
func (n *Node) ForgetWireGuardKey() error { return os.Remove(filepath.Join(n.dir, "wireguard.key")) }

// LoseUDP has all packets get lost that come to the node for a UDP port, or no longer. Nobody is told.
func (n *Node) LoseUDP(port uint16, lost bool) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(n.handle)))
	if err != nil {
		return err
	}
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "lost"}
	if !lost {
		conn.DelTable(table)
		return conn.Flush()
	}
	conn.AddTable(table)
	chain := conn.AddChain(&nftables.Chain{Table: table, Name: "in", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
		Priority: nftables.ChainPriorityFilter})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	return conn.Flush()
}
