// Package keys holds the names that Lodestone's objects are known by: the
// driver, and every label, annotation and finalizer. It is the one place where
// these strings are spelled.
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
	// administrator on others.
	Cluster = "lodestone.dev/cluster"

	// Locality is, on a volume that is not virtual and that an administrator has
	// labelled with a Cluster, LocalityRequired where pods must run in that
	// cluster; without it they only prefer to.
	Locality         = "lodestone.dev/locality"
	LocalityRequired = "required"

	// ClaimUID is, on a backing claim, the UID of its virtual claim. Together
	// with HomeID it is the owner check.
	ClaimUID = "lodestone.dev/claim-uid"

	// HomeID is, on a backing claim, the ID of the home cluster of its claim.
	HomeID = "lodestone.dev/home"

	// Capacity is, on a CSIStorageCapacity, CapacityPublished where the provisioner
	// wrote it for a virtual class.
	Capacity          = "lodestone.dev/capacity"
	CapacityPublished = "published"

	// PodUID is, on whatever exists in a remote cluster for the sake of one home
	// pod, the UID of that pod. Together with HomeID it is the owner check.
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

	// Offload is, on a Namespace, OffloadEnabled where its pods may run in
	// remote clusters.
	Offload        = "lodestone.dev/offload"
	OffloadEnabled = "enabled"

	// Scheduler is, on a Namespace, SchedulerEnabled where its pods are given to
	// Lodestone's own scheduler unless they name another one.
	Scheduler        = "lodestone.dev/scheduler"
	SchedulerEnabled = "enabled"
)

// Annotations.
const (
	// Claim is, on a backing claim, "namespace/name" of its virtual claim. Names
	// may be 253 characters long, too long for a label.
	Claim = "lodestone.dev/claim"

	// Unpublished is, on a backing claim, set from its creation until its virtual
	// volume exists: only a backing claim that carries it may be removed without
	// a word from the user, for no pod ever wrote to it.
	Unpublished = "lodestone.dev/unpublished"

	// Carried is, on a backing claim, the keys of the labels and annotations that it
	// has from its virtual claim, so that those that others wrote stay.
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

	// ClusterChanged is, on a virtual claim that waits for a node, the last
	// change of a cluster's state. It carries no decision: writing it wakes the
	// pods that kube-scheduler set aside because of the claim.
	ClusterChanged = "lodestone.dev/cluster-changed"

	// Near is, on a Pod, the claims of its namespace, separated by commas, that
	// it should run near without mounting them.
	Near = "lodestone.dev/near"

	// Move is, on a virtual claim, the UID of the move that holds it: while it is
	// there, no pod that uses the claim is scheduled.
	Move = "lodestone.dev/move"

	// OffloadClusters is, on a Namespace of home, the IDs of the remote clusters
	// that its pods may run in, separated by commas; without it: any.
	OffloadClusters = "lodestone.dev/clusters"

	// Pod is, on whatever exists in a remote cluster for the sake of one home
	// pod, "namespace/name" of that pod.
	Pod = "lodestone.dev/pod"

	// RemoteIP is, on a home pod that runs in a remote cluster whose pod network
	// home cannot reach, the pod's address there.
	RemoteIP = "lodestone.dev/remote-ip"

	// ClusterUID is, on a RemoteCluster and its kubeconfig Secret, the UID of the
	// kube-system namespace of the cluster that they were made for.
	ClusterUID = "lodestone.dev/cluster-uid"

	// RemoteCopy is, on a home pod, the ShadowPod that may run for it: "UID of
	// the remote cluster's kube-system namespace/UID of the ShadowPod/its namespace".
	// It is written before anything may run there.
	RemoteCopy = "lodestone.dev/remote-copy"

	// HomeNamespace is, on a pod in a remote cluster, the namespace of its home
	// pod, for containers that read it from the downward API.
	HomeNamespace = "lodestone.dev/home-namespace"

	// Token is, on a home pod, the audience of the home API token that the pod
	// wants in the remote cluster. Without it no token of home travels.
	Token = "lodestone.dev/service-account-token"

	// MadeFor is, on a namespace that the remote agent made, "home/namespace": the
	// ID of the home cluster and its namespace. Together with HomeID it says that
	// the namespace may be given to that home cluster.
	MadeFor = "lodestone.dev/made-for"

	// HomeUID is, on what the remote agent made for a home cluster, the UID of
	// that cluster's kube-system namespace if it is known: it tells two homes of
	// one ID.
	HomeUID = "lodestone.dev/home-uid"

	// ServiceTypes is, on a namespace that the remote agent made, the types of
	// Service that its home cluster may make there, separated by commas.
	ServiceTypes = "lodestone.dev/service-types"

	// Applied is, on a pod that the remote agent made, what of its ShadowPod's
	// template was last carried to it.
	Applied = "lodestone.dev/applied"

	// NodeLabels is, on a virtual node, the keys of those of its labels that
	// depend on the remote cluster, separated by commas.
	NodeLabels = "lodestone.dev/node-labels"

	// Retired is, on a virtual node, set since it takes no more pods because its
	// RemoteCluster is being deleted or wants no virtual node.
	Retired = "lodestone.dev/retired"

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

	// VirtualNodeRole is a label of the nodes that Lodestone's own virtual node
	// program makes, which knows more than those of others.
	VirtualNodeRole = "node-role.kubernetes.io/lodestone"

	// RightsFinalizer keeps, in a namespace of a remote cluster that is being
	// deleted, home's rights there while claims are left: home lets those go.
	RightsFinalizer = "lodestone.dev/home-rights"

	// RemoteTaint is the key of the taint of virtual nodes; its value is the
	// cluster ID, its effect NoSchedule.
	RemoteTaint = "lodestone.dev/remote"
)
