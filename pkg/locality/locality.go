// Package locality says in which cluster a volume's data is and may be. The cluster that holds it is in the
// node affinity of the PersistentVolume: the provisioner writes it (Affinity), the extender reads it (Of), and
// kube-scheduler enforces it. Which clusters and nodes could not take a claim lately is in an annotation of the
// claim (Refusal). The two programs exchange nothing else. OfNode returns the cluster of a node; UsableIn says
// whether pods of a cluster can use a claim of home. The package is pure.
package locality

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// OfNode returns the ID of the cluster that a node with these labels stands for;
// keys.Home for a node of the home cluster.
func OfNode(labels map[string]string) string {
	if cluster := labels[keys.Cluster]; cluster != "" {
		return cluster
	}
	return keys.Home
}

// Affinity returns the node affinity of a virtual volume whose data is in
// cluster: the nodes that stand for that cluster and, where the real volume is
// reachable only from some nodes of the home cluster, only those. real is the
// affinity of the real volume, nil if it has none; it is not changed.
func Affinity(cluster string, real *corev1.VolumeNodeAffinity) *corev1.VolumeNodeAffinity {
	selector := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{requirement(cluster)}},
	}}
	if real != nil && real.Required != nil {
		selector = And(real.Required, selector)
	}
	return &corev1.VolumeNodeAffinity{Required: selector}
}

func requirement(cluster string) corev1.NodeSelectorRequirement {
	if cluster == keys.Home {
		return corev1.NodeSelectorRequirement{Key: keys.Cluster, Operator: corev1.NodeSelectorOpDoesNotExist}
	}
	return corev1.NodeSelectorRequirement{Key: keys.Cluster, Operator: corev1.NodeSelectorOpIn, Values: []string{cluster}}
}

// OfVolumes returns the affinity of a virtual volume whose backing claim in a remote
// cluster has another name than the virtual claim: of the nodes that affinity allows,
// those whose pods get the claims that volumes name. The argument is not changed.
func OfVolumes(affinity *corev1.VolumeNodeAffinity) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: And(affinity.Required, &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: keys.Claims, Operator: corev1.NodeSelectorOpIn,
			Values: []string{keys.ClaimsOfVolumes}}}},
	}})}
}

// Of returns the ID of the cluster that holds a volume's data, empty when it may
// be anywhere. hard: pods that use the volume have to run there. Where the node
// affinity states a cluster, as that of each virtual volume does, labels count
// for nothing; else the cluster is what an administrator has labelled the volume
// with, and hard only if the label keys.Locality says so.
func Of(pv *corev1.PersistentVolume) (cluster string, hard bool) {
	if cluster, confined := OfVolume(pv.Spec.NodeAffinity); confined {
		return cluster, true
	}
	cluster = pv.Labels[keys.Cluster]
	return cluster, cluster != "" && pv.Labels[keys.Locality] == keys.LocalityRequired
}

// OfVolume returns the ID of the cluster that holds a volume's data as its node
// affinity states it. The second result is false when the affinity does not
// confine the volume to one cluster, as with any volume that is not virtual.
func OfVolume(affinity *corev1.VolumeNodeAffinity) (string, bool) {
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) == 0 {
		return "", false
	}
	cluster := ""
	for _, term := range affinity.Required.NodeSelectorTerms {
		of, ok := ofTerm(term)
		if !ok || (cluster != "" && of != cluster) {
			return "", false
		}
		cluster = of
	}
	return cluster, true
}

func ofTerm(term corev1.NodeSelectorTerm) (string, bool) {
	for _, r := range term.MatchExpressions {
		if r.Key != keys.Cluster {
			continue
		}
		switch {
		case r.Operator == corev1.NodeSelectorOpDoesNotExist:
			return keys.Home, true
		case r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 && r.Values[0] != "":
			return r.Values[0], true
		}
	}
	return "", false
}

// And returns a selector that matches the nodes that both a and b match. The
// terms of a selector are alternatives, so the result holds every pair of a term
// of a and a term of b. A term without requirements matches no node, and
// neither does a pair with one. The arguments are not changed.
func And(a, b *corev1.NodeSelector) *corev1.NodeSelector {
	result := &corev1.NodeSelector{}
	for _, left := range a.NodeSelectorTerms {
		for _, right := range b.NodeSelectorTerms {
			if empty(left) || empty(right) {
				continue
			}
			result.NodeSelectorTerms = append(result.NodeSelectorTerms, corev1.NodeSelectorTerm{
				MatchExpressions: union(left.MatchExpressions, right.MatchExpressions),
				MatchFields:      union(left.MatchFields, right.MatchFields),
			})
		}
	}
	if len(result.NodeSelectorTerms) == 0 {
		// No term at all is invalid in a PersistentVolume; an empty one says
		// the same: no node.
		result.NodeSelectorTerms = []corev1.NodeSelectorTerm{{}}
	}
	return result
}

func empty(term corev1.NodeSelectorTerm) bool {
	return len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0
}

func union(a, b []corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	var result []corev1.NodeSelectorRequirement
	for _, r := range slices.Concat(a, b) {
		if !slices.ContainsFunc(result, func(have corev1.NodeSelectorRequirement) bool {
			return have.Key == r.Key && have.Operator == r.Operator && slices.Equal(have.Values, r.Values)
		}) {
			result = append(result, *r.DeepCopy())
		}
	}
	return result
}
