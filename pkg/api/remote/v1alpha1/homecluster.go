package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HomeCluster is a cluster whose pods and volumes may be in this one. The owner
// of this cluster writes its spec: nothing else widens what that cluster may do
// here. Its name is the home cluster's ID. The home cluster's identity, requests
// and heartbeat are in the namespace lodestone-home-<name>.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Connected",type=string,JSONPath=`.status.conditions[?(@.type=="Connected")].status`
// +kubebuilder:printcolumn:name="Namespaces",type=integer,JSONPath=`.status.namespaces`
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.succeeds) || self.spec.succeeds != self.metadata.name",message="succeeds names another home cluster, which is lost"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a home cluster's ID has at most 40 lower-case letters, digits and '-'"
type HomeCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HomeClusterSpec   `json:"spec,omitempty"`
	Status HomeClusterStatus `json:"status,omitempty"`
}

// HomeClusterList is a list of HomeCluster objects.
//
// +kubebuilder:object:root=true
type HomeClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []HomeCluster `json:"items"`
}

// HomeClusterSpec is what the owner of this cluster allows a home cluster.
type HomeClusterSpec struct {
	// ClusterUID is the UID of the home cluster's kube-system namespace; it
	// tells two homes of one ID.
	//
	// +optional
	ClusterUID string `json:"clusterUID,omitempty"`

	// User is the user name of a home cluster that logs in with a client
	// certificate, lodestone:home:<name>. Empty: it logs in as the ServiceAccount
	// lodestone-home of its tenant namespace.
	//
	// +optional
	User string `json:"user,omitempty"`

	// Namespaces bounds the namespaces that are made for the home cluster.
	//
	// +optional
	Namespaces NamespacePolicy `json:"namespaces,omitempty"`

	// Offer is how much the home cluster's pods may request here in all. A
	// resource that it does not name is offered as far as the nodes have it;
	// 0 offers none.
	//
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=30
	// +kubebuilder:validation:XValidation:rule="self.all(name, type(self[name]) == int ? self[name] >= 0 : isQuantity(self[name]) && !self[name].startsWith('-'))",message="each value of offer is a quantity of 0 or more, such as 500m or 20Gi"
	Offer corev1.ResourceList `json:"offer,omitempty"`

	// PriorityClasses are the priority classes that its pods may have; a pod
	// with another one gets none.
	//
	// +optional
	// +listType=set
	PriorityClasses []string `json:"priorityClasses,omitempty"`

	// Tolerations are the keys of the taints of this cluster's nodes that its
	// pods may tolerate. Tolerations of other keys are left out.
	//
	// +optional
	// +listType=set
	Tolerations []string `json:"tolerations,omitempty"`

	// StorageClasses are the classes of which its claims may be; * is any. Empty: those
	// whose provisioner makes a volume for each claim and that have no unclaimed volume,
	// which is somebody's and which any claim of the class could get.
	//
	// +optional
	// +listType=set
	StorageClasses []string `json:"storageClasses,omitempty"`

	// ServiceTypes are the types of Service that it may make besides ClusterIP.
	//
	// +optional
	// +listType=set
	ServiceTypes []corev1.ServiceType `json:"serviceTypes,omitempty"`

	// Network lets pods of the home cluster's namespaces here, and pods at home, reach each other through
	// the network fabric. Missing: it is refused.
	//
	// +optional
	Network *NetworkPolicy `json:"network,omitempty"`

	// Replicas bounds what it does with second copies of its volumes (VolumeReplicas) here.
	//
	// +optional
	Replicas *ReplicaPolicy `json:"replicas,omitempty"`

	// Succeeds is the ID of another home cluster, which is lost for good: when what that one had here is adopted (kubectl lodestone adopt),
	// this home cluster gets its namespaces, with the claims in them. Nothing else goes by it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Succeeds string `json:"succeeds,omitempty"`

	// Probes are API servers of other clusters, which the remote agent here asks time and again whether they answer.
	// So the home cluster knows of one that it does not reach itself whether it is reached from here, before a claim
	// fails over by itself.
	//
	// +optional
	// +listType=map
	// +listMapKey=cluster
	// +kubebuilder:validation:MaxItems=16
	Probes []ClusterProbe `json:"probes,omitempty"`
}

