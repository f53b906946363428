package transport

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// Place is the location of a mover.
type Place struct {
	// Cluster is the ID of a remote cluster, or home.
	Cluster string
	// Network says whether pods of that cluster and pods of home reach each other; it is
	// meaningless for home itself.
	Network v1alpha1.PodNetwork
	// Ranges are those from which its pods have their addresses; none: they are not known.
	Ranges remotecluster.PodRanges
	// Translations are of its pods, as home reaches them, and HomeTranslations of pods at home, as they are reached from there.
	Translations, HomeTranslations remotecluster.Translations
}

// PlaceOf is the place of a cluster; object is its RemoteCluster, nil for home and for one that is gone.
func PlaceOf(cluster string, object *v1alpha1.RemoteCluster) Place {
	place := Place{Cluster: cluster}
	if object != nil {
		place.Network = object.Spec.PodNetwork
		// What cannot be read was refused when it was written, and counts as not known.
		place.Ranges, _ = remotecluster.ParsePodRanges(object.Spec.PodCIDRs)
		place.Translations, _ = remotecluster.ParseTranslations(object.Spec.PodTranslations)
		place.HomeTranslations, _ = remotecluster.ParseTranslations(object.Spec.HomePodTranslations)
	}
	return place
}

// has says whether an address may be that of a pod there, for who dials it from elsewhere. A
// remote cluster that shares its networks gives out only addresses of its own ranges. Without
// ranges, as in a peering from before they were asked for, only networks that were listed count.
func (p Place) has(ip netip.Addr, networks Networks) bool {
	switch {
	case p.Cluster == keys.Home:
		return true
	case p.Network.Joined() && len(p.Ranges) > 0:
		return p.Ranges.Has(ip)
	}
	return len(networks) > 0
}

// Networks are the networks in which movers may dial each other, and in which the
// provisioner may dial pods of remote clusters; if empty, all addresses that a pod may
// have.
type Networks []netip.Prefix

// secret are well-known addresses of cloud metadata services that look like those of pods;
// translated are prefixes under which a gateway translates to other addresses.
var (
	secret = []netip.Addr{
		netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"),
		netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:ec2::23"), netip.MustParseAddr("fd20:ce::254"),
	}
	translated = []netip.Prefix{
		netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
	}
)

// Of parses an address, and says whether a mover may be dialled there. A pod's status is
// written by its cluster: it must not lead back to the dialling machine, to its link-local
// neighbours, or to a cloud's metadata service.
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

// Peers returns the addresses at which the mover at the source may dial the mover at the
// target, whose pod has these IPs; why says why there are none.
func Peers(source, target Place, ips []string, port uint16, networks Networks) (addresses []string, why string) {
	across := source.Cluster != target.Cluster
	if why := apart(source, target); across && why != "" {
		return nil, why
	}
	refused := ""
	for _, text := range ips {
		own, _ := netip.ParseAddr(text)
		if across {
			text = reachedAs(source, target, text)
		}
		switch ip, ok := networks.Of(text); {
		case !ok || len(addresses) == moverapi.MaxPeers:
		case across && !target.has(own, networks):
			refused = own.String()
		default:
			addresses = append(addresses, netip.AddrPortFrom(ip, port).String())
		}
	}
	switch {
	case len(addresses) > 0:
	case refused != "" && len(target.Ranges) == 0:
		why = fmt.Sprintf("the pod ranges of cluster %s are not known: name them in spec.podCIDRs of its RemoteCluster", target.Cluster)
	case refused != "":
		why = fmt.Sprintf("cluster %s says that the mover at the target has address %s, which is in none of its pod ranges (spec.podCIDRs of "+
			"its RemoteCluster)", target.Cluster, refused)
	default:
		why = "the mover at the target has no address that another one may dial (see --mover-networks of the provisioner)"
	}
	return addresses, why
}

// apart says why movers of two clusters do not reach each other, empty if they may. The network fabric joins each remote cluster with home:
// of pods that run for home in two remote clusters it lets through only those that have a pod at home, and movers have none.
func apart(source, target Place) string {
	for _, place := range []Place{source, target} {
		if place.Cluster != keys.Home && !place.Network.Joined() {
			return fmt.Sprintf("the pods of cluster %s have no addresses for other clusters (spec.podNetwork of its RemoteCluster is neither %s "+
				"nor %s)", place.Cluster, v1alpha1.Routed, v1alpha1.Fabric)
		}
	}
	if source.Cluster != keys.Home && target.Cluster != keys.Home && (source.Network == v1alpha1.Fabric || target.Network == v1alpha1.Fabric) {
		return fmt.Sprintf("the network fabric has no movers of cluster %s reach those of cluster %s", source.Cluster, target.Cluster)
	}
	return ""
}

// reachedAs returns the address by which the mover at the source reaches one at the target, in another cluster, whose pod has an address;
// empty if it does not. Through the network fabric movers use IPv4.
func reachedAs(source, target Place, text string) string {
	translations := target.Translations
	if target.Cluster == keys.Home {
		translations = source.HomeTranslations
	}
	if source.Network != v1alpha1.Fabric && target.Network != v1alpha1.Fabric {
		return text
	}
	ip, err := netip.ParseAddr(text)
	if err != nil || !ip.Unmap().Is4() {
		return ""
	}
	address, ok := translations.Reached(ip)
	if !ok {
		return ""
	}
	return address.String()
}

// Reach returns the address at which the provisioner may dial a pod, given the address in
// the pod's status; empty if only the cluster's API server leads there. The provisioner
// joins such a connection with data from another cluster, so only home, whose nodes are
// trusted, may choose where it leads. An address of a remote cluster is valid at home only
// if somebody at home has declared that the networks are shared and which ranges the
// cluster has, or which networks these are. The provisioner's own pod is not in the network fabric.
func Reach(place Place, text string, port uint16, networks Networks) string {
	ip, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return ""
	case place.Cluster == keys.Home:
		return netip.AddrPortFrom(ip, port).String()
	}
	ip, ok := networks.Of(text)
	if !ok || !place.has(ip, networks) || place.Network == v1alpha1.Fabric && len(networks) == 0 {
		return ""
	}
	return netip.AddrPortFrom(ip, port).String()
}
