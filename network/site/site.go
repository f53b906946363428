// Package site is what a node is told of its own cluster and of others.
package site

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// Site is all that a node has to know.
type Site struct {
	// Nodes are those of the own cluster that take part, this one among them.
	Nodes []Node `json:"nodes"`
	// PodRanges are those that the addresses of all pods are of, where nodes have no ranges of their own: then Pods of a Node are single
	// addresses, of pods that others may reach, and only gateways know them.
	PodRanges []netip.Prefix `json:"podRanges,omitempty"`
	// Remotes are the other clusters. A node to which none is left has nothing of the network any more.
	Remotes []Remote `json:"remotes,omitempty"`
}

// Node is a node of the own cluster.
type Node struct {
	Name string `json:"name"`
	// Address is that at which the other nodes reach it, of IPv4: the tunnel between nodes carries both families and goes over that.
	Address netip.Addr `json:"address"`
	// Pods are the ranges of its pods, or the addresses of its pods where the cluster's network gives nodes no ranges.
	Pods []netip.Prefix `json:"pods,omitempty"`
	// Gateway says that lanes to other clusters begin there.
	Gateway bool `json:"gateway,omitempty"`
}

// Remote is another cluster.
type Remote struct {
	Name string `json:"name"`
	// Ranges are those by which its pods are reached from here. No other address there is reached, nor reaches anybody here.
	Ranges []netip.Prefix `json:"ranges"`
	// Translations are those of pods here, as it reaches them.
	Translations remotecluster.Translations `json:"translations,omitempty"`
	// MTU is that of its network between nodes, of which nothing is left for headers; 0 if it is not known.
	MTU int `json:"mtu,omitempty"`
	// Gateways are those of the other cluster. One side has the address of the other.
	Gateways []Gateway `json:"gateways"`
	// Carrier is what is to carry packets between the gateways: WireGuard, or TLS, which is what is meant where it is empty.
	Carrier string `json:"carrier,omitempty"`
	// Limit is how many bytes a second go there from each gateway, and as many may come; 0: as many as can.
	Limit int64 `json:"limit,omitempty"`
	// Pods are those here that it may reach, and that may reach it.
	Pods []netip.Addr `json:"pods,omitempty"`
	// Behind are clusters that are reached through it, as it says. The same pods here reach them, and are reached.
	Behind []Behind `json:"behind,omitempty"`
	// Transit are clusters that its pods reach through this one. Each of the two names the other.
	Transit []Transit `json:"transit,omitempty"`
}

// Behind is a cluster that is reached through another one.
type Behind struct {
	Name string `json:"name"`
	// Ranges are those by which its pods are reached from here.
	Ranges []netip.Prefix `json:"ranges"`
	// MTU is that of its network between nodes; 0 if it is not known.
	MTU int `json:"mtu,omitempty"`
	// Direct are its gateways, where those here have lanes to them: packets go by these while one is up, and through the Remote else. Who
	// has no address dials here.
	Direct []Gateway `json:"direct,omitempty"`
}

// Transit is a cluster that pods of a Remote reach through this one.
type Transit struct {
	// To is the name of that Remote.
	To string `json:"to"`
	// Pods are those of the Remote, as they are reached from here, that reach pods of the other one, and are reached: nobody else there.
	Pods []netip.Addr `json:"pods,omitempty"`
}

// All are the ranges of its pods and of those that are reached through it.
func (r *Remote) All() []netip.Prefix {
	all := slices.Clone(r.Ranges)
	for _, b := range r.Behind {
		all = append(all, b.Ranges...)
	}
	return all
}

// DirectName is what the lanes to a cluster behind the Remote are called, which do not lead through it. No Remote has such a name.
func (r *Remote) DirectName(behind string) string { return r.Name + "/" + behind }

// WithLanes are the clusters that gateways here have lanes to: the Remotes, and as such those behind them that are reached directly. The
// same pods here reach these, and are reached, by the same addresses as through the Remote.
func (s *Site) WithLanes() []Remote {
	all := slices.Clone(s.Remotes)
	for i := range s.Remotes {
		r := &s.Remotes[i]
		for _, b := range r.Behind {
			if len(b.Direct) > 0 {
				all = append(all, Remote{Name: r.DirectName(b.Name), Ranges: b.Ranges, Translations: r.Translations, MTU: b.MTU,
					Gateways: b.Direct, Limit: r.Limit, Pods: r.Pods})
			}
		}
	}
	return all
}

