package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/lodestone-storage/lodestone/network/site"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// Two remote clusters reach each other through home. Each of them is told which ranges are behind home, of which its owner lets in some
// (addBehind); home says which pods may, and only for two clusters both of which let in the other one (addTransit). Where the owner allows
// that, too, gateways have lanes to those of the other cluster (addDirect), and packets go by these while they are up.

// addBehind adds to home clusters those behind them that the owner lets in. It comes after all that are joined with this cluster: what a
// home cluster says of others keeps out none of them.
func addBehind(s *site.Site, o Observation, links []*networkv1alpha1.NetworkLink, verdicts map[Key]Verdict) {
	for _, link := range links {
		verdict := verdicts[KeyOf(link)]
		at := slices.IndexFunc(s.Remotes, func(r site.Remote) bool { return r.Name == remoteName(o.Namespace, link) })
		if link.Namespace == o.Namespace || !verdict.Accepted || at < 0 {
			continue
		}
		verdict.Transit = addBehindOne(s, o, at, link)
		verdicts[KeyOf(link)] = verdict
	}
}

// addBehindOne adds to one home cluster, a Remote, those behind it. One that cannot be is left out, and disturbs nothing else.
func addBehindOne(s *site.Site, o Observation, at int, link *networkv1alpha1.NetworkLink) (said []networkv1alpha1.TransitStatus) {
	for _, announced := range link.Spec.Transit {
		status := networkv1alpha1.TransitStatus{Cluster: announced.Cluster}
		ranges, problem := letIn(o, o.Homes[s.Remotes[at].Name], announced)
		if problem == "" {
			candidate := *s
			candidate.Remotes = slices.Clone(s.Remotes)
			remote := &candidate.Remotes[at]
			behind := site.Behind{Name: announced.Cluster, Ranges: ranges, MTU: int(announced.MTU)}
			remote.Behind = append(slices.Clone(remote.Behind), behind)
			if err := candidate.Validate(); err != nil {
				problem = strings.ReplaceAll(err.Error(), "\n", "; ")
			} else {
				s.Remotes, status.Accepted = candidate.Remotes, true
			}
		}
		status.Message = sentence.Short(problem, networkv1alpha1.MaxMessage)
		if status.Accepted {
			status.PodCIDRs = slices.Clone(announced.PodCIDRs)
		}
		said = append(said, status)
	}
	return said
}

// addDirect adds to the clusters behind home clusters their gateways, where home names some and the owner allows lanes to them. It comes
// after all else: what home says of them keeps out nobody.
func addDirect(s *site.Site, o Observation, verdicts map[Key]Verdict) {
	for _, link := range o.Links {
		verdict := verdicts[KeyOf(link)]
		at := slices.IndexFunc(s.Remotes, func(r site.Remote) bool { return r.Name == remoteName(o.Namespace, link) })
		if link.Namespace == o.Namespace || !verdict.Accepted || at < 0 {
			continue
		}
		for _, announced := range link.Spec.Transit {
			i := slices.IndexFunc(verdict.Transit, func(t networkv1alpha1.TransitStatus) bool { return t.Cluster == announced.Cluster })
			if i < 0 || !verdict.Transit[i].Accepted || len(announced.Gateways) == 0 {
				continue
			}
			candidate, problem := direct(s, at, o.Homes[s.Remotes[at].Name], announced)
			if problem == "" {
				s.Remotes = candidate
			}
			verdict.Transit[i].Direct, verdict.Transit[i].DirectMessage = problem == "", sentence.Short(problem, networkv1alpha1.MaxMessage)
		}
	}
}