// ClusterProbe is an API server that the remote agent asks whether it answers.
type ClusterProbe struct {
	// Cluster is the name of its RemoteCluster at home.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Cluster string `json:"cluster"`

	// Server is its address as it is reached from here. Nothing is sent but a request without credentials, and every
	// answer counts, also one that refuses.
	//
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != '' && url(self).getQuery().size() == 0",message="server is an address such as https://192.0.2.10:6443"
	Server string `json:"server"`
}

// ReplicaPolicy bounds what a home cluster does with second copies of its volumes.
type ReplicaPolicy struct {
	// MinimumAge is how old a sealed version must be before the home cluster may delete it; until then it can be
	// neither deleted nor changed with home's rights, whatever was spoiled there. Missing, or 0s: home may delete
	// versions at any time. To bound how many there are, set count/volumesnapshots.snapshot.storage.k8s.io
	// in namespaces.quota.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('8784h')",message="minimumAge is a time in hours, minutes and seconds of at most 8784h, such as 72h"
	MinimumAge *metav1.Duration `json:"minimumAge,omitempty"`
}

// NetworkPolicy bounds what the network fabric joins.
type NetworkPolicy struct {
	// PodCIDRs are the ranges from which pods of the home cluster have their addresses, or where these overlap with ranges here, those by
	// which they are reached from here. Packets from other addresses do not come in, and nothing here is sent to others.
	//
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self.all(range, isCIDR(range) && cidr(range) == cidr(range).masked() && cidr(range).prefixLength() >= 8)",message="each of podCIDRs is a range of addresses such as 10.244.0.0/16, of /8 or smaller"
	PodCIDRs []string `json:"podCIDRs"`

	// TransitPodCIDRs are ranges of pods of other remote clusters of this home cluster that are let in, and reached, through the gateways
	// of home: of those that home names in spec.transit of the NetworkLink, the ones that are within these. Empty: none.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self.all(range, isCIDR(range) && cidr(range) == cidr(range).masked() && cidr(range).prefixLength() >= 8)",message="each of transitPodCIDRs is a range of addresses such as 10.244.0.0/16, of /8 or smaller"
	TransitPodCIDRs []string `json:"transitPodCIDRs,omitempty"`

	// DirectTransit says whether gateways here have lanes to gateways of the clusters that transitPodCIDRs lets in, where home asks for
	// that: they dial these, or are dialed, as home names their addresses and keys. Refused, as without it: what these clusters and this
	// one send to each other goes through home's gateways alone.
	//
	// +optional
	DirectTransit DirectTransit `json:"directTransit,omitempty"`

	// Namespaces narrows whose pods here are reached, and reach the home cluster: namespaces here of which
	// these are the names. Empty: all that were made for the home cluster.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Namespaces []string `json:"namespaces,omitempty"`

	// BandwidthLimit is how many bytes a second each gateway here sends to the home cluster at most, and as many it takes from there.
	// Without it: as many as can.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 65536 : isQuantity(self) && quantity(self).compareTo(quantity('64Ki')) >= 0",message="bandwidthLimit is how many bytes a second may pass, at least 64Ki, such as 50Mi"
	BandwidthLimit *resource.Quantity `json:"bandwidthLimit,omitempty"`
}

// DirectTransit says whether there may be lanes between this cluster and other remote clusters of a home cluster.
//
// +kubebuilder:validation:Enum=Allowed;Refused
type DirectTransit string

const (
	// DirectAllowed says that there may be such lanes.
	DirectAllowed DirectTransit = "Allowed"
	// DirectRefused says that there are none.
	DirectRefused DirectTransit = "Refused"
)

// NamespacePolicy bounds the namespaces that are made for a home cluster.
type NamespacePolicy struct {
	// Names are patterns of allowed names, where * stands for any characters.
	// Empty: those that end in - and the home cluster's ID, as the namespace strategy
	// Suffixed makes them. A pattern does not give names that what is installed in
	// clusters commonly has, such as cert-manager or istio-system: list such a name
	// itself. Names that begin with kube- or lodestone-, the namespace default, and
	// namespaces that exist already are never given.
	//
	// +optional
	// +listType=set
	Names []string `json:"names,omitempty"`

	// Maximum is how many there may be. With 0 the home cluster gets only those that its owner has
	// labelled for it.
	//
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Maximum *int32 `json:"maximum,omitempty"`

	// PodSecurity is the Pod Security Standard that is enforced in them.
	//
	// +optional
	// +kubebuilder:default=baseline
	// +kubebuilder:validation:Enum=privileged;baseline;restricted
	PodSecurity string `json:"podSecurity,omitempty"`

	// Quota is the hard limit of the ResourceQuota of each.
	//
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=30
	// +kubebuilder:validation:XValidation:rule="self.all(name, type(self[name]) == int ? self[name] >= 0 : isQuantity(self[name]) && !self[name].startsWith('-'))",message="each value of quota is a quantity of 0 or more, such as 500m or 20Gi"
	Quota corev1.ResourceList `json:"quota,omitempty"`

	// Limits are the limits of the LimitRange of each.
	//
	// +optional
	// +listType=atomic
	Limits []corev1.LimitRangeItem `json:"limits,omitempty"`
}

