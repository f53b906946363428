package links

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

const (
	// maxGateways and maxProbes bound what is taken over of another cluster.
	maxGateways, maxProbes = 16, 16
	maxMessage             = 512
	// maxName, maxAddress, maxKeys, maxKey, maxPort and maxMTU are what a NetworkLink takes.
	maxName, maxAddress, maxKeys, maxKey, maxPort, maxMTU = 253, 263, 4, 44, 65535, 65535
	// fresh is how old what a pod says of its probes may be: it says something every 20 seconds.
	fresh = time.Minute
	// silent is after how long nobody knows of the lanes of a gateway: it says something every 30 seconds, or seldomer if it has many links.
	silent = 3 * time.Minute
	// gone is after how long it is taken for one that is no more.
	gone = 10 * time.Minute
	// probeDeployment has the pods that probe.
	probeDeployment = "lodestone-network-probe"
)

// terms are what home's administrator has set for a remote cluster.
type terms struct {
	ranges remotecluster.PodRanges
	limit  *resource.Quantity
	// carrier is WireGuard where that is asked for, else empty: program versions before that have no such field.
	carrier networkv1alpha1.Carrier
	// direct: there are to be lanes to other remote clusters that have it, too.
	direct bool
	// there are pods of the remote cluster, as home reaches them; here those of home, as that one does.
	there, here remotecluster.Translations
}

// termsOf reads what a RemoteCluster says; the problem is a sentence, empty if there is none.
func termsOf(remote v1alpha1.RemoteClusterSpec) (t terms, problem string) {
	t.limit, t.direct = remote.PodBandwidthLimit, remote.PodTransit == v1alpha1.TransitDirect
	if remote.PodCarrier == networkv1alpha1.WireGuard {
		t.carrier = remote.PodCarrier
	}
	var err error
	if t.ranges, err = remotecluster.ParsePodRanges(remote.PodCIDRs); err != nil {
		return t, fmt.Sprintf("spec.podCIDRs of the RemoteCluster: %v", err)
	}
	if err := t.ranges.Disjoint(); err != nil {
		return t, fmt.Sprintf("spec.podCIDRs of the RemoteCluster: %v", err)
	}
	if t.there, err = remotecluster.ParseTranslations(remote.PodTranslations); err != nil {
		return t, fmt.Sprintf("spec.podTranslations of the RemoteCluster: %v", err)
	}
	if t.here, err = remotecluster.ParseTranslations(remote.HomePodTranslations); err != nil {
		return t, fmt.Sprintf("spec.homePodTranslations of the RemoteCluster: %v", err)
	}
	return t, ""
}

// here returns what home's object should say of a remote cluster.
func here(set terms, there *networkv1alpha1.NetworkLink, passing []networkv1alpha1.Transit) networkv1alpha1.NetworkLinkSpec {
	spec := told(there, set.there)
	for _, one := range set.there.Ranges(set.ranges) {
		spec.PodCIDRs = append(spec.PodCIDRs, one.String())
	}
	spec.BandwidthLimit, spec.PodTranslations, spec.Carrier = set.limit, set.here.Object(), set.carrier
	for _, one := range passing {
		spec.Transit = append(spec.Transit, networkv1alpha1.Transit{Cluster: one.Cluster, Refused: refused(one, there),
			Direct: lanes(one, there)})
	}
	return spec
}

// there returns what the remote cluster's object should say of home: home dials, so its gateways have no addresses.
func there(set terms, here *networkv1alpha1.NetworkLink, passing []networkv1alpha1.Transit) networkv1alpha1.NetworkLinkSpec {
	spec := told(here, set.here)
	spec.PodTranslations, spec.Transit, spec.Carrier = set.there.Object(), slices.Clone(passing), set.carrier
	for i := range spec.Transit {
		spec.Transit[i].Direct = nil // that is for home
	}
	for i := range spec.Gateways {
		spec.Gateways[i].Address = ""
	}
	return spec
}

