package apply

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/lane"
)

// anyAddress is the same on all our links. Nobody reaches it.
var anyAddress = netip.MustParsePrefix("169.254.74.72/32")

// tunnel brings the tunnel's link in line; MTU 0: there is to be none.
func tunnel(mtu int) error {
	link, err := netlink.LinkByName(plan.Tunnel)
	var missing netlink.LinkNotFoundError
	if err != nil && !errors.As(err, &missing) {
		return fmt.Errorf("find link %s: %w", plan.Tunnel, err)
	}
	if vxlan, ok := link.(*netlink.Vxlan); link != nil && (!ok || !vxlan.FlowBased || vxlan.Port != plan.TunnelPort) {
		return fmt.Errorf("there is a link %s that is not ours: delete or rename it", plan.Tunnel)
	}
	if mtu == 0 {
		if link == nil {
			return nil
		}
		return netlink.LinkDel(link)
	}
	if link == nil {
		if err := addTunnel(); err != nil {
			return fmt.Errorf("make link %s (does the kernel have VXLAN, and the pod CAP_NET_ADMIN?): %w", plan.Tunnel, err)
		}
		if link, err = netlink.LinkByName(plan.Tunnel); err != nil {
			return fmt.Errorf("find link %s: %w", plan.Tunnel, err)
		}
	}
	if link.Attrs().MTU != mtu {
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set the MTU of %s to %d: %w", plan.Tunnel, mtu, err)
		}
	}
	if err := lane.OnlyIPv4(link); err != nil {
		return err
	}
	if link.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	return netlink.LinkSetUp(link)
}

// strays removes links of lanes over WireGuard that are none of these: unlike those over TLS they stay when the program ends.
func strays(wanted []string) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	var errs []error
	for _, l := range links {
		if name := l.Attrs().Name; plan.OverWireGuard(name) && !slices.Contains(wanted, name) {
			errs = append(errs, lane.RemoveLink(name))
		}
	}
	return errors.Join(errs...)
}

// loosen has the kernel take packets by a link though their answers leave by another one, as they do on gateways: rp_filter=2, which
// counts even where strictness is asked of all links. What may come is for the filter to say, and what it marks passes gates in this, too:
// src_valid_mark=1. Over netlink it needs no writable /proc/sys.
func loosen(device string) error {
	const (
		reversePath, loose = 8, 2  // IPV4_DEVCONF_RP_FILTER
		sourceMark, on     = 24, 1 // IPV4_DEVCONF_SRC_VMARK
		inetConf           = 1     // IFLA_INET_CONF
	)
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find link %s: %w", device, err)
	}
	// A link without any address is strict all the same.
	if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: network(anyAddress), Scope: int(netlink.SCOPE_LINK)}); err != nil {
		return fmt.Errorf("give %s an address: %w", device, err)
	}
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(link.Attrs().Index)
	request.AddData(message)
	families := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	conf := families.AddRtAttr(unix.AF_INET, nil).AddRtAttr(inetConf, nil)
	conf.AddRtAttr(reversePath, nl.Uint32Attr(loose))
	conf.AddRtAttr(sourceMark, nl.Uint32Attr(on))
	request.AddData(families)
	if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("set rp_filter of %s: %w", device, err)
	}
	return nil
}

// addTunnel makes a VXLAN link whose routes say where packets go, without Ethernet in it: `ip link add lode0 type
// vxlan external gpe dstport 7472`. The library does not know of GPE.
func addTunnel() error {
	const gpe = 27 // IFLA_VXLAN_GPE
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(plan.Tunnel)))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("vxlan"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_VXLAN_FLOWBASED, nl.Uint8Attr(1))
	data.AddRtAttr(nl.IFLA_VXLAN_LEARNING, nl.Uint8Attr(0))
	data.AddRtAttr(nl.IFLA_VXLAN_PORT, nl.BEUint16Attr(plan.TunnelPort))
	data.AddRtAttr(gpe, nil)
	request.AddData(info)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// encapsulation is what a route says of the tunnel: `encap ip id 7472 dst <node>`. The library has it for IPv6 alone.
type encapsulation struct {
	to netip.Addr
}

// Type, Encode, Decode, Equal and String are what the library asks for.
func (e *encapsulation) Type() int { return nl.LWTUNNEL_ENCAP_IP }

func (e *encapsulation) Encode() ([]byte, error) {
	to := e.to.As4()
	id := nl.NewRtAttr(nl.LWTUNNEL_IP6_ID, nl.BEUint64Attr(plan.TunnelID)) // the numbers of attributes are those of IPv6
	return append(id.Serialize(), nl.NewRtAttr(nl.LWTUNNEL_IP6_DST, to[:]).Serialize()...), nil
}

func (e *encapsulation) Decode([]byte) error { return errors.New("not read") }

func (e *encapsulation) Equal(other netlink.Encap) bool {
	o, ok := other.(*encapsulation)
	return ok && *o == *e
}

func (e *encapsulation) String() string { return "to " + e.to.String() }
