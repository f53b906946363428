package links

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// maxPassengers is how many remote clusters reach each other: each is told of all others, of which a NetworkLink has up to 16.
const maxPassengers = 17

// other is a cluster that is to be reached through home: its terms, and home's NetworkLink for it, nil if there is none.
type other struct {
	name string
	terms
	link *networkv1alpha1.NetworkLink
}

// passengers are the other RemoteClusters of which home's administrator wants that their pods and those of remote reach each other: all of
// them ask for it. Of too many the first ones by name take part, the same for each of them.
func passengers(remote *v1alpha1.RemoteCluster, all []*v1alpha1.RemoteCluster) []*v1alpha1.RemoteCluster {
	var asking []*v1alpha1.RemoteCluster
	for _, one := range all {
		if one.Spec.PodNetwork == v1alpha1.Fabric && one.Spec.PodTransit.Passes() && one.DeletionTimestamp == nil {
			asking = append(asking, one)
		}
	}
	slices.SortFunc(asking, func(a, b *v1alpha1.RemoteCluster) int { return cmp.Compare(a.Name, b.Name) })
	asking = asking[:min(len(asking), maxPassengers)]
	same := func(one *v1alpha1.RemoteCluster) bool { return one.Name == remote.Name }
	if !slices.ContainsFunc(asking, same) {
		return nil
	}
	return slices.DeleteFunc(asking, same)
}

// transitOf returns what a remote cluster is told of others: as home's gateways translate for it, so that each cluster knows a pod by one
// address, wherever that pod is. Direct is why it is told of no gateways, where both clusters ask for lanes.
func transitOf(cluster string, set terms, others []other) (told []networkv1alpha1.Transit) {
	for _, one := range others {
		t := networkv1alpha1.Transit{Cluster: one.name}
		for _, r := range set.here.Ranges(one.there.Ranges(one.ranges)) {
			if r.Addr().Is4() { // IPv6 does not pass home
				t.PodCIDRs = append(t.PodCIDRs, r.String())
			}
		}
		if one.link != nil {
			for _, g := range one.link.Spec.Gateways {
				if g.MTU != 0 && (t.MTU == 0 || g.MTU < t.MTU) {
					t.MTU = g.MTU
				}
			}
			t.MTU = passed(t.MTU, one)
		}
		if set.direct && one.direct {
			gateways, problem := directTo(cluster, set, one)
			t.Gateways, t.Direct = gateways, &networkv1alpha1.DirectLanes{Message: problem}
		}
		told = append(told, t)
	}
	return told
}

// passed is the MTU of the network between nodes of a remote cluster, as others are told that reach it through home: what home's lane to it
// carries in one piece counts, which is less over WireGuard.
func passed(mtu int32, to other) int32 {
	if to.carrier != networkv1alpha1.WireGuard {
		return mtu
	}
	const outside, more, least = 1500, 44, 1280 // that of networks between clusters, what WireGuard adds more than the tunnel, what can be
	smallest := int32(outside)
	for _, g := range to.link.Status.Gateways {
		if g.MTU != 0 {
			smallest = min(smallest, g.MTU)
		}
	}
	if mtu != 0 {
		smallest = min(smallest, mtu)
	}
	return max(least, smallest-more)
}

// refused says why a remote cluster does not let in another one of which it is told, empty if it does. there is its NetworkLink, nil if it
// has none yet.
func refused(told networkv1alpha1.Transit, there *networkv1alpha1.NetworkLink) string {
	i := -1
	if there != nil {
		i = slices.IndexFunc(there.Status.Transit, func(s networkv1alpha1.TransitStatus) bool { return s.Cluster == told.Cluster })
	}
	switch {
	case i < 0:
		return fmt.Sprintf("it has said nothing yet of cluster %s", told.Cluster)
	case !there.Status.Transit[i].Accepted:
		return cmp.Or(sentence.Plain(there.Status.Transit[i].Message, maxMessage), "it refuses, and does not say why")
	case !sameRanges(there.Status.Transit[i].PodCIDRs, told.PodCIDRs):
		return fmt.Sprintf("it has said nothing yet of the ranges that cluster %s has now", told.Cluster)
	}
	return ""
}

func sameRanges(a, b []string) bool {
	set := func(texts []string) (ranges []netip.Prefix) {
		for _, text := range texts {
			if r, err := netip.ParsePrefix(text); err == nil {
				ranges = append(ranges, r)
			}
		}
		slices.SortFunc(ranges, netip.Prefix.Compare)
		return ranges
	}
	return slices.Equal(set(a), set(b))
}

// reachedThroughHome are the clusters that home's gateways carry packets to, from the cluster of a link of home.
func reachedThroughHome(home *networkv1alpha1.NetworkLink) (names []string) {
	if home == nil {
		return nil
	}
	for _, t := range home.Status.Transit {
		if t.Accepted {
			names = append(names, t.Cluster)
		}
	}
	slices.Sort(names)
	return names
}

// throughHome says which clusters are reached and which are not, empty if none is to be. Those to which lanes are up are for directly.
func throughHome(home *networkv1alpha1.NetworkLink) (text string) {
	through := slices.DeleteFunc(reachedThroughHome(home), func(to string) bool { return lanesUp(home, to) })
	if len(through) > 0 {
		text = "; pods there and in " + strings.Join(through, ", ") + " reach each other through home"
	}
	for _, t := range home.Status.Transit {
		if !t.Accepted {
			text += fmt.Sprintf("; %s is not reached through home: %s", t.Cluster, sentence.Plain(t.Message, maxMessage))
		}
	}
	return text
}
