package v1alpha1

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
)

// RemoteCluster is another cluster that takes part in the fabric. Its name is
// the cluster ID: the value of the label lodestone.dev/cluster on the nodes that
// stand for it and on the volumes whose data is there.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.kubernetesVersion`
// +kubebuilder:printcolumn:name="Volumes",type=integer,JSONPath=`.status.volumes`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'home'",message="the name home stands for the home cluster: choose another"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a cluster ID is a label value: at most 63 lower-case letters, digits and '-'"
type RemoteCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RemoteClusterSpec   `json:"spec"`
	Status RemoteClusterStatus `json:"status,omitempty"`
}

// RemoteClusterList is a list of RemoteCluster objects.
//
// +kubebuilder:object:root=true
type RemoteClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RemoteCluster `json:"items"`
}

// RemoteClusterSpec says how a remote cluster is reached and used.
//
// +kubebuilder:validation:XValidation:rule="!has(self.podNetwork) || self.podNetwork != 'Fabric' || !has(self.virtualNode) || self.virtualNode != 'Disabled'",message="podNetwork Fabric needs Lodestone's virtual node, the program of which joins the networks: leave out virtualNode, or choose Routed or Isolated"
// +kubebuilder:validation:XValidation:rule="!has(self.podNetwork) || self.podNetwork != 'Fabric' || has(self.podCIDRs) && self.podCIDRs.size() > 0",message="podNetwork Fabric needs podCIDRs, the ranges of the pods there: nothing else is reached"
// +kubebuilder:validation:XValidation:rule="!has(self.podTranslations) || self.podTranslations.all(one, has(self.podCIDRs) && one.podCIDR in self.podCIDRs)",message="each podCIDR of podTranslations is one of podCIDRs, the ranges of the pods there"
// +kubebuilder:validation:XValidation:rule="!has(self.podTranslations) && !has(self.homePodTranslations) || has(self.podNetwork) && self.podNetwork == 'Fabric'",message="podTranslations and homePodTranslations need podNetwork Fabric, the gateways of which translate"
// +kubebuilder:validation:XValidation:rule="!has(self.podLease) || !has(self.virtualNode) || self.virtualNode != 'Disabled'",message="podLease needs Lodestone's virtual node: the remote agent ends no pods that others have made there"
// +kubebuilder:validation:XValidation:rule="(has(self.namespaces) && has(self.namespaces.strategy) ? self.namespaces.strategy : 'SameName') == (has(oldSelf.namespaces) && has(oldSelf.namespaces.strategy) ? oldSelf.namespaces.strategy : 'SameName')",message="namespaces.strategy cannot be changed, for backing claims would be looked for in other namespaces: delete the RemoteCluster and create it anew"
type RemoteClusterSpec struct {
	// KubeconfigSecretRef names the Secret that holds the kubeconfig. It must be
	// in the namespace where Lodestone runs.
	KubeconfigSecretRef SecretKeyRef `json:"kubeconfigSecretRef"`

	// StorageClassName is the real class to use there when the virtual class
	// names none. Empty: that cluster's default class.
	//
	// +optional
	StorageClassName string `json:"storageClassName,omitempty"`

	// Namespaces says which namespace there belongs to a namespace here.
	//
	// +optional
	Namespaces NamespaceMapping `json:"namespaces,omitempty"`

	// PodNetwork says whether pods of the two clusters reach each other by their
	// own addresses. Isolated: a pod that runs there has no address at home, so
	// no Service sends to it from here. Routed: the clusters' own networks lead from one
	// to the other; the pods that move a volume from
	// one cluster to another dial each other, too, and the provisioner those there.
	// Fabric: Lodestone's network program, which both clusters have, joins the pods
	// of offloaded namespaces and those that move volumes between home and there, and no others.
	//
	// +optional
	// +kubebuilder:default=Isolated
	PodNetwork PodNetwork `json:"podNetwork,omitempty"`

	// PodCIDRs are the ranges, such as 10.244.0.0/16, that the pods there have their
	// addresses from. With podNetwork Routed or Fabric, an address that the cluster says a pod
	// has is taken over only if it is in one of them: without any, no new pod has an
	// address at home, and pods that move volumes dial none there. They must not overlap with those of home or of another
	// cluster, but for those that podTranslations names.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self.all(range, isCIDR(range) && cidr(range) == cidr(range).masked() && cidr(range).prefixLength() >= 8)",message="each of podCIDRs is a range of addresses such as 10.244.0.0/16, of /8 or smaller"
	PodCIDRs []string `json:"podCIDRs,omitempty"`

	// PodTranslations are ranges of podCIDRs that overlap with those of home or of another cluster, and by which range pods at home reach
	// the pods there, with podNetwork Fabric: each address by that with the same last bits. Pods have that address in their status at
	// home. The gateways there translate. kubectl lodestone peer chooses ranges.
	//
	// +optional
	// +listType=map
	// +listMapKey=podCIDR
	// +kubebuilder:validation:MaxItems=16
	PodTranslations []networkv1alpha1.PodTranslation `json:"podTranslations,omitempty"`

	// HomePodTranslations are ranges of pods at home that overlap with those of that cluster, and by which range pods there reach the pods
	// at home, with podNetwork Fabric. The gateways at home translate. The owner of that cluster has these ranges in spec.network.podCIDRs
	// of the HomeCluster.
	//
	// +optional
	// +listType=map
	// +listMapKey=podCIDR
	// +kubebuilder:validation:MaxItems=16
	HomePodTranslations []networkv1alpha1.PodTranslation `json:"homePodTranslations,omitempty"`

	// PodBandwidthLimit is how many bytes a second each gateway at home sends to pods of that cluster at most, and as many it takes from
	// there, with podNetwork Fabric. Without it: as many as can. The owner of that cluster has a limit of its own, in spec.network of
	// the HomeCluster.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 65536 : isQuantity(self) && quantity(self).compareTo(quantity('64Ki')) >= 0",message="podBandwidthLimit is how many bytes a second may pass, at least 64Ki, such as 50Mi"
	PodBandwidthLimit *resource.Quantity `json:"podBandwidthLimit,omitempty"`

	// PodCarrier says what carries packets between the gateways of the two clusters, with podNetwork Fabric: TLS, or WireGuard of the
	// kernel on both sides. TLS carries all the same where that is not to be had, where podTranslations or homePodTranslations are set,
	// or a bandwidth limit of either side: carrierMessage of the lanes in the NetworkLink says why.
	//
	// +optional
	// +kubebuilder:default=TLS
	PodCarrier networkv1alpha1.Carrier `json:"podCarrier,omitempty"`

	// PodTransit says whether pods there, and those of other RemoteClusters that have Enabled or Direct, too, reach each other through
	// home's gateways, with podNetwork Fabric: pods of namespaces that may run in both. The owner of each of these clusters has to let in
	// the ranges of the other one, by spec.network.transitPodCIDRs of the HomeCluster. status.transit says which clusters are reached.
	// Between two clusters that both have Direct, gateways have lanes of their own, too, where both owners allow that, by
	// spec.network.directTransit of the HomeCluster: packets go by these while one is up, and through home else.
	// status.directTransit says where they do.
	//
	// +optional
	// +kubebuilder:default=Disabled
	PodTransit PodTransit `json:"podTransit,omitempty"`

	// HomeServer is the URL, such as https://203.0.113.10:6443, at which pods there reach
	// home's API server, whose certificate must be valid for that host. Pods that have a
	// token of home's API find it in KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT,
	// where clients in pods look for their API server. A change is for new pods.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=280
	// +kubebuilder:validation:XValidation:rule="self == '' || isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != '' && url(self).getEscapedPath() in ['', '/'] && url(self).getQuery() == {}",message="homeServer is the address of home's API server, such as https://203.0.113.10:6443"
	HomeServer string `json:"homeServer,omitempty"`

	// Topology is the region and the zone of the virtual node (its labels
	// topology.kubernetes.io/region and zone). Each that is missing is the one that
	// all nodes there share, else the name of the RemoteCluster: so the cluster
	// counts as one place when pods are spread or kept apart.
	//
	// +optional
	Topology Topology `json:"topology,omitempty"`

	// VirtualNode says whether Lodestone registers a node that stands for the
	// cluster. Disabled: Liqo, Admiralty or somebody else does, or none is wanted.
	//
	// +optional
	// +kubebuilder:default=Enabled
	VirtualNode VirtualNodeMode `json:"virtualNode,omitempty"`

	// PodLease has the remote agent there end pods of home that use claims, by ordinary deletion, once home has been silent for half of so
	// long, from 1m to 24h. Home then takes pods there for ended this long after its last heartbeat, their grace period and a margin
	// later, and claims may fail over with fence Lease. What it costs: these pods end as well where only the way between home and that
	// cluster is cut, or home's provisioner does not run. What it does not prove: pods run on where no remote agent works, or a node does
	// not end them. Without it the agent keeps all pods running while home is away.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="podLease is a time in hours, minutes and seconds from 1m to 24h, such as 3m"
	PodLease *metav1.Duration `json:"podLease,omitempty"`

	// MoveRepository is an object store, or a claim, that most content travels through
	// when volumes are moved to this cluster, or from it to one that names none. Without
	// it: from mover to mover.
	//
	// +optional
	MoveRepository *MoveRepository `json:"moveRepository,omitempty"`
}

