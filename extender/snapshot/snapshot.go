// Package snapshot is the extender's copy of the home cluster: claims, volumes, virtual classes,
// remote clusters, nodes and namespaces, each reduced to what a scheduling decision needs. Read
// snapshot.go first: Snapshot has the tables and the queries on them. Feeds (feed.go) fill it from
// the API server, with the conversions in convert.go.
//
// Readers take neither locks nor copies: every entry is immutable once stored and every table
// (table.go) is read through atomic pointers. Only Feeds use the API server.
package snapshot

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Claim is a PersistentVolumeClaim.
type Claim struct {
	UID        string
	ClassName  string
	VolumeName string
	// OwnerUID is the UID of the controlling owner: of the pod, where the claim
	// belongs to a generic ephemeral volume.
	OwnerUID string
	// Choice has only the annotation with which the claim asks for a real class; nil without that
	// annotation.
	Choice   map[string]string
	Refusals []locality.Refusal
	// Asked is how many bytes the claim requests.
	Asked int64
	// Source is the name of the claim, in the same namespace, that the volume will be a copy of;
	// empty without one, and for a claim that has its volume.
	Source string
	// FromSnapshot says that the volume will be made from a VolumeSnapshot; SourceCluster is the ID
	// of the cluster that has its data, empty until the provisioner has written it.
	FromSnapshot  bool
	SourceCluster string
	// SelectedNode is the node that was chosen for a claim without a volume; empty if no volume
	// will be made for the claim itself.
	SelectedNode string
	// Bound says that Kubernetes has bound claim and volume to each other.
	Bound bool
	// Moving says that a move is moving the claim.
	Moving bool
	// OfPod says that the claim belongs to a pod, as that of a generic ephemeral volume.
	OfPod bool
	// Mark says in which remote clusters it can be used; see locality.Mark.
	Mark string
}

// Volume is a PersistentVolume that has a claim.
type Volume struct {
	// Cluster is the ID of the cluster that the data is confined to, by the node affinity or by an
	// administrator's labels. Empty if it is not confined.
	Cluster string
	// ByLabel says that the data is confined only by labels, which kube-scheduler does not check.
	ByLabel bool
	// Prefers is, for a volume that is not confined, the ID of the cluster in an administrator's
	// label.
	Prefers string
	// Driver is the name of the CSI driver; empty for other kinds of volume.
	Driver string
	// Bytes is its capacity.
	Bytes int64
	// ClaimUID is the UID of the claim that the volume is bound to.
	ClaimUID string
	// Mark says in which remote clusters it can be used; see locality.Mark.
	Mark string
}

// Class is a virtual storage class.
type Class struct {
	virtualclass.Class
	// Invalid says that the class cannot be used; Class is then empty.
	Invalid bool
}

// Cluster is a remote cluster.
type Cluster struct {
	Ready bool
	// DefaultClass is the real class to use if the virtual class names none; empty: the default
	// class of the cluster itself.
	DefaultClass string
	Offered      []v1alpha1.OfferedClass
	// OwnNode says that Lodestone's own virtual node program runs the cluster's node. The copies of
	// pods that it makes use claims instead of generic ephemeral volumes.
	OwnNode bool
}

// Namespace is a namespace whose pods may run in remote clusters: in any, or in those that it
// names.
type Namespace struct{ object corev1.Namespace }

// MayUse reports whether pods of the namespace may run in a remote cluster; with a nil Namespace
// they may not.
func (n *Namespace) MayUse(cluster string) bool {
	return n != nil && remotecluster.MayUse(&n.object, cluster)
}

// Unlimited reports whether pods of the namespace may run in any remote cluster.
func (n *Namespace) Unlimited() bool {
	return n != nil && len(n.object.Annotations) == 0
}

