package transport

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// Place is where a mover runs.
type Place struct {
	// Cluster is the ID of a remote cluster, or home.
	Cluster string
	// Network says whether pods of that cluster and of home reach each other; of home
	// itself it means nothing.
	Network v1alpha1.PodNetwork
}

// Networks are those in which movers may dial each other, and in which the provisioner may
// dial those of remote clusters; none: wherever a pod may have its address.
type Networks []netip.Prefix

// secret are the addresses known at which clouds tell machines their secrets, and which
// look like those of pods; translated are those under which a gateway hides others.
var (
	secret = []netip.Addr{
		netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"),
		netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:ec2::23"), netip.MustParseAddr("fd20:ce::254"),
	}
	translated = []netip.Prefix{
		netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
	}
)

// Of returns the address that a text is, if a mover may be dialled there. What a pod's
// status says is what its cluster says: that must not lead to whoever dials, to its
// neighbours on the link, nor to where a cloud tells secrets.
func (n Networks) Of(text string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(text)
	if err != nil || ip.Zone() != "" {
		return netip.Addr{}, false
	}
	ip = ip.Unmap()
	within := func(network netip.Prefix) bool { return network.Contains(ip) }
	switch {
	case slices.Contains(secret, ip), slices.ContainsFunc(translated, within):
		return ip, false
	case len(n) == 0:
		return ip, ip.IsGlobalUnicast()
	}
	return ip, (ip.IsGlobalUnicast() || ip.IsLoopback()) && slices.ContainsFunc(n, within)
}

// Peers returns where the mover at the source may dial the one at the target, whose pod
// has these addresses; why says why nowhere.
func Peers(source, target Place, ips []string, port uint16, networks Networks) (addresses []string, why string) {
	for _, place := range []Place{source, target} {
		if source.Cluster != target.Cluster && place.Cluster != keys.Home && place.Network != v1alpha1.Routed {
			return nil, fmt.Sprintf("the pods of cluster %s have no addresses for other clusters (spec.podNetwork of its RemoteCluster is not %s)", place.Cluster, v1alpha1.Routed)
		}
	}
	for _, text := range ips {
		if ip, ok := networks.Of(text); ok && len(addresses) < movecontrol.MaxPeers {
			addresses = append(addresses, netip.AddrPortFrom(ip, port).String())
		}
	}
	if len(addresses) == 0 {
		why = "the mover at the target has no address that another one may dial (see --mover-networks of the provisioner)"
	}
	return addresses, why
}

// Reach returns where the provisioner may dial a pod, whose cluster says that it has this
// address; empty where only the API server of its cluster leads there. What the provisioner
// opens it joins with what another cluster sends: so nobody may choose where, but home,
// whose nodes are trusted. One cluster's address means something at home only if somebody
// there said that the networks are shared, or which these are.
func Reach(place Place, text string, port uint16, networks Networks) string {
	ip, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return ""
	case place.Cluster == keys.Home:
		return netip.AddrPortFrom(ip, port).String()
	case place.Network != v1alpha1.Routed && len(networks) == 0:
		return ""
	}
	ip, ok := networks.Of(text)
	if !ok {
		return ""
	}
	return netip.AddrPortFrom(ip, port).String()
}
