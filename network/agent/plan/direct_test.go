package plan

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
)

// behindHome is home, behind which is east, which is reached directly, too, and north, which is not.
func behindHome() site.Remote {
	return site.Remote{Name: "home", Ranges: prefixes("10.9.0.0/16"), Pods: []netip.Addr{netip.MustParseAddr("10.1.0.2")}, MTU: 1450,
		Behind: []site.Behind{{Name: "north", Ranges: prefixes("10.4.0.0/16")}, {Name: "east", Ranges: prefixes("10.3.0.0/16"), MTU: 1400,
			Direct: []site.Gateway{{Name: "e1", Keys: []lane.Key{{1}}}}}}}
}

func TestADirectLaneIsPreferredWhileItIsUp(t *testing.T) {
	g1, g2 := netip.MustParseAddr("172.30.1.11"), netip.MustParseAddr("172.30.1.12")
	lanes := func(direct bool) map[string]Lane {
		all := laneTo("home", true)
		maps.Copy(all, laneTo("home/east", direct))
		return all
	}
	lane := func(name string) Route { return Route{Device: Device(name)} }
	through := func(via netip.Addr) Route { return Route{Device: "lode0", Via: via} }
	for _, row := range []struct {
		name, self string
		lanes      map[string]Lane
		via        map[string]string
		want       []Route
	}{
		{"a gateway whose lane is up", "g1", lanes(true), map[string]string{"home": "g2", "home/east": "g2"},
			[]Route{lane("home/east"), through(g2), lane("home"), through(g2)}},
		{"a gateway that is alone", "g1", lanes(true), nil, []Route{lane("home/east"), lane("home")}},
		{"a gateway whose lane is down, and that of the other is up", "g1", lanes(false), map[string]string{"home": "g2", "home/east": "g2"},
			[]Route{through(g2), lane("home"), through(g2)}},
		{"a gateway, and no lane is up", "g1", lanes(false), map[string]string{"home": "g2"}, []Route{lane("home"), through(g2)}},
		{"a gateway that has no such lane yet", "g1", laneTo("home", true), nil, []Route{lane("home")}},
		{"a node", "node", nil, map[string]string{"home": "g1", "home/east": "g2"}, []Route{through(g2), through(g1)}},
		{"a node, and no lane is up", "node", nil, map[string]string{"home": "g1"}, []Route{through(g1)}},
		{"a node that hears nothing of home", "node", nil, map[string]string{"home/east": "g2"}, []Route{through(g2)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := Make(Input{Site: twoGateways(behindHome()), Self: row.self, MTU: 1500, Lanes: row.lanes, Via: row.via})
			var east []Route
			for _, r := range p.Routes {
				if r.Table != 7472 {
					continue
				}
				if r.To.String() == "10.3.0.0/16" {
					assert.Equal(t, 100*len(east), r.Metric, "the best first")
					assert.Equal(t, 1364, r.MTU, "the size does not change with the way")
					east = append(east, Route{Device: r.Device, Via: r.Via})
				} else {
					assert.NotEqual(t, Device("home/east"), r.Device, "nothing else goes by that lane: %s", r.To)
				}
			}
			assert.Equal(t, row.want, east)
		})
	}
}

func TestADirectLaneIsJudgedByItsOwnRanges(t *testing.T) {
	p := Make(Input{Site: twoGateways(behindHome()), Self: "g1", MTU: 1500})
	home, east := Device("home"), Device("home/east")
	assert.Equal(t, []string{
		"iifname " + home + "* ip saddr @ranges-" + home + " ip daddr @pods-" + home + " accept",
		"iifname " + home + "* drop",
		"iifname " + east + "* ip saddr @ranges-" + east + " ip daddr @pods-" + east + " accept",
		"iifname " + east + "* drop",
		"oifname " + home + "* ip saddr @pods-" + home + " ip daddr @ranges-" + home + " accept",
		"oifname " + home + "* drop",
		"oifname " + east + "* ip saddr @pods-" + east + " ip daddr @ranges-" + east + " accept",
		"oifname " + east + "* drop",
	}, p.Filter.forwarded()[:8])
	assert.Equal(t, prefixes("10.3.0.0/16"), p.Filter.set("ranges-"+east), "neither home's nor north's")
	assert.Equal(t, prefixes("10.1.0.2/32"), p.Filter.set("pods-"+east))
	assert.Contains(t, p.Filter.text(), "iifname "+east+"* drop\nforward", "no node is reached by it")
	assert.Contains(t, p.FilterIPv6.text(), "iifname "+east+"* drop")
	rules := map[Rule]int{}
	for _, r := range p.Rules {
		rules[r]++
	}
	assert.Equal(t, 1, rules[Rule{Priority: 4, Table: 7473, From: netip.MustParsePrefix("10.3.0.0/16")}])
	require.Len(t, p.Rules, 1+3)

	node := Make(Input{Site: twoGateways(behindHome()), Self: "node", MTU: 1500})
	assert.NotContains(t, node.Filter.text(), east, "only gateways have lanes")
}
