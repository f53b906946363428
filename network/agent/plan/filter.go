package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
)

// Filter is a table of nftables, of IPv4 or of IPv6.
type Filter struct {
	IPv6   bool
	Sets   []Set
	Chains []Chain
}

// FilterName is the name of both tables.
const FilterName = "lodestone"

// Set is addresses that rules name. What pods come and go changes sets, and no rules.
type Set struct {
	Name string
	// Hosts: it has single addresses, and no ranges.
	Hosts bool
	// Ranges are sorted, and none is in another.
	Ranges []netip.Prefix
}

// Chain is rules that the kernel asks at some point of a packet's way.
type Chain struct {
	Name, Type, Hook string
	Priority         int
	Rules            []Match
}

// Match is a rule of a Chain: for packets of which all is true that is not empty.
type Match struct {
	// In and Out are names of links, or how they begin, and then "*".
	In, Out string
	// From and To are names of sets; "!" before a name: none of its addresses.
	From, To string
	// Port is the UDP port that a packet is sent to.
	Port uint16
	// Tracked: the kernel tracks the packet's connection, which nobody had it forget.
	Tracked bool
	// Astray: packets to the sender would not leave by the link that this one came by.
	Astray bool
	// SYN: the packet begins a TCP connection, on one of the sides.
	SYN bool
	// Extra: the packet has options of IPv4, whichever, or the extension header of IPv6 that Header is.
	Extra  bool
	Header byte
	Do     Verdict
	// MSS is for SetMSS.
	MSS uint16
}

// Verdict is what becomes of a packet.
type Verdict string

// The verdicts. All but Drop and Accept let the packet go on to the next rule.
const (
	Accept Verdict = "accept"
	Drop   Verdict = "drop"
	// Forget has the kernel not track the packet's connection.
	Forget Verdict = "notrack"
	// Keep says that the connection keeps its source, of whichever family: no masquerade after it has a say.
	Keep Verdict = "snat to saddr"
	// SetMSS has TCP send no larger segments.
	SetMSS Verdict = "tcp option maxseg size set"
	// LetIn marks a packet, so that gates let it pass.
	LetIn Verdict = "meta mark set mark or 0x20"
)

// Mark is the bit of LetIn. Others have theirs: kube-proxy 0xc000, Cilium 0xff00, Calico those above.
const Mark = 0x20

