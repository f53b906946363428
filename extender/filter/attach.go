package filter

import "github.com/lodestone-storage/lodestone/extender/snapshot"

// demand is how many volumes of a CSI driver the pod wants attached at home.
type demand struct {
	driver  string
	volumes int
}

// attachable says whether a node of home can have attached, beside what it has,
// the volumes that would be made for the pod there. kube-scheduler does not judge
// that: to it a claim without a volume belongs to the driver of its virtual class.
func (p *Plan) attachable(node string) bool {
	if len(p.unbound) == 0 || p.view.Limits.Len() == 0 {
		return true
	}
	if p.demands == nil {
		p.demands, p.own = p.demanded(), p.claimKeys()
	}
	for _, demand := range p.demands {
		if !p.view.CanAttach(node, demand.driver, demand.volumes, p.own) {
			return false
		}
	}
	return true
}

// demanded returns what the pod wants of each driver that would make volumes for
// it: those, and the ones that its other claims have already.
func (p *Plan) demanded() []demand {
	demands := []demand{}
	wanted := map[string]int{}
	for _, claim := range p.unbound {
		if driver := p.view.HomeDriver(claim.class, claim.Claim); driver != "" {
			wanted[driver]++
		}
	}
	for _, claim := range p.claims {
		if claim.Volume != nil && wanted[claim.Volume.Driver] > 0 {
			wanted[claim.Volume.Driver]++
		}
	}
	for driver, volumes := range wanted {
		demands = append(demands, demand{driver: driver, volumes: volumes})
	}
	return demands
}

func (p *Plan) claimKeys() []string {
	keys := make([]string, 0, len(p.claims))
	for _, claim := range p.claims {
		keys = append(keys, snapshot.ClaimKey(p.home, claim.Name))
	}
	return keys
}
