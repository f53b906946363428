// Package filter decides which nodes a pod's claims allow. It is pure: a
// snapshot and the time go in, one reason per node comes out.
//
// Every reason counts as unresolvable: evicting pods is not tried for any of
// them. For all but AttachLimit it would not help.
package filter

import (
	"time"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Plan is what the claims of one pod demand of its node. It serves one request
// and is not safe for concurrent use.
type Plan struct {
	view   *snapshot.Snapshot
	now    time.Time
	daemon bool
	// home is the name of the pod's namespace; namespace is nil when its pods stay
	// in the home cluster.
	home      string
	namespace *snapshot.Namespace
	claims    []snapshot.PodClaim

	// everywhere is a reason that holds for all nodes alike.
	everywhere Reason
	// dataIn is the cluster that holds the data of the bound claims, sourceIn the
	// one that holds what unbound claims are to be made from; empty without any.
	dataIn, sourceIn string
	// byLabel: it is not in a volume's node affinity where the data is.
	byLabel bool
	unbound []unboundClaim
	// kinds are those of them that the rules for clusters tell apart.
	kinds []unboundClaim
	// refused are the places that could not take one of them.
	refused places
	// demands are made when the first node of home is judged.
	demands []demand
	judged  map[string]Reason
	// last is the cluster that was judged last, and how: the next node is mostly of
	// the same.
	last struct {
		cluster string
		reason  Reason
	}
}

type unboundClaim struct {
	snapshot.PodClaim
	class *snapshot.Class
}

// NewPlan returns the plan of a pod as things are in view at now.
func NewPlan(view *snapshot.Snapshot, pod snapshot.Pod, now time.Time) *Plan {
	plan := &Plan{view: view, now: now, daemon: pod.Daemon, home: pod.Namespace, claims: view.ClaimsOf(pod), judged: map[string]Reason{}}
	plan.namespace, _ = view.Namespaces.Get(pod.Namespace)
	for _, claim := range plan.claims {
		if claim.Moving {
			plan.refuseEverywhere(VolumeMoving)
		}
		if claim.VolumeName != "" {
			plan.addBound(claim)
			continue
		}
		if class, ok := view.Classes.Get(claim.ClassName); ok {
			plan.addUnbound(unboundClaim{PodClaim: claim, class: class})
		}
	}
	plan.kinds = kindsOf(plan.unbound)
	if plan.dataIn != "" && plan.sourceIn != "" && plan.dataIn != plan.sourceIn {
		plan.refuseEverywhere(DataInSeveralClusters)
	}
	return plan
}

func (p *Plan) addBound(claim snapshot.PodClaim) {
	if cluster, hard := claim.DataIn(); hard {
		p.confine(&p.dataIn, cluster)
		p.byLabel = p.byLabel || claim.Volume.ByLabel
	}
}

func (p *Plan) addUnbound(claim unboundClaim) {
	if claim.class.Invalid {
		p.refuseEverywhere(ClassInvalid)
		return
	}
	// Whether a class is listed does not depend on the cluster.
	if _, err := claim.class.RealClassName(keys.Home, claim.Choice); err != nil {
		p.refuseEverywhere(ClassNotListed)
		return
	}
	p.unbound = append(p.unbound, claim)
	p.refused.add(claim.Refusals, p.now)
	if claim.FromSnapshot {
		if claim.SourceCluster == "" {
			p.refuseEverywhere(SnapshotNotReady)
			return
		}
		p.confine(&p.sourceIn, claim.SourceCluster)
	}
	if claim.Source == "" {
		return
	}
	source, cluster := p.view.SourceOf(p.home, claim.PodClaim)
	switch {
	case cluster == "":
		p.refuseEverywhere(SourceNotBound)
	case source.Moving:
		p.refuseEverywhere(VolumeMoving)
	default:
		p.confine(&p.sourceIn, cluster)
	}
}

func (p *Plan) confine(to *string, cluster string) {
	switch *to {
	case "", cluster:
		*to = cluster
	default:
		p.refuseEverywhere(DataInSeveralClusters)
	}
}

// refuseEverywhere keeps the first of several reasons: claims are looked at in
// the order of the pod's volumes.
func (p *Plan) refuseEverywhere(reason Reason) {
	if p.everywhere == Accepted {
		p.everywhere = reason
	}
}

// Indifferent says that no rule applies to the pod: every node will do. While
// there are no remote clusters that is so for every pod without such claims.
func (p *Plan) Indifferent() bool {
	return p.everywhere == Accepted && p.dataIn == "" && len(p.unbound) == 0 &&
		(p.view.Clusters.Len() == 0 || (!p.daemon && p.namespace.Unlimited()))
}

// Claims returns the pod's claims as the plan found them.
func (p *Plan) Claims() []snapshot.PodClaim {
	return p.claims
}

// Judge says why the node cannot take the pod, or Accepted.
func (p *Plan) Judge(node snapshot.Node) Reason {
	switch {
	case p.everywhere != Accepted:
		return p.everywhere
	case !node.Known && (len(p.unbound) > 0 || p.byLabel):
		return NodeNotSeen
	case !node.Known:
		// kube-scheduler, which does know the node, has matched it with the
		// volumes' node affinity and with its taints.
		return Accepted
	case p.dataIn != "" && p.dataIn != node.Cluster:
		return DataElsewhere
	case p.sourceIn != "" && p.sourceIn != node.Cluster:
		return SourceElsewhere
	}
	if p.last.cluster != node.Cluster {
		p.last.cluster, p.last.reason = node.Cluster, p.judgedCluster(node.Cluster)
	}
	switch {
	case p.last.reason != Accepted:
		return p.last.reason
	case p.refused.has(node.Cluster, node.Name):
		return RefusedLately
	case node.Cluster == keys.Home && !p.attachable(node.Name):
		return AttachLimit
	}
	return Accepted
}

func (p *Plan) judgedCluster(id string) Reason {
	reason, ok := p.judged[id]
	if !ok {
		reason = p.judgeCluster(id)
		p.judged[id] = reason
	}
	return reason
}
