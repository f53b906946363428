package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxMessage is how long a message in a status may be, in bytes, and MaxProbes how many pods of a cluster probe.
const (
	MaxMessage = 512
	MaxProbes  = 64
)

// NetworkLink joins the pods of this cluster with those of one other cluster. Its
// spec says what the other cluster is, its status what this one is. Home writes
// both specs: that of the object in its own namespace lodestone-network, named as the
// RemoteCluster, and that of the object home in its tenant namespace of the remote
// cluster, each from the status of the other. Nobody else needs to: kubectl
// lodestone peer --pod-network Fabric has them made.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Accepted")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NetworkLink struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NetworkLinkSpec   `json:"spec,omitempty"`
	Status NetworkLinkStatus `json:"status,omitempty"`
}

// NetworkLinkList is a list of NetworkLink objects.
//
// +kubebuilder:object:root=true
type NetworkLinkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NetworkLink `json:"items"`
}

// NetworkLinkSpec is what the other cluster is.
type NetworkLinkSpec struct {
	// PodCIDRs are the ranges by which pods of the other cluster are reached from here:
	// at home those of the RemoteCluster, translated. In a remote cluster they are not
	// heeded: those count that its owner has listed in spec.network.podCIDRs of the
	// HomeCluster.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	PodCIDRs []string `json:"podCIDRs,omitempty"`

	// PodTranslations are ranges of pods of this cluster, and by which the other cluster
	// reaches them. Gateways here translate, and only for this link.
	//
	// +optional
	// +listType=map
	// +listMapKey=podCIDR
	// +kubebuilder:validation:MaxItems=16
	PodTranslations []PodTranslation `json:"podTranslations,omitempty"`

	// Gateways are the nodes of the other cluster that carry packets.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Gateways []Gateway `json:"gateways,omitempty"`

	// Probes are the addresses of pods of the other cluster that answer probes.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=45
	Probes []string `json:"probes,omitempty"`

	// BandwidthLimit is how many bytes a second each gateway here sends to the other cluster, and as many it takes from there: at home
	// spec.podBandwidthLimit of the RemoteCluster. In a remote cluster it is not heeded: that counts which its owner has set in
	// spec.network.bandwidthLimit of the HomeCluster.
	//
	// +optional
	BandwidthLimit *resource.Quantity `json:"bandwidthLimit,omitempty"`

	// Carrier is what home wants to carry packets between the gateways: spec.podCarrier of the RemoteCluster.
	//
	// +optional
	Carrier Carrier `json:"carrier,omitempty"`

	// Transit are other remote clusters of home whose pods and those of this link's remote cluster reach each other through home's
	// gateways. In a remote cluster those count that its owner lets in, by spec.network.transitPodCIDRs of the HomeCluster. At home it
	// says of each whether the owner does.
	//
	// +optional
	// +listType=map
	// +listMapKey=cluster
	// +kubebuilder:validation:MaxItems=16
	Transit []Transit `json:"transit,omitempty"`
}

// Carrier is what carries packets between the gateways of two clusters.
//
// +kubebuilder:validation:Enum=TLS;WireGuard
type Carrier string

const (
	// TLS says that connections of TLS do, which the program makes.
	TLS Carrier = "TLS"
	// WireGuard says that WireGuard of the kernel does, where it can, and TLS else.
	WireGuard Carrier = "WireGuard"
)

// Transit is another remote cluster of the same home cluster.
type Transit struct {
	// Cluster is the name of its RemoteCluster.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster"`
	// PodCIDRs are, in a remote cluster, the ranges by which pods of the other one are reached from here.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// MTU is, in a remote cluster, that of the network between nodes of the other one.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	MTU int32 `json:"mtu,omitempty"`
	// Refused is, at home, why the remote cluster does not let in the other one. Empty: it does.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Refused string `json:"refused,omitempty"`
	// Gateways are, in a remote cluster, those of the other one that gateways here are to have lanes to. Those without an address dial. In
	// a remote cluster they count only if its owner allows that, by spec.network.directTransit of the HomeCluster. At home there are none.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Gateways []Gateway `json:"gateways,omitempty"`
	// Direct is, at home, how it is with lanes between the two clusters, as the remote cluster of the link says. Missing: they are not
	// asked for.
	//
	// +optional
	Direct *DirectLanes `json:"direct,omitempty"`
}

