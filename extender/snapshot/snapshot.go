package snapshot

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
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
	// Choice holds the annotation with which the claim asks for a real class,
	// and nothing else; nil without that annotation.
	Choice   map[string]string
	Refusals []refusal.Refusal
	// Asked is how many bytes the claim asks for.
	Asked int64
	// Source is the name of the claim, in the same namespace, that the volume is
	// to be a copy of; empty without one, and for a claim that has its volume.
	Source string
	// FromSnapshot: the volume is to be made from a VolumeSnapshot; SourceCluster is
	// the ID of the cluster that has its data, empty while the provisioner has not
	// said so.
	FromSnapshot  bool
	SourceCluster string
	// SelectedNode is the node that was chosen for a claim that has no volume yet;
	// empty where none will be made for the claim itself.
	SelectedNode string
	// Bound: Kubernetes has found claim and volume to belong to each other.
	Bound bool
	// Moving: a move holds the claim.
	Moving bool
	// OfPod: the claim belongs to a pod, as that of a generic ephemeral volume.
	OfPod bool
}

// Volume is a PersistentVolume that has a claim.
type Volume struct {
	// Cluster is the ID of the cluster that the data is confined to: by the node
	// affinity, or by an administrator's labels. Empty where it is not.
	Cluster string
	// ByLabel: the data is confined by labels, so kube-scheduler does not know.
	ByLabel bool
	// Prefers is, for a volume that is not confined, the ID of the cluster that an
	// administrator labelled it with.
	Prefers string
	// Driver is the name of the CSI driver; empty for other kinds of volume.
	Driver string
	// Bytes is its capacity.
	Bytes int64
	// ClaimUID is the UID of the claim that the volume is bound to.
	ClaimUID string
}

// Class is a virtual storage class.
type Class struct {
	virtualclass.Class
	// Invalid: the class cannot be used, and Class is empty.
	Invalid bool
}

// Cluster is a remote cluster.
type Cluster struct {
	Ready bool
	// DefaultClass is the real class to use when the virtual class names none;
	// empty: the one that the cluster itself has as default.
	DefaultClass string
	Offered      []v1alpha1.OfferedClass
	// OwnNode: Lodestone's virtual node program stands for it. The copies of pods
	// that it has made use claims in the place of generic ephemeral volumes.
	OwnNode bool
}

// Namespace is a namespace whose pods may run in remote clusters: in any, or in
// those that it names.
type Namespace struct{ object corev1.Namespace }

// MayUse says whether pods of the namespace may run in a remote cluster; those
// of no namespace may not.
func (n *Namespace) MayUse(cluster string) bool {
	return n != nil && namespaces.MayUse(&n.object, cluster)
}

// Unlimited says whether pods of the namespace may run in any remote cluster.
func (n *Namespace) Unlimited() bool {
	return n != nil && len(n.object.Annotations) == 0
}

// Snapshot is the extender's view of the home cluster. Its tables change
// independently of each other: a claim may be known before its volume is.
type Snapshot struct {
	// Claims are stored by ClaimKey.
	Claims *Table[*Claim]
	// Volumes are stored by name; volumes without a claim are left out.
	Volumes *Table[*Volume]
	// Classes are the virtual storage classes by name.
	Classes *Table[*Class]
	// HomeClasses are the real storage classes of home.
	HomeClasses *HomeClasses
	// Clusters are the remote clusters by ID.
	Clusters *Table[*Cluster]
	// Limits are the attach limits of nodes, by node name.
	Limits NodeLimits
	// Assigned is which claims pods use on their nodes; the keys are those of the
	// pods.
	Assigned *Usage
	// InFlight is which claims have their volumes made for a node, or had it done just
	// now, each for a limited time; the keys are those of the claims.
	InFlight *Usage
	// Nodes are the IDs of the clusters that the nodes stand for, by node name.
	Nodes *Table[string]
	// Namespaces are all namespaces; the entry is nil where pods stay at home.
	Namespaces *Table[*Namespace]
	// Room is how much room new volumes have in the home cluster.
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

// ClaimKey is the key of a claim in Snapshot.Claims.
func ClaimKey(namespace, name string) string {
	return namespace + "/" + name
}

// VolumeOf returns the volume that holds the claim's data. It is false unless
// the volume names the claim too: a claim's own word is not proof, since its
// user writes it.
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
