// Package keys defines the names by which Lodestone's objects are known: the driver, every label,
// annotation and finalizer, and the names of its objects in a remote cluster. No other package
// spells these strings, so a search for a constant finds all who read or write it. The comment of
// each constant says on which object it is, who writes it and what the value means. It has no
// functions.
package keys

const (
	// Driver is the provisioner name of virtual storage classes, the name of the
	// CSIDriver object and the CSI driver of virtual volumes whose data is in a
	// remote cluster. No kubelet has a driver of this name, so such a volume can
	// never be mounted in the home cluster.
	Driver = "lodestone.dev"

	// Home stands for the home cluster wherever a cluster ID is written.
	Home = "home"
)

// Labels.
const (
	// Cluster is, on a Node, the ID of the remote cluster that it stands for
	// (absent on nodes of the home cluster), and on a volume the ID of the cluster
	// that holds its data: written by the provisioner on virtual volumes, by an
	// administrator on others. On an Event it is the cluster that the event came from.
	Cluster = "lodestone.dev/cluster"

	// Locality is, on a volume that is not virtual and that an administrator has
	// labelled with a Cluster, LocalityRequired where pods must run in that
	// cluster; without it they only prefer to.
	Locality         = "lodestone.dev/locality"
	LocalityRequired = "required"

	// UsableIn is an annotation on a claim, volume or storage class that is not
	// Lodestone's: the remote clusters, separated by commas, or * for all, that have a
	// claim of the same name for the pods that use it there. Whoever manages that
	// storage writes it.
	UsableIn = "lodestone.dev/usable-in"

	// ClaimUID is, on a backing claim, the UID of its virtual claim. Together
	// with HomeID it is the owner check.
	ClaimUID = "lodestone.dev/claim-uid"

	// HomeID is, on a backing claim, the ID of the home cluster of its claim.
	HomeID = "lodestone.dev/home"

	// Capacity is, on a CSIStorageCapacity, CapacityPublished where the provisioner
	// wrote it for a virtual class.
	Capacity          = "lodestone.dev/capacity"
	CapacityPublished = "published"

	// PodUID is, on each object that exists in a remote cluster because of one home pod, the UID of
	// that pod. Together with HomeID it is the owner check.
	PodUID = "lodestone.dev/pod-uid"

	// Claims is, on a Node that stands for a remote cluster, ClaimsOfVolumes where its
	// pods there get the real claims that their volumes name, also under another name
	// than that of the virtual claim. Pods of other such nodes get those of that name.
	Claims          = "lodestone.dev/claims"
	ClaimsOfVolumes = "of-volumes"

	// Reflected is, on a ConfigMap, Secret, Service or EndpointSlice of a remote
	// cluster, the UID of the home object that it is a copy of. Together with
	// HomeID it is the owner check.
	Reflected = "lodestone.dev/reflected"

	// Tenant is, on the namespace of a remote cluster that holds a home
	// cluster's identity and requests, the ID of that home cluster.
	Tenant = "lodestone.dev/tenant"

	// ExistingVolumes is, on a Namespace of a remote cluster, set to
	// ExistingVolumesAllowed by the owner of that cluster where claims of the home
	// cluster may bind to volumes that exist already.
	ExistingVolumes        = "lodestone.dev/existing-volumes"
	ExistingVolumesAllowed = "allowed"

	// ServiceImport is, on a ServiceImport and on the Service and EndpointSlices that stand for it, the name of the Service that clusters
	// export: Lodestone has made them.
	ServiceImport = "lodestone.dev/service-import"

	// Offload is, on a Namespace, OffloadEnabled where its pods may run in
	// remote clusters.
	Offload        = "lodestone.dev/offload"
	OffloadEnabled = "enabled"

	// Fabric is, on a Namespace at home, FabricEnabled where its pods reach those of remote clusters through the network fabric, and are
	// reached, though they run at home alone.
	Fabric        = "lodestone.dev/fabric"
	FabricEnabled = "enabled"

	// Scheduler is, on a Namespace, SchedulerEnabled where its pods are given to
	// Lodestone's own scheduler unless they name another one.
	Scheduler        = "lodestone.dev/scheduler"
	SchedulerEnabled = "enabled"

	// Gateway is, on a Node, GatewayEnabled where an administrator has lanes to other clusters begin there.
	Gateway        = "lodestone.dev/gateway"
	GatewayEnabled = "enabled"
)

