package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// place keeps of a pod's wishes where to run those that mean the same in the
// remote cluster: the kind of machine, and which pods share a node. The others
// chose among home's nodes, and have done so.
func place(spec *corev1.PodSpec, mapped Mapping) {
	for key := range spec.NodeSelector {
		if !machine(key) {
			delete(spec.NodeSelector, key)
		}
	}
	if affinity := spec.Affinity; affinity != nil {
		spec.Affinity = nil
		kept := corev1.Affinity{
			NodeAffinity:    nodeAffinity(affinity.NodeAffinity),
			PodAffinity:     podAffinity(affinity.PodAffinity, mapped),
			PodAntiAffinity: podAntiAffinity(affinity.PodAntiAffinity, mapped),
		}
		if kept != (corev1.Affinity{}) {
			spec.Affinity = &kept
		}
	}
	spec.TopologySpreadConstraints = slices.DeleteFunc(spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.TopologyKey != corev1.LabelHostname
	})
	spec.Tolerations = slices.DeleteFunc(spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == keys.RemoteTaint })
}

// machine says whether a node label tells the kind of machine.
func machine(label string) bool {
	return label == corev1.LabelOSStable || label == corev1.LabelArchStable
}

func machineTerm(term corev1.NodeSelectorTerm) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: slices.DeleteFunc(slices.Clone(term.MatchExpressions), func(r corev1.NodeSelectorRequirement) bool {
		return !machine(r.Key)
	})}
}

func nodeAffinity(affinity *corev1.NodeAffinity) *corev1.NodeAffinity {
	if affinity == nil {
		return nil
	}
	var kept corev1.NodeAffinity
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		terms := make([]corev1.NodeSelectorTerm, 0, len(required.NodeSelectorTerms))
		for _, term := range required.NodeSelectorTerms {
			terms = append(terms, machineTerm(term))
		}
		// The terms are alternatives: where one asks for no kind of machine, all
		// together ask for none.
		if len(terms) > 0 && !slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool { return len(t.MatchExpressions) == 0 }) {
			kept.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
		}
	}
	for _, preferred := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		if preferred.Preference = machineTerm(preferred.Preference); len(preferred.Preference.MatchExpressions) > 0 {
			kept.PreferredDuringSchedulingIgnoredDuringExecution = append(kept.PreferredDuringSchedulingIgnoredDuringExecution, preferred)
		}
	}
	if kept.RequiredDuringSchedulingIgnoredDuringExecution == nil && kept.PreferredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return &kept
}

func podAffinity(affinity *corev1.PodAffinity, mapped Mapping) *corev1.PodAffinity {
	if affinity == nil {
		return nil
	}
	kept := corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  podTerms(affinity.RequiredDuringSchedulingIgnoredDuringExecution, mapped),
		PreferredDuringSchedulingIgnoredDuringExecution: weightedTerms(affinity.PreferredDuringSchedulingIgnoredDuringExecution, mapped),
	}
	if kept.RequiredDuringSchedulingIgnoredDuringExecution == nil && kept.PreferredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return &kept
}

func podAntiAffinity(affinity *corev1.PodAntiAffinity, mapped Mapping) *corev1.PodAntiAffinity {
	if affinity == nil {
		return nil
	}
	kept := podAffinity(&corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  affinity.RequiredDuringSchedulingIgnoredDuringExecution,
		PreferredDuringSchedulingIgnoredDuringExecution: affinity.PreferredDuringSchedulingIgnoredDuringExecution,
	}, mapped)
	if kept == nil {
		return nil
	}
	return &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  kept.RequiredDuringSchedulingIgnoredDuringExecution,
		PreferredDuringSchedulingIgnoredDuringExecution: kept.PreferredDuringSchedulingIgnoredDuringExecution,
	}
}

func podTerms(terms []corev1.PodAffinityTerm, mapped Mapping) []corev1.PodAffinityTerm {
	var kept []corev1.PodAffinityTerm
	for _, term := range terms {
		if term.TopologyKey == corev1.LabelHostname {
			kept = append(kept, remapped(term, mapped))
		}
	}
	return kept
}

func weightedTerms(terms []corev1.WeightedPodAffinityTerm, mapped Mapping) []corev1.WeightedPodAffinityTerm {
	var kept []corev1.WeightedPodAffinityTerm
	for _, term := range terms {
		if term.PodAffinityTerm.TopologyKey == corev1.LabelHostname {
			term.PodAffinityTerm = remapped(term.PodAffinityTerm, mapped)
			kept = append(kept, term)
		}
	}
	return kept
}

func remapped(term corev1.PodAffinityTerm, mapped Mapping) corev1.PodAffinityTerm {
	names := make([]string, len(term.Namespaces))
	for i, name := range term.Namespaces {
		names[i] = mapped(name)
	}
	if len(names) > 0 {
		term.Namespaces = names
	}
	return term
}
