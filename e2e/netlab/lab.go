package netlab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/e2e/built"
	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// Lab is two clusters, home and west, whose pod networks know nothing of each other, or a third one, too, east, which has a cable to home
// alone, or to west, too. Each has a node that is no gateway, Nodes[0], and two that are. The nodes of a cluster have a router, which knows
// those of the clusters that it is joined with, and no pods. The agents are the program as it is shipped, of a user of their own, with
// CAP_NET_ADMIN and nothing else.
type Lab struct {
	Home, West *Cluster
	// East is nil unless it was asked for.
	East *Cluster
	// Transit: home carries between west and east what their first pods send to each other.
	Transit bool
	// Direct: they have lanes to each other, too, which west dials.
	Direct bool
	// WireGuard is to carry packets between the gateways.
	WireGuard bool

	dir, program string
	made         []*Namespace
}

// Cluster is nodes of one network.
type Cluster struct {
	Name  string
	Nodes []*Node
	// Ranges are those of its pods; Translations are by which others reach them, none if that is the same.
	Ranges       []netip.Prefix
	Translations remotecluster.Translations
	router       *Namespace
	// scattered: Range of its nodes is not valid.
	scattered bool
}

// node returns a node by its name, nil if there is none.
func (c *Cluster) node(name string) *Node {
	i := slices.IndexFunc(c.Nodes, func(n *Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return c.Nodes[i]
}

// Translate changes by which addresses others reach the cluster's pods; nobody is told.
func (c *Cluster) Translate(translations remotecluster.Translations) {
	c.Translations = translations
	for _, n := range c.Nodes {
		for _, p := range n.Pods {
			p.Reached, _ = translations.Reached(p.Address)
		}
	}
}

// Node is a node with pods.
type Node struct {
	*Namespace
	Address netip.Addr
	// Range is that of its pods, not valid where nodes have none; Range6 is that of IPv6.
	Range, Range6 netip.Prefix
	Pods          []*Pod
	// Gateway: lanes begin here.
	Gateway bool
	// Agent is nil while it does not run.
	Agent *Agent

	// Keys are those that a gateway had when it was asked last.
	Keys []lane.Key

	wireGuard lane.WireGuardKey
	dir       string
	cluster   *Cluster
}

// Pod is a pod.
type Pod struct {
	*Namespace
	Address netip.Addr
	// Reached is by what pods of other clusters reach it, and see it.
	Reached netip.Addr
	// Address6 is that of IPv6, not valid where pods have none.
	Address6 netip.Addr
}

// IPv6 is the pod by its address of that family.
func (p *Pod) IPv6() *Pod {
	other := *p
	other.Address, other.Reached = p.Address6, p.Address6
	return &other
}

// Settings are how a Lab is made.
type Settings struct {
	// OneRange: pods of all clusters have their addresses from the same range.
	OneRange bool
	// Scattered: nodes have no ranges of their own, and each pod has a route on each node, as with Calico.
	Scattered bool
	// Dual: pods have addresses of IPv6, too, and so have nodes, which have no way by that to other clusters.
	Dual bool
	// Three: there is a third cluster.
	Three bool
	// Transit: home carries between the other two, once they are joined.
	Transit bool
	// Direct: these two have a cable, and lanes to each other, once they are joined.
	Direct bool
	// WireGuard is to carry packets between the gateways, once they are joined.
	WireGuard bool
	// Strict: nodes filter by the reverse path.
	Strict bool
	// Masquerade is the program by which nodes masquerade, such as iptables-legacy; empty: it is done by nftables.
	Masquerade string
	// Program is lodestone-network, as Build has built it, where several labs share it; empty: it is built for this one.
	Program string
	// Congestion is what controls TCP of pods and nodes, but for lanes; empty: the kernel's default.
	Congestion string
	// Delay and Loss are of each packet between the routers, each way; 0: they are joined by a cable.
	Delay time.Duration
	Loss  float64
}

// user is who agents run as.
const user = 65532

// New makes the clusters, without agents.
func New(ctx context.Context, settings Settings) (l *Lab, err error) {
	l = &Lab{Transit: settings.Transit, Direct: settings.Direct, WireGuard: settings.WireGuard, program: settings.Program}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if l.dir, err = os.MkdirTemp("", "lodestone-netlab-*"); err != nil {
		return nil, err
	}
	if err := os.Chmod(l.dir, 0o755); err != nil { // agents have a user of their own
		return nil, err
	}
	if l.program == "" {
		if l.program, err = Build(ctx, l.dir); err != nil {
			return nil, err
		}
	}
	if l.Home, err = l.cluster("home", 1, settings); err != nil {
		return nil, err
	}
	if l.West, err = l.cluster("west", 2, settings); err != nil {
		return nil, err
	}
	if settings.Three {
		if l.East, err = l.cluster("east", 3, settings); err != nil {
			return nil, err
		}
		home, east := l.Home.router, l.East.router
		err = errors.Join(Join(home, "wan2", "192.0.2.5/30", east, "wan2", "192.0.2.6/30"),
			home.Route("172.30.3.0/24", "192.0.2.6", ""), east.Route("172.30.1.0/24", "192.0.2.5", ""))
		if err != nil {
			return nil, err
		}
	}
	if settings.Direct {
		west, east := l.West.router, l.East.router
		err = errors.Join(Join(west, "wan3", "192.0.2.9/30", east, "wan3", "192.0.2.10/30"),
			west.Route("172.30.3.0/24", "192.0.2.10", ""), east.Route("172.30.2.0/24", "192.0.2.9", ""))
		if err != nil {
			return nil, err
		}
	}
	return l, l.join(ctx, settings)
}

// Clusters are all that there are, home first.
func (l *Lab) Clusters() []*Cluster {
	return slices.DeleteFunc([]*Cluster{l.Home, l.West, l.East}, func(c *Cluster) bool { return c == nil })
}

// join joins the routers.
func (l *Lab) join(ctx context.Context, settings Settings) error {
	home, west := l.Home.router, l.West.router
	link := "wan"
	if settings.Delay > 0 {
		link = lineDevice
		if err := line(ctx, home, west, settings.Delay, settings.Loss); err != nil {
			return err
		}
	} else if err := Join(home, link, "", west, link, ""); err != nil {
		return err
	}
	return errors.Join(home.Address(link, "192.0.2.1/30"), west.Address(link, "192.0.2.2/30"),
		home.Route("172.30.2.0/24", "192.0.2.2", ""), west.Route("172.30.1.0/24", "192.0.2.1", ""))
}

// Plain has the routers know the pods of all nodes: what the network can do without a fabric.
func (l *Lab) Plain() error {
	var errs []error
	for _, c := range l.Clusters() {
		for _, n := range c.Nodes {
			errs = append(errs, c.router.Route(n.Range.String(), n.Address.String(), ""))
		}
	}
	errs = append(errs, l.Home.router.Route("10.2.0.0/16", "192.0.2.2", ""), l.West.router.Route("10.1.0.0/16", "192.0.2.1", ""))
	return errors.Join(errs...)
}

// Build builds the program into a directory that everybody can read, and returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	root, err := built.SourceTree()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "lodestone-network")
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./network")
	command.Dir, command.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build lodestone-network: %w\n%s", err, out)
	}
	return path, nil
}