// Annotations.
const (
	// GatewayAddress is, on a Node with the label Gateway, host:port at which gateways of other clusters reach it, where
	// that is not its own address: written by an administrator.
	GatewayAddress = "lodestone.dev/gateway-address"

	// Claim is, on a backing claim, "namespace/name" of its virtual claim. Names
	// may be 253 characters long, too long for a label.
	Claim = "lodestone.dev/claim"

	// Unpublished is, on a backing claim, set from its creation until its virtual volume exists and, on
	// a twin, until it is bound, too. No pod ever wrote to such a claim without a virtual volume, so it,
	// and only it, may be removed without the user's consent.
	Unpublished = "lodestone.dev/unpublished"

	// Carried is, on a backing claim, the keys of the labels and annotations that were copied from
	// its virtual claim, so that those that others wrote are not removed.
	Carried = "lodestone.dev/carried"

	// Backing is, on a virtual volume, its backing claim:
	// "cluster/namespace/name/uid".
	Backing = "lodestone.dev/backing"

	// BackingVolume is, on a virtual volume, the name of the real volume behind
	// it, written as soon as it is known: deletion waits for that volume.
	BackingVolume = "lodestone.dev/backing-volume"

	// Healing is, on a virtual volume whose twin somebody deleted, the reclaim
	// policy that the real volume is to have once another twin is bound to it;
	// until then that is Retain. For what it is in a remote cluster, see
	// HealingRecord.
	Healing = "lodestone.dev/healing"

	// Class is, on a virtual claim, the real class that its user wants, one of
	// those that the virtual class lists.
	Class = "lodestone.dev/class"

	// FixedSize is, on a virtual claim whose volume cannot be made larger, the
	// sentence that says why: an admission policy refuses a larger request with it.
	FixedSize = "lodestone.dev/fixed-size"

	// Routed is, on a virtual claim, the remote cluster that may hold a backing
	// claim for it; written before that claim is created.
	Routed = "lodestone.dev/routed"

	// Refused is, on a virtual claim, what refused it lately; see package refusal.
	Refused = "lodestone.dev/refused"

	// ClusterChanged is, on a virtual claim that waits for a node, the last change of a cluster's
	// state. Nothing is decided by its value: the write makes kube-scheduler queue again the pods
	// that it found unschedulable because of the claim.
	ClusterChanged = "lodestone.dev/cluster-changed"

	// Near is, on a Pod, the claims of its namespace, separated by commas, that
	// it should run near without mounting them.
	Near = "lodestone.dev/near"

	// Move is, on a virtual claim, the UID of the move that moves it: while it is there, no pod
	// that uses the claim is scheduled.
	Move = "lodestone.dev/move"

	// Unlock is, on a claim that is locked as for a move which nobody knows of, an administrator's decision to
	// use the claim as it is. Any value but the empty one means so.
	Unlock = "lodestone.dev/unlock"

	// NoMove is the value of Move on a claim that is locked although no move holds it: newer data of it exists than
	// what its volume stands for, or its twin is bound to another volume than that. Newer is, on such a claim, the backing
	// claim that has newer data, in the form of Backing; both are for people and the plugin, nothing is decided by them.
	NoMove = "none"
	Newer  = "lodestone.dev/newer"

	// Generation counts the moves of a claim: on a virtual volume, which move made it, and on a backing claim, which
	// move made that; without it: none. A home that was restored from a backup knows by it that its volume is not the
	// newest. See backing.Compare.
	Generation = "lodestone.dev/generation"
	// ReplacedBy is, on a backing claim that a move has replaced, the Generation of the one that is in its place.
	ReplacedBy = "lodestone.dev/replaced-by"

	// OffloadClusters is, on a Namespace of home, the IDs of the remote clusters
	// that its pods may run in, or reach where it has Fabric, separated by commas; without it: any.
	OffloadClusters = "lodestone.dev/clusters"

	// Pod is, on each object that exists in a remote cluster because of one home pod,
	// "namespace/name" of that pod.
	Pod = "lodestone.dev/pod"

	// RemoteIP is, on a home pod that runs in a remote cluster whose pod network
	// home cannot reach, the pod's address there.
	RemoteIP = "lodestone.dev/remote-ip"

	// ClusterUID is, on a RemoteCluster and its kubeconfig Secret, the UID of the
	// kube-system namespace of the cluster that they were made for, and on a virtual
	// volume whose data is in a remote cluster that of this cluster: any other would
	// say that the data is gone.
	ClusterUID = "lodestone.dev/cluster-uid"

	// HomeEpoch is, on the Lease of a home cluster in a remote one, which of its copies acts there; see
	// package homeepoch. The provisioner writes it.
	HomeEpoch = "lodestone.dev/home-epoch"

	// PodLease is, beside HomeEpoch, the lease that home asks for; see package podlease. The provisioner writes it.
	PodLease = "lodestone.dev/pod-lease"

	// ConfirmedHome is, on a RemoteCluster, the ID of the doubt that an administrator has ended with
	// kubectl lodestone confirm: this home cluster is the one that acts there.
	ConfirmedHome = "lodestone.dev/confirmed-home"

	// RemoteCopy is, on a home pod, the ShadowPod that may run for it: "UID of
	// the remote cluster's kube-system namespace/UID of the ShadowPod/its namespace".
	// It is written before anything may run there.
	RemoteCopy = "lodestone.dev/remote-copy"

	// HomeNamespace is, on a pod in a remote cluster, the namespace of its home
	// pod, for containers that read it from the downward API.
	HomeNamespace = "lodestone.dev/home-namespace"

	// Token is, on a home pod, the audience of the home API token that the pod wants in the remote
	// cluster. Without it no token of home is sent there.
	Token = "lodestone.dev/service-account-token"

	// HomeAudience is, in Token, the audience of home's own API server, whatever that calls itself.
	HomeAudience = "home-api"

	// HomeAPI is, as a label of a home namespace with the value HomeAPIEnabled, the wish that its pods use home's
	// API from remote clusters, too: a policy gives new ones that mount the token of their ServiceAccount Token with HomeAudience.
	HomeAPI        = "lodestone.dev/home-api"
	HomeAPIEnabled = "enabled"

	// MadeFor is, on a namespace that the remote agent made, "home/namespace": the
	// ID of the home cluster and its namespace. Together with HomeID it says that
	// the namespace may be given to that home cluster.
	MadeFor = "lodestone.dev/made-for"

	// HomeNamespaceUID is, on a namespace that the remote agent made, the UID of the home
	// namespace that it is for, recorded once: a home namespace that is made again under
	// the same name may belong to somebody else.
	HomeNamespaceUID = "lodestone.dev/home-namespace-uid"

	// HomeUID is, on what the remote agent made for a home cluster, the UID of
	// that cluster's kube-system namespace if it is known: it tells two homes of
	// one ID.
	HomeUID = "lodestone.dev/home-uid"

	// ServiceTypes is, on a namespace that the remote agent made, the types of
	// Service that its home cluster may make there, separated by commas.
	ServiceTypes = "lodestone.dev/service-types"

	// StorageClasses is, on a namespace that the remote agent made, the classes of
	// which new claims of its home cluster may be, separated by commas; * is any. Without
	// it: of none.
	StorageClasses = "lodestone.dev/storage-classes"

	// VersionsKeptFor is, on a namespace that the remote agent made, how old a sealed version of a second copy there must be
	// before its home cluster may delete it, such as 72h0m0s; VersionsKeptSince is the moment so long ago, in RFC 3339: versions
	// that were made since then stay. Without it home may delete any.
	VersionsKeptFor   = "lodestone.dev/versions-kept-for"
	VersionsKeptSince = "lodestone.dev/versions-kept-since"

	// Applied is, on a pod that the remote agent made, which labels, annotations and images were
	// last copied to it from the template of its ShadowPod.
	Applied = "lodestone.dev/applied"

	// NodeLabels is, on a virtual node, the keys of those of its labels that
	// depend on the remote cluster, separated by commas.
	NodeLabels = "lodestone.dev/node-labels"

	// Retired is, on a virtual node, set since it takes no more pods because its
	// RemoteCluster is being deleted or wants no virtual node.
	Retired = "lodestone.dev/retired"

	// VirtualNodes is, on the namespace where Lodestone runs, the names of the nodes that stand for
	// remote clusters, separated by commas; LeavingNodes of those that are being removed. The provisioner
	// writes both, and the policy on the virtual node program reads them.
	VirtualNodes = "lodestone.dev/virtual-nodes"
	LeavingNodes = "lodestone.dev/leaving-nodes"

	// SelectedNode is, on an unbound claim, the node that kube-scheduler chose.
	SelectedNode = "volume.kubernetes.io/selected-node"

	// StorageProvisioner is, on an unbound claim, the provisioner of its class;
	// kube-controller-manager writes it once the claim may be provisioned.
	StorageProvisioner = "volume.kubernetes.io/storage-provisioner"
	// BetaStorageProvisioner is its older name, which some provisioners read.
	BetaStorageProvisioner = "volume.beta.kubernetes.io/storage-provisioner"
)

