package links

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// Where both RemoteClusters ask for it, two remote clusters have lanes between them. Home tells each of them which gateways the other one
// has, and their keys, and hears from each how many of its lanes are up; whether there are to be some is for the owners to say.

// directTo returns the gateways of another cluster that those of a remote one are to have lanes to, or why there are none. The first of the
// two by name dials, so the other one is told of no addresses.
func directTo(cluster string, set terms, to other) (gateways []networkv1alpha1.Gateway, problem string) {
	// The gateways of each of the two translate for its own pods, as they do in the lane to home. Home's gateways can do more than that.
	for _, way := range [][2]terms{{set, to.terms}, {to.terms, set}} {
		if reached := way[1].there.Ranges(way[1].ranges); !slices.Equal(way[0].here.Ranges(reached), reached) {
			return nil, "home's gateways translate between the two clusters, by homePodTranslations of the RemoteClusters, which no lane without " +
				"them does"
		}
	}
	if to.link == nil || !meta.IsStatusConditionTrue(to.link.Status.Conditions, networkv1alpha1.Accepted) {
		return nil, fmt.Sprintf("cluster %s is not joined with home yet", to.name)
	}
	dials := cluster < to.name
	for _, g := range to.link.Spec.Gateways {
		one := networkv1alpha1.Gateway{Name: g.Name, Keys: g.Keys}
		if dials {
			one.Address = g.Address
		}
		if !dials || one.Address != "" {
			gateways = append(gateways, one)
		}
	}
	if len(gateways) == 0 {
		return nil, fmt.Sprintf("no gateway of cluster %s has an address at which it is reached", to.name)
	}
	return gateways, ""
}

// lanes says how it is with the lanes from a remote cluster to another one of which it is told, as its gateways say; nil: there are to be
// none. there is its NetworkLink, nil if it has none yet.
func lanes(told networkv1alpha1.Transit, there *networkv1alpha1.NetworkLink) *networkv1alpha1.DirectLanes {
	if told.Direct == nil || len(told.Gateways) == 0 {
		return told.Direct
	}
	none := func(why string) *networkv1alpha1.DirectLanes {
		return &networkv1alpha1.DirectLanes{Message: sentence.Plain(why, maxMessage)}
	}
	if there == nil {
		return none("it has said nothing yet of lanes to cluster " + told.Cluster)
	}
	i := slices.IndexFunc(there.Status.Transit, func(s networkv1alpha1.TransitStatus) bool { return s.Cluster == told.Cluster })
	if i < 0 || !there.Status.Transit[i].Direct {
		why := "it has said nothing yet of lanes to cluster " + told.Cluster
		if i >= 0 {
			why = cmp.Or(there.Status.Transit[i].DirectMessage, there.Status.Transit[i].Message, why)
		}
		return none(why)
	}
	sum := none("no gateway there has said anything yet of its lanes to cluster " + told.Cluster)
	add := func(to *int32, more int32) { *to = int32(min(int64(*to)+int64(max(0, more)), math.MaxInt32)) }
	for _, g := range there.Status.Gateways {
		for _, d := range g.Direct {
			if d.Cluster != told.Cluster {
				continue
			}
			add(&sum.Lanes, d.Lanes)
			add(&sum.Up, d.Up)
			if d.Message != "" {
				sum.Message = sentence.Plain("gateway "+g.Name+" does not reach "+d.Message, maxMessage)
			}
		}
	}
	if sum.Up > 0 {
		sum.Message = ""
	}
	return sum
}

// reachedDirectly are the clusters to which lanes from that of a link of home are up, as both say. Others are home's links, of which each
// says what its cluster does.
func reachedDirectly(home *networkv1alpha1.NetworkLink, others []other) (names []string) {
	if home == nil {
		return nil
	}
	for _, o := range others {
		if o.link != nil && lanesUp(home, o.name) && lanesUp(o.link, home.Name) {
			names = append(names, o.name)
		}
	}
	slices.Sort(names)
	return names
}

// lanesUp says whether the cluster of a link of home has a lane to another one that is up.
func lanesUp(home *networkv1alpha1.NetworkLink, to string) bool {
	return slices.ContainsFunc(home.Spec.Transit, func(t networkv1alpha1.Transit) bool {
		return t.Cluster == to && t.Direct != nil && t.Direct.Up > 0
	})
}

// directly says to which clusters lanes are up, and why none are to the others; empty if none are to be.
func directly(home *networkv1alpha1.NetworkLink) (text string) {
	var up []string
	for _, t := range home.Spec.Transit {
		switch {
		case t.Direct == nil:
		case t.Direct.Up > 0:
			up = append(up, t.Cluster)
		default:
			text += fmt.Sprintf("; there is no lane to %s: %s", t.Cluster, cmp.Or(t.Direct.Message, "none is up"))
		}
	}
	if len(up) > 0 {
		text = "; pods there and in " + strings.Join(up, ", ") + " reach each other by lanes that do not lead through home" + text
	}
	return text
}
