// Package plan says what a node has in its kernel for the network fabric: links, rules, routes and packet filters, from what it is told
// and what it knows of its lanes. It is pure; package apply brings the kernel in line with it. A node of a cluster to which no other
// cluster is joined has nothing.
package plan

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"

	"github.com/lodestone-storage/lodestone/network/site"
)

const (
	// Tunnel is the name of the link over which a node reaches the gateways of its cluster, and they the nodes: VXLAN without
	// Ethernet (GPE), whose other end each route names. There are no addresses on it, no MACs and no neighbours.
	Tunnel = "lode0"
	// TunnelPort is the UDP port of the tunnel, on each node, for nodes of the own cluster.
	TunnelPort = 7472
	// TunnelID is the number of the virtual network.
	TunnelID = 7472
	// overhead is what the tunnel puts before a packet: IPv4, UDP and VXLAN headers.
	overhead = 20 + 8 + 8
	// Protocol marks our rules and routes as ours.
	Protocol = 74
	// tableTo has a route for each range of other clusters; tableFrom, of gateways, one for each node of the own cluster.
	tableTo, tableFrom = 7472, 7473
	// Rules of ours come before those of the cluster's network (Cilium's begin at 9), after those for the node's own addresses; but for
	// gates, which come before these.
	priorityGate, priorityFrom, priorityTo = 0, 4, 5
	// fallback is the metric of routes that take over when a lane's device is gone, without anybody's help.
	fallback = 100
)

// Input is what a plan is made from.
type Input struct {
	*site.Site
	// Self is the name of the node.
	Self string
	// MTU is that of the network between nodes.
	MTU int
	// Lanes are the lanes of this node that exist, by the name of the cluster.
	Lanes map[string]Lane
	// Via is the gateway through which the node reaches a cluster, by the name of the cluster; for lanes that are another way to one, by
	// their DirectName, only while that gateway says that they are up.
	Via map[string]string
	// Silent are clusters for which that gateway does not answer, or has no lane that is up.
	Silent map[string]bool
}

// Lane is a lane of this node.
type Lane struct {
	Up bool
	// Device is the link that packets go to; Devices are all that they may come by.
	Device  string
	Devices []string
}

// Plan is what a node should have.
type Plan struct {
	// MTU is that of the tunnel; 0: there is to be none.
	MTU int
	// Devices are the links that packets may come by.
	Devices []string
	// Guarded are links over WireGuard that lanes may have at any moment; any other one is left from before.
	Guarded []string
	// Judged are all links over WireGuard of which Filter judges what comes: any other one would let in everything.
	Judged []string
	// Gates are rules that let what comes by lanes go nowhere but where GateRoutes say: to pods that may. Nobody else is reached while
	// somebody has flushed Filter.
	Gates      []Rule
	GateRoutes []Route
	Rules      []Rule
	Routes     []Route
	// Filter is that of IPv4, FilterIPv6 that of IPv6; nil: none.
	Filter, FilterIPv6 *Filter
}

// Rule has packets look into a table, or drops them.
type Rule struct {
	Priority, Table int
	From            netip.Prefix // of those packets; not valid: of all
	To              netip.Prefix // of those packets; not valid: to all
	// In is the link that they come by; empty: whichever.
	In string
	// Drop: they look into no table. Else those that come by In do only if they have not our Mark.
	Drop bool
	// IPv6: it is for packets of IPv6, else for those of IPv4.
	IPv6 bool
}

// Route is the way to a range.
type Route struct {
	Table  int
	To     netip.Prefix
	Kind   Kind
	Metric int
	Device string
	// Via is the node at the other end of the tunnel; not valid: the device is a lane.
	Via netip.Addr
	MTU int // 0: that of the device
}

// Kind is what a Route does; that which is empty leads by a device.
type Kind string

// DropAll drops packets, and GoOn has them look into the next table.
const (
	DropAll Kind = "blackhole"
	GoOn    Kind = "throw"
)

// PodMTU is the largest packet that pods of two clusters send to each other in one piece, from the MTUs of the networks between the nodes
// of each; there is 0 where it is not known.
func PodMTU(here, there int) int {
	if there == 0 {
		return here - overhead
	}
	return min(here, there) - overhead
}

// Device is the name of the lane's link to a cluster, over TLS. Names of links have at most 15 characters.
func Device(remote string) string { return "lode-" + site.Short(remote) }