// Finalizers.
const (
	// BackingFinalizer protects a backing claim from its creation until its
	// virtual volume is released by the user.
	BackingFinalizer = "lodestone.dev/backing"

	// VolumesFinalizer keeps a RemoteCluster while virtual volumes have their
	// data there.
	VolumesFinalizer = "lodestone.dev/volumes"

	// ClusterFinalizer keeps a kubeconfig Secret while a RemoteCluster names it.
	ClusterFinalizer = "lodestone.dev/remote-cluster"
)

// Finalizers and the taint of virtual nodes.
const (
	// RemotePodFinalizer keeps a home pod while a copy of it may run in a remote
	// cluster.
	RemotePodFinalizer = "lodestone.dev/remote-pod"

	// ShadowPodFinalizer keeps a ShadowPod while its pod may run.
	ShadowPodFinalizer = "lodestone.dev/shadow-pod"

	// NamespaceFinalizer keeps a NamespaceRequest until the remote agent has taken
	// back what it gave.
	NamespaceFinalizer = "lodestone.dev/namespace"

	// HomeClusterFinalizer keeps a HomeCluster until the remote agent has taken
	// back what it gave.
	HomeClusterFinalizer = "lodestone.dev/home-cluster"

	// UnrecordedFinalizer keeps a pod that must not be made twice until the remote
	// agent has written down that it was made.
	UnrecordedFinalizer = "lodestone.dev/unrecorded"

	// VirtualNodeFinalizer keeps a RemoteCluster while its virtual node is there.
	VirtualNodeFinalizer = "lodestone.dev/virtual-node"

	// VirtualNodeRole is a label of the nodes that Lodestone's own virtual node program makes. That
	// program supports more than other virtual kubelets do.
	VirtualNodeRole = "node-role.kubernetes.io/lodestone"

	// RightsFinalizer keeps, in a namespace of a remote cluster that is being deleted, the
	// RoleBinding of home while there are claims: home needs the rights to take its finalizers off
	// those claims.
	RightsFinalizer = "lodestone.dev/home-rights"

	// RemoteTaint is the key of the taint of virtual nodes; its value is the
	// cluster ID, its effect NoSchedule.
	RemoteTaint = "lodestone.dev/remote"
)