// Nodes are those of all clusters.
func (l *Lab) Nodes() (all []*Node) {
	for _, c := range l.Clusters() {
		all = append(all, c.Nodes...)
	}
	return all
}

// Close ends all agents and lets everything go.
func (l *Lab) Close() {
	for _, n := range l.Nodes() {
		n.Kill()
	}
	for _, n := range l.made {
		n.Close()
	}
	if l.dir != "" {
		_ = os.RemoveAll(l.dir)
	}
}

func (l *Lab) namespace(name string) (*Namespace, error) {
	n, err := NewNamespace(name)
	if err == nil {
		l.made = append(l.made, n)
	}
	return n, err
}

func (l *Lab) cluster(name string, number int, settings Settings) (*Cluster, error) {
	router, err := l.namespace(name + "-router")
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: name, router: router, scattered: settings.Scattered,
		Ranges: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", number))}}
	if settings.OneRange {
		c.Ranges = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
		as := netip.MustParsePrefix(fmt.Sprintf("100.%d.0.0/16", 64+number))
		c.Translations = remotecluster.Translations{{PodCIDR: c.Ranges[0], ReachedAs: as}}
	}
	if settings.Dual {
		c.Ranges = append(c.Ranges, netip.MustParsePrefix(fmt.Sprintf("fd00:10:%x::/48", number)))
	}
	err = errors.Join(router.Sysctl("ipv4/ip_forward", "1"), router.Sysctl("ipv4/conf/all/rp_filter", "0"),
		router.Sysctl("ipv4/conf/default/rp_filter", "0"), router.Bridge("nodes", fmt.Sprintf("172.30.%d.254/24", number)))
	if err != nil {
		return nil, err
	}
	for i, kind := range []string{"node", "gateway1", "gateway2"} {
		n, err := l.node(c, name+"-"+kind, number, i, settings)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	// As a network without overlay has it: each node knows where the pods of the others are.
	for _, n := range c.Nodes {
		for _, other := range c.Nodes {
			if n == other {
				continue
			}
			for _, pods := range other.ranges() {
				via := other.Address
				if pods.Addr().Is6() {
					via = node6(number, other.Address)
				}
				if err := n.Route(pods.String(), via.String(), ""); err != nil {
					return nil, err
				}
			}
		}
	}
	return c, nil
}

func (l *Lab) node(c *Cluster, name string, number, index int, settings Settings) (*Node, error) {
	namespace, err := l.namespace(name)
	if err != nil {
		return nil, err
	}
	n := &Node{Namespace: namespace, Gateway: index > 0, cluster: c, dir: filepath.Join(l.dir, name),
		Address: netip.AddrFrom4([4]byte{172, 30, byte(number), byte(10 + index)}),
		Range:   netip.PrefixFrom(netip.AddrFrom4([4]byte{10, c.Ranges[0].Addr().As4()[1], byte(index), 0}), 24)}
	for _, dir := range []string{n.dir, n.run(), n.sockets()} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chown(dir, user, user)); err != nil {
			return nil, err
		}
	}
	if settings.Dual {
		if err := noDAD(n.Namespace); err != nil {
			return nil, err
		}
	}
	if err := n.plug("eth0", n.Address.String()+"/24"); err != nil {
		return nil, err
	}
	sysctls := map[string]string{"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0"}
	if settings.Dual {
		sysctls["ipv6/conf/all/forwarding"] = "1"
	}
	if settings.Strict {
		sysctls["ipv4/conf/all/rp_filter"] = "1"
	}
	for path, value := range sysctls {
		if err := n.Sysctl(path, value); err != nil {
			return nil, err
		}
	}
	gateway, bits := n.Range.Addr().Next(), 24
	if c.scattered {
		gateway, bits, n.Range = netip.MustParseAddr("169.254.1.1"), 32, netip.Prefix{}
	}
	err = errors.Join(n.congestion(settings.Congestion), n.Route("", fmt.Sprintf("172.30.%d.254", number), ""),
		n.Bridge("cni0", netip.PrefixFrom(gateway, bits).String()))
	if settings.Masquerade == "" {
		err = errors.Join(err, masquerade(n.Namespace, c.Ranges[0]))
	} else {
		err = errors.Join(err, masqueradeBy(settings.Masquerade, n.Namespace, c.Ranges[0]))
	}
	if settings.Dual {
		err = errors.Join(err, n.dual(number, index))
	}
	if err != nil {
		return nil, err
	}
	for i := range 2 {
		address := gateway
		for range i + 1 {
			address = address.Next()
		}
		if c.scattered { // those of one node are not beside each other
			address = netip.AddrFrom4([4]byte{10, c.Ranges[0].Addr().As4()[1], byte(i + 1), byte(10 + index)})
		}
		p, err := l.pod(n, i, address, gateway)
		if err != nil {
			return nil, err
		}
		if settings.Dual {
			if err := p.dual(n, number, i, index); err != nil {
				return nil, err
			}
		}
		n.Pods = append(n.Pods, p)
		if err := p.congestion(settings.Congestion); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *Namespace) congestion(name string) error {
	if name == "" {
		return nil
	}
	return n.Sysctl("ipv4/tcp_congestion_control", name)
}