// Topology is where a cluster is.
type Topology struct {
	// Region is a label value.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Region string `json:"region,omitempty"`
	// Zone is a label value.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Zone string `json:"zone,omitempty"`
}

// VirtualNodeMode says whether Lodestone registers a node for a cluster.
//
// +kubebuilder:validation:Enum=Enabled;Disabled
type VirtualNodeMode string

const (
	// VirtualNodeEnabled says that Lodestone registers one.
	VirtualNodeEnabled VirtualNodeMode = "Enabled"
	// VirtualNodeDisabled says that Lodestone registers none, and takes away its own after
	// moving its pods off.
	VirtualNodeDisabled VirtualNodeMode = "Disabled"
)

// PodNetwork says whether pods of two clusters reach each other.
//
// +kubebuilder:validation:Enum=Isolated;Routed;Fabric
type PodNetwork string

const (
	// Isolated says that pod addresses of one cluster mean nothing in the other.
	Isolated PodNetwork = "Isolated"
	// Routed says that pod addresses of one cluster can be reached from the other.
	Routed PodNetwork = "Routed"
	// Fabric says that Lodestone's network program has pod addresses of one cluster reached from the other.
	Fabric PodNetwork = "Fabric"
)

// Joined says whether pod addresses of one cluster can be reached from the other, whoever provides for that.
func (n PodNetwork) Joined() bool { return n == Routed || n == Fabric }