// Parameters of a virtual storage class; see package virtualclass.
const (
	LocalClass  = "lodestone.dev/local-class"
	RemoteClass = "lodestone.dev/remote-class"
	Clusters    = "lodestone.dev/clusters"
	Classes     = "lodestone.dev/classes"

	// Siblings says what the volumes of a StatefulSet's other pods mean for a new
	// one: SiblingsPack (it goes to the clusters that hold them), SiblingsSpread (to
	// the others) or SiblingsIgnore (nothing), which is the default.
	Siblings       = "lodestone.dev/siblings"
	SiblingsPack   = "pack"
	SiblingsSpread = "spread"
	SiblingsIgnore = "ignore"
)

// Parameters of a virtual storage class, and annotations on a claim, which go before them.
const (
	// ReplicateTo lists clusters, by ID: each claim gets a VolumeReplica with its copy in the first one that has not its data. An empty
	// annotation: none.
	ReplicateTo = "lodestone.dev/replicate-to"
	// ReplicateRPO is the RPO of that, such as 15m.
	ReplicateRPO = "lodestone.dev/replicate-rpo"
)

// Replicated is an annotation on a claim: the name of the VolumeReplica that was made because of ReplicateTo. It is made once.
const Replicated = "lodestone.dev/replicated"

// Carry is a parameter of a virtual storage class: the keys of labels and
// annotations, separated by commas and each perhaps with an asterisk at its end,
// that backing claims have from their virtual claims.
const Carry = "lodestone.dev/carry"

