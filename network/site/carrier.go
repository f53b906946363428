package site

import (
	"cmp"
	"slices"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
)

// What carries packets between the gateways of two clusters.
const (
	TLS       = string(networkv1alpha1.TLS)
	WireGuard = string(networkv1alpha1.WireGuard)
)

// InsteadOfWireGuard says, of a cluster whose carrier is WireGuard, why TLS carries its packets all the same: the kernel does not do all
// that the program does. Empty: WireGuard can.
func (r *Remote) InsteadOfWireGuard() string {
	switch {
	case len(r.Translations) > 0:
		return "addresses of pods here are translated on the way there, which WireGuard does not do"
	case r.Limit > 0:
		return "there is a bandwidth limit here, which WireGuard does not keep"
	}
	return ""
}

// Partner is the gateway of another cluster that one of this cluster is joined with by WireGuard, which sends what is for a range to one
// peer alone: the first by name with the first there, and so on. It is nil for a gateway for which none is left there. Both clusters come
// to the same; where one of them does not know all gateways yet, the two do not hear each other, and TLS carries.
func (s *Site) Partner(self, remote string) *Gateway {
	var own []string
	for _, n := range s.Nodes {
		if n.Gateway {
			own = append(own, n.Name)
		}
	}
	slices.Sort(own)
	at := slices.Index(own, self)
	for _, r := range s.Remotes {
		if r.Name == remote && at >= 0 && at < len(r.Gateways) {
			there := slices.SortedFunc(slices.Values(r.Gateways), func(a, b Gateway) int { return cmp.Compare(a.Name, b.Name) })
			return &there[at]
		}
	}
	return nil
}
