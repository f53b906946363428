package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/network/site"
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

// twoGateways is a cluster with a node and two gateways, to which others are joined.
func twoGateways(remotes ...site.Remote) *site.Site {
	return &site.Site{Remotes: remotes, Nodes: []site.Node{
		{Name: "node", Address: netip.MustParseAddr("172.30.1.10"), Pods: prefixes("10.1.0.0/24")},
		{Name: "g1", Address: netip.MustParseAddr("172.30.1.11"), Pods: prefixes("10.1.1.0/24"), Gateway: true},
		{Name: "g2", Address: netip.MustParseAddr("172.30.1.12"), Pods: prefixes("10.1.2.0/24"), Gateway: true},
	}}
}

var west = site.Remote{Name: "west", Ranges: prefixes("10.2.0.0/16"), Pods: []netip.Addr{netip.MustParseAddr("10.1.0.2")}}

func TestANodeHasOneRuleAndOneRouteForEachCluster(t *testing.T) {
	var many []site.Remote
	via := map[string]string{}
	for i := range 1000 {
		name := fmt.Sprintf("cluster-%d", i)
		many = append(many, site.Remote{Name: name, Ranges: prefixes(fmt.Sprintf("10.%d.%d.0/24", 100+i/256, i%256))})
		via[name] = "g1"
	}
	p := Make(Input{Site: twoGateways(many...), Self: "node", MTU: 1500, Via: via})
	assert.Equal(t, []Rule{{Priority: 5, Table: 7472}}, p.Rules)
	require.Len(t, p.Routes, 1000)
	assert.Equal(t, Route{Table: 7472, To: netip.MustParsePrefix("10.100.0.0/24"), Device: "lode0", Via: netip.MustParseAddr("172.30.1.11"),
		MTU: 1464}, p.Routes[0])
}

// laneTo is a lane over TLS.
func laneTo(remote string, up bool) map[string]Lane {
	return map[string]Lane{remote: {Up: up, Device: Device(remote), Devices: []string{Device(remote)}}}
}

func TestWhatANodeHas(t *testing.T) {
	to := netip.MustParsePrefix("10.2.0.0/16")
	through := func(address string, metric int) Route {
		return Route{Table: 7472, To: to, Device: "lode0", Via: netip.MustParseAddr(address), MTU: 1464, Metric: metric}
	}
	lane := Route{Table: 7472, To: to, Device: Device("west"), MTU: 1464}
	nodes := []Route{
		{Table: 7473, To: netip.MustParsePrefix("10.1.0.0/24"), Device: "lode0", Via: netip.MustParseAddr("172.30.1.10")},
		{Table: 7473, To: netip.MustParsePrefix("10.1.2.0/24"), Device: "lode0", Via: netip.MustParseAddr("172.30.1.12")},
	}
	for _, row := range []struct {
		name   string
		self   string
		lanes  map[string]Lane
		via    map[string]string
		routes []Route
	}{
		{"a node that reached no gateway yet has no route", "node", nil, nil, nil},
		{"a node goes through the gateway that was chosen", "node", nil, map[string]string{"west": "g2"}, []Route{through("172.30.1.12", 0)}},
		{"a gateway has a lane, the other gateway in reserve, and a route to each other node", "g1", laneTo("west", true),
			map[string]string{"west": "g2"}, append([]Route{lane, through("172.30.1.12", 100)}, nodes...)},
		{"a gateway whose lane is not up goes through the other one", "g1", laneTo("west", false), map[string]string{"west": "g2"},
			append([]Route{through("172.30.1.12", 0)}, nodes...)},
		{"a gateway that is alone has its lane, up or not", "g1", laneTo("west", false), nil, append([]Route{lane}, nodes...)},
		{"a node that does not take part has nothing", "other", nil, map[string]string{"west": "g1"}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := Make(Input{Site: twoGateways(west), Self: row.self, MTU: 1500, Lanes: row.lanes, Via: row.via})
			assert.Equal(t, row.routes, p.Routes)
		})
	}
	alone := Make(Input{Site: twoGateways(), Self: "g1", MTU: 1500, Lanes: map[string]Lane{}})
	assert.Empty(t, alone, "nothing is left where no cluster is joined")
}

