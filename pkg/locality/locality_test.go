package locality_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func without(key string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpDoesNotExist}
}

func term(expressions ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: expressions}
}

func fields(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: requirements}
}

func selector(terms ...corev1.NodeSelectorTerm) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: terms}
}

func affinity(terms ...corev1.NodeSelectorTerm) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: selector(terms...)}
}

func TestOfNode(t *testing.T) {
	for name, test := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"a node without labels is at home":         {want: keys.Home},
		"a node without the label is at home":      {labels: map[string]string{"zone": "a"}, want: keys.Home},
		"a node with the label stands for it":      {labels: map[string]string{keys.Cluster: "west"}, want: "west"},
		"a node with an empty label names none":    {labels: map[string]string{keys.Cluster: ""}, want: keys.Home},
		"a label of another prefix does not count": {labels: map[string]string{"other.dev/cluster": "west"}, want: keys.Home},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, locality.OfNode(test.labels))
		})
	}
}

func TestAnd(t *testing.T) {
	zone, disk, west := in("zone", "a"), in("disk", "ssd"), in(keys.Cluster, "west")
	name := in("metadata.name", "node-1")
	nothing := selector(corev1.NodeSelectorTerm{})
	for sentence, test := range map[string]struct{ a, b, want *corev1.NodeSelector }{
		"one term each is one term with both": {
			a: selector(term(zone)), b: selector(term(west)), want: selector(term(zone, west))},
		"alternatives stay alternatives, each with the other side": {
			a: selector(term(zone), term(disk)), b: selector(term(west)), want: selector(term(zone, west), term(disk, west))},
		"alternatives on both sides are every pair": {
			a: selector(term(zone), term(disk)), b: selector(term(west), term(name)),
			want: selector(term(zone, west), term(zone, name), term(disk, west), term(disk, name))},
		"fields are kept beside expressions": {
			a: selector(fields(name)), b: selector(term(west)),
			want: selector(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{west},
				MatchFields: []corev1.NodeSelectorRequirement{name}})},
		"fields of both sides are kept": {
			a: selector(fields(name)), b: selector(fields(in("metadata.name", "node-2"))),
			want: selector(fields(name, in("metadata.name", "node-2")))},
		"the same requirement is not written twice": {
			a: selector(term(zone, west)), b: selector(term(west)), want: selector(term(zone, west))},
		"other values of the same key are another requirement": {
			a: selector(term(in("zone", "a", "b"))), b: selector(term(zone)), want: selector(term(in("zone", "a", "b"), zone))},
		"an empty term matches no node and drops out": {
			a: selector(corev1.NodeSelectorTerm{}, term(zone)), b: selector(term(west)), want: selector(term(zone, west))},
		"only empty terms match no node":              {a: nothing, b: selector(term(west)), want: nothing},
		"only empty terms on the right match no node": {a: selector(term(west)), b: nothing, want: nothing},
		"no terms at all match no node":               {a: selector(), b: selector(term(west)), want: nothing},
	} {
		t.Run(sentence, func(t *testing.T) {
			a, b := test.a.DeepCopy(), test.b.DeepCopy()
			assert.Equal(t, test.want, locality.And(test.a, test.b))
			assert.Equal(t, a, test.a, "the left argument is not changed")
			assert.Equal(t, b, test.b, "the right argument is not changed")
		})
	}
}

func TestAndSharesNothingWithItsArguments(t *testing.T) {
	a := selector(term(in("zone", "a")))
	result := locality.And(a, selector(term(in(keys.Cluster, "west"))))
	result.NodeSelectorTerms[0].MatchExpressions[0].Values[0] = "changed"
	assert.Equal(t, selector(term(in("zone", "a"))), a)
}

