package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
)

const (
	// wireGuardSuffix is behind the name of a lane's link over TLS in that of its link over WireGuard.
	wireGuardSuffix = "wg"
	// wireGuardOverhead is what WireGuard puts around a packet: over IPv6, which is more than over IPv4.
	wireGuardOverhead = 40 + 8 + 32
	// outside is what the network between clusters carries in one piece, whatever those between nodes do.
	outside = 1500
)

// WireGuardDevice is the name of the lane's link to a cluster, over WireGuard.
func WireGuardDevice(remote string) string { return Device(remote) + wireGuardSuffix }

// OverWireGuard says that a link of this name is one of ours, over WireGuard. It stays while no program runs.
func OverWireGuard(link string) bool {
	return len(link) == len(WireGuardDevice("")) && strings.HasPrefix(link, "lode-") && strings.HasSuffix(link, wireGuardSuffix)
}

// WireGuardMTU is the largest packet that WireGuard carries in one piece between two clusters, from the MTUs of the networks between the
// nodes of each; there is 0 where it is not known.
func WireGuardMTU(here, there int) int {
	return min(here, cmp.Or(there, here), outside) - wireGuardOverhead
}

// LaneMTU is the largest packet that pods here and those of another cluster send to each other in one piece. Where WireGuard may carry it
// is the same while TLS does: what changes from one moment to the next is for nobody to find out.
func LaneMTU(here int, r site.Remote) int {
	mtu := PodMTU(here, r.MTU)
	if r.Carrier == site.WireGuard {
		mtu = min(mtu, WireGuardMTU(here, r.MTU))
	}
	return mtu
}

// WireGuard is what WireGuard carries of a gateway's lane to another cluster, nil if it is not asked for. Port is the first that it may
// listen at: each cluster whose gateways dial has one, in the order of their names; 0: the gateway has no WireGuard.
func WireGuard(in Input, r site.Remote, port int) *lane.WireGuard {
	if r.Carrier != site.WireGuard {
		return nil
	}
	w := &lane.WireGuard{Ranges: sorted(Reached(in.MTU, r)), MTU: WireGuardMTU(in.MTU, r.MTU),
		Instead: r.InsteadOfWireGuard()}
	if port == 0 {
		w.Instead = cmp.Or(w.Instead, "WireGuard is switched off on this node, by --wireguard-port=0")
	}
	partner := in.Partner(in.Self, r.Name)
	if partner == nil {
		w.Instead = cmp.Or(w.Instead, "WireGuard joins each gateway with one of the other cluster, and for this one none is left there: have as "+
			"many gateways there as here")
		return w
	}
	if w.Peer = partner.Name; partner.Address == "" {
		w.Port = uint16(port + slices.Index(dialing(in.Site), r.Name))
	}
	return w
}

// dialing are the clusters whose gateways dial here by WireGuard, sorted.
func dialing(s *site.Site) (names []string) {
	for _, r := range s.Remotes {
		if r.Carrier == site.WireGuard && slices.ContainsFunc(r.Gateways, func(g site.Gateway) bool { return g.Address == "" }) {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}