// MarkerResource is an extended resource that no node has and kube-scheduler ignores: where
// kube-scheduler is configured to leave it to the extender, only pods that ask for it are sent to
// the extender.
const MarkerResource = "lodestone.dev/scheduling"

// VolumeTrouble is the type of the condition of a virtual claim whose volume has a problem now. A
// claim without a problem does not have the condition.
const VolumeTrouble = "lodestone.dev/VolumeTrouble"

// Annotations of what users do about volumes by hand, with kubectl lodestone.
const (
	// Lost is, on a virtual volume whose data is in a remote cluster, the time at which a user
	// declared that data lost: the volume may then be deleted without an answer from that cluster,
	// and nothing is changed there.
	Lost = "lodestone.dev/lost"

	// Import is, on a real volume of home, the record of an import of that volume
	// that is under way, and on a virtual claim that an import made, which one. On
	// a claim of a remote cluster it is the ID of the home cluster to which an import
	// that has not ended gave it: so that can be undone.
	Import = "lodestone.dev/import"
)

const (
	// MoveFinalizer keeps a VolumeMove and the claims that it moves: without it, a claim that is
	// deleted while it has no volume would be gone at once.
	MoveFinalizer = "lodestone.dev/move"
	// MoveOf is a label: the UID of a VolumeMove, on whatever exists for its sake and on
	// a backing claim that holds a copy which no virtual volume stands for, before the
	// move is committed that at the target, afterwards that at the source.
	MoveOf = "lodestone.dev/move"
	// Moving is, on a virtual claim, a label with the value MovingNow while its volume
	// is taken from its pods: new pods that use the claim get the scheduling gate
	// MovingGate then.
	Moving = "lodestone.dev/moving"
	// MovingNow is the value of label Moving.
	MovingNow = "true"
	// MovingGate is the scheduling gate of pods that wait for a move.
	MovingGate = "lodestone.dev/moving"
	// MoveTouched is an annotation on a virtual claim. The write makes kube-controller-manager sync
	// the claim at once; the value means nothing.
	MoveTouched = "lodestone.dev/move-touched"
)