func TestAGatewayHasARouteToEachPodWhereNodesHaveNoRanges(t *testing.T) {
	told := twoGateways(west)
	told.PodRanges = prefixes("10.1.0.0/16")
	told.Nodes[0].Pods, told.Nodes[1].Pods, told.Nodes[2].Pods = prefixes("10.1.0.2/32", "10.1.9.2/32"), prefixes("10.1.0.3/32"), nil
	own := func(p Plan) []netip.Prefix {
		for _, s := range p.Filter.Sets {
			if s.Name == setOwn {
				return s.Ranges
			}
		}
		return nil
	}
	p := Make(Input{Site: told, Self: "g1", MTU: 1500})
	var to []Route
	for _, r := range p.Routes {
		if r.Table == tableFrom {
			to = append(to, r)
		}
	}
	assert.Equal(t, []Route{{Table: tableFrom, To: netip.MustParsePrefix("10.1.0.2/32"), Device: Tunnel, Via: told.Nodes[0].Address},
		{Table: tableFrom, To: netip.MustParsePrefix("10.1.9.2/32"), Device: Tunnel, Via: told.Nodes[0].Address}}, to)
	assert.Equal(t, prefixes("10.1.0.3/32"), own(p), "what only passes through a gateway is not its own")
	told.Nodes[0].Pods, told.Nodes[1].Pods = nil, nil
	assert.Equal(t, told.PodRanges, own(Make(Input{Site: told, Self: "node", MTU: 1500})), "a node does not know which pods are its own")
}

func TestTheSmallerNetworkSetsTheSize(t *testing.T) {
	small := west
	small.MTU = 1400
	p := Make(Input{Site: twoGateways(small), Self: "node", MTU: 9000, Via: map[string]string{"west": "g1"}})
	assert.Equal(t, 8964, p.MTU)
	assert.Equal(t, 1364, p.Routes[0].MTU)
	assert.Contains(t, p.Filter.text(), "ip saddr @own ip daddr @size-1364 tcp flags syn tcp option maxseg size set 1324")
}

// text is the filter as people read it.
func (f *Filter) text() (text string) {
	for _, c := range f.Chains {
		text += fmt.Sprintf("%s: type %s hook %s priority %d\n", c.Name, c.Type, c.Hook, c.Priority)
		for _, m := range c.Rules {
			text += "  " + f.Text(m) + "\n"
		}
	}
	return text
}

func TestAGatewayLetsOnlyNamedPodsAndTheOtherClustersRangesPass(t *testing.T) {
	p := Make(Input{Site: twoGateways(west), Self: "g1", MTU: 1500})
	assert.Equal(t, `tunnel: type filter hook prerouting priority -300
  ip saddr != @nodes udp dport 7472 drop
  udp dport 7472 fib saddr . iif oif missing drop
  udp dport 7472 notrack
  iifname lode-76a79620* ip daddr != @own notrack
  iifname lode0 ip daddr != @own notrack
tunnel-out: type filter hook output priority -300
  udp dport 7472 notrack
tunnel-taken: type filter hook input priority 110
  udp dport 7472 ct state != untracked drop
  ip saddr != @nodes udp dport 7472 drop
tunnel-sent: type filter hook postrouting priority 0
  udp dport 7472 ct state != untracked drop
  ip saddr != @nodes udp dport 7472 drop
gate: type filter hook prerouting priority 0
  iifname lode-* ip hdrlength != 5 drop
input: type filter hook input priority 0
  iifname lode0 drop
  iifname lode-76a79620* drop
forward: type filter hook forward priority 0
  iifname lode-76a79620* ip saddr @ranges-lode-76a79620 ip daddr @pods-lode-76a79620 accept
  iifname lode-76a79620* drop
  oifname lode-76a79620* ip saddr @pods-lode-76a79620 ip daddr @ranges-lode-76a79620 accept
  oifname lode-76a79620* drop
  iifname lode0 ip saddr @remote ip daddr @own accept
  iifname lode0 drop
  oifname lode0 ip saddr @own ip daddr @remote accept
  oifname lode0 drop
size: type filter hook forward priority -150
  ip saddr @own ip daddr @size-1464 tcp flags syn tcp option maxseg size set 1424
  ip saddr @size-1464 ip daddr @own tcp flags syn tcp option maxseg size set 1424
claim: type nat hook postrouting priority 90
  ip saddr @own ip daddr @remote snat to ip saddr
  ip saddr @remote ip daddr @own snat to ip saddr
`, p.Filter.text())
}