func TestAffinity(t *testing.T) {
	for name, test := range map[string]struct {
		cluster string
		real    *corev1.VolumeNodeAffinity
		want    *corev1.VolumeNodeAffinity
	}{
		"a remote volume is for the nodes that stand for its cluster": {
			cluster: "west", want: affinity(term(in(keys.Cluster, "west")))},
		"a volume at home is for the nodes that stand for no cluster": {
			cluster: keys.Home, want: affinity(term(without(keys.Cluster)))},
		"a real volume with an affinity without terms adds nothing": {
			cluster: keys.Home, real: &corev1.VolumeNodeAffinity{}, want: affinity(term(without(keys.Cluster)))},
		"a real volume of one node stays with that node": {
			cluster: keys.Home, real: affinity(term(in(corev1.LabelHostname, "node-1"))),
			want: affinity(term(in(corev1.LabelHostname, "node-1"), without(keys.Cluster)))},
		"a real volume of several zones stays with each of them": {
			cluster: keys.Home, real: affinity(term(in("zone", "a")), term(in("zone", "b"))),
			want: affinity(term(in("zone", "a"), without(keys.Cluster)), term(in("zone", "b"), without(keys.Cluster)))},
	} {
		t.Run(name, func(t *testing.T) {
			got := locality.Affinity(test.cluster, test.real)
			assert.Equal(t, test.want, got)
			cluster, ok := locality.OfVolume(got)
			require.True(t, ok, "what is written can be read")
			assert.Equal(t, test.cluster, cluster)
		})
	}
}

func TestOfVolume(t *testing.T) {
	west, zone := in(keys.Cluster, "west"), in("zone", "a")
	for name, test := range map[string]struct {
		affinity *corev1.VolumeNodeAffinity
		want     string
	}{
		"no affinity confines nothing":                    {},
		"an affinity without a selector confines nothing": {affinity: &corev1.VolumeNodeAffinity{}},
		"a selector without terms confines nothing":       {affinity: affinity()},
		"an affinity of another kind confines nothing":    {affinity: affinity(term(zone))},
		"one empty term confines nothing":                 {affinity: affinity(corev1.NodeSelectorTerm{})},
		"fields alone confine nothing":                    {affinity: affinity(fields(in("metadata.name", "west")))},
		"the label in one cluster is that cluster":        {affinity: affinity(term(west)), want: "west"},
		"the absent label is home":                        {affinity: affinity(term(without(keys.Cluster))), want: keys.Home},
		"other requirements beside it do not matter":      {affinity: affinity(term(zone, west)), want: "west"},
		"all terms of one cluster are that cluster":       {affinity: affinity(term(west), term(zone, west)), want: "west"},
		"terms of two clusters are neither":               {affinity: affinity(term(west), term(in(keys.Cluster, "east")))},
		"terms of home and of a cluster are neither":      {affinity: affinity(term(without(keys.Cluster)), term(west))},
		"one term without the label confines nothing":     {affinity: affinity(term(west), term(zone))},
		"several values confine to no single cluster":     {affinity: affinity(term(in(keys.Cluster, "west", "east")))},
		"an empty value is no cluster":                    {affinity: affinity(term(in(keys.Cluster, "")))},
		"no value is no cluster":                          {affinity: affinity(term(in(keys.Cluster)))},
		"that the label exists confines to no single cluster": {affinity: affinity(term(
			corev1.NodeSelectorRequirement{Key: keys.Cluster, Operator: corev1.NodeSelectorOpExists}))},
		"that the label is another confines to no single cluster": {affinity: affinity(term(
			corev1.NodeSelectorRequirement{Key: keys.Cluster, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"west"}}))},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, ok := locality.OfVolume(test.affinity)
			assert.Equal(t, test.want, cluster)
			assert.Equal(t, test.want != "", ok)
		})
	}
}

func TestOfVolumesAsksForNodesThatKnowNames(t *testing.T) {
	plain := locality.Affinity("west", nil)
	got := locality.OfVolumes(plain)
	assert.Equal(t, affinity(term(in(keys.Cluster, "west"), in(keys.Claims, keys.ClaimsOfVolumes))), got)
	assert.Equal(t, locality.Affinity("west", nil), plain, "the argument is not changed")
	cluster, confined := locality.OfVolume(got)
	assert.True(t, confined)
	assert.Equal(t, "west", cluster)
}
