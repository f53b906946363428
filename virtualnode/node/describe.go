// Package node keeps the Node objects that stand for remote clusters, their
// leases, and the heartbeat that tells a remote cluster that home is there.
//
// It does not use the node controller of virtual-kubelet: that one writes no
// status at all while the remote cluster is silent, so that Ready could not be
// set to False; it gives up where the remote cluster is silent at the start; and
// it keeps all that it wrote once more in annotations.
package node

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// providerPrefix and the cluster ID make the provider ID of a virtual node, which
// nobody can change: it tells our nodes from others.
const providerPrefix = "lodestone://"

// RemoteReady is the condition of a virtual node that says whether pods can run
// in the remote cluster. It repeats Ready, whose sentence
// kube-controller-manager replaces when the node's lease runs out.
const RemoteReady corev1.NodeConditionType = "RemoteReady"

// Description is what a virtual node should show.
type Description struct {
	// Cluster is the ID of the remote cluster.
	Cluster string
	// Address and Port are where the node's kubelet API is served.
	Address string
	Port    int32
	// Version is the Kubernetes version of the remote cluster; empty: not known.
	Version string
	// Offer is what the remote cluster gives; nil: not known yet.
	Offer *remotev1alpha1.HomeClusterStatus
	// State says whether pods can run there.
	State State
	// Retired: the node takes no more pods.
	Retired bool
	// Now is the time of changes.
	Now metav1.Time
}

// State says whether pods can run in a remote cluster: a word and a sentence.
type State struct {
	Ready   bool
	Reason  string
	Message string
}

// Ours reports whether a Node is the virtual node of a cluster.
func Ours(node *corev1.Node, cluster string) bool {
	return node.Spec.ProviderID == providerPrefix+cluster
}

// New returns the Node that a description means.
func New(name string, d Description) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{ProviderID: providerPrefix + d.Cluster},
	}
	return WithStatus(WithMeta(node, d), d)
}

// WithMeta returns a copy of a node with labels, annotations and taints as
// described; what others added stays.
func WithMeta(node *corev1.Node, d Description) *corev1.Node {
	node = node.DeepCopy()
	labels := map[string]string{
		keys.Cluster:                     d.Cluster,
		"type":                           "virtual-kubelet",
		corev1.LabelHostname:             node.Name,
		corev1.LabelNodeExcludeBalancers: "true",
		keys.VirtualNodeRole:             "",
		keys.Claims:                      keys.ClaimsOfVolumes,
	}
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	maps.Copy(node.Labels, labels)
	if d.Offer != nil {
		summarize(node, d.Offer.Nodes)
	}
	taint := corev1.Taint{Key: keys.RemoteTaint, Value: d.Cluster, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) && t.Value == taint.Value }) {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	retire(node, d.Retired)
	return node
}

// summarize sets the labels that the nodes of the remote cluster share, and takes
// away those that they shared before.
func summarize(node *corev1.Node, nodes remotev1alpha1.NodeSummary) {
	shared := map[string]string{}
	for key, value := range map[string]string{
		corev1.LabelOSStable:       nodes.OperatingSystem,
		corev1.LabelArchStable:     nodes.Architecture,
		corev1.LabelTopologyRegion: nodes.Topology[corev1.LabelTopologyRegion],
		corev1.LabelTopologyZone:   nodes.Topology[corev1.LabelTopologyZone],
	} {
		if value != "" && validLabel(value) {
			shared[key] = value
		}
	}
	for key := range strings.SplitSeq(node.Annotations[keys.NodeLabels], ",") {
		if _, still := shared[key]; !still && optional(key) {
			delete(node.Labels, key)
		}
	}
	maps.Copy(node.Labels, shared)
	node.Annotations[keys.NodeLabels] = strings.Join(slices.Sorted(maps.Keys(shared)), ",")
}

func optional(key string) bool {
	switch key {
	case corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelTopologyRegion, corev1.LabelTopologyZone:
		return true
	}
	return false
}

// retire cordons a node, and undoes it if it was done here.
func retire(node *corev1.Node, retired bool) {
	_, was := node.Annotations[keys.Retired]
	switch {
	case retired && !was:
		node.Spec.Unschedulable = true
		node.Annotations[keys.Retired] = "true"
	case !retired && was:
		node.Spec.Unschedulable = false
		delete(node.Annotations, keys.Retired)
	}
}
