package reach

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Down says whether a node is known not to be ready. One of which nobody has said
// that is taken to be.
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

// AddPlaces adds what a volume's node affinity may call a node by: its name, and the
// values of its labels.
func AddPlaces(places map[string]bool, node *corev1.Node) {
	places[node.Name] = true
	for _, value := range node.Labels {
		places[value] = true
	}
}

// Among says whether a volume may be confined to one of some places. It may say so of
// others, but is cheap enough to be asked of all volumes; whether there is such a
// node is for Allows and Lost.
func Among(volume *corev1.PersistentVolume, places map[string]bool) bool {
	if !Confined(volume) {
		return false
	}
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		values, others := false, false
		for _, list := range [][]corev1.NodeSelectorRequirement{term.MatchFields, term.MatchExpressions} {
			for _, r := range list {
				if r.Key == keys.Cluster {
					continue // That confines it to a cluster.
				}
				others = true
				if r.Operator != corev1.NodeSelectorOpIn {
					continue
				}
				values = true
				for _, value := range r.Values {
					if places[value] {
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
