// Package reach tells whether a real volume can still be used in its cluster: one
// on the disk of a node goes with that node.
package reach

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

// maxNames bounds how many nodes a sentence names.
const maxNames = 3

// Confined says whether a volume can be used on some nodes only.
func Confined(volume *corev1.PersistentVolume) bool {
	return volume != nil && volume.Spec.NodeAffinity != nil && volume.Spec.NodeAffinity.Required != nil
}

// Allows says whether a volume can be used on a node. Nodes that stand for another
// cluster do not count. What cannot be read confines nothing.
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

// Lost says on what nodes a volume could be used: as gone if none of them is among
// those of its cluster, as down if none of those that are is ready; empty if one is.
// The nodes are kept by name.
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
		// Mostly a label has the value of the node's name: then no others are looked at.
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

// names returns the values that a selector asks for, in order and quoted by nobody.
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
