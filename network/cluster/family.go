package cluster

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/network/site"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// family is which families of addresses there are.
type family struct{ ipv4, ipv6 bool }

// has says whether an address is of one that there is.
func (f family) has(address netip.Addr) bool {
	if address.Is6() {
		return f.ipv6
	}
	return f.ipv4
}

// other is the name of the one that there is not.
func (f family) other() string {
	if f.ipv4 {
		return "IPv6"
	}
	return "IPv4"
}

// familiesOf are those of ranges.
func familiesOf(ranges []netip.Prefix) (f family) {
	for _, one := range ranges {
		f.ipv4, f.ipv6 = f.ipv4 || one.Addr().Is4(), f.ipv6 || one.Addr().Is6()
	}
	return f
}

// families are those of pods of the own cluster.
func families(s *site.Site) family {
	all := slices.Clone(s.PodRanges)
	for _, n := range s.Nodes {
		all = append(all, n.Pods...)
	}
	return familiesOf(all)
}

// asksForIPv6 says whether ranges of IPv6 are named of another cluster: where none are, nobody looks at what nodes have of it.
func asksForIPv6(o Observation) bool {
	named := func(texts []string) bool {
		ranges, err := remotecluster.ParsePodRanges(texts)
		return err == nil && familiesOf(ranges).ipv6
	}
	for _, link := range o.Links {
		if link.Namespace == o.Namespace && named(link.Spec.PodCIDRs) {
			return true
		}
	}
	for _, home := range o.Homes {
		if home.Spec.Network != nil && named(home.Spec.Network.PodCIDRs) {
			return true
		}
	}
	return false
}

// usable says that a range is one that pods may have addresses from.
func usable(text string) bool {
	_, err := remotecluster.ParsePodRanges([]string{text})
	return err == nil
}

// apartFromNodes returns an error that names the first address of IPv6 of a node here that is in ranges of another cluster. A node is told
// of with its address of IPv4 alone.
func apartFromNodes(nodes []*corev1.Node, remote site.Remote) error {
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			address, err := netip.ParseAddr(a.Address)
			if err == nil && !stands(n) && address.Is6() && remotecluster.PodRanges(remote.Ranges).Has(address) {
				return fmt.Errorf("ranges of cluster %s have the address %s of node %s: IPv6 is not translated, so give one of the clusters "+
					"another range, or leave IPv6 out of the ranges", remote.Name, address, n.Name)
			}
		}
	}
	return nil
}

// narrowed is another cluster with what is of some families alone.
func narrowed(remote site.Remote, to family) site.Remote {
	remote.Ranges = slices.DeleteFunc(slices.Clone(remote.Ranges), func(one netip.Prefix) bool { return !to.has(one.Addr()) })
	remote.Pods = slices.DeleteFunc(slices.Clone(remote.Pods), func(one netip.Addr) bool { return !to.has(one) })
	return remote
}
