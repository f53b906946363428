package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/network/site"
)

// partaking are the nodes that take part, sorted by name, and why others do not: of two nodes that claim the same addresses only one is
// there, and one that is wrong must not part the clusters. It is the one that is ready, or the older one. IgnoreCIDRs: the podCIDRs of
// nodes say nothing of pods; ipv6: those of IPv6 count, too.
func partaking(nodes []*corev1.Node, ignoreCIDRs, ipv6 bool) (part []site.Node, left []string) {
	nodes = slices.SortedStableFunc(slices.Values(nodes), func(a, b *corev1.Node) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var all claims
	for _, n := range nodes {
		told, ok := nodeOf(n, ignoreCIDRs, ipv6)
		if !ok {
			continue
		}
		if problem := all.add(told); problem != "" {
			left = append(left, fmt.Sprintf("node %s is left out: %s", n.Name, problem))
			continue
		}
		part = append(part, told)
	}
	slices.SortFunc(part, func(a, b site.Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(left)
	return part, left
}

// withPods are the nodes of a Site, each with the addresses of its pods that other clusters may reach. While an address is said to be that
// of two pods, it is that of the newer one.
func withPods(s *site.Site, pods []Pod) []site.Node {
	may := map[netip.Addr]bool{}
	for _, r := range s.Remotes {
		for _, address := range r.Pods {
			may[address] = true
		}
	}
	at := map[netip.Addr]Pod{}
	for _, p := range pods {
		for _, address := range p.Addresses {
			if other, ok := at[address]; may[address] && (!ok || cmp.Or(other.Created.Compare(p.Created), cmp.Compare(p.Node, other.Node)) < 0) {
				at[address] = p
			}
		}
	}
	on := map[string][]netip.Prefix{}
	for address, p := range at {
		on[p.Node] = append(on[p.Node], netip.PrefixFrom(address, address.BitLen()))
	}
	nodes := slices.Clone(s.Nodes)
	for i := range nodes {
		nodes[i].Pods = slices.SortedFunc(slices.Values(on[nodes[i].Name]), netip.Prefix.Compare)
	}
	return nodes
}

// rank is lower for nodes that are ready.
func rank(n *corev1.Node) int {
	if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}) {
		return 0
	}
	return 1
}

// claims are the ranges that nodes have, by their first addresses. None overlaps with that of another node.
type claims []claim

type claim struct {
	netip.Prefix
	node string
}

// add adds what a node has, or says why that cannot be.
func (c *claims) add(n site.Node) (problem string) {
	if err := (&site.Site{Nodes: []site.Node{n}}).Validate(); err != nil {
		return strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	own := []netip.Prefix{netip.PrefixFrom(n.Address, n.Address.BitLen())}
	for _, one := range append(own, n.Pods...) {
		i := c.find(one)
		for _, other := range (*c)[max(0, i-1):min(len(*c), i+1)] {
			if other.Overlaps(one) {
				return fmt.Sprintf("its %s overlaps with %s of node %s: see to its InternalIP and podCIDRs", short(one), short(other.Prefix),
					other.node)
			}
		}
	}
	for _, one := range append(own, n.Pods...) {
		*c = slices.Insert(*c, c.find(one), claim{one, n.Name})
	}
	return ""
}

// find is where a range is, or would be.
func (c *claims) find(one netip.Prefix) int {
	i, _ := slices.BinarySearchFunc(*c, one, func(a claim, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return i
}

// short is an address, or a range.
func short(one netip.Prefix) string {
	if one.IsSingleIP() {
		return one.Addr().String()
	}
	return one.String()
}

// leftOut says which nodes take no part, empty if all do.
func leftOut(left []string) (text string) {
	const said = 3
	for _, one := range left[:min(len(left), said)] {
		text += "; " + one
	}
	if more := len(left) - said; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}