// direct returns the Remotes of a Site with lanes to a cluster behind one of them, or why there are none.
func direct(s *site.Site, at int, home *remotev1alpha1.HomeCluster, announced networkv1alpha1.Transit) (
	with []site.Remote, problem string,
) {
	if home.Spec.Network.DirectTransit != remotev1alpha1.DirectAllowed {
		return nil, fmt.Sprintf("the owner of this cluster has not allowed lanes to cluster %s: they set spec.network.directTransit of "+
			"HomeCluster %s to %s", announced.Cluster, home.Name, remotev1alpha1.DirectAllowed)
	}
	var gateways []site.Gateway
	for _, g := range announced.Gateways {
		if known := keysOf(g); len(known) > 0 {
			gateways = append(gateways, site.Gateway{Name: g.Name, Address: g.Address, Keys: known})
		}
	}
	candidate := *s
	candidate.Remotes = slices.Clone(s.Remotes)
	remote := &candidate.Remotes[at]
	remote.Behind = slices.Clone(remote.Behind)
	i := slices.IndexFunc(remote.Behind, func(b site.Behind) bool { return b.Name == announced.Cluster })
	if i < 0 || len(gateways) == 0 {
		return nil, fmt.Sprintf("spec.transit names no gateway of cluster %s with a key that can be", announced.Cluster)
	}
	remote.Behind[i].Direct = gateways
	if err := candidate.Validate(); err != nil {
		return nil, strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return candidate.Remotes, ""
}

// letIn returns the ranges of a cluster behind home, or why the owner of this one does not let them in.
func letIn(o Observation, home *remotev1alpha1.HomeCluster, announced networkv1alpha1.Transit) (
	ranges remotecluster.PodRanges, problem string,
) {
	where := "spec.network.transitPodCIDRs of HomeCluster " + home.Name
	allowed, err := remotecluster.ParsePodRanges(home.Spec.Network.TransitPodCIDRs)
	if err != nil {
		return nil, where + ": " + err.Error()
	}
	ranges, err = remotecluster.ParsePodRanges(announced.PodCIDRs)
	switch {
	case err != nil:
		return nil, "spec.transit: " + err.Error()
	case len(ranges) == 0:
		return nil, "spec.transit names no ranges of pods of cluster " + announced.Cluster
	case o.Service.IsValid() && ranges.Has(o.Service):
		return nil, fmt.Sprintf("spec.transit of cluster %s has addresses of Services of this cluster, such as %s: have its pods reached by "+
			"another range", announced.Cluster, o.Service)
	}
	for _, one := range ranges {
		if one.Addr().Is6() {
			return nil, fmt.Sprintf("%s is of IPv6, which does not pass home: leave it out of spec.transit of cluster %s", one, announced.Cluster)
		}
		if !allowed.HasRange(one) {
			return nil, fmt.Sprintf("the owner of this cluster has not allowed %s of cluster %s: they add it to %s", one, announced.Cluster, where)
		}
	}
	return ranges, ""
}

// addTransit adds to the remote clusters of this home which of their pods reach which others through here: pods of namespaces that may run
// in both. What a link has for status.transit goes into its verdict.
func addTransit(s *site.Site, o Observation, verdicts map[Key]Verdict, away map[string]string) {
	own := map[string]*networkv1alpha1.NetworkLink{}
	for _, link := range o.Links {
		if link.Namespace == o.Namespace {
			own[link.Name] = link
		}
	}
	joined := map[string]bool{}
	for _, r := range s.Remotes {
		joined[r.Name] = own[r.Name] != nil
	}
	for i := range s.Remotes {
		r := &s.Remotes[i]
		link := own[r.Name]
		if link == nil {
			continue // that is a home cluster
		}
		verdict := verdicts[KeyOf(link)]
		for _, to := range link.Spec.Transit {
			status := networkv1alpha1.TransitStatus{Cluster: to.Cluster, Message: sentence.Short(
				hinders(r.Name, to, own[to.Cluster], joined[to.Cluster]), networkv1alpha1.MaxMessage)}
			if status.Accepted = status.Message == ""; status.Accepted {
				r.Transit = append(r.Transit, site.Transit{To: to.Cluster, Pods: passing(o, away, r, to.Cluster)})
			}
			verdict.Transit = append(verdict.Transit, status)
		}
		verdicts[KeyOf(link)] = verdict
	}
}

// hinders says why packets between two clusters do not pass, empty if they do. other is the link of the second one, nil if there is none.
func hinders(name string, to networkv1alpha1.Transit, other *networkv1alpha1.NetworkLink, joined bool) string {
	switch {
	case to.Refused != "":
		return "cluster " + name + ": " + to.Refused
	case other == nil || !joined || to.Cluster == name:
		return fmt.Sprintf("cluster %s is not joined with this one", to.Cluster)
	}
	i := slices.IndexFunc(other.Spec.Transit, func(back networkv1alpha1.Transit) bool { return back.Cluster == name })
	if i < 0 {
		return fmt.Sprintf("cluster %s has not yet been told of cluster %s", to.Cluster, name)
	}
	if back := other.Spec.Transit[i]; back.Refused != "" {
		return "cluster " + to.Cluster + ": " + back.Refused
	}
	return ""
}

// passing are the pods of a remote cluster that reach those of another one. What a cluster calls the address of one of its pods has to be
// of its own ranges.
func passing(o Observation, away map[string]string, r *site.Remote, to string) (addresses []netip.Addr) {
	for _, p := range o.Pods {
		n := o.Namespaces[p.Namespace]
		if away[p.Node] != r.Name || !remotecluster.MayUse(n, r.Name) || !remotecluster.MayUse(n, to) {
			continue
		}
		for _, address := range p.Addresses {
			if address.Is4() && remotecluster.PodRanges(r.Ranges).Has(address) { // the other one is told of no ranges of IPv6
				addresses = append(addresses, address)
			}
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return slices.Compact(addresses)
}