// Text is a rule of the filter like nft would write it.
func (f *Filter) Text(m Match) string {
	family := "ip"
	if f.IPv6 {
		family = "ip6"
	}
	var words []string
	add := func(format, value string) {
		if value != "" {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	set := func(field, name string) {
		if name, not := strings.CutPrefix(name, "!"); not {
			add(field+" != @%s", name)
		} else {
			add(field+" @%s", name)
		}
	}
	add("iifname %s", m.In)
	add("oifname %s", m.Out)
	set(family+" saddr", m.From)
	set(family+" daddr", m.To)
	if m.Port != 0 {
		words = append(words, fmt.Sprintf("udp dport %d", m.Port))
	}
	if m.Tracked {
		words = append(words, "ct state != untracked")
	}
	if m.Astray {
		words = append(words, "fib saddr . iif oif missing")
	}
	if m.SYN {
		words = append(words, "tcp flags syn")
	}
	switch {
	case m.Extra && f.IPv6:
		words = append(words, fmt.Sprintf("exthdr %d exists", m.Header))
	case m.Extra:
		words = append(words, "ip hdrlength != 5")
	}
	if m.Do == Keep {
		words = append(words, "snat to", family, "saddr")
	} else {
		words = append(words, string(m.Do))
	}
	if m.MSS != 0 {
		words = append(words, fmt.Sprint(m.MSS))
	}
	return strings.Join(words, " ")
}

// Priorities of nftables: raw, mangle, filter, before the masquerade of the cluster's network, at srcnat, and after all that translates
// what comes to the node itself, IPVS too.
const (
	priorityRaw    = -300
	priorityMangle = -150
	priorityFilter = 0
	priorityClaim  = 100 - 10
	priorityTaken  = 100 + 10
)

// Names of sets.
const (
	setNodes  = "nodes"
	setOwn    = "own"
	setRemote = "remote"
)

// filter is default deny for all of a family that goes through tunnel and lanes. The tunnel itself goes over IPv4.
func filter(in Input, self *site.Node, ipv6 bool) *Filter {
	f := &Filter{IPv6: ipv6}
	var nodes, remote []netip.Prefix
	for _, n := range in.Nodes {
		nodes = append(nodes, netip.PrefixFrom(n.Address, n.Address.BitLen()))
	}
	for _, r := range in.Remotes {
		remote = append(remote, Reached(in.MTU, r)...)
	}
	own := self.Pods
	if !self.Gateway && len(in.PodRanges) > 0 {
		own = in.PodRanges // it does not know which of them are its own, and gateways have let in what comes here
	}
	f.Sets = []Set{{setOwn, false, sorted(own)}, {setRemote, false, sorted(remote)}}
	var tunnel, tunnelOut []Match
	translated := []Match{{Port: TunnelPort, Do: Drop}}
	if !ipv6 {
		f.Sets = append([]Set{{setNodes, true, sorted(nodes)}}, f.Sets...)
		tunnel = []Match{
			// Only nodes may speak through the tunnel. Pods of this node come by here before their source is masqueraded.
			{Port: TunnelPort, From: "!" + setNodes, Do: Drop},
			{Port: TunnelPort, Astray: true, Do: Drop},
			{Port: TunnelPort, Do: Forget},
		}
		tunnelOut = []Match{{Port: TunnelPort, Do: Forget}}
		// A Service that leads to the tunnel of a node has another port before, and then the packet gets the address of this node.
		translated = []Match{{Port: TunnelPort, Tracked: true, Do: Drop}, {Port: TunnelPort, From: "!" + setNodes, Do: Drop}}
	}
	input := []Match{{In: Tunnel, Do: Drop}} // the node itself is nobody's destination
	var gate, forward, out []Match
	if self.Gateway {
		var sets []Set
		sets, forward = transit(in.Remotes)
		f.Sets = append(f.Sets, sets...)
		gate = append(extras(ipv6), letIn(forward)...)
		for _, r := range in.WithLanes() {
			device := Device(r.Name)
			pods, ranges, link := "pods-"+device, "ranges-"+device, lanes(device)
			f.Sets = append(f.Sets, Set{pods, true, sorted(hosts(r.Pods))}, Set{ranges, false, sorted(Reached(in.MTU, r))})
			// What only passes through is not tracked: its answers may come by another gateway.
			tunnel = append(tunnel, Match{In: link, To: "!" + setOwn, Do: Forget})
			input = append(input, Match{In: link, Do: Drop})
			forward = append(forward,
				Match{In: link, From: ranges, To: pods, Do: Accept},
				Match{In: link, Do: Drop})
			out = append(out,
				Match{Out: link, From: pods, To: ranges, Do: Accept},
				Match{Out: link, Do: Drop})
		}
		// What comes by a lane is judged by that alone: with the address of a pod here it would else leave by another lane.
		forward = append(forward, out...)
		tunnel = append(tunnel, Match{In: Tunnel, To: "!" + setOwn, Do: Forget})
	}
	forward = append(forward,
		Match{In: Tunnel, From: setRemote, To: setOwn, Do: Accept},
		Match{In: Tunnel, Do: Drop},
		Match{Out: Tunnel, From: setOwn, To: setRemote, Do: Accept},
		Match{Out: Tunnel, Do: Drop})
	sized, sizes := segments(in, ipv6)
	f.Sets = append(f.Sets, sized...)
	for i := range f.Sets {
		f.Sets[i].Ranges = slices.DeleteFunc(f.Sets[i].Ranges, func(r netip.Prefix) bool { return r.Addr().Is6() != ipv6 })
	}
	f.Chains = []Chain{
		{"tunnel", "filter", "prerouting", priorityRaw, tunnel},
		{"tunnel-out", "filter", "output", priorityRaw, tunnelOut},
		{"tunnel-taken", "filter", "input", priorityTaken, translated},
		{"tunnel-sent", "filter", "postrouting", priorityFilter, translated},
		{"gate", "filter", "prerouting", priorityFilter, gate},
		{"input", "filter", "input", priorityFilter, input},
		{"forward", "filter", "forward", priorityFilter, forward},
		// Where messages of too large packets get lost, TCP still finds the size.
		{"size", "filter", "forward", priorityMangle, sizes},
		{"claim", "nat", "postrouting", priorityClaim, []Match{
			{From: setOwn, To: setRemote, Do: Keep},
			{From: setRemote, To: setOwn, Do: Keep},
		}},
	}
	f.Chains = slices.DeleteFunc(f.Chains, func(c Chain) bool { return len(c.Rules) == 0 })
	return f
}

// letIn marks what goes from lane to lane, wherever it leaves, which gates keep out otherwise.
func letIn(transit []Match) (marks []Match) {
	for _, m := range transit {
		if m.Out, m.Do = "", LetIn; !slices.Contains(marks, m) {
			marks = append(marks, m)
		}
	}
	return marks
}

// extras drops of what comes by lanes what package lane would not take out of one over TLS: WireGuard takes everything.
func extras(ipv6 bool) (rules []Match) {
	if !ipv6 {
		return []Match{{In: lanes("lode-"), Extra: true, Do: Drop}}
	}
	for _, header := range lane.Extensions {
		rules = append(rules, Match{In: lanes("lode-"), Extra: true, Header: header, Do: Drop})
	}
	return rules
}

// segments has TCP send no larger segments than the networks on the way to a range carry in one piece. There is a set for each size.
func segments(in Input, ipv6 bool) (sets []Set, rules []Match) {
	ranges := map[int][]netip.Prefix{}
	headers := 20 + 20 // of IP and TCP
	if ipv6 {
		headers = 40 + 20
	}
	for _, r := range in.Remotes {
		for _, way := range ways(in.MTU, r) {
			if way.To.Addr().Is6() == ipv6 {
				ranges[way.MTU] = append(ranges[way.MTU], way.To)
			}
		}
	}
	for _, mtu := range slices.Sorted(maps.Keys(ranges)) {
		set, size := Set{fmt.Sprint("size-", mtu), false, sorted(ranges[mtu])}, uint16(mtu-headers)
		sets = append(sets, set)
		rules = append(rules, Match{From: setOwn, To: set.Name, SYN: true, Do: SetMSS, MSS: size},
			Match{From: set.Name, To: setOwn, SYN: true, Do: SetMSS, MSS: size})
	}
	return sets, rules
}

// nothingOfIPv6 lets nothing through: there is no IPv6 on our links. The kernel receives packets of the tunnel by IPv6, too, whoever sends
// them.
func nothingOfIPv6(in Input, self *site.Node) *Filter {
	links := []string{Tunnel}
	if self.Gateway {
		for _, r := range in.WithLanes() {
			links = append(links, lanes(Device(r.Name)))
		}
	}
	var from, to []Match
	for _, link := range links {
		from, to = append(from, Match{In: link, Do: Drop}), append(to, Match{Out: link, Do: Drop})
	}
	port := Match{Port: TunnelPort, Do: Drop}
	return &Filter{IPv6: true, Chains: []Chain{
		{"in", "filter", "prerouting", priorityRaw, from},
		{"taken", "filter", "input", priorityTaken, []Match{port}},
		{"out", "filter", "postrouting", priorityRaw, append(to, port)},
	}}
}

// lanes are the links of the lane to one cluster, whatever carries it.
func lanes(device string) string { return device + "*" }

func hosts(addresses []netip.Addr) (prefixes []netip.Prefix) {
	for _, a := range addresses {
		prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	return prefixes
}

// transit lets pods of one cluster that are named for another one reach those there that are named for the first, where each of the two
// clusters names the other: from the lane of the one into that of the other, on this gateway or on the next, where this one has no lane
// that is up. Nothing else goes from lane to lane, and nothing goes through the tunnel twice.
func transit(remotes []site.Remote) (sets []Set, rules []Match) {
	for i := range remotes {
		for j := range remotes {
			from, to := &remotes[i], &remotes[j]
			of, back := from.TransitTo(to.Name), to.TransitTo(from.Name)
			if i == j || of == nil || back == nil {
				continue
			}
			in, out := Device(from.Name), Device(to.Name)
			senders, receivers := transitSet(in, out), transitSet(out, in)
			sets = append(sets, Set{senders, true, sorted(hosts(of.Pods))})
			rules = append(rules,
				Match{In: lanes(in), Out: lanes(out), From: senders, To: receivers, Do: Accept},
				Match{In: lanes(in), Out: Tunnel, From: senders, To: receivers, Do: Accept},
				Match{In: Tunnel, Out: lanes(out), From: senders, To: receivers, Do: Accept})
		}
	}
	return sets, rules
}

// transitSet is the name of the set of pods behind one lane that reach those behind another.
func transitSet(device, other string) string { return "pods-" + device + "-to-" + other }
