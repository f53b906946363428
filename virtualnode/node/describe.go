// Package node maintains the Node objects of remote clusters, their leases, and the heartbeat that
// the remote agents watch. Read manager.go first: Manager.Run probes the remote cluster (health.go)
// and writes the Node (describe.go).
//
// It does not use the node controller of virtual-kubelet: that one writes no status at all while
// the remote cluster is silent, so that Ready could not be set to False; it gives up if the remote
// cluster is silent at the start; and it stores all that it wrote once more in annotations.
package node

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// providerPrefix and the cluster ID make the provider ID of a virtual node. It cannot be changed,
// so it identifies our nodes.
const providerPrefix = "lodestone://"

// RemoteReady is the condition of a virtual node that says whether pods can run in the remote
// cluster. It repeats Ready, whose message kube-controller-manager replaces when the node's lease
// expires.
const RemoteReady corev1.NodeConditionType = "RemoteReady"

// Description is the wanted state of a virtual node.
type Description struct {
	// Cluster is the ID of the remote cluster.
	Cluster string
	// Address and Port are those of the node's kubelet API.
	Address string
	Port    int32
	// Version is the Kubernetes version of the remote cluster; empty: not known.
	Version string
	// Offer is what the remote cluster offers; nil: not known yet.
	Offer *remotev1alpha1.HomeClusterStatus
	// Topology is where the RemoteCluster says that it is.
	Topology v1alpha1.Topology
	// Featureless says that home's API server takes no declared features of a node.
	Featureless bool
	// State says whether pods can run there.
	State State
	// Retired says that the node takes no more pods.
	Retired bool
	// Now is the time to write for changes.
	Now metav1.Time
}

// State says whether pods can run in a remote cluster, with a reason of one word and a sentence.
type State struct {
	Ready   bool
	Reason  string
	Message string
}

// Ours reports whether a Node is the virtual node of a cluster.
func Ours(node *corev1.Node, cluster string) bool {
	return node.Spec.ProviderID == providerPrefix+cluster
}

// Transform returns what is kept of a node of home: all of a virtual node, which is compared with what it should be,
// and of the others their provider, their readiness, and where their kubelet is.
func Transform(node *corev1.Node) *corev1.Node {
	if strings.HasPrefix(node.Spec.ProviderID, providerPrefix) {
		return node
	}
	kept := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
		Spec:       corev1.NodeSpec{ProviderID: node.Spec.ProviderID},
		Status:     corev1.NodeStatus{DaemonEndpoints: node.Status.DaemonEndpoints},
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			kept.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: c.Status}}
		}
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			kept.Status.Addresses = append(kept.Status.Addresses, a)
		}
	}
	return kept
}

// New returns the Node for a description.
func New(name string, d Description) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{ProviderID: providerPrefix + d.Cluster},
	}
	return WithStatus(WithMeta(node, d), d)
}

// WithMeta returns a copy of a node with labels, annotations and taints as described; those of
// others stay.
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
	summarize(node, d)
	taint := corev1.Taint{Key: keys.RemoteTaint, Value: d.Cluster, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) && t.Value == taint.Value }) {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	retire(node, d.Retired)
	return node
}

// summarize sets the labels that depend on the remote cluster, and removes those that it no longer
// gives. Region and zone are always there, so that the cluster counts as one place; the others stay
// as they were while it is not known what it offers.
func summarize(node *corev1.Node, d Description) {
	nodes, own := remotev1alpha1.NodeSummary{}, map[string]string{}
	had := strings.Split(node.Annotations[keys.NodeLabels], ",")
	if d.Offer != nil {
		nodes = d.Offer.Nodes
	} else {
		for _, key := range had {
			if value, labelled := node.Labels[key]; labelled && optional(key) {
				own[key] = value
			}
		}
	}
	for key, value := range map[string]string{corev1.LabelOSStable: nodes.OperatingSystem, corev1.LabelArchStable: nodes.Architecture} {
		if value != "" && validLabel(value) {
			own[key] = value
		}
	}
	for key, wanted := range map[string]string{corev1.LabelTopologyRegion: d.Topology.Region, corev1.LabelTopologyZone: d.Topology.Zone} {
		shared := nodes.Topology[key]
		_, labelled := node.Labels[key]
		switch {
		case wanted != "":
			own[key] = wanted
		case shared != "" && validLabel(shared):
			own[key] = shared
		case labelled && (d.Offer == nil || !slices.Contains(had, key)):
			// It was known before, or a user has set it.
		default:
			own[key] = d.Cluster
		}
	}
	for _, key := range had {
		if _, still := own[key]; !still && optional(key) {
			delete(node.Labels, key)
		}
	}
	maps.Copy(node.Labels, own)
	node.Annotations[keys.NodeLabels] = strings.Join(slices.Sorted(maps.Keys(own)), ",")
}

