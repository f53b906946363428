package filter

import (
	"slices"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

// demand is the claims of which the pod wants volumes of a CSI driver attached at
// home, by their keys in ascending order.
type demand struct {
	driver string
	claims []string
}

// attachable says whether a node of home can have attached, beside what it has,
// the volumes that would be made for the pod there. kube-scheduler does not judge
// that: to it a claim without a volume belongs to the driver of its virtual class.
func (p *Plan) attachable(node string) bool {
	if len(p.unbound) == 0 || p.view.Limits.Len() == 0 {
		return true
	}
	if p.demands == nil {
		p.demands = p.demanded()
	}
	for _, demand := range p.demands {
		if !p.view.CanAttach(node, demand.driver, demand.claims, p.now) {
			return false
		}
	}
	return true
}

// demanded returns what the pod wants of each driver that would make volumes for
// it: those, and the ones that its other claims have already.
func (p *Plan) demanded() []demand {
	wanted := map[string][]string{}
	want := func(driver string, claim snapshot.PodClaim) {
		wanted[driver] = append(wanted[driver], snapshot.ClaimKey(p.home, claim.Name))
	}
	for _, claim := range p.unbound {
		if driver := p.view.HomeDriver(claim.class, claim.Claim); driver != "" {
			want(driver, claim.PodClaim)
		}
	}
	for _, claim := range p.claims {
		if claim.Volume != nil && len(wanted[claim.Volume.Driver]) > 0 {
			want(claim.Volume.Driver, claim)
		}
	}
	demands := make([]demand, 0, len(wanted))
	for driver, claims := range wanted {
		slices.Sort(claims)
		demands = append(demands, demand{driver: driver, claims: claims})
	}
	return demands
}