// Snapshot is the extender's copy of the home cluster. Its tables change independently of each
// other: a claim may be known before its volume is.
type Snapshot struct {
	// Claims has the claims by ClaimKey.
	Claims *Table[*Claim]
	// Volumes has the volumes by name; volumes without a claim are left out.
	Volumes *Table[*Volume]
	// Classes has the virtual storage classes by name.
	Classes *Table[*Class]
	// HomeClasses are the real storage classes of home.
	HomeClasses *HomeClasses
	// Clusters has the remote clusters by ID.
	Clusters *Table[*Cluster]
	// Limits has the attach limits of nodes, by node name.
	Limits NodeLimits
	// Assigned has the claims that pods use on their nodes; the keys are those of the pods.
	Assigned *Usage
	// InFlight has the claims whose volumes are being made for a node, or were just made, each for
	// a limited time; the keys are those of the claims.
	InFlight *Usage
	// Nodes has the ID of the cluster of each node, by node name.
	Nodes *Table[string]
	// Namespaces has all namespaces; the entry is nil if the pods must stay at home.
	Namespaces *Table[*Namespace]
	// Room is the room for new volumes in the home cluster.
	Room *Room
}

// New returns an empty snapshot.
func New() *Snapshot {
	assigned, inFlight := NewUsage(maxAssigned), NewUsage(maxInFlight)
	return &Snapshot{
		Claims:      NewTable[*Claim](manyShards),
		Volumes:     NewTable[*Volume](manyShards),
		Classes:     NewTable[*Class](fewShards),
		HomeClasses: NewHomeClasses(),
		Limits:      NodeLimits{Table: NewTable[Limits](oneShard), usages: []*Usage{assigned, inFlight}},
		Assigned:    assigned,
		InFlight:    inFlight,
		Clusters:    NewTable[*Cluster](fewShards),
		Nodes:       NewSteadyTable[string](oneShard),
		Namespaces:  NewTable[*Namespace](fewShards),
		Room:        NewRoom(),
	}
}

// ClaimKey returns the key of a claim in Snapshot.Claims.
func ClaimKey(namespace, name string) string {
	return namespace + "/" + name
}

// VolumeOf returns the volume that has the claim's data; false unless the volume names the claim
// too: the claim alone proves nothing, since its user writes it.
func (s *Snapshot) VolumeOf(claim *Claim) (*Volume, bool) {
	if claim.VolumeName == "" {
		return nil, false
	}
	volume, ok := s.Volumes.Get(claim.VolumeName)
	if !ok || claim.UID == "" || volume.ClaimUID != claim.UID {
		return nil, false
	}
	return volume, true
}

// Pod is a pod that is to be scheduled.
type Pod struct {
	Namespace string
	Name      string
	UID       string
	// Volumes are the pod's volumes that use a claim.
	Volumes []PodVolume
	// Daemon says that the pod belongs to a DaemonSet, which wants it on one node.
	Daemon bool
	// StatefulSet is the name of the StatefulSet (apps) that controls the pod;
	// empty if none does.
	StatefulSet string
	// Near names claims of the pod's namespace that it should run near without
	// mounting them.
	Near []string
	// Spreads says that the pod asks to be spread or kept apart, however softly: it has topology
	// spread constraints or terms of pod anti-affinity.
	Spreads bool
}

// Follows reports whether the pod belongs to a StatefulSet and is not the first of it.
func (p Pod) Follows() bool {
	ordinal, ok := ordinalOf(p)
	return ok && ordinal > 0
}

// PodVolume is a volume of a pod that uses a claim.
type PodVolume struct {
	ClaimName string
	// Ephemeral says that the claim is made for the pod; it counts only if the pod owns it.
	Ephemeral bool
}

// PodClaim is a claim of a pod, with its volume.
type PodClaim struct {
	Name string
	*Claim
	// Volume has the claim's data; nil if there is none, or it is not known.
	Volume *Volume
	// Near says that the pod does not mount the claim.
	Near bool
}

// DataIn returns the ID of the cluster that has the claim's data, empty if there is no data or it
// may be anywhere. hard says that the data can be reached only in that cluster, so that a pod that
// mounts the claim has to run there; otherwise the cluster is an administrator's label, and the pod
// should run there.
func (c PodClaim) DataIn() (cluster string, hard bool) {
	if c.Volume == nil {
		return "", false
	}
	if c.Volume.Cluster != "" {
		return c.Volume.Cluster, true
	}
	return c.Volume.Prefers, false
}