// told returns what one cluster says of itself, as the other one is told, with the addresses by which that one reaches its pods.
func told(link *networkv1alpha1.NetworkLink, pods remotecluster.Translations) (spec networkv1alpha1.NetworkLinkSpec) {
	if link == nil {
		return spec
	}
	for _, g := range link.Status.Gateways {
		one, ok := fit(g.Gateway)
		named := slices.ContainsFunc(spec.Gateways, func(other networkv1alpha1.Gateway) bool { return other.Name == one.Name })
		if ok && !named && len(spec.Gateways) < maxGateways {
			spec.Gateways = append(spec.Gateways, one)
		}
	}
	ipv6 := hasIPv6(link) // else nobody reaches pods there by that, and nobody is to try
	for _, p := range link.Status.Probes {
		for _, text := range []string{p.Address, p.SecondAddress} {
			parsed, err := netip.ParseAddr(text)
			if err != nil || parsed.Is4In6() || parsed.Zone() != "" {
				continue
			}
			reached, ok := pods.Reached(parsed)
			if !ok || parsed.Is6() && !ipv6 {
				continue
			}
			address := reached.String()
			if len(spec.Probes) < maxProbes && !slices.Contains(spec.Probes, address) {
				spec.Probes = append(spec.Probes, address)
			}
		}
	}
	return spec
}

// fit is a gateway as an object takes it; false: it cannot be, or has no key yet. One entry that cannot be would have the whole object
// refused, and nothing would be told any more.
func fit(g networkv1alpha1.Gateway) (networkv1alpha1.Gateway, bool) {
	var known []string
	for _, key := range g.Keys {
		if len(key) <= maxKey && !slices.Contains(known, key) && len(known) < maxKeys {
			known = append(known, key)
		}
	}
	g.Keys = known
	if w := g.WireGuard; w != nil && (len(w.PublicKey) != maxKey || w.Port < 0 || w.Port > maxPort) {
		g.WireGuard = nil
	}
	return g, len(known) > 0 && g.Name != "" && len(g.Name) <= maxName && len(g.Address) <= maxAddress && g.MTU >= 0 && g.MTU <= maxMTU
}

// ready says whether the pods of the two clusters reach each other, which only probes show. The objects are nil where there are none.
func ready(cluster string, set terms, home, remote *networkv1alpha1.NetworkLink, now time.Time) metav1.Condition {
	no := func(reason, format string, args ...any) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.NetworkReady, Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	for _, side := range []struct {
		who, where string
		link       *networkv1alpha1.NetworkLink
	}{{"home", "here", home}, {"cluster " + cluster, "there", remote}} {
		var accepted *metav1.Condition
		if side.link != nil {
			accepted = meta.FindStatusCondition(side.link.Status.Conditions, networkv1alpha1.Accepted)
		}
		switch {
		case accepted == nil:
			return no("NoGateway", "no gateway of %s has said anything yet: label two nodes %s with %s=%s, or one where there is only one, and see "+
				"whether the network program runs %s (kubectl get pods -n %s)", side.who, side.where, keys.Gateway, keys.GatewayEnabled, side.where,
				keys.NetworkNamespace)
		case accepted.Status != metav1.ConditionTrue:
			return no("NotAccepted", "%s: %s", side.who, sentence.Plain(accepted.Message, maxMessage))
		}
	}
	heard, up, problem := false, false, "no gateway has answered yet"
	for _, g := range home.Status.Gateways {
		if now.Sub(g.RenewTime.Time) > gone {
			continue
		}
		heard = true
		for _, l := range g.Lanes {
			up = up || l.Up
			if l.Message != "" {
				problem = fmt.Sprintf("gateway %s does not reach %s: %s", g.Name, sentence.Plain(l.Gateway, maxName),
					sentence.Plain(l.Message, maxMessage))
			}
		}
	}
	if !heard {
		return no("NoGateway", "no gateway of home has said anything for %v: see whether nodes have the label %s=%s, and whether the network "+
			"program runs there (kubectl get pods -n %s)", gone, keys.Gateway, keys.GatewayEnabled, keys.NetworkNamespace)
	}
	if !up {
		return no("NoLane", "no lane to cluster %s is up: %s", cluster, problem)
	}
	paths := 0
	ipv6, without := byIPv6(cluster, set, home, remote)
	for _, side := range []struct {
		who, to string
		link    *networkv1alpha1.NetworkLink
	}{{"home", "cluster " + cluster, home}, {"cluster " + cluster, "home", remote}} {
		counts := func(p networkv1alpha1.ProbeStatus) bool {
			return side.link != home || now.Sub(p.RenewTime.Time) <= fresh // what another cluster says is as old as its clock is wrong
		}
		probed, problem := tried(side.who, side.to, side.link.Status.Probes, counts)
		switch {
		case problem != "":
			return no("PathDown", "%s", problem)
		case probed == 0:
			return no("NotProbed", "%s", notProbed(side.who, side.to))
		case ipv6 && !triedByIPv6(side.link.Status.Probes, counts):
			return no("NotProbed", "no pod of %s has probed the way to %s by IPv6: see whether pods of Deployment %s in namespace %s of both "+
				"clusters have addresses of IPv4 and IPv6", side.who, side.to, probeDeployment, keys.NetworkNamespace)
		}
		paths += probed
	}
	return metav1.Condition{Type: v1alpha1.NetworkReady, Status: metav1.ConditionTrue, Reason: "Probed",
		Message: fmt.Sprintf("pods of both clusters reach each other: %d ways between pods are probed all the time%s%s%s%s%s", paths,
			without, set.translated(), carried(set, home), throughHome(home), directly(home))}
}

