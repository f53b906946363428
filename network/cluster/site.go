// Package cluster is what the network program knows from the objects of its own cluster: nodes, NetworkLinks, HomeClusters,
// namespaces and pods. Make makes of them what a node is told (pure), Watch keeps that up to date, Reporter writes what a
// gateway has to say into the NetworkLinks.
package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// Observation is what there is in the own cluster. Lists are sorted by name.
type Observation struct {
	// Namespace is that of the network program. Links in it were made by the own cluster, as a home cluster.
	Namespace string
	Nodes     []*corev1.Node
	Links     []*networkv1alpha1.NetworkLink
	// PodRanges are those of the addresses of pods, where podCIDRs of nodes say nothing of them; empty: they do.
	PodRanges []netip.Prefix
	// Service is the address of the API server's Service, of the range of all Services; not valid: it is not known.
	Service netip.Addr
	// Homes are the HomeClusters, by their names: what the owner of this cluster lets home clusters do.
	Homes map[string]*remotev1alpha1.HomeCluster
	// Namespaces and Pods are only known on gateways.
	Namespaces map[string]*corev1.Namespace
	Pods       []Pod
}

// Pod is what is known of a pod that has addresses of its own.
type Pod struct {
	Namespace string
	// Node is where it runs.
	Node string
	// Probe: it is one of those that probe other clusters.
	Probe     bool
	Created   time.Time
	Addresses []netip.Addr
}

// Verdict says whether this cluster takes part in a link.
type Verdict struct {
	Accepted bool
	// Reason is a word, Message a sentence that says what to do.
	Reason, Message string
	// Ranges are those by which pods of the other cluster are reached from here.
	Ranges remotecluster.PodRanges
	// Translations are of pods here, as the other cluster reaches them.
	Translations remotecluster.Translations
	// WireGuard: it is to carry packets, where it can.
	WireGuard bool
	// Transit is what becomes of other clusters that are to be reached from the one of the link, or by its gateways.
	Transit []networkv1alpha1.TransitStatus
}

// Key is the name of an object in a namespace.
type Key struct{ Namespace, Name string }

// KeyOf returns the key of a link.
func KeyOf(link *networkv1alpha1.NetworkLink) Key { return Key{link.Namespace, link.Name} }

