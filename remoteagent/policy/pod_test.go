package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var home = &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: "h1"}}

func TestNewPodTakesNothingThatIsNotHomesToChoose(t *testing.T) {
	shadow := shadowPod("", neverRestarts, func(s *remotev1alpha1.ShadowPod) {
		spec := &s.Spec.Pod.Spec
		spec.NodeName, spec.SchedulerName, spec.ServiceAccountName = "node", "mine", "admin"
		spec.AutomountServiceAccountToken = ptr.To(true)
		spec.PriorityClassName, spec.Priority = "system-node-critical", ptr.To(int32(1))
		spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}}
		spec.TerminationGracePeriodSeconds = ptr.To(int64(0))
		s.Spec.Pod.Labels[keys.HomeID] = "h2"
		s.Spec.Pod.Labels[keys.PodUID] = "forged"
		s.Spec.Pod.Finalizers = []string{"x"}
		s.Spec.Pod.OwnerReferences = []metav1.OwnerReference{{Name: "x"}}
	})
	before := shadow.DeepCopy()
	pod := NewPod(shadow, home)
	assert.Equal(t, before, shadow, "the ShadowPod is not changed")
	assert.Empty(t, pod.Spec.NodeName+pod.Spec.SchedulerName+pod.Spec.PriorityClassName)
	assert.Nil(t, pod.Spec.Priority)
	assert.Empty(t, pod.Spec.SchedulingGates)
	assert.Equal(t, "default", pod.Spec.ServiceAccountName)
	assert.False(t, *pod.Spec.AutomountServiceAccountToken)
	assert.Equal(t, int64(1), *pod.Spec.TerminationGracePeriodSeconds)
	assert.Equal(t, map[string]string{"app": "web", keys.HomeID: "h1", keys.PodUID: "home-pod"}, pod.Labels)
	assert.Equal(t, []string{keys.UnrecordedFinalizer}, pod.Finalizers)
	require.Len(t, pod.OwnerReferences, 1)
	assert.Equal(t, shadow.UID, pod.OwnerReferences[0].UID)
	assert.True(t, IsPodOf(pod, shadow))
	assert.Nil(t, Patch(shadow, pod), "a new pod is as its template says")
	assert.Empty(t, NewPod(shadowPod(""), home).Finalizers, "one that may be made again is not held")
}

func TestAPodStaysInItsClusterWhateverItsAffinity(t *testing.T) {
	here := corev1.NodeSelectorRequirement{Key: keys.Cluster, Operator: corev1.NodeSelectorOpDoesNotExist}
	zone := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}
	name := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}
	type terms = []corev1.NodeSelectorTerm
	for what, test := range map[string]struct{ have, want terms }{
		"no affinity": {want: terms{{MatchExpressions: []corev1.NodeSelectorRequirement{here}}}},
		"each term, since one is enough": {have: terms{{MatchExpressions: []corev1.NodeSelectorRequirement{zone}},
			{MatchFields: []corev1.NodeSelectorRequirement{name}}},
			want: terms{{MatchExpressions: []corev1.NodeSelectorRequirement{zone, here}},
				{MatchFields: []corev1.NodeSelectorRequirement{name}, MatchExpressions: []corev1.NodeSelectorRequirement{here}}}},
		"an empty term still matches nothing": {have: terms{{}}, want: terms{{}}},
	} {
		t.Run(what, func(t *testing.T) {
			shadow := shadowPod("", func(s *remotev1alpha1.ShadowPod) {
				if test.have != nil {
					s.Spec.Pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
						RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: test.have},
					}}
				}
			})
			pod := NewPod(shadow, home)
			assert.Equal(t, test.want, pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
		})
	}
}