// Node is a node that is a candidate for a pod.
type Node struct {
	Name string
	// Cluster is the ID of the cluster of the node.
	Cluster string
	// Known is false if the node is not in the snapshot yet; Cluster is then empty.
	Known bool
}

// EachNode calls with for each of the nodes, in their order.
func (s *Snapshot) EachNode(names []string, with func(i int, node Node)) {
	s.Nodes.GetAll(names, func(i int, cluster string, known bool) {
		with(i, Node{Name: names[i], Cluster: cluster, Known: known})
	})
}

// ClaimsOf returns the claims that the pod mounts, each once, without those that are not known.
func (s *Snapshot) ClaimsOf(pod Pod) []PodClaim {
	var claims []PodClaim
	var named nameSet
	for _, volume := range pod.Volumes {
		if !named.add(volume.ClaimName) {
			continue
		}
		if claim, ok := s.claimOf(pod, volume); ok {
			claims = append(claims, s.podClaim(volume.ClaimName, claim))
		}
	}
	return claims
}

// ClaimsNear returns the claims that the pod wants to be near without mounting them, each once,
// without those that are not known.
func (s *Snapshot) ClaimsNear(pod Pod) []PodClaim {
	var claims []PodClaim
	for i, name := range pod.Near {
		if mounted(pod.Volumes, name) || slices.Contains(pod.Near[:i], name) {
			continue
		}
		if claim, ok := s.Claims.Get(ClaimKey(pod.Namespace, name)); ok {
			near := s.podClaim(name, claim)
			near.Near = true
			claims = append(claims, near)
		}
	}
	return claims
}

func (s *Snapshot) podClaim(name string, claim *Claim) PodClaim {
	found := PodClaim{Name: name, Claim: claim}
	if volume, ok := s.VolumeOf(claim); ok {
		found.Volume = volume
	}
	return found
}

// Marks say in which remote clusters a claim that is not virtual can be used: by the claim itself, by
// its volume or by its class.
type Marks struct{ claim, volume, class string }

// UsableIn reports whether one of the marks has the cluster.
func (m Marks) UsableIn(cluster string) bool {
	return locality.Lists(m.claim, cluster) || locality.Lists(m.volume, cluster) || locality.Lists(m.class, cluster)
}

// MarksOf returns the marks of a claim that is not virtual, and whose volume no administrator has
// labelled with a cluster; false for all others, whose data has a place of its own.
func (s *Snapshot) MarksOf(claim PodClaim) (Marks, bool) {
	marks := Marks{claim: claim.Mark}
	if volume := claim.Volume; volume != nil {
		if volume.Cluster != "" || volume.Prefers != "" {
			return Marks{}, false
		}
		marks.volume = volume.Mark
	} else if _, virtual := s.Classes.Get(claim.ClassName); virtual {
		return Marks{}, false
	}
	marks.class = s.HomeClasses.Mark(claim.ClassName)
	return marks, true
}

// SourceOf returns the claim of a namespace that another one is to be a copy of, and the ID of the
// cluster that has its data. Data that is confined nowhere is at home. The cluster is empty if
// there is no such claim, or it has no volume.
func (s *Snapshot) SourceOf(namespace string, of PodClaim) (source PodClaim, cluster string) {
	claim, ok := s.Claims.Get(ClaimKey(namespace, of.Source))
	if !ok {
		return PodClaim{}, ""
	}
	source = s.podClaim(of.Source, claim)
	if source.Volume == nil {
		return source, ""
	}
	if cluster, _ = source.DataIn(); cluster == "" {
		cluster = keys.Home
	}
	return source, cluster
}

// Knows reports whether the snapshot has all claims that the pod mounts, with the volumes of bound
// claims and the storage classes of the others, and if there are remote clusters the pod's
// namespace too. kube-scheduler calls an extender only when it has all of them, and a namespace
// exists before its pods.
func (s *Snapshot) Knows(pod Pod) bool {
	if _, ok := s.Namespaces.Get(pod.Namespace); !ok && s.Clusters.Len() > 0 {
		return false
	}
	for _, volume := range pod.Volumes {
		claim, ok := s.claimOf(pod, volume)
		if !ok || s.isBehind(claim) {
			return false
		}
		if claim.Source == "" {
			continue
		}
		if source, ok := s.Claims.Get(ClaimKey(pod.Namespace, claim.Source)); ok && source.Bound && s.isBehind(source) {
			return false
		}
	}
	return true
}