// plug joins a node with its router.
func (n *Node) plug(link, address string) error {
	router := n.cluster.router
	if err := Join(n.Namespace, link, address, router, n.cable(), ""); err != nil {
		return err
	}
	return router.Master(n.cable(), "nodes")
}

// cable is the name of the router's end of a node's cable, of up to 15 characters.
func (n *Node) cable() string {
	return "to-" + strings.TrimPrefix(n.Name, n.cluster.Name+"-")
}

// Cut cuts a node's cable, or joins it again. Nobody is told.
func (n *Node) Cut(cut bool) error { return n.cluster.router.SetLink(n.cable(), !cut) }

// Narrow has the network between the clusters carry only packets of some size in one piece.
func (l *Lab) Narrow(mtu int) error {
	return errors.Join(l.Home.router.MTU("wan", mtu), l.West.router.MTU("wan", mtu))
}

// Narrow has the network between the cluster's nodes do so.
func (c *Cluster) Narrow(mtu int) (err error) {
	for _, n := range c.Nodes {
		err = errors.Join(err, n.MTU("eth0", mtu), c.router.MTU(n.cable(), mtu))
	}
	return errors.Join(err, c.router.MTU("nodes", mtu))
}

// Part has all packets from home to a gateway of west get lost, so that there is no way between the clusters, or no longer. Nobody is told.
func (l *Lab) Part(parted bool) error {
	var errs []error
	for _, n := range l.West.Nodes {
		if n.Gateway {
			errs = append(errs, l.Home.router.Lose(n.Address.String()+"/32", parted))
		}
	}
	return errors.Join(errs...)
}

