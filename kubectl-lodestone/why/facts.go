// Package why finds the one sentence why a pod or a claim waits. It is pure: facts
// in, sentence out. What is written with the facts is in package look.
package why

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Setting is what pods and claims of a namespace have in common.
type Setting struct {
	Now       time.Time
	Namespace *corev1.Namespace
	Clusters  []v1alpha1.RemoteCluster
	// Nodes are all nodes. NodesUnknown: they could not be read.
	Nodes        []corev1.Node
	NodesUnknown bool
}

// Claim is what is known of a claim.
type Claim struct {
	Name string
	// Claim is nil if it does not exist; so are Class and Volume.
	Claim  *corev1.PersistentVolumeClaim
	Class  *storagev1.StorageClass
	Volume *corev1.PersistentVolume
	Events []corev1.Event
	// Pods are those that use it.
	Pods []corev1.Pod
}

// Pod is what is known of a pod.
type Pod struct {
	Pod    *corev1.Pod
	Events []corev1.Event
	Claims []Claim
	// Extender is what the extender said of it last, empty if it could not be
	// asked or did not know the pod.
	Extender Said
}

// Verdict is what the extender said of the nodes of one cluster.
type Verdict struct {
	Cluster  string `json:"cluster"`
	Reason   string `json:"reason"`
	Sentence string `json:"sentence"`
	Nodes    int    `json:"nodes"`
}

// Answer is what a user is told.
type Answer struct {
	// Sentence says why it waits, or that it does not.
	Sentence string `json:"sentence"`
	// Waiting is false when nothing is amiss.
	Waiting bool `json:"waiting"`
	// Facts are what the sentence was concluded from, one line each.
	Facts []string `json:"facts,omitempty"`
}

func waits(format string, args ...any) Answer {
	return Answer{Sentence: fmt.Sprintf(format, args...), Waiting: true}
}

func fine(format string, args ...any) Answer {
	return Answer{Sentence: fmt.Sprintf(format, args...)}
}

// node returns a node by name, nil if it does not exist.
func (s Setting) node(name string) *corev1.Node {
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			return &s.Nodes[i]
		}
	}
	return nil
}

// standing returns the nodes that stand for a cluster.
func (s Setting) standing(cluster string) []corev1.Node {
	var nodes []corev1.Node
	for _, node := range s.Nodes {
		if node.Labels[keys.Cluster] == cluster {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// cluster returns a RemoteCluster by name, nil if it does not exist.
func (s Setting) cluster(name string) *v1alpha1.RemoteCluster {
	for i := range s.Clusters {
		if s.Clusters[i].Name == name {
			return &s.Clusters[i]
		}
	}
	return nil
}

// unusable returns why no volume can be made in a remote cluster now; empty if
// one can.
func (s Setting) unusable(name string) string {
	remote := s.cluster(name)
	if remote == nil {
		return fmt.Sprintf("there is no RemoteCluster %q: create it (kubectl lodestone peer)", name)
	}
	ready := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Ready)
	switch {
	case ready == nil:
		return "the provisioner has not looked at it yet: see whether it runs (kubectl get pods -n lodestone-system)"
	case ready.Status != metav1.ConditionTrue:
		return ready.Message
	}
	return ""
}

// remoteReady is the condition of a virtual node that says whether pods can run
// in its cluster; unlike Ready nobody else writes it.
const remoteReady corev1.NodeConditionType = "RemoteReady"

// down returns why a node does not run pods; empty if it does.
func down(node *corev1.Node) string {
	ready := condition(node, corev1.NodeReady)
	if ready != nil && ready.Status == corev1.ConditionTrue {
		return ""
	}
	if remote := condition(node, remoteReady); remote != nil && remote.Status != corev1.ConditionTrue && remote.Message != "" {
		return remote.Message
	}
	if ready == nil {
		return "the node has said nothing yet"
	}
	return cmp.Or(ready.Message, ready.Reason, "the node is not Ready")
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// when returns when an event happened last.
func when(e corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time} {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// latest returns the last event of one of the reasons, nil if there is none.
func latest(events []corev1.Event, reasons map[string]bool) *corev1.Event {
	var found *corev1.Event
	for i := range events {
		if reasons[events[i].Reason] && (found == nil || when(events[i]).After(when(*found))) {
			found = &events[i]
		}
	}
	return found
}

// Newest sorts events, the newest first, and returns at most n.
func Newest(events []corev1.Event, n int) []corev1.Event {
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b corev1.Event) int { return when(b).Compare(when(a)) })
	return sorted[:min(n, len(sorted))]
}
