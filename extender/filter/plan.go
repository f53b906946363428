// Package filter decides which nodes a pod's claims allow: NewPlan takes a snapshot, a pod and the
// time, and Plan.Judge returns one Reason per node. Read plan.go first; reason.go has the reasons
// with their texts. It is pure.
//
// Every reason counts as unresolvable: kube-scheduler tries no eviction for any of them. It would
// help only for AttachLimit.
package filter

import (
	"slices"
	"time"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Plan is what the claims of one pod require of its node. It serves one request and is not safe for
// concurrent use.
type Plan struct {
	view   *snapshot.Snapshot
	now    time.Time
	daemon bool
	// home is the name of the pod's namespace; namespace is nil if its pods must stay in the home
	// cluster.
	home      string
	namespace *snapshot.Namespace
	claims    []snapshot.PodClaim

	// everywhere is a reason that is the same for all nodes.
	everywhere Reason
	// dataIn is the cluster that has the data of the bound claims, sourceIn the one with the data
	// that unbound claims are to be made from; empty without any.
	dataIn, sourceIn string
	// byLabel says that only labels, not the node affinity of a volume, say where the data is.
	byLabel bool
	unbound []unboundClaim
	// others has the marks of the claims that are not virtual.
	others map[snapshot.Marks]struct{}
	// kinds has one claim of each kind that the rules for clusters distinguish.
	kinds []unboundClaim
	// refused are the clusters and nodes that could not take one of them.
	refused locations
	// demands are computed when the first node of home is judged.
	demands []demand
	judged  map[string]Reason
	// last is the cluster that was judged last, and the result: the next node mostly is in the
	// same.
	last struct {
		cluster string
		reason  Reason
	}
}

type unboundClaim struct {
	snapshot.PodClaim
	class *snapshot.Class
}

// NewPlan returns the plan of a pod by the state of view at the time now.
func NewPlan(view *snapshot.Snapshot, pod snapshot.Pod, now time.Time) *Plan {
	plan := &Plan{view: view, now: now, daemon: pod.Daemon, home: pod.Namespace, claims: view.ClaimsOf(pod), judged: map[string]Reason{}}
	plan.namespace, _ = view.Namespaces.Get(pod.Namespace)
	for _, claim := range plan.claims {
		if claim.Moving {
			plan.refuseEverywhere(VolumeMoving)
		}
		if marks, ordinary := view.MarksOf(claim); ordinary {
			plan.addOther(marks)
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

func (p *Plan) addOther(marks snapshot.Marks) {
	if p.others == nil {
		p.others = map[snapshot.Marks]struct{}{}
	}
	p.others[marks] = struct{}{}
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

// refuseEverywhere keeps the first of several reasons: claims are checked in the order of the pod's
// volumes.
func (p *Plan) refuseEverywhere(reason Reason) {
	if p.everywhere == Accepted {
		p.everywhere = reason
	}
}

// Indifferent reports whether no rule applies to the pod, so that every node will do. Without
// remote clusters that is so for every pod without unbound virtual claims and without data that is
// confined to a cluster.
func (p *Plan) Indifferent() bool {
	return p.everywhere == Accepted && p.dataIn == "" && len(p.unbound) == 0 &&
		(p.view.Clusters.Len() == 0 || (!p.daemon && p.namespace.Unlimited() && len(p.others) == 0))
}

// Claims returns the pod's claims as the plan found them.
func (p *Plan) Claims() []snapshot.PodClaim {
	return p.claims
}

// Judge returns why the node cannot take the pod, or Accepted.
func (p *Plan) Judge(node snapshot.Node) Reason {
	switch {
	case p.everywhere != Accepted:
		return p.everywhere
	case !node.Known && (len(p.unbound) > 0 || p.byLabel):
		return NodeNotSeen
	case !node.Known:
		// kube-scheduler, which does know the node, has checked the volumes' node affinity and the
		// node's taints.
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

// kindsOf returns one claim of each kind that judgeCluster distinguishes. A pod can have very many
// claims, but there are only as many kinds as classes with their lists.
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
		// The real classes at home are left to the provisioner: its event on the claim names the
		// class that is missing.
		return Accepted
	}
	switch {
	case p.daemon:
		return DaemonPod
	case p.namespace == nil:
		return NotOffloaded
	case !p.namespace.MayUse(id):
		return NotOpen
	case !p.othersUsableIn(id):
		return ClaimStaysHome
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

// othersUsableIn reports whether pods of a remote cluster can use the claims that are not virtual. They
// are not made there: a pod that went there would wait for ever.
func (p *Plan) othersUsableIn(id string) bool {
	for marks := range p.others {
		if !marks.UsableIn(id) {
			return false
		}
	}
	return true
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

// maxRefusals limits how many refusals of all claims of a pod count. One that is not counted costs
// an attempt: the cluster or node refuses again.
const maxRefusals = 4096

// location is a node of a cluster, or a whole cluster where node is empty.
type location struct{ cluster, node string }

// locations are the nodes and clusters that refused a claim lately. The zero value is empty.
type locations struct {
	set map[location]struct{}
	// read counts all refusals that were read, including those that have ended.
	read int
}

// add adds the refusals that have not ended at now.
func (p *locations) add(refusals []locality.Refusal, now time.Time) {
	for i := range refusals {
		if p.read++; p.read > maxRefusals {
			return
		}
		r := &refusals[i]
		if !now.Before(r.Until) {
			continue
		}
		if p.set == nil {
			p.set = map[location]struct{}{}
		}
		p.set[location{cluster: r.Cluster, node: r.Node}] = struct{}{}
	}
}

// has reports whether a node, or its whole cluster, is among them.
func (p *locations) has(cluster, node string) bool {
	if len(p.set) == 0 {
		return false
	}
	if _, all := p.set[location{cluster: cluster}]; all {
		return true
	}
	_, one := p.set[location{cluster: cluster, node: node}]
	return one
}

// demand has the claims, by their keys in ascending order, whose volumes of a CSI driver must be
// attached at home for the pod.
type demand struct {
	driver string
	claims []string
}

// attachable reports whether the volumes that would be made for the pod can be attached to a node
// of home, in addition to those that are attached there. kube-scheduler does not check that: it
// counts a claim without a volume for the driver of its virtual class.
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

// demanded returns a demand for each driver that would make volumes for the pod: those volumes, and
// those that its other claims have already.
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