// DirectLanes are lanes between gateways of two remote clusters of one home cluster.
type DirectLanes struct {
	// Lanes is how many there are to be: one from each gateway to each of the other cluster.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Lanes int32 `json:"lanes"`
	// Up is how many of them are up.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Up int32 `json:"up"`
	// Message is why there is none, or none that is up.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// PodTranslation says by which range the pods of a range are reached from another cluster: each address by that with the same last bits.
//
// +kubebuilder:validation:XValidation:rule="isCIDR(self.podCIDR) && isCIDR(self.reachedAs) && cidr(self.podCIDR) == cidr(self.podCIDR).masked() && cidr(self.reachedAs) == cidr(self.reachedAs).masked() && cidr(self.podCIDR).prefixLength() == cidr(self.reachedAs).prefixLength() && cidr(self.podCIDR).prefixLength() >= 8 && cidr(self.podCIDR).ip().family() == 4 && cidr(self.reachedAs).ip().family() == 4",message="podCIDR and reachedAs are IPv4 ranges of one length, /8 or smaller, such as 10.244.0.0/16 and 100.64.0.0/16"
type PodTranslation struct {
	// PodCIDR is the range from which the pods have their addresses.
	//
	// +kubebuilder:validation:MaxLength=18
	PodCIDR string `json:"podCIDR"`
	// ReachedAs is the range by which the other cluster reaches them.
	//
	// +kubebuilder:validation:MaxLength=18
	ReachedAs string `json:"reachedAs"`
}

// Gateway is a node at which the lanes to another cluster begin.
type Gateway struct {
	// Name is that of the node.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Address is host:port, where it is dialed; empty: it only dials.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=263
	Address string `json:"address,omitempty"`
	// Keys are the names of its public keys: the SHA-256 of each, in base64. The private
	// keys are on the node and nowhere else.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=44
	Keys []string `json:"keys,omitempty"`
	// WireGuard is where it is reached by WireGuard. Without it: nowhere.
	//
	// +optional
	WireGuard *WireGuardEnd `json:"wireGuard,omitempty"`
	// MTU is that of the network between nodes there.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	MTU int32 `json:"mtu,omitempty"`
}

// WireGuardEnd is the WireGuard of a gateway.
type WireGuardEnd struct {
	// PublicKey is its Curve25519 public key, in base64. The private key is on the node
	// and nowhere else.
	//
	// +kubebuilder:validation:MinLength=44
	// +kubebuilder:validation:MaxLength=44
	PublicKey string `json:"publicKey"`
	// Port is its UDP port, at the host of the gateway's address. Without it: it only dials.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// Accepted is the condition type of a NetworkLink: this cluster takes part in the link. Its message says
// why it does not.
const Accepted = "Accepted"

// NetworkLinkStatus is what this cluster is, and how the other one is reached.
type NetworkLinkStatus struct {
	// ObservedGeneration is the generation of the spec that the conditions speak of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions has Accepted.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// PodCIDRs are the ranges of pods of the other cluster that count here: nothing else
	// is reached, or let in.
	//
	// +optional
	// +listType=set
	PodCIDRs []string `json:"podCIDRs,omitempty"`

	// PodTranslations are ranges of pods of this cluster, and by which the other cluster
	// reaches them now.
	//
	// +optional
	// +listType=map
	// +listMapKey=podCIDR
	// +kubebuilder:validation:MaxItems=16
	PodTranslations []PodTranslation `json:"podTranslations,omitempty"`

	// Transit says of the clusters of spec.transit whether this one lets pods there and those of this link reach each other.
	//
	// +optional
	// +listType=map
	// +listMapKey=cluster
	// +kubebuilder:validation:MaxItems=16
	Transit []TransitStatus `json:"transit,omitempty"`

	// Gateways are the nodes of this cluster that carry packets; each writes its own
	// entry.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Gateways []GatewayStatus `json:"gateways,omitempty"`

	// Probes are the pods of this cluster that probe the other one, and answer its
	// probes; each writes its own entry.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Probes []ProbeStatus `json:"probes,omitempty"`
}

// TransitStatus says whether another remote cluster of the same home cluster is let in.
type TransitStatus struct {
	// Cluster is the name of its RemoteCluster.
	Cluster string `json:"cluster"`
	// Accepted: in a remote cluster, its owner lets in the ranges. At home, the owners of both clusters do, and home carries packets.
	Accepted bool `json:"accepted"`
	// PodCIDRs are, in a remote cluster, the ranges that are let in.
	//
	// +optional
	// +listType=set
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// Message is why it is not accepted.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
	// Direct: in a remote cluster, gateways here have lanes to those of spec.transit, and packets go by these while one is up.
	//
	// +optional
	Direct bool `json:"direct,omitempty"`
	// DirectMessage is why they have none, where home asks for them.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	DirectMessage string `json:"directMessage,omitempty"`
}

// GatewayStatus is a gateway of this cluster.
type GatewayStatus struct {
	Gateway `json:",inline"`

	// Lanes are the ways to the gateways of the other cluster.
	//
	// +optional
	// +listType=map
	// +listMapKey=gateway
	Lanes []LaneStatus `json:"lanes,omitempty"`
	// Direct are, in a remote cluster, the lanes of this gateway to other remote clusters of the home cluster.
	//
	// +optional
	// +listType=map
	// +listMapKey=cluster
	// +kubebuilder:validation:MaxItems=16
	Direct []DirectStatus `json:"direct,omitempty"`
	// RenewTime is when the gateway wrote this entry last: it does so at once when a lane
	// comes up or goes down, and every 30 seconds, or seldomer if it has more than 30
	// links, with what it measured of its lanes. An entry that was not renewed for long is
	// of a gateway that does not run.
	//
	// +optional
	RenewTime metav1.Time `json:"renewTime,omitempty"`
}

// DirectStatus is how it is with the lanes of a gateway to another remote cluster of the same home cluster.
type DirectStatus struct {
	// Cluster is the name of its RemoteCluster.
	Cluster     string `json:"cluster"`
	DirectLanes `json:",inline"`
}

// LaneStatus is the way to one gateway of the other cluster.
type LaneStatus struct {
	// Gateway is the name of that gateway.
	Gateway string `json:"gateway"`
	// Up: packets arrive there, and from there here.
	//
	// +optional
	Up bool `json:"up"`
	// Since is when up became what it is.
	//
	// +optional
	Since metav1.Time `json:"since,omitempty"`
	// Carrier is what carries the packets to that gateway now.
	//
	// +optional
	Carrier Carrier `json:"carrier,omitempty"`
	// CarrierMessage is why that is TLS, where spec.carrier is WireGuard.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	CarrierMessage string `json:"carrierMessage,omitempty"`
	// Connections is how many of its TCP connections are up.
	//
	// +optional
	Connections int32 `json:"connections,omitempty"`
	// RoundTripMicroseconds is the shortest of their smoothed round trip times, as the
	// kernel measures them.
	//
	// +optional
	RoundTripMicroseconds int64 `json:"roundTripMicroseconds,omitempty"`
	// SentBytesPerSecond is what packets to that gateway had, on the average of the time
	// between the last two times that this one wrote its entry.
	//
	// +optional
	SentBytesPerSecond int64 `json:"sentBytesPerSecond,omitempty"`
	// ReceivedBytesPerSecond is what packets from it had.
	//
	// +optional
	ReceivedBytesPerSecond int64 `json:"receivedBytesPerSecond,omitempty"`
	// MTU is the largest packet of pods that is carried in one piece, in bytes.
	//
	// +optional
	MTU int32 `json:"mtu,omitempty"`
	// CongestionControl is that of its TCP connections, bbr where the kernel has it.
	//
	// +optional
	CongestionControl string `json:"congestionControl,omitempty"`
	// Message is why it is not up.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// ProbeStatus is a pod that probes the other cluster.
type ProbeStatus struct {
	// Name is that of the pod.
	Name string `json:"name"`
	// Node is where it runs.
	//
	// +optional
	Node string `json:"node,omitempty"`
	// Address is that of the pod.
	Address string `json:"address"`
	// SecondAddress is that of the other family, of IPv4 and IPv6, where the pod has one of each.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=45
	SecondAddress string `json:"secondAddress,omitempty"`
	// RenewTime is when the pod wrote this entry last: it does so every 20 seconds. An entry
	// that is older than a minute says nothing.
	RenewTime metav1.Time `json:"renewTime"`
	// Paths are the ways to the pods of the other cluster that answer probes, whole: over
	// both clusters' own networks, gateways and lanes.
	//
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=16
	Paths []PathStatus `json:"paths,omitempty"`
}

// PathStatus is the way to one pod of the other cluster.
type PathStatus struct {
	// Address is that of the pod.
	Address string `json:"address"`
	// Up: the last probes, by TCP and UDP and of several sizes, were answered, and the pod
	// there saw the address of the pod here.
	//
	// +optional
	Up bool `json:"up"`
	// Since is when up became what it is.
	//
	// +optional
	Since metav1.Time `json:"since,omitempty"`
	// RoundTripMicroseconds is the median of the last probes by UDP.
	//
	// +optional
	RoundTripMicroseconds int64 `json:"roundTripMicroseconds,omitempty"`
	// LossPercent is how many of the last 50 small packets were not answered.
	//
	// +optional
	LossPercent int32 `json:"lossPercent,omitempty"`
	// Message is why it is not up.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}