// forwarded are the rules for what is forwarded.
func (f *Filter) forwarded() (rules []string) {
	for _, c := range f.Chains {
		if c.Name == "forward" {
			for _, m := range c.Rules {
				rules = append(rules, f.Text(m))
			}
		}
	}
	return rules
}

func (f *Filter) set(name string) []netip.Prefix {
	for _, s := range f.Sets {
		if s.Name == name {
			return s.Ranges
		}
	}
	return nil
}

func TestWhatComesByALaneIsJudgedByThatAlone(t *testing.T) {
	east := site.Remote{Name: "east", Ranges: prefixes("10.3.0.0/16")}
	for _, remotes := range [][]site.Remote{{west, east}, {east, west}} {
		rules := Make(Input{Site: twoGateways(remotes...), Self: "g1", MTU: 1500}).Filter.forwarded()
		assert.Contains(t, rules[1], "iifname "+Device(remotes[0].Name)+"* drop")
		assert.Contains(t, rules[3], "iifname "+Device(remotes[1].Name)+"* drop")
		assert.Contains(t, rules[4], "oifname", "what a pod here may send is asked of nothing that comes by a lane")
	}
}

// joinedByHome are two clusters that reach each other through home.
func joinedByHome() (west, east site.Remote) {
	west = site.Remote{Name: "west", Ranges: prefixes("10.2.0.0/16"), Transit: []site.Transit{{To: "east",
		Pods: []netip.Addr{netip.MustParseAddr("10.2.0.2")}}}}
	east = site.Remote{Name: "east", Ranges: prefixes("10.3.0.0/16"), Transit: []site.Transit{{To: "west",
		Pods: []netip.Addr{netip.MustParseAddr("10.3.0.3"), netip.MustParseAddr("10.3.0.4")}}}}
	return west, east
}

func TestHomeLetsOnlyNamedPodsPassFromLaneToLane(t *testing.T) {
	west, east := joinedByHome()
	third := site.Remote{Name: "north", Ranges: prefixes("10.4.0.0/16")}
	p := Make(Input{Site: twoGateways(west, east, third), Self: "g1", MTU: 1500})
	w, e := Device("west"), Device("east")
	here, there := "pods-"+w+"-to-"+e, "pods-"+e+"-to-"+w
	assert.Equal(t, []string{
		"iifname " + w + "* oifname " + e + "* ip saddr @" + here + " ip daddr @" + there + " accept",
		"iifname " + w + "* oifname lode0 ip saddr @" + here + " ip daddr @" + there + " accept",
		"iifname lode0 oifname " + e + "* ip saddr @" + here + " ip daddr @" + there + " accept",
		"iifname " + e + "* oifname " + w + "* ip saddr @" + there + " ip daddr @" + here + " accept",
		"iifname " + e + "* oifname lode0 ip saddr @" + there + " ip daddr @" + here + " accept",
		"iifname lode0 oifname " + w + "* ip saddr @" + there + " ip daddr @" + here + " accept",
	}, p.Filter.forwarded()[:6])
	assert.Len(t, p.Filter.forwarded(), 6+3*4+4)
	assert.Equal(t, prefixes("10.2.0.2/32"), p.Filter.set(here))
	assert.Equal(t, prefixes("10.3.0.3/32", "10.3.0.4/32"), p.Filter.set(there))

	node := Make(Input{Site: twoGateways(west, east, third), Self: "node", MTU: 1500}).Filter
	assert.Len(t, node.forwarded(), 4, "only gateways have lanes")
	east.Transit = nil
	one := Make(Input{Site: twoGateways(west, east), Self: "g1", MTU: 1500}).Filter
	assert.Len(t, one.forwarded(), 2*4+4, "one cluster alone joins nothing")
	assert.Nil(t, one.set(here))
}