// Short is what a cluster is called in names of links and of what belongs to them, where there is room for little. No two that there are
// lanes to have the same, though it is easy to find names that would.
func Short(name string) string {
	hash := sha256.Sum256([]byte(name))
	return hex.EncodeToString(hash[:4])
}

// TransitTo is what of the Remote reaches another one, nil if nothing does.
func (r *Remote) TransitTo(other string) *Transit {
	i := slices.IndexFunc(r.Transit, func(t Transit) bool { return t.To == other })
	if i < 0 {
		return nil
	}
	return &r.Transit[i]
}

// Gateway is a gateway of another cluster.
type Gateway struct {
	Name string `json:"name"`
	// Address is host:port; empty if that gateway dials here.
	Address string     `json:"address,omitempty"`
	Keys    []lane.Key `json:"keys"`
	// WireGuard is where it is reached by that, at the host of its address; nil: nowhere.
	WireGuard *lane.WireGuardEnd `json:"wireGuard,omitempty"`
}

// Parse reads a Site from YAML or JSON.
func Parse(content []byte) (*Site, error) {
	var s Site
	if err := yaml.UnmarshalStrict(content, &s); err != nil {
		return nil, fmt.Errorf("read what the node is told: %w", err)
	}
	return &s, s.Validate()
}

// Node returns a node by its name, nil if there is none.
func (s *Site) Node(name string) *Node {
	i := slices.IndexFunc(s.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Nodes[i]
}

// Validate returns an error that joins all that cannot be.
func (s *Site) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var ranges []owned
	claim := func(prefix netip.Prefix, owner string, least int) {
		if !prefix.IsValid() || prefix.Addr().Is4In6() || prefix.Bits() < least || prefix != prefix.Masked() {
			refuse("%s has the range %s, which is not a range from /%d on: write it as 10.1.0.0/16, or fd00:10:1::/48", owner, prefix, least)
			return
		}
		if _, err := remotecluster.ParsePodRanges([]string{prefix.String()}); prefix.Addr().Is6() && err != nil {
			refuse("%s: %w", owner, err)
			return
		}
		ranges = append(ranges, owned{prefix, owner})
	}
	for _, prefix := range s.PodRanges {
		claim(prefix, "the pods of this cluster", 8)
	}
	names := map[string]bool{}
	keys := map[lane.Key]string{}
	for _, n := range s.Nodes {
		owner := "node " + n.Name
		if n.Name == "" || names[owner] {
			refuse("there is a node without a name, or two of the name %q", n.Name)
		}
		names[owner] = true
		if !n.Address.Is4() {
			refuse("%s has the address %s: give an IPv4 address", owner, n.Address)
			continue
		}
		claim(netip.PrefixFrom(n.Address, 32), owner, 32)
		for _, prefix := range n.Pods {
			switch {
			case len(s.PodRanges) == 0:
				claim(prefix, "the pods of "+owner, 8)
			case !prefix.IsSingleIP() || !remotecluster.PodRanges(s.PodRanges).Has(prefix.Addr()):
				refuse("%s has pods at %s, which is not an address of the ranges of this cluster's pods", owner, prefix)
			}
		}
	}
	for _, r := range s.Remotes {
		owner := "cluster " + r.Name
		if r.Name == "" || names[owner] {
			refuse("there is a cluster without a name, or two of the name %q", r.Name)
		}
		if strings.Contains(r.Name, "/") {
			refuse("a cluster has the name %q: give one without /", r.Name)
		}
		names[owner] = true
		for _, prefix := range r.Ranges {
			claim(prefix, owner, 8)
		}
		for _, b := range r.Behind {
			for _, prefix := range b.Ranges {
				claim(prefix, "cluster "+b.Name+" behind "+owner, 8)
			}
		}
		if err := r.Translations.Validate(); err != nil {
			refuse("%s reaches pods here by ranges that cannot be: %w", owner, err)
		}
		// Only on this lane are they seen, so what a cluster calls pods here is no other cluster's concern.
		var reached remotecluster.PodRanges
		for _, one := range r.Translations {
			reached = append(reached, one.ReachedAs)
		}
		if own, other, overlap := reached.Overlap(r.All()); overlap {
			refuse("%s reaches pods here as %s, which overlaps with its own range %s: give another range", owner, own, other)
		}
		if r.Carrier != "" && r.Carrier != TLS && r.Carrier != WireGuard {
			refuse("%s has the carrier %q: give %s or %s", owner, r.Carrier, TLS, WireGuard)
		}
		if len(r.Ranges) == 0 || len(r.Gateways) == 0 {
			refuse("%s has no ranges or no gateways", owner)
		}
		if unfit(r.MTU) {
			refuse("%s has the MTU %d: give one from 1280 to 65535", owner, r.MTU)
		}
		for _, pod := range r.Pods {
			if !pod.IsValid() || pod.Is4In6() || pod.Zone() != "" {
				refuse("the pod %s that %s may reach has no such address: write it as 10.1.0.2, or fd00:10:1::2", pod, owner)
			}
		}
		errs = append(errs, r.passing()...)
	}
	errs = append(errs, overlaps(ranges)...)
	links := map[string]string{}
	for _, r := range s.WithLanes() {
		owner, link := "cluster "+r.Name, Short(r.Name)
		if other := links[link]; other != "" && other != owner {
			refuse("the links of %s would have the names of those of %s: give one of them another name", owner, other)
		}
		links[link] = owner
		gateways := map[string]bool{}
		for _, g := range r.Gateways {
			if g.Name == "" || gateways[g.Name] || len(g.Keys) == 0 {
				refuse("%s has a gateway without a name or a key, or two of the name %q", owner, g.Name)
			}
			gateways[g.Name] = true
			for _, key := range g.Keys {
				if other := keys[key]; other != "" && other != owner {
					refuse("gateway %s of %s has the key of a gateway of %s, so one could not be told from the other: are they one cluster, or "+
						"is a disk copied? On a copy, delete both files of keys", g.Name, owner, other)
				}
				keys[key] = owner
			}
		}
	}
	return errors.Join(errs...)
}

