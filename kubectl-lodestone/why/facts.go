// Package why finds the one sentence why a pod or a claim waits: Pod.Of and Claim.Of in judge.go
// make an Answer of the facts in this file. It is pure: package explain reads the facts from the
// cluster and prints the answer; lines.go lists the facts, a line each.
package why

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// Setting has the facts that pods and claims of a namespace share.
type Setting struct {
	Now       time.Time
	Namespace *corev1.Namespace
	// Clusters are all RemoteClusters. ClustersUnknown says that they could not be read.
	Clusters        []v1alpha1.RemoteCluster
	ClustersUnknown bool
	// Replicas are the VolumeReplicas of the namespace.
	Replicas []v1alpha1.VolumeReplica
	// Nodes are all nodes. NodesUnknown says that they could not be read.
	Nodes        []corev1.Node
	NodesUnknown bool
}

// Claim has the facts about a claim.
type Claim struct {
	Name string
	// Claim is nil if it does not exist; so are Class and Volume.
	Claim *corev1.PersistentVolumeClaim
	Class *storagev1.StorageClass
	// ClassUnknown says that the class could not be read.
	ClassUnknown bool
	Volume       *corev1.PersistentVolume
	Events       []corev1.Event
	// Pods are the pods that use the claim.
	Pods []corev1.Pod
	// PodWaits is why the first of them that has no node has none; empty if that was not looked at.
	PodWaits string
}

// Pod has the facts about a pod.
type Pod struct {
	Pod    *corev1.Pod
	Events []corev1.Event
	Claims []Claim
	// Extender has the extender's last decisions on the pod, empty if the extender could not be
	// asked or did not know the pod.
	Extender Said
}

// Verdict is the extender's decision on the nodes of one cluster.
type Verdict struct {
	Cluster  string `json:"cluster"`
	Reason   string `json:"reason"`
	Sentence string `json:"sentence"`
	Nodes    int    `json:"nodes"`
}

// Answer is the result for the user.
type Answer struct {
	// Sentence says why the pod or claim waits, or that it does not.
	Sentence string `json:"sentence"`
	// Waiting is false when there is no problem.
	Waiting bool `json:"waiting"`
	// Facts are the facts behind the sentence, one line each.
	Facts []string `json:"facts,omitempty"`
}

// remoteReady is the condition of a virtual node that says whether pods can run in its cluster;
// unlike Ready, only Lodestone writes it.
const remoteReady corev1.NodeConditionType = "RemoteReady"

// Said has the extender's last decisions on a pod.
type Said struct {
	// Verdicts say which nodes it refused, and why.
	Verdicts []Verdict
	// Marks say how much it preferred the remaining nodes; there are none if it had no preference,
	// or a single node remained.
	Marks []Mark
}

// Mark is how much the extender preferred the nodes of one cluster, from 0 to 10, and for what. A
// part that did not count is nil.
type Mark struct {
	Cluster  string    `json:"cluster"`
	Score    int       `json:"score"`
	Data     *Data     `json:"data"`
	Siblings *Siblings `json:"siblings"`
	Room     *Room     `json:"room"`
}

// Data is how many bytes of the pod's data are in the cluster, of how many in all.
type Data struct {
	Bytes float64 `json:"bytes"`
	Of    float64 `json:"of"`
}

// Siblings are counted by the rule of the class of the pod's new claims.
type Siblings struct {
	Pack   *Count `json:"pack"`
	Spread *Count `json:"spread"`
}

// Count is how many volumes of the other pods of a StatefulSet are in the cluster, of how many in
// all.
type Count struct {
	Here int `json:"here"`
	Of   int `json:"of"`
}

// Room is how many bytes are free in the cluster for new volumes of a real class that the pod's
// claims ask for. Without a class nothing is known of the free space.
type Room struct {
	Class string  `json:"class"`
	Free  float64 `json:"free"`
	Asked float64 `json:"asked"`
}