// Make returns what each node is told, and what becomes of each link.
func Make(o Observation) (*site.Site, map[Key]Verdict) {
	s := &site.Site{PodRanges: o.PodRanges}
	var left []string
	s.Nodes, left = partaking(o.Nodes, len(o.PodRanges) > 0, asksForIPv6(o))
	have := families(s)
	here, away := nodesHere(o.Nodes), virtual(o.Nodes)
	verdicts := map[Key]Verdict{}
	// Of two that cannot be both the older one is.
	oldest := slices.SortedStableFunc(slices.Values(o.Links), func(a, b *networkv1alpha1.NetworkLink) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, link := range oldest {
		if link.Namespace != o.Namespace && (!strings.HasPrefix(link.Namespace, keys.TenantPrefix) || link.Name != keys.Home) {
			continue // nobody reads what is elsewhere
		}
		remote, verdict := remoteOf(o, link, here, have)
		switch {
		case verdict.Reason != "":
		case !slices.ContainsFunc(s.Nodes, func(n site.Node) bool { return n.Gateway }):
			continue // there is nobody who could say so: home's condition NetworkReady does
		case have == family{}:
			verdict = Verdict{Reason: "NoPodCIDRs", Message: "no node of this cluster has podCIDRs in its spec, so nobody knows which " +
				"node a pod's address belongs to: say of which ranges pods here have addresses, by --pod-cidrs of the DaemonSet " +
				"lodestone-network"}
		case len(remote.Gateways) == 0:
			verdict = Verdict{Accepted: true, Reason: "Waiting", Message: "the other cluster has named no gateway yet"}
		default:
			candidate, err := with(s, remote)
			if err == nil {
				err = apartFromNodes(o.Nodes, remote)
			}
			without := ""
			if err != nil { // IPv4 goes on where only what is of IPv6 cannot be
				ipv4 := narrowed(remote, family{ipv4: true})
				if only, left := with(s, ipv4); left == nil && len(ipv4.Ranges) > 0 {
					without = "; nothing of IPv6 is carried: " + strings.ReplaceAll(err.Error(), "\n", "; ")
					candidate, remote, err = only, ipv4, nil
				}
			}
			if err != nil {
				verdict = Verdict{Reason: "Unusable", Message: strings.ReplaceAll(err.Error(), "\n", "; ")}
				break
			}
			message := "this cluster takes part" + without + translated(remote.Translations) + carrier(&remote)
			s, verdict = candidate, Verdict{Accepted: true, Reason: "Accepted", Message: message}
		}
		verdict.Message += leftOut(left)
		verdict.Ranges, verdict.Translations, verdict.WireGuard = remote.Ranges, remote.Translations, remote.Carrier == site.WireGuard
		verdicts[KeyOf(link)] = verdict
	}
	addBehind(s, o, oldest, verdicts)
	addDirect(s, o, verdicts)
	addTransit(s, o, verdicts, away)
	if len(o.PodRanges) > 0 {
		s.Nodes = withPods(s, o.Pods)
	}
	return s, verdicts
}

// with is a Site with another cluster; an error says why that cannot be.
func with(s *site.Site, remote site.Remote) (*site.Site, error) {
	candidate := *s
	candidate.Remotes = append(slices.Clone(s.Remotes), remote)
	return &candidate, candidate.Validate()
}

// virtual are the nodes that stand for other clusters, and the names of these.
func virtual(nodes []*corev1.Node) map[string]string {
	clusters := map[string]string{}
	for _, n := range nodes {
		if stands(n) {
			clusters[n.Name] = n.Labels[keys.Cluster]
		}
	}
	return clusters
}

// nodesHere are the names of those that do not.
func nodesHere(nodes []*corev1.Node) map[string]bool {
	names := map[string]bool{}
	for _, n := range nodes {
		names[n.Name] = !stands(n)
	}
	return names
}

// typeLabel is the label by which virtual nodes of others are known, too.
const typeLabel = "type"

// stands says that a node is none of this cluster, but stands for another one.
func stands(n *corev1.Node) bool {
	return n.Labels[keys.Cluster] != "" || n.Labels[typeLabel] == "virtual-kubelet"
}

// nodeOf returns what is to be known of a node, false if it takes no part: nodes that stand for other clusters do not. IgnoreCIDRs: its
// podCIDRs say nothing of pods. Of IPv6 they are only looked at where somebody asks for it.
func nodeOf(n *corev1.Node, ignoreCIDRs, ipv6 bool) (told site.Node, ok bool) {
	if stands(n) {
		return site.Node{}, false
	}
	address, ok := addressOf(n)
	if !ok {
		return site.Node{}, false
	}
	told = site.Node{Name: n.Name, Address: address, Gateway: n.Labels[keys.Gateway] == keys.GatewayEnabled}
	if ignoreCIDRs {
		return told, true
	}
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 && n.Spec.PodCIDR != "" {
		texts = []string{n.Spec.PodCIDR}
	}
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil && (prefix.Addr().Is4() || ipv6 && usable(text)) {
			told.Pods = append(told.Pods, prefix)
		}
	}
	return told, true
}

