package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// own has terms on other pods count only pods of the same home cluster. The
// scheduler heeds a pod's anti-affinity for pods that come later too: a term over
// all namespaces would keep everybody else's pods off its nodes.
func own(affinity *corev1.Affinity, namespace, home string) {
	if with := affinity.PodAffinity; with != nil {
		ownTerms(with.RequiredDuringSchedulingIgnoredDuringExecution, namespace, home)
		ownWeighted(with.PreferredDuringSchedulingIgnoredDuringExecution, namespace, home)
	}
	if apart := affinity.PodAntiAffinity; apart != nil {
		ownTerms(apart.RequiredDuringSchedulingIgnoredDuringExecution, namespace, home)
		ownWeighted(apart.PreferredDuringSchedulingIgnoredDuringExecution, namespace, home)
	}
}

func ownTerms(terms []corev1.PodAffinityTerm, namespace, home string) {
	for i := range terms {
		ownTerm(&terms[i], namespace, home)
	}
}

func ownWeighted(terms []corev1.WeightedPodAffinityTerm, namespace, home string) {
	for i := range terms {
		ownTerm(&terms[i].PodAffinityTerm, namespace, home)
	}
}

// ownTerm narrows one term. A term means the namespaces that it lists and those
// that it selects; without either, the pod's own.
func ownTerm(term *corev1.PodAffinityTerm, namespace, home string) {
	if selector := term.NamespaceSelector; selector != nil {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: keys.HomeID, Operator: metav1.LabelSelectorOpIn, Values: []string{home},
		})
	}
	if len(term.Namespaces) == 0 {
		return
	}
	listed := slices.Contains(term.Namespaces, namespace)
	switch {
	case listed:
		term.Namespaces = []string{namespace}
	case term.NamespaceSelector != nil:
		term.Namespaces = nil
	default:
		// An empty list would mean the pod's own namespace: this means none.
		term.Namespaces = nil
		term.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: keys.HomeID, Operator: metav1.LabelSelectorOpIn, Values: []string{home}},
			{Key: keys.HomeID, Operator: metav1.LabelSelectorOpDoesNotExist},
		}}
	}
}