// PodTransit says whether pods of a remote cluster and of others reach each other, and whether only through home.
//
// +kubebuilder:validation:Enum=Enabled;Disabled;Direct
type PodTransit string

const (
	// TransitEnabled says that home carries packets between the cluster and others that have it, too.
	TransitEnabled PodTransit = "Enabled"
	// TransitDisabled says that the cluster reaches home alone.
	TransitDisabled PodTransit = "Disabled"
	// TransitDirect is TransitEnabled, and there are lanes to other clusters that have it, too, which do not lead through home.
	TransitDirect PodTransit = "Direct"
)

// Passes says whether pods of the cluster are to reach those of others that have such a value.
func (t PodTransit) Passes() bool { return t == TransitEnabled || t == TransitDirect }

// SecretKeyRef names one key of a Secret.
type SecretKeyRef struct {
	// Namespace is the one where Lodestone runs.
	//
	// +kubebuilder:validation:MinLength=1
	Namespace string `json:"namespace"`
	// Name is the Secret.
	//
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Key is the key of the Secret that has it.
	//
	// +optional
	// +kubebuilder:default=kubeconfig
	Key string `json:"key,omitempty"`
}

// NamespaceStrategy names a rule that maps home namespaces to remote ones.
//
// +kubebuilder:validation:Enum=SameName;Suffixed
type NamespaceStrategy string

const (
	// SameName uses the namespace of the same name.
	SameName NamespaceStrategy = "SameName"
	// Suffixed uses "<namespace>-<home cluster ID>", so that several home
	// clusters can share one remote cluster.
	Suffixed NamespaceStrategy = "Suffixed"
)

// NamespaceMapping says which namespace there belongs to a namespace here.
type NamespaceMapping struct {
	// Strategy is the rule. SameName: the namespace of the same name. Suffixed:
	// "<namespace>-<home cluster ID>", so that several home clusters can share one remote
	// cluster.
	//
	// +optional
	// +kubebuilder:default=SameName
	Strategy NamespaceStrategy `json:"strategy,omitempty"`
}

// Condition types of a RemoteCluster.
const (
	// Ready: volumes can be made there. False when any other condition is.
	Ready = "Ready"
	// Reachable: its API server answers.
	Reachable = "Reachable"
	// Authorized: the kubeconfig is usable and has the rights that are needed
	// cluster-wide.
	Authorized = "Authorized"
	// CredentialsValid: the token or certificate of the kubeconfig has not ended.
	// The message says when it does, and what to do if it is not renewed by
	// itself.
	CredentialsValid = "CredentialsValid"
	// VirtualNode: the cluster's virtual node takes pods. Volumes do not depend on
	// it.
	VirtualNode = "VirtualNode"
	// HomeInForce: this home cluster, and no copy of it, acts in the cluster. While it is False home
	// makes, changes and deletes nothing there.
	HomeInForce = "HomeInForce"
	// PodLeasePromised: the remote agent there has promised to end pods of home that use claims when home is silent, as spec.podLease asks.
	// Whether it runs now is not seen. Only with that.
	PodLeasePromised = "PodLeasePromised"
	// NetworkReady: pods of the two clusters reach each other through the fabric, as probes from pod to pod
	// show. Only with podNetwork Fabric; volumes and nodes do not depend on it.
	NetworkReady = "NetworkReady"
)