func TestWhatIsBehindAClusterIsReachedByItsLane(t *testing.T) {
	home := site.Remote{Name: "home", Ranges: prefixes("10.2.0.0/16"), MTU: 1450, Behind: []site.Behind{
		{Name: "east", Ranges: prefixes("10.3.0.0/16"), MTU: 1400}, {Name: "north", Ranges: prefixes("10.4.0.0/16"), MTU: 9000},
		{Name: "zoo", Ranges: prefixes("10.5.0.0/16")}}}
	p := Make(Input{Site: twoGateways(home), Self: "g1", MTU: 1500, Lanes: laneTo("home", true)})
	mtus := map[string]int{}
	for _, r := range p.Routes {
		if r.Table == 7472 {
			assert.Equal(t, Device("home"), r.Device)
			mtus[r.To.String()] = r.MTU
		}
	}
	assert.Equal(t, map[string]int{"10.2.0.0/16": 1414, "10.3.0.0/16": 1364, "10.4.0.0/16": 1414, "10.5.0.0/16": 1414}, mtus,
		"the smallest network on the way sets the size")
	assert.Contains(t, p.Filter.text(), "ip daddr @size-1364 tcp flags syn tcp option maxseg size set 1324")
	assert.Contains(t, p.Filter.text(), "ip daddr @size-1414 tcp flags syn tcp option maxseg size set 1374")
	assert.Equal(t, prefixes("10.3.0.0/16"), p.Filter.set("size-1364"))
	assert.Equal(t, prefixes("10.2.0.0/16", "10.4.0.0/16", "10.5.0.0/16"), p.Filter.set("size-1414"), "a small network makes no other smaller")
	assert.Contains(t, p.Rules, Rule{Priority: 4, Table: 7473, From: netip.MustParsePrefix("10.3.0.0/16")})
	all := prefixes("10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16", "10.5.0.0/16")
	assert.Equal(t, all, p.Filter.set("remote"))
	assert.Equal(t, all, p.Filter.set("ranges-"+Device("home")))
}

func TestALaneLeadsToPodsThatMayAndToNobodyElse(t *testing.T) {
	s := dual()
	gate := func(p Plan) (all []string) {
		for _, r := range p.Gates {
			if r.Drop {
				all = append(all, fmt.Sprint(r.Priority, " by ", r.In, " ", r.From, " to ", r.To, " drop"))
			} else {
				all = append(all, fmt.Sprint(r.Priority, " by ", r.In, " ipv6 ", r.IPv6, " looks into ", r.Table))
			}
		}
		for _, r := range p.GateRoutes {
			all = append(all, fmt.Sprint(r.Table, " ", r.Kind, " ", r.To))
		}
		return all
	}
	p := Make(Input{Site: s, Self: "g1", MTU: 1500})
	const table = 1<<31 | 0x76a79620
	assert.Equal(t, []string{
		fmt.Sprint("0 by lode-76a79620 ipv6 false looks into ", table),
		fmt.Sprint("0 by lode-76a79620wg ipv6 false looks into ", table),
		"0 by lo 0.0.0.0/32 to 10.2.0.0/16 drop",
		fmt.Sprint("0 by lode-76a79620 ipv6 true looks into ", table),
		"0 by lode-76a79620 invalid Prefix to ff00::/8 drop",
		fmt.Sprint("0 by lode-76a79620wg ipv6 true looks into ", table),
		"0 by lode-76a79620wg invalid Prefix to ff00::/8 drop",
		fmt.Sprint(table, " blackhole 0.0.0.0/0"),
		fmt.Sprint(table, " throw 10.1.0.2/32"),
		fmt.Sprint(table, " blackhole ::/0"),
		fmt.Sprint(table, " throw fd00:1:0:1::2/128"),
	}, gate(p))
	assert.Empty(t, gate(Make(Input{Site: s, Self: "node", MTU: 1500})), "only gateways have lanes")
	s.Remotes[0].Ranges = prefixes("10.2.0.0/16")
	assert.NotContains(t, gate(Make(Input{Site: s, Self: "g1", MTU: 1500})), fmt.Sprint(table, " throw fd00:1:0:1::2/128"))
	west, east := joinedByHome()
	p = Make(Input{Site: twoGateways(west, east), Self: "g1", MTU: 1500})
	w, e := Device("west"), Device("east")
	here, there := "@pods-"+w+"-to-"+e, "@pods-"+e+"-to-"+w
	assert.Contains(t, p.Filter.text(), strings.Join([]string{"",
		"  iifname " + w + "* ip saddr " + here + " ip daddr " + there + " meta mark set mark or 0x20",
		"  iifname lode0 ip saddr " + here + " ip daddr " + there + " meta mark set mark or 0x20",
		"  iifname " + e + "* ip saddr " + there + " ip daddr " + here + " meta mark set mark or 0x20",
		"  iifname lode0 ip saddr " + there + " ip daddr " + here + " meta mark set mark or 0x20",
		"input"}, "\n"), "what goes from lane to lane passes gates by a mark")
}