func (l *Lab) pod(n *Node, index int, address, gateway netip.Addr) (*Pod, error) {
	namespace, err := l.namespace(fmt.Sprintf("%s-pod%d", n.Name, index))
	if err != nil {
		return nil, err
	}
	reached, _ := n.cluster.Translations.Reached(address)
	p := &Pod{Namespace: namespace, Address: address, Reached: reached}
	link, bits := fmt.Sprintf("pod%d", index), 24
	if n.cluster.scattered {
		bits = 32
	}
	if len(n.cluster.Ranges) > 1 {
		err = noDAD(p.Namespace)
	}
	err = errors.Join(err, Join(p.Namespace, "eth0", netip.PrefixFrom(address, bits).String(), n.Namespace, link, ""), n.Master(link, "cni0"))
	if n.cluster.scattered {
		err = errors.Join(err, p.Route(gateway.String()+"/32", "", "eth0"), n.Route(address.String()+"/32", "", "cni0"))
	}
	return p, errors.Join(err, p.Route("", gateway.String(), ""))
}

// ranges are those of a node's pods, each of one address where it has no Range.
func (n *Node) ranges() (all []netip.Prefix) {
	if n.cluster.scattered {
		for _, p := range n.Pods {
			all = append(all, p.alone()...)
		}
		return all
	}
	if all = []netip.Prefix{n.Range}; n.Range6.IsValid() {
		all = append(all, n.Range6)
	}
	return all
}

// alone are the addresses of a pod as ranges.
func (p *Pod) alone() []netip.Prefix {
	all := []netip.Prefix{netip.PrefixFrom(p.Address, p.Address.BitLen())}
	if p.Address6.IsValid() {
		all = append(all, netip.PrefixFrom(p.Address6, p.Address6.BitLen()))
	}
	return all
}

// node6 is a node's address of IPv6.
func node6(number int, address netip.Addr) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("fd00:30:%x::%d", number, address.As4()[3]))
}

// noDAD has links of a namespace have their own addresses of IPv6 at once, without looking whether somebody else has them.
func noDAD(n *Namespace) error {
	return errors.Join(n.Sysctl("ipv6/conf/all/accept_dad", "0"), n.Sysctl("ipv6/conf/default/accept_dad", "0"))
}

// gateway6 is a node to its pods that have no range.
const gateway6 = "fe80::1"

// dual gives a node IPv6.
func (n *Node) dual(number, index int) error {
	gateway := netip.MustParsePrefix(gateway6 + "/64")
	if !n.cluster.scattered {
		n.Range6 = netip.MustParsePrefix(fmt.Sprintf("fd00:10:%x:%x::/64", number, index))
		gateway = netip.PrefixFrom(n.Range6.Addr().Next(), n.Range6.Bits())
	}
	return errors.Join(n.Namespace.Address("eth0", node6(number, n.Address).String()+"/64"), n.Namespace.Address("cni0", gateway.String()),
		masquerade(n.Namespace, n.cluster.Ranges[1]))
}

// dual gives a pod IPv6.
func (p *Pod) dual(n *Node, number, pod, index int) error {
	gateway, bits := gateway6, 128
	if n.cluster.scattered {
		p.Address6 = netip.MustParseAddr(fmt.Sprintf("fd00:10:%x::%x:%x", number, pod+1, 10+index))
	} else {
		gateway, bits = n.Range6.Addr().Next().String(), 64
		p.Address6 = netip.MustParseAddr(fmt.Sprintf("fd00:10:%x:%x::%x", number, index, pod+2))
	}
	err := p.Namespace.Address("eth0", netip.PrefixFrom(p.Address6, bits).String())
	if n.cluster.scattered {
		err = errors.Join(err, n.Route(p.Address6.String()+"/128", "", "cni0"))
	}
	return errors.Join(err, p.Route("", gateway, "eth0"))
}

// Expose has a node translate what is sent to an address and a port, of TCP or UDP, to another one, as kube-proxy does for Services.
func (n *Namespace) Expose(from, to netip.AddrPort) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(n.handle)))
	if err != nil {
		return err
	}
	family, nat, destination := nftables.TableFamilyIPv4, uint32(unix.NFPROTO_IPV4), uint32(16) // and where that address is in the header
	if to.Addr().Is6() {
		family, nat, destination = nftables.TableFamilyIPv6, unix.NFPROTO_IPV6, 24
	}
	table := conn.AddTable(&nftables.Table{Family: family, Name: "services"})
	chain := conn.AddChain(&nftables.Chain{Table: table, Name: "pre", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting,
		Priority: nftables.ChainPriorityNATDest})
	const port = 2 // where it is in the header
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destination, Len: uint32(len(from.Addr().AsSlice()))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: from.Addr().AsSlice()},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: port, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(from.Port())},
		&expr.Immediate{Register: 1, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(to.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: nat, RegAddrMin: 1, RegProtoMin: 2},
	}})
	return conn.Flush()
}