const (
	// ReplicaFinalizer keeps a VolumeReplica until what exists for its sake is gone.
	ReplicaFinalizer = "lodestone.dev/replica"
	// ReplicaOf is a label: the UID of a VolumeReplica, on the real claim that holds its copy at the standby and on the snapshots
	// that seal versions of it, on what a point is read from at the source, and on the Secret with its record. It is no label of a
	// move, whose leftovers are removed.
	ReplicaOf = "lodestone.dev/replica"
	// Seal is an annotation on such a snapshot: of which claim, moment and content it is (volumesnapshot.Seal).
	Seal = "lodestone.dev/seal"
	// AdoptedFrom is an annotation on a claim that was made when its home cluster was lost: the VolumeSnapshot that it was made of,
	// or empty if the claim was there already. HomeID is no label of it any more.
	AdoptedFrom = "lodestone.dev/adopted-from"
)

// NetworkNamespace is the namespace of the network program, in home and in remote clusters, and of home's NetworkLinks, which have the
// names of RemoteClusters. That of a tenant namespace is called Home.
const NetworkNamespace = "lodestone-network"

// Names in a remote cluster.
const (
	// TenantPrefix and the home cluster's ID make the name of the namespace that
	// holds a home cluster's identity, requests and heartbeat.
	TenantPrefix = "lodestone-home-"

	// HomeAccount is the name of the home cluster's ServiceAccount in its
	// tenant namespace.
	HomeAccount = "lodestone-home"

	// HomeUserPrefix and the home cluster's ID make the user name of a home
	// cluster that logs in with a client certificate; HomesGroup is its group.
	HomeUserPrefix = "lodestone:home:"
	HomesGroup     = "lodestone:homes"

	// HeartbeatLease is the Lease in the tenant namespace that home renews while
	// it runs pods there: without it, the remote agent keeps the pods running.
	HeartbeatLease = "home"

	// VolumesNamespace is the namespace that holds home's identity where there is no remote agent.
	VolumesNamespace = "lodestone-volumes"
)

// HealingRecord is an annotation, on a real volume of a remote cluster whose shadow somebody
// deleted: what the remote agent needs to create the shadow again; see remoteagent/policy. Such a
// volume has the label Healing with the ID of the home cluster, and the new shadow the annotation
// Healing until it is bound.
const HealingRecord = "lodestone.dev/healing-record"

const (
	// SourceCluster is an annotation on a virtual claim that is to be made from a VolumeSnapshot,
	// or from a version of a VolumeReplica: the cluster that has the data, as far as that is known.
	// Pods of the claim are scheduled only there. The provisioner does not use it to decide what to
	// make.
	SourceCluster = "lodestone.dev/source-cluster"

	// ReplicaVersion is an annotation on a virtual claim that is to be made from a VolumeReplica:
	// the name of the version, as the status of the VolumeReplica has it. On a claim without it the
	// provisioner writes the newest. That version stays until the claim has its volume.
	ReplicaVersion = "lodestone.dev/replica-version"

	// ReplicaClaim is an annotation on such a claim: of which claim of the VolumeReplica it gets the
	// data, if that is of several. Such a claim names its version, too, so that all that are made
	// are of one moment.
	ReplicaClaim = "lodestone.dev/replica-claim"

	// ContentUID is a label on a VolumeSnapshot or VolumeGroupSnapshot of a remote cluster: the UID of
	// the VolumeSnapshotContent or VolumeGroupSnapshotContent at home that it was taken for. Together with HomeID it is
	// the owner check.
	ContentUID = "lodestone.dev/content-uid"

	// Content is an annotation beside ContentUID: the name of that content.
	Content = "lodestone.dev/content"

	// MadeBy is an annotation on a VolumeSnapshot or VolumeGroupSnapshot of a remote cluster: the CSI
	// driver of what it was taken of. A class of another driver would make an
	// empty volume of it.
	MadeBy = "lodestone.dev/driver"

	// GroupPrefix begins a label on a backing claim of which a snapshot is being taken together with
	// others; the UID of the VolumeGroupSnapshotContent at home, or of the VolumeMove, ends it. It is
	// there while the snapshot controller of that cluster looks for the claims.
	GroupPrefix = "group-snapshot.lodestone.dev/"
)