func TestNothingOfIPv6Passes(t *testing.T) {
	assert.Equal(t, `in: type filter hook prerouting priority -300
  iifname lode0 drop
  iifname lode-76a79620* drop
taken: type filter hook input priority 110
  udp dport 7472 drop
out: type filter hook postrouting priority -300
  oifname lode0 drop
  oifname lode-76a79620* drop
  udp dport 7472 drop
`, Make(Input{Site: twoGateways(west), Self: "g1", MTU: 1500}).FilterIPv6.text())
	assert.NotContains(t, Make(Input{Site: twoGateways(west), Self: "node", MTU: 1500}).FilterIPv6.text(), "lode-", "nodes have no lanes")
	assert.Nil(t, Make(Input{Site: twoGateways(), Self: "g1", MTU: 1500}).FilterIPv6, "nothing is left")
}

// dual are two clusters whose pods have addresses of both families.
func dual() *site.Site {
	other := west
	other.Ranges = prefixes("10.2.0.0/16", "fd00:2::/48")
	other.Pods = []netip.Addr{netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("fd00:1:0:1::2")}
	s := twoGateways(other)
	for i := range s.Nodes {
		s.Nodes[i].Pods = append(s.Nodes[i].Pods, netip.MustParsePrefix(fmt.Sprintf("fd00:1:0:%d::/64", i)))
	}
	return s
}

func TestAGatewayIsAsStrictByIPv6(t *testing.T) {
	before := Make(Input{Site: twoGateways(west), Self: "g1", MTU: 1500, Lanes: laneTo("west", true), Via: map[string]string{"west": "g2"}})
	p := Make(Input{Site: dual(), Self: "g1", MTU: 1500, Lanes: laneTo("west", true), Via: map[string]string{"west": "g2"}})
	assert.Equal(t, before.Filter, p.Filter, "that of IPv4 stays as it is")
	assert.Equal(t, []Rule{{Priority: 5, Table: 7472}, {Priority: 5, Table: 7472, IPv6: true},
		{Priority: 4, Table: 7473, From: netip.MustParsePrefix("10.2.0.0/16")},
		{Priority: 4, Table: 7473, From: netip.MustParsePrefix("fd00:2::/48"), IPv6: true}}, p.Rules)
	to := netip.MustParsePrefix("fd00:2::/48")
	assert.Contains(t, p.Routes, Route{Table: 7472, To: to, Device: Device("west"), MTU: 1464})
	assert.Contains(t, p.Routes, Route{Table: 7472, To: to, Device: Tunnel, Via: netip.MustParseAddr("172.30.1.12"), MTU: 1464, Metric: 100})
	assert.Contains(t, p.Routes, Route{Table: 7473, To: netip.MustParsePrefix("fd00:1:0:2::/64"), Device: Tunnel,
		Via: netip.MustParseAddr("172.30.1.12")})
	assert.Len(t, p.Routes, 2*len(before.Routes))
	assert.Equal(t, `tunnel: type filter hook prerouting priority -300
  iifname lode-76a79620* ip6 daddr != @own notrack
  iifname lode0 ip6 daddr != @own notrack
tunnel-taken: type filter hook input priority 110
  udp dport 7472 drop
tunnel-sent: type filter hook postrouting priority 0
  udp dport 7472 drop
gate: type filter hook prerouting priority 0
  iifname lode-* exthdr 0 exists drop
  iifname lode-* exthdr 43 exists drop
  iifname lode-* exthdr 51 exists drop
  iifname lode-* exthdr 60 exists drop
  iifname lode-* exthdr 135 exists drop
  iifname lode-* exthdr 139 exists drop
  iifname lode-* exthdr 140 exists drop
  iifname lode-* exthdr 253 exists drop
  iifname lode-* exthdr 254 exists drop
input: type filter hook input priority 0
  iifname lode0 drop
  iifname lode-76a79620* drop
forward: type filter hook forward priority 0
  iifname lode-76a79620* ip6 saddr @ranges-lode-76a79620 ip6 daddr @pods-lode-76a79620 accept
  iifname lode-76a79620* drop
  oifname lode-76a79620* ip6 saddr @pods-lode-76a79620 ip6 daddr @ranges-lode-76a79620 accept
  oifname lode-76a79620* drop
  iifname lode0 ip6 saddr @remote ip6 daddr @own accept
  iifname lode0 drop
  oifname lode0 ip6 saddr @own ip6 daddr @remote accept
  oifname lode0 drop
size: type filter hook forward priority -150
  ip6 saddr @own ip6 daddr @size-1464 tcp flags syn tcp option maxseg size set 1404
  ip6 saddr @size-1464 ip6 daddr @own tcp flags syn tcp option maxseg size set 1404
claim: type nat hook postrouting priority 90
  ip6 saddr @own ip6 daddr @remote snat to ip6 saddr
  ip6 saddr @remote ip6 daddr @own snat to ip6 saddr
`, p.FilterIPv6.text())
	device := Device("west")
	for set, ranges := range map[string][]netip.Prefix{setNodes: nil, setOwn: prefixes("fd00:1:0:1::/64"), setRemote: prefixes("fd00:2::/48"),
		"pods-" + device: prefixes("fd00:1:0:1::2/128"), "ranges-" + device: prefixes("fd00:2::/48"), "size-1464": prefixes("fd00:2::/48")} {
		assert.Equal(t, ranges, p.FilterIPv6.set(set), set)
	}
}

