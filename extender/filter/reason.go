package filter

// Reason says why a node cannot take a pod. Its text is constant, because kube-scheduler counts
// nodes by the exact text; logs and events say which claim and which cluster it is about.
type Reason uint8

// The reasons, in the order of the rules. Accepted is the zero value.
const (
	Accepted Reason = iota
	// VolumeMoving: a move is moving a claim of the pod.
	VolumeMoving
	// ClassInvalid: a virtual storage class cannot be used as it is.
	ClassInvalid
	// ClassNotListed: a claim asks for a real class that its virtual class does
	// not list.
	ClassNotListed
	// DataInSeveralClusters: no node can reach all of the pod's data.
	DataInSeveralClusters
	// SourceNotBound: a claim is to be a copy of a claim that has no volume.
	SourceNotBound
	// SnapshotNotReady: a claim is to be made from a snapshot, and it is not known yet where its
	// data is.
	SnapshotNotReady
	// NodeNotSeen: kube-scheduler knows a node that this program does not know
	// yet.
	NodeNotSeen
	// DataElsewhere: the pod's data is in another cluster.
	DataElsewhere
	// SourceElsewhere: a claim is to be made from data in another cluster.
	SourceElsewhere
	// ClusterNotAllowed: the virtual class excludes the cluster.
	ClusterNotAllowed
	// NotOffloaded: pods of the namespace must stay at home.
	NotOffloaded
	// NotOpen: pods of the namespace may run only in other remote clusters.
	NotOpen
	// DaemonPod: the pod belongs to a DaemonSet, and such pods must stay at home.
	DaemonPod
	// ClaimStaysHome: a claim of the pod is not virtual, and nobody has marked it as usable in the
	// cluster.
	ClaimStaysHome
	// EphemeralVolume: the pod's copy in a remote cluster would not own the claim, and the virtual
	// node is not one that lets the copy use it nevertheless.
	EphemeralVolume
	// ClusterUnknown: nothing is known of the cluster that the node stands for.
	ClusterUnknown
	// ClusterNotReady: no volume can be made in the cluster now.
	ClusterNotReady
	// NoRealClass: the cluster has no real class for the claim.
	NoRealClass
	// RefusedLately: the cluster or the node could not take the claim, a short time ago.
	RefusedLately
	// AttachLimit: no more volumes of the CSI driver can be attached to the node.
	AttachLimit
	reasonCount
)

var reasons = [reasonCount]struct{ name, sentence string }{
	Accepted: {name: "Accepted"},
	VolumeMoving: {name: "VolumeMoving", sentence: "volume of a claim is being moved: wait until that is done and the claim's " +
		"annotation lodestone.dev/move is gone"},
	ClassInvalid: {name: "ClassInvalid", sentence: "virtual storage class of a claim is invalid: create it anew with valid " +
		"parameters and volumeBindingMode WaitForFirstConsumer"},
	ClassNotListed: {name: "ClassNotListed", sentence: "claim asks for a real class that its storage class does not list: correct " +
		"its annotation lodestone.dev/class"},
	DataInSeveralClusters: {name: "DataInSeveralClusters", sentence: "claims of the pod have their data in different clusters: use claims " +
		"of one cluster"},
	SourceNotBound: {name: "SourceNotBound", sentence: "data source of a claim has no volume to copy: create the source claim and let a " +
		"pod use it first"},
	SnapshotNotReady: {name: "SnapshotNotReady", sentence: "snapshot that a claim is to be made from is not ready: see the claim's events"},
	NodeNotSeen:      {name: "NodeNotSeen", sentence: "node(s) too new to be judged: the pod is tried again by itself"},
	DataElsewhere:    {name: "DataElsewhere", sentence: "node(s) outside the cluster that holds the volume's data"},
	SourceElsewhere:  {name: "SourceElsewhere", sentence: "node(s) outside the cluster that holds the data source of a claim"},
	ClusterNotAllowed: {name: "ClusterNotAllowed", sentence: "node(s) of a cluster where the claim's storage class allows no volumes " +
		"(parameter lodestone.dev/clusters)"},
	NotOffloaded: {name: "NotOffloaded", sentence: "node(s) of a remote cluster: to use them, label the pod's namespace " +
		"lodestone.dev/offload=enabled"},
	NotOpen: {name: "NotOpen", sentence: "node(s) of a remote cluster that the pod's namespace does not list: add it to the " +
		"namespace's annotation lodestone.dev/clusters"},
	DaemonPod: {name: "DaemonPod", sentence: "node(s) of a remote cluster, where no pod of a DaemonSet runs"},
	ClaimStaysHome: {name: "ClaimStaysHome", sentence: "node(s) of a remote cluster, where a claim of the pod cannot be used: give it a " +
		"storage class of Lodestone or, if that cluster has a claim of its name, the annotation lodestone.dev/usable-in"},
	EphemeralVolume: {name: "EphemeralVolume", sentence: "node(s) of a remote cluster that are not Lodestone's, where the claim of a " +
		"generic ephemeral volume cannot be: keep the pod at home or use a claim of its own"},
	ClusterUnknown: {name: "ClusterUnknown", sentence: "node(s) of a cluster that has no RemoteCluster object: create it, or correct the " +
		"node label lodestone.dev/cluster"},
	ClusterNotReady: {name: "ClusterNotReady", sentence: "node(s) of a remote cluster that is not Ready: see kubectl get remoteclusters"},
	NoRealClass:     {name: "NoRealClass", sentence: "node(s) of a remote cluster without a usable storage class: create or name one"},
	RefusedLately:   {name: "RefusedLately", sentence: "node(s) in a place that refused the claim lately: see the claim's events"},
	AttachLimit: {name: "AttachLimit", sentence: "node(s) with as many volumes attached as their CSI driver allows: end pods with " +
		"volumes there or use other nodes"},
}

// String returns the reason as one word, for metrics and logs.
func (r Reason) String() string {
	return reasons[r].name
}

// Sentence returns the reason as kube-scheduler shows it to users; empty for
// Accepted.
func (r Reason) Sentence() string {
	return reasons[r].sentence
}

// Reasons returns all reasons but Accepted.
func Reasons() []Reason {
	all := make([]Reason, 0, reasonCount-1)
	for r := Accepted + 1; r < reasonCount; r++ {
		all = append(all, r)
	}
	return all
}
