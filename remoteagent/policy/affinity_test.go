package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// reach returns which of some namespaces a term means, as the scheduler reads it.
func reach(t *testing.T, term corev1.PodAffinityTerm) []string {
	t.Helper()
	if len(term.Namespaces) == 0 && term.NamespaceSelector == nil {
		return []string{"own namespace"}
	}
	selector, err := metav1.LabelSelectorAsSelector(term.NamespaceSelector)
	require.NoError(t, err)
	all := map[string]labels.Set{
		"shop": {keys.HomeID: "h1"}, "bank": {keys.HomeID: "h1"}, "theirs": {keys.HomeID: "h2"}, "kube-system": {},
	}
	var reached []string
	for _, name := range []string{"shop", "bank", "theirs", "kube-system"} {
		if selector.Matches(all[name]) || len(term.Namespaces) > 0 && assert.ObjectsAreEqual(term.Namespaces, []string{name}) {
			reached = append(reached, name)
		}
	}
	return reached
}

func TestTermsOnOtherPodsReachOnlyPodsOfTheSameHome(t *testing.T) {
	everything := func() *metav1.LabelSelector { return &metav1.LabelSelector{} }
	for name, test := range map[string]struct {
		term corev1.PodAffinityTerm
		want []string
	}{
		"no namespaces":                 {want: []string{"own namespace"}},
		"all namespaces":                {term: corev1.PodAffinityTerm{NamespaceSelector: everything()}, want: []string{"shop", "bank"}},
		"selected ones of another home": {term: corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{keys.HomeID: "h2"}}}},
		"ones without the label": {term: corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: keys.HomeID, Operator: metav1.LabelSelectorOpDoesNotExist}}}}},
		"its own by name":             {term: corev1.PodAffinityTerm{Namespaces: []string{"shop"}}, want: []string{"shop"}},
		"its own and another by name": {term: corev1.PodAffinityTerm{Namespaces: []string{"kube-system", "shop"}}, want: []string{"shop"}},
		"others by name":              {term: corev1.PodAffinityTerm{Namespaces: []string{"kube-system", "theirs"}}},
		"others by name, and all of them": {term: corev1.PodAffinityTerm{Namespaces: []string{"theirs"}, NamespaceSelector: everything()},
			want: []string{"shop", "bank"}},
	} {
		t.Run(name, func(t *testing.T) {
			required := func() []corev1.PodAffinityTerm { return []corev1.PodAffinityTerm{*test.term.DeepCopy()} }
			preferred := func() []corev1.WeightedPodAffinityTerm {
				return []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: *test.term.DeepCopy()}}
			}
			affinity := NewPod(shadowPod("", func(s *remotev1alpha1.ShadowPod) {
				s.Spec.Pod.Spec.Affinity = &corev1.Affinity{
					PodAffinity:     &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required(), PreferredDuringSchedulingIgnoredDuringExecution: preferred()},
					PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required(), PreferredDuringSchedulingIgnoredDuringExecution: preferred()},
				}
			}), home).Spec.Affinity
			for _, term := range []corev1.PodAffinityTerm{
				affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0],
				affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm,
				affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0],
				affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm,
			} {
				assert.Equal(t, test.want, reach(t, term))
			}
		})
	}
}