func optional(key string) bool {
	switch key {
	case corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelTopologyRegion, corev1.LabelTopologyZone:
		return true
	}
	return false
}

// retire cordons a node, and uncordons it if this program cordoned it.
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

// maxResources limits how many resources a remote cluster may offer; no real cluster has more.
const maxResources = 64

// WithStatus returns a copy of a node with the status that is described. What is not known stays as
// it was.
func WithStatus(node *corev1.Node, d Description) *corev1.Node {
	node = node.DeepCopy()
	status := &node.Status
	status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: d.Address}}
	status.DaemonEndpoints.KubeletEndpoint.Port = d.Port
	if d.Version != "" {
		status.NodeInfo.KubeletVersion = d.Version
	}
	if d.Offer != nil {
		status.Capacity = sane(d.Offer.Capacity)
		status.Allocatable = sane(d.Offer.Allocatable)
		status.NodeInfo.OperatingSystem = short(d.Offer.Nodes.OperatingSystem)
		status.NodeInfo.Architecture = short(d.Offer.Nodes.Architecture)
		if !d.Featureless {
			status.DeclaredFeatures = features(d.Offer.Nodes.DeclaredFeatures)
		}
	}
	status.Conditions = conditions(status.Conditions, d)
	return node
}

// conditions returns the conditions of a node, including those of others. If
// kube-controller-manager has set Ready to Unknown, because the lease expired while the remote
// cluster is silent, that stays.
func conditions(have []corev1.NodeCondition, d Description) []corev1.NodeCondition {
	have = append([]corev1.NodeCondition(nil), have...)
	status := corev1.ConditionFalse
	if d.State.Ready {
		status = corev1.ConditionTrue
	}
	ready := find(have, corev1.NodeReady)
	if d.State.Ready || ready == nil || ready.Status != corev1.ConditionUnknown {
		have = set(have, corev1.NodeCondition{Type: corev1.NodeReady, Status: status, Reason: d.State.Reason, Message: d.State.Message}, d)
	}
	have = set(have, corev1.NodeCondition{Type: RemoteReady, Status: status, Reason: d.State.Reason, Message: d.State.Message}, d)
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		if old := find(have, kind); old != nil && !d.State.Ready {
			continue
		}
		have = set(have, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "RemoteCluster",
			Message: "the remote cluster looks after its own nodes"}, d)
	}
	return have
}

// set adds a condition or replaces the one of its type; it sets the times of the change.
func set(all []corev1.NodeCondition, condition corev1.NodeCondition, d Description) []corev1.NodeCondition {
	condition.LastHeartbeatTime, condition.LastTransitionTime = d.Now, d.Now
	old := find(all, condition.Type)
	if old == nil {
		return append(all, condition)
	}
	if old.Status == condition.Status {
		condition.LastTransitionTime = old.LastTransitionTime
		if old.Reason == condition.Reason && old.Message == condition.Message {
			return all
		}
	}
	*old = condition
	return all
}

func find(all []corev1.NodeCondition, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}

// sane returns the offered resources that are valid for a node.
func sane(offered corev1.ResourceList) corev1.ResourceList {
	result := corev1.ResourceList{}
	for name, quantity := range offered {
		if len(result) < maxResources && quantity.Sign() >= 0 && len(validation.IsQualifiedName(string(name))) == 0 {
			result[name] = quantity
		}
	}
	return result
}

// maxFeatures limits how many features a remote cluster may declare.
const maxFeatures = 64

// featureName matches what API servers take as the name of a declared feature.
var featureName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*(/[A-Za-z][A-Za-z0-9]*)*$`)

// features returns the declared features that are valid for a node, in the order that API servers want.
func features(declared []string) []string {
	var kept []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(declared))) {
		if len(kept) < maxFeatures && len(name) <= 253 && featureName.MatchString(name) {
			kept = append(kept, name)
		}
	}
	return kept
}

func validLabel(value string) bool { return len(validation.IsValidLabelValue(value)) == 0 }

// short returns a word if it fits into a node's information, or nothing.
func short(word string) string {
	if len(word) > 63 || strings.ContainsAny(word, " \t\r\n") {
		return ""
	}
	return word
}

// clip shortens a sentence of the remote cluster.
func clip(message string) string {
	const most = 512
	if len(message) > most {
		return sentence.Cut(message, most) + "…"
	}
	return message
}