// Condition types of a HomeCluster.
const (
	// Ready: namespaces and pods are made for the home cluster.
	Ready = "Ready"
	// Connected: the home cluster renews its heartbeat.
	Connected = "Connected"
	// Confined: the API server enforces what home clusters may not do. While it does not, they get
	// no rights that they have not already.
	Confined = "Confined"
	// PodLease: the home cluster, which asks for a lease, is heard. While it is False its pods that use claims are ended, and none is
	// made. Only where it asks for one.
	PodLease = "PodLease"
)

// Removing is the reason of the condition Ready of a HomeCluster that is being deleted: its rights have ended, and the message says
// what is left.
const Removing = "Removing"

// HomeClusterStatus is what the remote agent publishes for a home cluster.
type HomeClusterStatus struct {
	// ObservedGeneration is the generation of the spec that the conditions speak of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready, Connected, Confined and PodLease.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Capacity is what is offered in all.
	//
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Allocatable is what the pods of the home cluster, those that run here included,
	// may request: the offer less what others use.
	//
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`

	// Nodes is what nodes that can run its pods have in common.
	//
	// +optional
	Nodes NodeSummary `json:"nodes,omitempty"`

	// StorageClasses are the classes of which its new claims may be.
	//
	// +optional
	// +listType=set
	StorageClasses []string `json:"storageClasses,omitempty"`

	// Namespaces is how many there are of the home cluster.
	//
	// +optional
	Namespaces int32 `json:"namespaces"`
	// Pods is how many there are of the home cluster.
	//
	// +optional
	Pods int32 `json:"pods"`

	// PodLease is what the remote agent promises: once the home cluster has been silent for half of that, its pods that use claims are
	// ended. Missing: the home cluster does not ask for it.
	//
	// +optional
	PodLease *PodLeasePromise `json:"podLease,omitempty"`

	// Probes says which of spec.probes answer.
	//
	// +optional
	// +listType=map
	// +listMapKey=cluster
	Probes []ProbeResult `json:"probes,omitempty"`
}

// PodLeasePromise is a lease that a home cluster has asked for.
type PodLeasePromise struct {
	// Request is the number of the home cluster's request.
	Request int64 `json:"request"`
	// Seconds is how long after its last heartbeat its pods that use claims have been told to end at the latest.
	Seconds int64 `json:"seconds"`
}

// ProbeResult is whether an API server answers the remote agent.
type ProbeResult struct {
	// Cluster is that of spec.probes.
	Cluster string `json:"cluster"`
	// Answers says that it answered when it was asked last.
	Answers bool `json:"answers"`
	// LastProbe is when it was asked, by the agent's clock: with every change, and time and again while it does not answer.
	LastProbe metav1.Time `json:"lastProbe"`
}

// NodeSummary is what the nodes of a cluster have in common.
type NodeSummary struct {
	// Count is how many nodes can run pods of a home cluster.
	//
	// +optional
	Count int32 `json:"count"`
	// OperatingSystem is empty where nodes differ.
	//
	// +optional
	OperatingSystem string `json:"operatingSystem,omitempty"`
	// Architecture is empty where nodes differ.
	//
	// +optional
	Architecture string `json:"architecture,omitempty"`
	// Topology is the labels topology.kubernetes.io/region and zone that all of
	// them share.
	//
	// +optional
	Topology map[string]string `json:"topology,omitempty"`
	// DeclaredFeatures are those of Kubernetes that all of them declare.
	//
	// +optional
	// +listType=atomic
	DeclaredFeatures []string `json:"declaredFeatures,omitempty"`
}