// addressOf returns the IPv4 address at which other nodes of its cluster reach a node.
func addressOf(n *corev1.Node) (netip.Addr, bool) {
	for _, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if address, err := netip.ParseAddr(a.Address); err == nil && address.Is4() {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// remoteName is what the other cluster of a link is called: the name of the RemoteCluster, or the ID of the home cluster.
func remoteName(namespace string, link *networkv1alpha1.NetworkLink) string {
	if link.Namespace == namespace {
		return link.Name
	}
	return strings.TrimPrefix(link.Namespace, keys.TenantPrefix)
}

// remoteOf returns the other cluster of a link; a verdict with a reason says why there is none. Pods on nodes that stand for other clusters
// are none of this one, nor are those on nodes that are not here, which may have been such.
func remoteOf(o Observation, link *networkv1alpha1.NetworkLink, here map[string]bool, have family) (site.Remote, Verdict) {
	remote := site.Remote{Name: remoteName(o.Namespace, link)}
	selects := func(n *corev1.Namespace) bool { return remotecluster.MayReach(n, remote.Name) }
	texts, where, limit := link.Spec.PodCIDRs, "spec.podCIDRs", link.Spec.BandwidthLimit
	own := link.Namespace == o.Namespace
	if !own {
		home := o.Homes[remote.Name]
		if home == nil || home.Spec.Network == nil {
			return remote, Verdict{Reason: "Refused", Message: "the owner of this cluster has not allowed it: they set spec.network of " +
				"HomeCluster " + remote.Name}
		}
		texts, where = home.Spec.Network.PodCIDRs, "spec.network.podCIDRs of HomeCluster "+home.Name
		limit = home.Spec.Network.BandwidthLimit
		selects = func(n *corev1.Namespace) bool {
			return n.Labels[keys.HomeID] == home.Name && n.Name != link.Namespace &&
				(len(home.Spec.Network.Namespaces) == 0 || slices.Contains(home.Spec.Network.Namespaces, n.Name))
		}
	}
	ranges, err := remotecluster.ParsePodRanges(texts)
	if err == nil {
		err = ranges.Disjoint()
	}
	// Nobody here reaches addresses of a family that pods here have not.
	common := slices.DeleteFunc(slices.Clone(ranges), func(one netip.Prefix) bool { return have != family{} && !have.has(one.Addr()) })
	switch {
	case err != nil:
		return remote, Verdict{Reason: "Unusable", Message: where + ": " + err.Error()}
	case len(ranges) == 0:
		return remote, Verdict{Reason: "NoPodCIDRs", Message: where + " names no ranges of pods of the other cluster"}
	case len(common) == 0:
		return remote, Verdict{Reason: "NoPodCIDRs", Message: where + " names only ranges of " + have.other() + ", and pods of this cluster " +
			"have no addresses of that"}
	case o.Service.IsValid() && ranges.Has(o.Service):
		return remote, Verdict{Reason: "Unusable", Message: fmt.Sprintf("%s has addresses of Services of this cluster, such as %s: have pods of "+
			"the other cluster reached by a range of their own, by podTranslations or homePodTranslations of the RemoteCluster", where, o.Service)}
	}
	if remote.Translations, err = remotecluster.ParseTranslations(link.Spec.PodTranslations); err != nil {
		return site.Remote{Name: remote.Name}, Verdict{Reason: "Unusable", Message: "spec.podTranslations: " + err.Error()}
	}
	if remote.Ranges = common; limit != nil {
		remote.Limit = limit.Value()
	}
	if link.Spec.Carrier == networkv1alpha1.WireGuard {
		remote.Carrier = site.WireGuard
	}
	for _, g := range link.Spec.Gateways {
		gateway := site.Gateway{Name: g.Name, Keys: keysOf(g)}
		if own { // home dials; a home cluster cannot have the nodes of this one dial anybody
			gateway.Address = g.Address
		}
		if w := g.WireGuard; w != nil {
			end := lane.WireGuardEnd{Port: uint16(w.Port)}
			if end.Key.UnmarshalText([]byte(w.PublicKey)) == nil {
				gateway.WireGuard = &end
			}
		}
		if len(gateway.Keys) == 0 || own && gateway.Address == "" {
			continue // it is not yet there
		}
		if g.MTU != 0 && (remote.MTU == 0 || int(g.MTU) < remote.MTU) {
			remote.MTU = int(g.MTU)
		}
		remote.Gateways = append(remote.Gateways, gateway)
	}
	for _, p := range o.Pods {
		n := o.Namespaces[p.Namespace]
		if here[p.Node] && (p.Probe && p.Namespace == o.Namespace || n != nil && selects(n)) {
			remote.Pods = append(remote.Pods, p.Addresses...)
		}
	}
	if len(o.PodRanges) > 0 { // nodes let through what is of these
		remote.Pods = slices.DeleteFunc(remote.Pods, func(a netip.Addr) bool { return !remotecluster.PodRanges(o.PodRanges).Has(a) })
	}
	slices.SortFunc(remote.Pods, netip.Addr.Compare)
	remote.Pods = slices.Compact(remote.Pods)
	return narrowed(remote, familiesOf(remote.Ranges)), Verdict{}
}

// keysOf are the keys of a gateway, as far as they are some.
func keysOf(g networkv1alpha1.Gateway) (known []lane.Key) {
	for _, text := range g.Keys {
		var key lane.Key
		if key.UnmarshalText([]byte(text)) == nil {
			known = append(known, key)
		}
	}
	return known
}

// translated says which range stands for which, empty if none does.
func translated(pods remotecluster.Translations) (text string) {
	for _, one := range pods {
		text += fmt.Sprintf("; the other cluster reaches pods of %s here as %s, and not by the address that such a pod has itself", one.PodCIDR,
			one.ReachedAs)
	}
	return text
}

// carrier says why WireGuard does not carry packets though it is to, as far as that is not for a single gateway to say; empty: it may.
func carrier(remote *site.Remote) string {
	if why := remote.InsteadOfWireGuard(); why != "" && remote.Carrier == site.WireGuard {
		return "; TLS carries packets, and not WireGuard: " + why
	}
	return ""
}