// isBehind reports whether a claim is bound to a volume, or has a storage class, that is not known.
// Only Kubernetes can mark a claim as bound; and it calls no extender for a claim whose class does
// not exist.
func (s *Snapshot) isBehind(claim *Claim) bool {
	if claim.Bound {
		_, known := s.Volumes.Get(claim.VolumeName)
		return !known
	}
	if claim.VolumeName != "" || claim.ClassName == "" {
		return false
	}
	if _, virtual := s.Classes.Get(claim.ClassName); virtual {
		return false
	}
	return !s.HomeClasses.Has(claim.ClassName)
}

func (s *Snapshot) claimOf(pod Pod, volume PodVolume) (*Claim, bool) {
	claim, ok := s.Claims.Get(ClaimKey(pod.Namespace, volume.ClaimName))
	if !ok || (volume.Ephemeral && (pod.UID == "" || claim.OwnerUID != pod.UID)) {
		return nil, false
	}
	return claim, true
}

func mounted(volumes []PodVolume, claimName string) bool {
	return slices.ContainsFunc(volumes, func(v PodVolume) bool { return v.ClaimName == claimName })
}

// siblingRange is how many ordinals below and above a pod's own are searched for siblings.
const siblingRange = 64

// Siblings returns the clusters that have, or will have, the data of a claim's siblings, once for
// each sibling: the claims of the other pods of the StatefulSet by the same template. Siblings
// without a chosen node, or whose data may be anywhere, are left out. Siblings are found by their
// names alone, so they stay the same when the StatefulSet is deleted and created again.
func (s *Snapshot) Siblings(pod Pod, claim PodClaim) iter.Seq[string] {
	return func(yield func(cluster string) bool) {
		ordinal, ok := ordinalOf(pod)
		template, made := strings.CutSuffix(claim.Name, "-"+pod.Name)
		if !ok || !made || template == "" {
			return
		}
		key := ClaimKey(pod.Namespace, template+"-"+pod.StatefulSet+"-")
		for i := max(0, ordinal-siblingRange); i <= ordinal+siblingRange; i++ {
			if i == ordinal {
				continue
			}
			sibling, ok := s.Claims.Get(key + strconv.FormatInt(i, 10))
			if !ok {
				continue
			}
			if cluster := s.siblingIn(sibling); cluster != "" && !yield(cluster) {
				return
			}
		}
	}
}

// siblingIn returns the cluster that has a claim's data, or in which its volume is being made:
// nodes are chosen one right after the other for pods that start together.
func (s *Snapshot) siblingIn(claim *Claim) string {
	if claim.VolumeName == "" {
		cluster, _ := s.Nodes.Get(claim.SelectedNode)
		return cluster
	}
	cluster, _ := s.podClaim("", claim).DataIn()
	return cluster
}

// ordinalOf returns the ordinal of a pod in its StatefulSet.
func ordinalOf(pod Pod) (int64, bool) {
	digits, ok := strings.CutPrefix(pod.Name, pod.StatefulSet+"-")
	if !ok || pod.StatefulSet == "" {
		return 0, false
	}
	ordinal, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || strconv.FormatInt(ordinal, 10) != digits || ordinal < 0 {
		return 0, false
	}
	return ordinal, true
}

// fewNames is up to how many names a linear search is faster than a map.
const fewNames = 16

// nameSet is a set of names. A user writes them, so there can be very many. The zero value is
// empty.
type nameSet struct {
	list []string
	// set has all names once there are many.
	set map[string]struct{}
}

// add adds a name; false if it was there.
func (n *nameSet) add(name string) bool {
	if len(n.list) < fewNames {
		if slices.Contains(n.list, name) {
			return false
		}
		n.list = append(n.list, name)
		return true
	}
	if n.set == nil {
		n.set = map[string]struct{}{}
		for _, earlier := range n.list {
			n.set[earlier] = struct{}{}
		}
	}
	before := len(n.set)
	n.set[name] = struct{}{}
	return len(n.set) > before
}
