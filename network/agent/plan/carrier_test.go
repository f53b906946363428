package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// guarded is a cluster that WireGuard is to carry to, with these gateways.
func guarded(name string, change func(*site.Remote), gateways ...string) site.Remote {
	r := site.Remote{Name: name, Carrier: site.WireGuard, Ranges: prefixes("10.2.0.0/16"), Behind: []site.Behind{{Name: "east",
		Ranges: prefixes("10.1.0.0/16")}}}
	for _, g := range gateways {
		r.Gateways = append(r.Gateways, site.Gateway{Name: g})
	}
	if change != nil {
		change(&r)
	}
	return r
}

func TestWhatWireGuardCarries(t *testing.T) {
	dialed := func(r *site.Remote) {
		for i := range r.Gateways {
			r.Gateways[i].Address = "192.0.2.1:7473"
		}
	}
	none := "WireGuard joins each gateway with one of the other cluster, and for this one none is left there: have as many gateways there " +
		"as here"
	limited, translated := func(r *site.Remote) { r.Limit = 1 }, func(r *site.Remote) { r.Translations = remotecluster.Translations{{}} }
	for name, row := range map[string]struct {
		self    string
		others  []site.Remote
		remote  site.Remote
		port    int
		peer    string
		listens uint16
		instead string
	}{
		"the first gateway here goes to the first there": {
			self: "g1", remote: guarded("west", dialed, "w2", "w1"), port: 7477, peer: "w1"},
		"the second to the second": {self: "g2", remote: guarded("west", dialed, "w2", "w1"), port: 7477, peer: "w2"},
		"a gateway for which none is left goes to nobody": {
			self: "g2", remote: guarded("west", dialed, "w1"), port: 7477, instead: none},
		"a cluster that dials is listened for": {self: "g1", remote: guarded("west", nil, "w1"), port: 7477, peer: "w1", listens: 7477},
		"each that dials has a port, in the order of names": {
			self: "g1", others: []site.Remote{guarded("aa", nil, "a1"), guarded("zz", nil, "z1")}, remote: guarded("west", nil, "w1"),
			port: 7477, peer: "w1", listens: 7478},
		"addresses are translated": {self: "g1", remote: guarded("west", translated, "w1"), port: 7477, peer: "w1", listens: 7477,
			instead: "addresses of pods here are translated on the way there, which WireGuard does not do"},
		"there is a limit": {self: "g1", remote: guarded("west", limited, "w1"), port: 7477, peer: "w1", listens: 7477,
			instead: "there is a bandwidth limit here, which WireGuard does not keep"},
		"it is switched off": {self: "g1", remote: guarded("west", dialed, "w1"), peer: "w1",
			instead: "WireGuard is switched off on this node, by --wireguard-port=0"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Site: twoGateways(append(row.others, row.remote)...), Self: row.self, MTU: 9000}
			assert.Equal(t, &lane.WireGuard{Peer: row.peer, Ranges: prefixes("10.1.0.0/16", "10.2.0.0/16"),
				Port: row.listens, MTU: 1420, Instead: row.instead}, WireGuard(in, row.remote, row.port))
		})
	}
	west := guarded("west", func(r *site.Remote) { r.Carrier = site.TLS }, "w1")
	assert.Nil(t, WireGuard(Input{Site: twoGateways(west), Self: "g1", MTU: 1500}, west, 7477))
}

func TestWhatWireGuardCarriesInOnePiece(t *testing.T) {
	for _, row := range []struct{ here, there, tls, wireGuard int }{
		{1500, 1500, 1464, 1420}, {1500, 0, 1464, 1420}, {9000, 9000, 8964, 1420}, {9000, 1450, 1414, 1370}, {1400, 9000, 1364, 1320},
	} {
		assert.Equal(t, row.tls, LaneMTU(row.here, site.Remote{MTU: row.there}), "%+v", row)
		assert.Equal(t, row.wireGuard, LaneMTU(row.here, site.Remote{MTU: row.there, Carrier: site.WireGuard}), "%+v", row)
	}
}

func TestPacketsGoByTheLinkThatIsUsed(t *testing.T) {
	link, other := WireGuardDevice("west"), Device("west")
	p := Make(Input{Site: twoGateways(west), Self: "g1", MTU: 1500,
		Lanes: map[string]Lane{"west": {Up: true, Device: link, Devices: []string{other, link}}}})
	assert.Equal(t, []string{Tunnel, other, link}, p.Devices)
	for _, r := range p.Routes {
		if r.Table == tableTo {
			assert.Equal(t, link, r.Device)
		}
	}
	for _, row := range []struct {
		name    string
		up      bool
		silent  bool
		devices []string
	}{
		{"it is up", true, false, []string{link, Tunnel}},
		{"it is not known to be up, and neither is another gateway's lane", false, true, []string{link, Tunnel}},
		{"it is not known to be up, and another gateway's lane is", false, false, []string{Tunnel}},
	} {
		in := Input{Site: twoGateways(west), Self: "g1", MTU: 1500, Lanes: map[string]Lane{"west": {Up: row.up, Device: link}},
			Via: map[string]string{"west": "g2"}, Silent: map[string]bool{"west": row.silent}}
		var devices []string
		for _, hop := range hops(in, "west") {
			devices = append(devices, hop.Device)
		}
		assert.Equal(t, row.devices, devices, row.name)
	}
	west := west
	west.Carrier = site.WireGuard
	assert.Equal(t, []string{link}, Make(Input{Site: twoGateways(west), Self: "g1", MTU: 1500}).Guarded,
		"a lane may have it before that is known")
	assert.Empty(t, Make(Input{Site: twoGateways(west), Self: "node", MTU: 1500}).Guarded)
	assert.Empty(t, p.Guarded, "over TLS it is left from before")
	assert.Equal(t, []string{link}, p.Judged, "and judged, as long as it is there")
	assert.Empty(t, Make(Input{Site: twoGateways(west), Self: "node", MTU: 1500}).Judged)
	assert.Len(t, link, 15, "what a link may be called")
	assert.True(t, OverWireGuard(link))
	for _, name := range []string{other, Tunnel, "wg0", "lode-wg", "eth0"} {
		assert.False(t, OverWireGuard(name), name)
	}
}