// Make makes the plan.
func Make(in Input) Plan {
	self := in.Node(in.Self)
	if self == nil || len(in.Remotes) == 0 {
		return Plan{}
	}
	p := Plan{MTU: PodMTU(in.MTU, 0), Devices: []string{Tunnel}, Rules: []Rule{{Priority: priorityTo, Table: tableTo}}}
	ipv6 := in.IPv6()
	if ipv6 {
		p.Rules = append(p.Rules, Rule{Priority: priorityTo, Table: tableTo, IPv6: true})
	}
	for _, r := range in.WithLanes() {
		p.Devices = append(p.Devices, in.Lanes[r.Name].Devices...)
		if self.Gateway {
			p.Judged = append(p.Judged, WireGuardDevice(r.Name))
			rules, routes := gate(in.MTU, r)
			p.Gates, p.GateRoutes = append(p.Gates, rules...), append(p.GateRoutes, routes...)
		}
	}
	for _, r := range in.Remotes {
		if self.Gateway && r.Carrier == site.WireGuard {
			p.Guarded = append(p.Guarded, WireGuardDevice(r.Name))
		}
		through := hops(in, r.Name)
		for _, way := range ways(in.MTU, r) {
			for i, hop := range slices.Concat(direct(in, r, way.To), through) {
				hop.Table, hop.To, hop.MTU, hop.Metric = tableTo, way.To, way.MTU, fallback*i
				p.Routes = append(p.Routes, hop)
			}
		}
		if self.Gateway {
			for _, from := range Reached(in.MTU, r) {
				p.Rules = append(p.Rules, Rule{Priority: priorityFrom, Table: tableFrom, From: from, IPv6: from.Addr().Is6()})
			}
		}
	}
	if self.Gateway {
		for _, n := range in.Nodes {
			for _, to := range n.Pods {
				if n.Name != in.Self && (ipv6 || to.Addr().Is4()) {
					p.Routes = append(p.Routes, Route{Table: tableFrom, To: to, Device: Tunnel, Via: n.Address})
				}
			}
		}
	}
	p.Filter, p.FilterIPv6 = filter(in, self, false), nothingOfIPv6(in, self)
	if ipv6 {
		p.FilterIPv6 = filter(in, self, true)
	}
	return p
}

// What is to all, by IPv4, looks into no table, but the kernel asks how its sender is reached, from no address: nobody. Only programs of
// the node itself ask so, too.
var (
	nobody     = netip.PrefixFrom(netip.IPv4Unspecified(), 32)
	multicast6 = netip.MustParsePrefix("ff00::/8")
)

// gate lets what comes by the lane to a cluster reach pods that may, and nobody else, not the node either. From where it comes the lane
// itself looks at. It has a table of its own, which the kernel also asks whether answers to what leaves by the lane may come back.
func gate(mtu int, r site.Remote) (rules []Rule, routes []Route) {
	hash, _ := strconv.ParseUint(site.Short(r.Name), 16, 32)
	table := 1<<31 | int(hash)
	for _, everywhere := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		ipv6 := everywhere.Addr().Is6()
		for _, link := range []string{Device(r.Name), WireGuardDevice(r.Name)} {
			rules = append(rules, Rule{Priority: priorityGate, Table: table, In: link, IPv6: ipv6})
			if ipv6 { // a route that drops is none for what is to all on a link
				rules = append(rules, Rule{Priority: priorityGate, To: multicast6, In: link, IPv6: true, Drop: true})
			}
		}
		routes = append(routes, Route{Table: table, To: everywhere, Kind: DropAll})
		for _, from := range Reached(mtu, r) {
			if !ipv6 && from.Addr().Is4() {
				rules = append(rules, Rule{Priority: priorityGate, From: nobody, To: from, In: "lo", Drop: true})
			}
		}
		for _, pod := range sorted(hosts(r.Pods)) {
			if pod.Addr().Is6() == ipv6 && (!ipv6 || CarriesIPv6(mtu, r)) {
				routes = append(routes, Route{Table: table, To: pod, Kind: GoOn})
			}
		}
	}
	return rules, routes
}

// least is the smallest MTU that a network with IPv6 may have.
const least = 1280

// IPv6 says whether there is a cluster to which IPv6 is carried. Where there is none, nothing of it passes.
func (in Input) IPv6() bool {
	return slices.ContainsFunc(in.Remotes, func(r site.Remote) bool { return CarriesIPv6(in.MTU, r) })
}

