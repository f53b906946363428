package filter

import (
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// kindsOf returns one claim of each kind that judgeCluster tells apart. A pod can
// have very many claims; kinds are as few as classes and what they list.
func kindsOf(claims []unboundClaim) []unboundClaim {
	type kind struct {
		class  *snapshot.Class
		choice string
		chosen bool
		ofPod  bool
	}
	if len(claims) < 2 {
		return claims
	}
	seen := make(map[kind]struct{}, 2)
	var kinds []unboundClaim
	for _, claim := range claims {
		choice, chosen := claim.Choice[keys.Class]
		of := kind{class: claim.class, choice: choice, chosen: chosen, ofPod: claim.OfPod}
		if _, known := seen[of]; !known {
			seen[of] = struct{}{}
			kinds = append(kinds, claim)
		}
	}
	return kinds
}

// judgeCluster applies the rules that are the same for all nodes of a cluster.
func (p *Plan) judgeCluster(id string) Reason {
	for _, claim := range p.kinds {
		if !claim.class.Allows(id) {
			return ClusterNotAllowed
		}
	}
	if id == keys.Home {
		// Which real classes there are at home is left to the provisioner: it
		// tells the user on the claim, by name, which one is missing.
		return Accepted
	}
	switch {
	case p.daemon:
		return DaemonPod
	case p.namespace == nil:
		return NotOffloaded
	case !p.namespace.MayUse(id):
		return NotOpen
	case len(p.unbound) == 0:
		return Accepted
	}
	cluster, ok := p.view.Clusters.Get(id)
	for _, claim := range p.kinds {
		if claim.OfPod && (!ok || !cluster.OwnNode) {
			return EphemeralVolume
		}
	}
	switch {
	case !ok:
		return ClusterUnknown
	case !cluster.Ready:
		return ClusterNotReady
	}
	for _, claim := range p.kinds {
		if !offersClass(id, cluster, claim) {
			return NoRealClass
		}
	}
	return Accepted
}

func offersClass(id string, cluster *snapshot.Cluster, claim unboundClaim) bool {
	name, err := claim.class.RealClassName(id, claim.Choice)
	if err != nil {
		return false
	}
	if name == "" {
		name = cluster.DefaultClass
	}
	_, err = virtualclass.Resolve(name, id, cluster.Offered)
	return err == nil
}