// byIPv6 says whether both clusters take part in IPv6, or why nothing comes through by that though ranges of it are named.
func byIPv6(cluster string, set terms, home, remote *networkv1alpha1.NetworkLink) (carried bool, without string) {
	here, there := hasIPv6(home), hasIPv6(remote)
	who := "home"
	switch {
	case here && there:
		return true, ""
	case here:
		who = "cluster " + cluster
	case !there && !slices.ContainsFunc(set.ranges, ofIPv6):
		return false, ""
	}
	return false, fmt.Sprintf("; nothing comes through by IPv6, for %s takes no part in that: have ranges of IPv6 of both clusters be named, "+
		"which do not overlap, or see Accepted of its NetworkLink", who)
}

// hasIPv6 says whether a cluster takes ranges of IPv6 of the other one, by its object.
func hasIPv6(link *networkv1alpha1.NetworkLink) bool {
	ranges, err := remotecluster.ParsePodRanges(link.Status.PodCIDRs)
	return err == nil && slices.ContainsFunc(ranges, ofIPv6)
}

func ofIPv6(one netip.Prefix) bool { return one.Addr().Is6() }

// triedByIPv6 says whether one of the ways that pods probe, of what they have said that counts, is of IPv6.
func triedByIPv6(probes []networkv1alpha1.ProbeStatus, counts func(networkv1alpha1.ProbeStatus) bool) bool {
	return slices.ContainsFunc(probes, func(p networkv1alpha1.ProbeStatus) bool {
		return counts(p) && slices.ContainsFunc(p.Paths, func(path networkv1alpha1.PathStatus) bool {
			address, err := netip.ParseAddr(path.Address)
			return err == nil && address.Is6()
		})
	})
}

// tried counts the ways that pods of one side probe, of what they have said that counts, or says which of them does not work.
func tried(who, to string, probes []networkv1alpha1.ProbeStatus, counts func(networkv1alpha1.ProbeStatus) bool) (ways int, problem string) {
	for _, p := range probes {
		if !counts(p) {
			continue
		}
		for _, path := range p.Paths {
			if !path.Up {
				return ways, fmt.Sprintf("pod %s of %s, on node %s, does not reach %s: %s", sentence.Plain(p.Name, maxName), who,
					sentence.Plain(p.Node, maxName), to, sentence.Plain(path.Message, maxMessage))
			}
			ways++
		}
	}
	return ways, ""
}

func notProbed(who, to string) string {
	return fmt.Sprintf("no pod of %s has probed the way to %s lately: see whether pods of Deployment %s run in namespace %s of it", who, to,
		probeDeployment, keys.NetworkNamespace)
}

// carried says whether WireGuard, where that is asked for, carries packets from home, and why it does not.
func carried(set terms, home *networkv1alpha1.NetworkLink) string {
	if set.carrier != networkv1alpha1.WireGuard {
		return ""
	}
	why := "no gateway of home has said anything of it"
	for _, g := range home.Status.Gateways {
		for _, l := range g.Lanes {
			if l.Carrier == networkv1alpha1.WireGuard {
				return "; WireGuard carries packets"
			}
			if l.CarrierMessage != "" {
				why = "gateway " + g.Name + ": " + sentence.Plain(l.CarrierMessage, maxMessage)
			}
		}
	}
	return "; TLS carries packets, and not WireGuard: " + why
}

// translated says which range stands for which, empty if none does.
func (t terms) translated() (text string) {
	for _, one := range t.there {
		text += fmt.Sprintf("; pods of %s there are reached from home as %s", one.PodCIDR, one.ReachedAs)
	}
	for _, one := range t.here {
		text += fmt.Sprintf("; pods of %s at home are reached from there as %s", one.PodCIDR, one.ReachedAs)
	}
	return text
}