// owned is a range, and who has it.
type owned struct {
	netip.Prefix
	owner string
}

// overlaps are errors of ranges of which two owners have addresses. A cluster may have thousands of nodes, so each pair is only looked at
// where there is something to be said.
func overlaps(ranges []owned) (errs []error) {
	if apart(ranges) {
		return nil
	}
	for i, one := range ranges {
		for _, other := range ranges[:i] {
			if !other.Overlaps(one.Prefix) || other.owner == one.owner {
				continue
			}
			if one.Addr().Is6() {
				errs = append(errs, fmt.Errorf("the range %s of %s overlaps with %s of %s: IPv6 is not translated, so give one of the clusters "+
					"another range, or leave IPv6 out of the ranges", one.Prefix, one.owner, other.Prefix, other.owner))
			} else {
				errs = append(errs, fmt.Errorf("the range %s of %s overlaps with %s of %s: have it reached as a range of its own, by "+
					"podTranslations or homePodTranslations of the RemoteCluster", one.Prefix, one.owner, other.Prefix, other.owner))
			}
		}
	}
	return errs
}

// apart says whether no two owners have addresses of the same range. Of two ranges that overlap one is in the other.
func apart(ranges []owned) bool {
	var around []owned // ranges that each have the next one in them, of one owner
	for _, one := range slices.SortedFunc(slices.Values(ranges), func(a, b owned) int { return a.Compare(b.Prefix) }) {
		for len(around) > 0 && !around[len(around)-1].Contains(one.Addr()) {
			around = around[:len(around)-1]
		}
		if len(around) > 0 && around[0].owner != one.owner {
			return false
		}
		around = append(around, one)
	}
	return true
}

// unfit says that an MTU is known and cannot be.
func unfit(mtu int) bool { return mtu != 0 && (mtu < 1280 || mtu > 65535) }

// passing are errors of what is reached through the cluster, and of what reaches others from there.
func (r *Remote) passing() (errs []error) {
	names := map[string]bool{}
	for _, b := range r.Behind {
		if b.Name == "" || names[b.Name] || len(b.Ranges) == 0 || unfit(b.MTU) {
			errs = append(errs, fmt.Errorf("cluster %s has a cluster behind it without a name, ranges, or an MTU that can be, or two of the name %q",
				r.Name, b.Name))
		}
		names[b.Name] = true
	}
	for _, t := range r.Transit {
		for _, pod := range t.Pods {
			// What comes by its lane with another cluster's address is not its own.
			if !remotecluster.PodRanges(r.Ranges).Has(pod) {
				errs = append(errs, fmt.Errorf("the pod %s that reaches cluster %s from cluster %s is in none of its ranges", pod, t.To, r.Name))
			}
		}
	}
	return errs
}
