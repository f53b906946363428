package virtualclass

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Topologies returns the allowedTopologies of the classes that confine where their
// volumes are, by class name. Of a virtual class kube-scheduler heeds them by itself;
// of the real one behind it, it knows nothing.
func Topologies(classes []*storagev1.StorageClass) map[string][]corev1.TopologySelectorTerm {
	confined := map[string][]corev1.TopologySelectorTerm{}
	for _, class := range classes {
		if len(class.AllowedTopologies) > 0 {
			confined[class.Name] = class.AllowedTopologies
		}
	}
	return confined
}

// Within says whether a node with some labels is in one of the terms, as
// kube-scheduler does: no terms select every node, a term without expressions none.
func Within(terms []corev1.TopologySelectorTerm, labels map[string]string) bool {
	return len(terms) == 0 || slices.ContainsFunc(terms, func(term corev1.TopologySelectorTerm) bool {
		return len(term.MatchLabelExpressions) > 0 && !slices.ContainsFunc(term.MatchLabelExpressions, func(e corev1.TopologySelectorLabelRequirement) bool {
			value, ok := labels[e.Key]
			return !ok || !slices.Contains(e.Values, value)
		})
	})
}
