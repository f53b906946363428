// Package nodeaccess reads from a real volume's node affinity on which nodes of its cluster
// it can be used. A volume on the disk of a node is lost with that node. Start with Allows,
// for one node, and Lost, for all nodes of a cluster.
package nodeaccess

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// maxNames bounds how many nodes a message names.
const maxNames = 3

// Confined says whether a volume can be used on some nodes only.
func Confined(volume *corev1.PersistentVolume) bool {
	return volume != nil && volume.Spec.NodeAffinity != nil && volume.Spec.NodeAffinity.Required != nil
}

// Allows says whether a volume can be used on a node. Nodes that represent another cluster
// do not count. A node affinity that cannot be parsed restricts nothing.
func Allows(volume *corev1.PersistentVolume, node metav1.Object) bool {
	if _, virtual := node.GetLabels()[keys.Cluster]; virtual {
		return false
	}
	if !Confined(volume) {
		return true
	}
	selector, err := nodeaffinity.NewNodeSelector(volume.Spec.NodeAffinity.Required)
	if err != nil {
		return true
	}
	return match(selector, node)
}

func match(selector *nodeaffinity.NodeSelector, node metav1.Object) bool {
	return selector.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.GetName(), Labels: node.GetLabels()}})
}

// Lost names the nodes on which a volume could be used: in gone if none of them exists in
// the cluster, in down if some exist but none is ready. Both are empty if at least one is
// ready, or if the volume is not confined. The key of nodes in the store is their name.
func Lost(volume *corev1.PersistentVolume, nodes cache.Store) (gone, down string) {
	if !Confined(volume) {
		return "", ""
	}
	selector, err := nodeaffinity.NewNodeSelector(volume.Spec.NodeAffinity.Required)
	if err != nil {
		return "", ""
	}
	named := names(volume.Spec.NodeAffinity.Required)
	for _, name := range named {
		// A label usually has the node's name as its value; then one lookup is enough.
		if obj, ok, err := nodes.GetByKey(name); err == nil && ok && !Down(obj) && usable(selector, obj) {
			return "", ""
		}
	}
	there := false
	for _, obj := range nodes.List() {
		if !usable(selector, obj) {
			continue
		}
		if there = true; !Down(obj) {
			return "", ""
		}
	}
	if there {
		return "", list(named)
	}
	return list(named), ""
}

func list(named []string) string {
	if len(named) == 0 {
		return "nodes that its node affinity describes"
	}
	if len(named) > maxNames {
		return fmt.Sprintf("%s and %d more", strings.Join(named[:maxNames], ", "), len(named)-maxNames)
	}
	return strings.Join(named, ", ")
}

func usable(selector *nodeaffinity.NodeSelector, obj any) bool {
	node, ok := obj.(metav1.Object)
	if !ok {
		return false
	}
	_, virtual := node.GetLabels()[keys.Cluster]
	return !virtual && match(selector, node)
}

// names returns the values that a selector asks for, in order and unquoted.
func names(selector *corev1.NodeSelector) []string {
	var values []string
	for _, term := range selector.NodeSelectorTerms {
		for _, r := range slices.Concat(term.MatchFields, term.MatchExpressions) {
			if r.Operator == corev1.NodeSelectorOpIn {
				values = append(values, r.Values...)
			}
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// Down says whether a node is known not to be ready. A node without the condition Ready
// counts as ready.
func Down(obj any) bool {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return false
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status != corev1.ConditionTrue
		}
	}
	return false
}

// AddNames adds the strings by which a volume's node affinity may refer to a node: its name
// and the values of its labels.
func AddNames(names map[string]bool, node *corev1.Node) {
	names[node.Name] = true
	for _, value := range node.Labels {
		names[value] = true
	}
}

// MayBeConfinedTo says whether a volume may be confined to nodes with some of these names.
// It can report volumes that are not, but is cheap enough to be called for every volume.
// Whether such a node exists, Allows and Lost answer.
func MayBeConfinedTo(volume *corev1.PersistentVolume, names map[string]bool) bool {
	if !Confined(volume) {
		return false
	}
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		values, others := false, false
		for _, list := range [][]corev1.NodeSelectorRequirement{term.MatchFields, term.MatchExpressions} {
			for _, r := range list {
				if r.Key == keys.Cluster {
					continue // This restricts it to a cluster, not to a node.
				}
				others = true
				if r.Operator != corev1.NodeSelectorOpIn {
					continue
				}
				values = true
				for _, value := range r.Values {
					if names[value] {
						return true
					}
				}
			}
		}
		if others && !values {
			return true
		}
	}
	return false
}