// CarriesIPv6 says whether IPv6 is carried to a cluster, from one whose network between nodes has an MTU.
func CarriesIPv6(mtu int, r site.Remote) bool {
	return slices.ContainsFunc(Reached(mtu, r), func(one netip.Prefix) bool { return one.Addr().Is6() })
}

// ways are the ranges that are reached by the lane to a cluster, each with the largest packet that all networks on the way carry in one
// piece: nobody further on can say that one is too large. Ranges of IPv6 are none of them where that is less than IPv6 needs.
func ways(mtu int, r site.Remote) (ways []Route) {
	carried := LaneMTU(mtu, r)
	add := func(ranges []netip.Prefix, mtu int) {
		for _, to := range ranges {
			if to.Addr().Is4() || mtu >= least {
				ways = append(ways, Route{To: to, MTU: mtu})
			}
		}
	}
	add(r.Ranges, carried)
	for _, b := range r.Behind {
		add(b.Ranges, min(carried, PodMTU(mtu, b.MTU)))
	}
	return ways
}

// Reached are the ranges of ways: what comes by the lane has to come from one of them.
func Reached(mtu int, r site.Remote) (ranges []netip.Prefix) {
	for _, way := range ways(mtu, r) {
		ranges = append(ranges, way.To)
	}
	return ranges
}

// hops are the ways to a cluster, the best first: a lane of the node's own that is up, then that of another gateway.
func hops(in Input, remote string) (hops []Route) {
	lane, own := in.Lanes[remote]
	// WireGuard goes on without programs at the other side, which is better than a gateway that nobody hears of.
	if own && (lane.Up || OverWireGuard(lane.Device) && in.Silent[remote]) {
		hops = append(hops, Route{Device: lane.Device})
	}
	if via := in.Node(in.Via[remote]); via != nil && via.Name != in.Self {
		hops = append(hops, Route{Device: Tunnel, Via: via.Address})
	}
	if own && len(hops) == 0 {
		hops = append(hops, Route{Device: lane.Device})
	}
	return hops
}

// direct are the ways to a range behind a cluster that do not lead through that one, the best first: only lanes that are known to be up,
// for there is another way.
func direct(in Input, r site.Remote, to netip.Prefix) (hops []Route) {
	i := slices.IndexFunc(r.Behind, func(b site.Behind) bool { return slices.Contains(b.Ranges, to) })
	if i < 0 || len(r.Behind[i].Direct) == 0 {
		return nil
	}
	name := r.DirectName(r.Behind[i].Name)
	if lane := in.Lanes[name]; lane.Up {
		hops = append(hops, Route{Device: lane.Device})
	}
	if via := in.Node(in.Via[name]); via != nil && via.Name != in.Self {
		hops = append(hops, Route{Device: Tunnel, Via: via.Address})
	}
	return hops
}

// Choose returns the gateway through which a node reaches a cluster: the one that it uses as long as that answers and its lane is up,
// for connections should not change their way without need, or one of those for which that is so, another one for each node, so that
// they share the load. If there is none, nothing changes.
func Choose(s *site.Site, self, remote, current string, answers func(gateway string) bool) string {
	var best, first string
	for _, n := range s.Nodes {
		if !n.Gateway || n.Name == self {
			continue
		}
		if n.Name == current && answers(current) {
			return current
		}
		if first == "" || rank(self, remote, n.Name) > rank(self, remote, first) {
			first = n.Name
		}
		if answers(n.Name) && (best == "" || rank(self, remote, n.Name) > rank(self, remote, best)) {
			best = n.Name
		}
	}
	return cmp.Or(best, current, first)
}

// rank orders gateways, differently for each node and cluster.
func rank(parts ...string) uint64 {
	hash := fnv.New64a()
	for _, part := range parts {
		_, _ = hash.Write([]byte(part + "\x00"))
	}
	return hash.Sum64()
}

// sorted returns the ranges without those that are in others, in their order.
func sorted(ranges []netip.Prefix) (distinct []netip.Prefix) {
	ranges = slices.SortedFunc(slices.Values(ranges), netip.Prefix.Compare)
	for _, r := range ranges {
		if len(distinct) == 0 || !distinct[len(distinct)-1].Overlaps(r) {
			distinct = append(distinct, r)
		}
	}
	return distinct
}