func TestPermit(t *testing.T) {
	given := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.HomeID: "h1"},
		Annotations: map[string]string{keys.MadeFor: "h1/shop"}}}
	theirs := given.DeepCopy()
	theirs.Labels[keys.HomeID] = "h2"
	leaving := home.DeepCopy()
	leaving.DeletionTimestamp = &metav1.Time{}
	token := func(s *remotev1alpha1.ShadowPod) {
		s.Spec.Pod.Spec.Volumes = []corev1.Volume{{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}},
		}}}}
	}
	ephemeral := func(s *remotev1alpha1.ShadowPod) {
		s.Spec.Pod.Spec.Volumes = []corev1.Volume{{Name: "e", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	}
	for name, test := range map[string]struct {
		shadow    *remotev1alpha1.ShadowPod
		namespace *corev1.Namespace
		home      *remotev1alpha1.HomeCluster
		says      string
	}{
		"a generic ephemeral volume":    {shadow: shadowPod("", ephemeral), namespace: given, home: home, says: "make the claim and name it"},
		"its own namespace":             {shadow: shadowPod(""), namespace: given, home: home},
		"no HomeCluster":                {shadow: shadowPod(""), namespace: given, says: "no HomeCluster h1"},
		"a HomeCluster that is leaving": {shadow: shadowPod(""), namespace: given, home: leaving, says: "being removed"},
		"no namespace":                  {shadow: shadowPod(""), home: home, says: "NamespaceRequest"},
		"another home's namespace":      {shadow: shadowPod(""), namespace: theirs, home: home, says: "NamespaceRequest"},
		"a namespace labelled by others": {shadow: shadowPod(""),
			namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: given.Labels}}, home: home, says: "NamespaceRequest"},
		"labels of another pod": {shadow: shadowPod("", func(s *remotev1alpha1.ShadowPod) { s.Labels[keys.PodUID] = "x" }), namespace: given,
			home: home, says: "labels"},
		"a template that is none": {shadow: shadowPod("", unreadable), namespace: given, home: home, says: "not the template of a pod"},
		"claims of devices": {shadow: shadowPod("", func(s *remotev1alpha1.ShadowPod) {
			s.Spec.Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		}), namespace: given, home: home, says: "spec.resourceClaims"},
		"a token of the cluster": {shadow: shadowPod("", token), namespace: given, home: home, says: "Volume t"},
	} {
		t.Run(name, func(t *testing.T) {
			refusal := Permit(test.shadow, test.namespace, test.home)
			if test.says == "" {
				assert.Nil(t, refusal)
				return
			}
			require.NotNil(t, refusal)
			assert.Contains(t, refusal.Message, test.says)
		})
	}
}

func TestPatchCarriesOnlyWhatTheTemplateChanged(t *testing.T) {
	pod := podFor(shadowPod(""))
	pod.Labels["others"] = "label"
	pod.Annotations["others"] = "annotation"
	pod.Spec.Containers[0].Image = "mirror/app:1" // as admission may do
	assert.Nil(t, Patch(shadowPod(""), pod))

	changed := shadowPod("", func(s *remotev1alpha1.ShadowPod) {
		s.Spec.Pod.Labels = map[string]string{"tier": "front"}
		s.Spec.Pod.Annotations = map[string]string{"note": "2"}
		s.Spec.Pod.Spec.InitContainers[0].Image = "init:2"
	})
	patch := Patch(changed, pod)
	metadata := patch["metadata"].(map[string]any)
	assert.Equal(t, map[string]any{"tier": "front", "app": nil}, metadata["labels"])
	annotations := metadata["annotations"].(map[string]any)
	assert.Equal(t, "2", annotations["note"])
	assert.NotContains(t, annotations, "others")
	assert.Equal(t, map[string]any{"initContainers": []map[string]any{{"name": "init", "image": "init:2"}}}, patch["spec"])
	assert.Equal(t, pod.UID, metadata["uid"])

	pod.Annotations[keys.Applied] = "][ nonsense"
	delete(pod.Labels, keys.HomeID)
	labels := Patch(shadowPod(""), pod)["metadata"].(map[string]any)["labels"]
	assert.Equal(t, map[string]any{keys.HomeID: "h1"}, labels, "a label that somebody took off is put back")
}

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
		"no namespaces":  {want: []string{"own namespace"}},
		"all namespaces": {term: corev1.PodAffinityTerm{NamespaceSelector: everything()}, want: []string{"shop", "bank"}},
		"selected ones of another home": {
			term: corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{keys.HomeID: "h2"}}},
		},
		"ones without the label": {term: corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
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
					PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required(),
						PreferredDuringSchedulingIgnoredDuringExecution: preferred()},
					PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required(),
						PreferredDuringSchedulingIgnoredDuringExecution: preferred()},
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