// RemoteClusterStatus is what the provisioner last saw of a remote cluster.
type RemoteClusterStatus struct {
	// ObservedGeneration is the generation of the spec that the conditions of the provisioner speak of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready, Reachable, Authorized, CredentialsValid, HomeInForce and PodLeasePromised
	// of the provisioner, VirtualNode and NetworkReady of the virtual node program.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Transit are the other RemoteClusters whose pods and those there reach each other through home's gateways, as these say.
	//
	// +optional
	// +listType=set
	Transit []string `json:"transit,omitempty"`

	// DirectTransit are the other RemoteClusters whose pods and those there reach each other by lanes that do not lead through home, as
	// gateways of both say.
	//
	// +optional
	// +listType=set
	DirectTransit []string `json:"directTransit,omitempty"`

	// ClusterUID is the UID of the cluster's kube-system namespace: it tells two
	// objects for one cluster, and the home cluster itself.
	//
	// +optional
	ClusterUID string `json:"clusterUID,omitempty"`

	// KubernetesVersion is that of its API server.
	//
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// StorageClasses are the real classes that can be used there.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	StorageClasses []OfferedClass `json:"storageClasses,omitempty"`

	// Namespaces are the namespaces there in which backing claims may exist. A
	// namespace is added before the first one is created, so that none is
	// forgotten when its home namespace disappears.
	//
	// +optional
	// +listType=set
	Namespaces []string `json:"namespaces,omitempty"`

	// Volumes is how many virtual volumes have their data there.
	//
	// +optional
	Volumes int `json:"volumes"`

	// VolumeHealth says how those volumes are. While the cluster does not answer, it
	// says how they were.
	//
	// +optional
	VolumeHealth *VolumeHealth `json:"volumeHealth,omitempty"`
}

// OfferedClass is a real StorageClass of a remote cluster.
type OfferedClass struct {
	// Name is the class.
	Name string `json:"name"`
	// Provisioner makes its volumes.
	//
	// +optional
	Provisioner string `json:"provisioner,omitempty"`
	// Default: it is the default class of that cluster.
	//
	// +optional
	Default bool `json:"default,omitempty"`
	// BindingMode says when its volumes are made: Immediate or WaitForFirstConsumer.
	//
	// +optional
	BindingMode storagev1.VolumeBindingMode `json:"bindingMode,omitempty"`
	// AllowVolumeExpansion: its claims can be made larger.
	//
	// +optional
	AllowVolumeExpansion bool `json:"allowVolumeExpansion,omitempty"`
	// Static: its volumes are made by hand (provisioner
	// kubernetes.io/no-provisioner).
	//
	// +optional
	Static bool `json:"static,omitempty"`
	// Templated: its parameters depend on the namespace or name of the claim.
	//
	// +optional
	Templated bool `json:"templated,omitempty"`
	// Free is what new volumes of the class can take in all, as far as the cluster
	// tells (its CSIStorageCapacity objects). Missing: unknown. It is written anew
	// when it has changed by a twentieth or more.
	//
	// +optional
	Free *resource.Quantity `json:"free,omitempty"`
	// MaximumVolumeSize is the largest volume of the class that can be made
	// anywhere in the cluster, as far as it tells, also where free is
	// missing; written anew as that is.
	//
	// +optional
	MaximumVolumeSize *resource.Quantity `json:"maximumVolumeSize,omitempty"`
}

// MoveRepository is an object store, or a claim, for the content of moves.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretName) != has(self.claimName)",message="name either the Secret of an object store (secretName) or a claim (claimName), and not both"
type MoveRepository struct {
	// SecretName is a Secret in the namespace where Lodestone runs: url is
	// rest:https://HOST/PATH or s3:https://HOST/BUCKET/PATH, ca.crt the authority of the
	// store's certificate, if not everybody trusts it; the credentials are in
	// RESTIC_REST_USERNAME and RESTIC_REST_PASSWORD, or AWS_ACCESS_KEY_ID,
	// AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`

	// ClaimName is a claim wherever movers run: in the namespace of the real claims at
	// home, and in each namespace of real claims in a remote cluster. All of that name must
	// be ReadWriteMany, hold nothing else, and lead to the same storage.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ClaimName string `json:"claimName,omitempty"`
}

// VolumeHealth counts the virtual volumes of a cluster by how they are.
type VolumeHealth struct {
	// Bound is how many have their real volume.
	Bound int `json:"bound"`

	// Pending is how many wait for their real volume, as for their first pod.
	Pending int `json:"pending"`

	// Troubles is what is wrong with some of them, and with claims whose volume is
	// long in coming there, by the reason of the condition and the events of the claims.
	//
	// +optional
	// +listType=map
	// +listMapKey=reason
	Troubles []VolumeTrouble `json:"troubles,omitempty"`
}

// VolumeTrouble is something that is wrong with some volumes.
type VolumeTrouble struct {
	// Reason is that of the condition or of the events.
	Reason string `json:"reason"`
	// Volumes is how many there are.
	Volumes int `json:"volumes"`
}
