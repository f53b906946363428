package translate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func term(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: requirements}
}

func required(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
}

func preferred(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	var weighted []corev1.PreferredSchedulingTerm
	for _, t := range terms {
		weighted = append(weighted, corev1.PreferredSchedulingTerm{Weight: 1, Preference: t})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted}}
}

func TestNodeAffinityKeepsOnlyTheKindOfMachine(t *testing.T) {
	arm, west, zone := in(corev1.LabelArchStable, "arm64"), in(keys.Cluster, "west"), in(corev1.LabelTopologyZone, "a")
	for name, test := range map[string]struct{ affinity, want *corev1.Affinity }{
		"none":                                {},
		"only what chose the virtual node":    {affinity: required(term(west, zone))},
		"a kind of machine beside it":         {affinity: required(term(west, arm)), want: required(term(arm))},
		"an alternative that is for anything": {affinity: required(term(arm), term(west))},
		"two kinds":                           {affinity: required(term(arm), term(zone, arm)), want: required(term(arm), term(arm))},
		"a node by its name":                  {affinity: required(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{in("metadata.name", "west")}})},
		"a wish for a kind of machine":        {affinity: preferred(term(arm), term(zone)), want: preferred(term(arm))},
		"a wish for a place":                  {affinity: preferred(term(zone))},
	} {
		t.Run(name, func(t *testing.T) {
			pod := homePod(func(p *corev1.Pod) { p.Spec.Affinity = test.affinity })
			before := pod.DeepCopy()
			assert.Equal(t, test.want, Template(pod, same).Spec.Affinity)
			assert.Equal(t, before, pod)
		})
	}
}

func TestNodeSelectorKeepsOnlyTheKindOfMachine(t *testing.T) {
	spec := Template(homePod(func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux", corev1.LabelHostname: "west", keys.Cluster: "west", "disk": "ssd"}
	}), same).Spec
	assert.Equal(t, map[string]string{corev1.LabelOSStable: "linux"}, spec.NodeSelector)
}

func TestPodAffinityIsKeptForNodesThatAreShared(t *testing.T) {
	at := func(key string, namespaces ...string) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{TopologyKey: key, Namespaces: namespaces}
	}
	weighted := func(t corev1.PodAffinityTerm) corev1.WeightedPodAffinityTerm {
		return corev1.WeightedPodAffinityTerm{Weight: 1, PodAffinityTerm: t}
	}
	spec := Template(homePod(func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{
			PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				at(corev1.LabelTopologyZone), at(corev1.LabelHostname, "other"),
			}},
			PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				weighted(at(corev1.LabelHostname)), weighted(at("rack")),
			}},
		}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelTopologyZone}, {TopologyKey: corev1.LabelHostname}}
	}), suffixed).Spec
	assert.Equal(t, &corev1.Affinity{
		PodAffinity:     &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{at(corev1.LabelHostname, "other-h1")}},
		PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{weighted(at(corev1.LabelHostname))}},
	}, spec.Affinity)
	assert.Equal(t, []corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelHostname}}, spec.TopologySpreadConstraints)

	zoned := Template(homePod(func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{
			PodAffinity:     &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{at("rack")}},
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{at("rack")}},
		}
	}), same).Spec
	assert.Nil(t, zoned.Affinity)
}