func TestNoIPv6GoesWhereItsSmallestPacketsDoNotFit(t *testing.T) {
	s := dual()
	s.Remotes[0].MTU = 1300
	p := Make(Input{Site: s, Self: "g1", MTU: 1500})
	assert.Equal(t, Make(Input{Site: twoGateways(west), Self: "g1", MTU: 1500}).FilterIPv6, p.FilterIPv6)
	assert.False(t, CarriesIPv6(1500, s.Remotes[0]))
	for _, r := range p.Routes {
		assert.True(t, r.To.Addr().Is4(), "%v", r)
	}
	s.Remotes[0].MTU = 1316
	assert.True(t, CarriesIPv6(1500, s.Remotes[0]))
	s.Remotes[0].Carrier = site.WireGuard
	assert.False(t, CarriesIPv6(1500, s.Remotes[0]))
	assert.Equal(t, prefixes("10.2.0.0/16"), WireGuard(Input{Site: s, Self: "g1", MTU: 1500}, s.Remotes[0], 7477).Ranges)
}

func TestChooseChangesNothingWithoutNeed(t *testing.T) {
	s := twoGateways(west)
	best := Choose(s, "node", "west", "", func(string) bool { return true })
	other := map[string]string{"g1": "g2", "g2": "g1"}[best]
	for _, row := range []struct {
		name, current, answers, want string
	}{
		{"both answer: the one in use stays", other, "g1 g2", other},
		{"the one in use does not answer", other, best, best},
		{"only one has ever answered", "", other, other},
		{"nobody answers: the one in use stays", other, "", other},
		{"nobody has ever answered", "", "", best},
		{"the one in use is no gateway any more", "gone", "g1 g2", best},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, Choose(s, "node", "west", row.current, func(gateway string) bool {
				return row.answers == gateway || row.answers == "g1 g2"
			}))
		})
	}
	assert.Equal(t, "g2", Choose(s, "g1", "west", "", func(string) bool { return true }), "a gateway does not choose itself")
	used := map[string]int{}
	for i := range 100 {
		used[Choose(s, fmt.Sprint("node-", i), "west", "", func(string) bool { return true })]++
	}
	assert.Greater(t, min(used["g1"], used["g2"]), 20, "nodes share gateways: %v", used)
}
