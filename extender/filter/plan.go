// Package filter decides which nodes a pod's claims allow. It is pure: a
// snapshot and the time go in, one reason per node comes out.
//
// No rule depends on the other pods of a node, so evicting some of them never
// helps: every reason counts as unresolvable.
package filter

import (
	"time"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Plan is what the claims of one pod demand of its node. It serves one request
// and is not safe for concurrent use.
type Plan struct {
	view   *snapshot.Snapshot
	now    time.Time
	daemon bool
	// namespace is the pod's; nil when its pods stay at home.
	namespace *snapshot.Namespace
	claims    []snapshot.PodClaim

	// everywhere is a reason that holds for all nodes alike.
	everywhere Reason
	// dataIn is the cluster that holds the data of the bound claims; empty
	// without any.
	dataIn  string
	unbound []unboundClaim
	judged  map[string]Reason
}

type unboundClaim struct {
	*snapshot.Claim
	class *snapshot.Class
}

// NewPlan returns the plan of a pod as things are in view at now.
func NewPlan(view *snapshot.Snapshot, pod snapshot.Pod, now time.Time) *Plan {
	plan := &Plan{view: view, now: now, daemon: pod.Daemon, claims: view.ClaimsOf(pod), judged: map[string]Reason{}}
	plan.namespace, _ = view.Namespaces.Get(pod.Namespace)
	for _, claim := range plan.claims {
		if claim.VolumeName != "" {
			plan.addBound(claim)
			continue
		}
		if class, ok := view.Classes.Get(claim.ClassName); ok {
			plan.addUnbound(unboundClaim{Claim: claim.Claim, class: class})
		}
	}
	return plan
}

func (p *Plan) addBound(claim snapshot.PodClaim) {
	cluster, hard := claim.DataIn()
	switch {
	case !hard:
	case p.dataIn == "":
		p.dataIn = cluster
	case p.dataIn != cluster:
		p.refuseEverywhere(DataInSeveralClusters)
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
	case !node.Known && len(p.unbound) > 0:
		return NodeNotSeen
	case !node.Known:
		// kube-scheduler, which does know the node, has matched it with the
		// volumes' node affinity and with its taints.
		return Accepted
	case p.dataIn != "" && p.dataIn != node.Cluster:
		return DataElsewhere
	}
	reason, ok := p.judged[node.Cluster]
	if !ok {
		reason = p.judgeCluster(node.Cluster)
		p.judged[node.Cluster] = reason
	}
	if reason == Accepted && p.refusedBy(node.Cluster, node.Name) {
		return RefusedLately
	}
	return reason
}

// judgeCluster applies the rules that are the same for all nodes of a cluster.
func (p *Plan) judgeCluster(id string) Reason {
	for _, claim := range p.unbound {
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
	switch {
	case !ok:
		return ClusterUnknown
	case !cluster.Ready:
		return ClusterNotReady
	}
	for _, claim := range p.unbound {
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

func (p *Plan) refusedBy(cluster, node string) bool {
	for _, claim := range p.unbound {
		if _, refused := refusal.Of(claim.Refusals, cluster, node, p.now); refused {
			return true
		}
	}
	return false
}
