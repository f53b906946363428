package nodeaccess_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/nodeaccess"
)

func on(terms ...corev1.NodeSelectorTerm) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}},
	}
}

func label(key string, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn,
		Values: values}}}
}

func named(name string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn,
		Values: []string{name}}}}
}

func TestAVolumeIsLostWithTheNodesThatItIsConfinedTo(t *testing.T) {
	nodes := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for name, labels := range map[string]map[string]string{
		"one": {corev1.LabelHostname: "one", "zone": "a"}, "two": {corev1.LabelHostname: "other", "zone": "b"},
		"virtual": {keys.Cluster: "west", corev1.LabelHostname: "virtual", "zone": "w"},
	} {
		assert.NoError(t, nodes.Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
	}
	absent := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "absent",
		Operator: corev1.NodeSelectorOpExists}}}
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		lost   string
	}{
		"no volume":                             {},
		"a volume of the network":               {volume: &corev1.PersistentVolume{}},
		"on a node that is there":               {volume: on(label(corev1.LabelHostname, "one"))},
		"on a node whose label is not its name": {volume: on(label(corev1.LabelHostname, "other"))},
		"in a zone that has a node":             {volume: on(label("zone", "b"))},
		"on one of several nodes":               {volume: on(label(corev1.LabelHostname, "gone"), named("two"))},
		"on a node that is gone":                {volume: on(label(corev1.LabelHostname, "gone")), lost: "gone"},
		"on a node of another name":             {volume: on(label(corev1.LabelHostname, "two")), lost: "two"},
		"on a node by its name":                 {volume: on(named("gone")), lost: "gone"},
		"in a zone without nodes":               {volume: on(label("zone", "c")), lost: "c"},
		"on many nodes that are gone":           {volume: on(label("zone", "f", "e", "d", "c", "c")), lost: "c, d, e and 1 more"},
		"where only a virtual node is":          {volume: on(label("zone", "w")), lost: "w"},
		"by a label that nobody has":            {volume: on(absent), lost: "nodes that its node affinity describes"},
	} {
		t.Run(name, func(t *testing.T) {
			gone, down := nodeaccess.Lost(test.volume, nodes)
			assert.Equal(t, test.lost, gone)
			assert.Empty(t, down)
		})
	}
}

func TestAVolumeCanBeUsedOnTheNodesThatItIsConfinedTo(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"zone": "a"}}}
	assert.True(t, nodeaccess.Allows(on(label("zone", "a")), node))
	assert.False(t, nodeaccess.Allows(on(label("zone", "b")), node))
	assert.True(t, nodeaccess.Allows(&corev1.PersistentVolume{}, node))
	node.Labels[keys.Cluster] = "west"
	assert.False(t, nodeaccess.Allows(on(label("zone", "a")), node), "it stands for another cluster")
}

func TestAVolumeIsDownWithTheNodesThatItIsConfinedTo(t *testing.T) {
	nodes := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for name, status := range map[string]corev1.ConditionStatus{"up": corev1.ConditionTrue, "down": corev1.ConditionUnknown,
		"broken": corev1.ConditionFalse, "new": ""} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
		if status != "" {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue},
				{Type: corev1.NodeReady, Status: status}}
		}
		assert.NoError(t, nodes.Add(node))
		assert.Equal(t, name == "down" || name == "broken", nodeaccess.Down(node), name)
	}
	for name, test := range map[string]struct {
		on         []string
		gone, down string
	}{
		"one that is ready":           {on: []string{"up"}},
		"one of which nobody said it": {on: []string{"new"}},
		"one that is not":             {on: []string{"down"}, down: "down"},
		"two that are not":            {on: []string{"down", "broken"}, down: "broken, down"},
		"one of two is":               {on: []string{"down", "up"}},
		"one is gone, one is not":     {on: []string{"gone", "broken"}, down: "broken, gone"},
		"one that is gone":            {on: []string{"gone"}, gone: "gone"},
	} {
		gone, down := nodeaccess.Lost(on(label(corev1.LabelHostname, test.on...)), nodes)
		assert.Equal(t, [2]string{test.gone, test.down}, [2]string{gone, down}, name)
	}
}

func TestVolumesThatMayBeConfinedToAPlace(t *testing.T) {
	places := map[string]bool{}
	nodeaccess.AddNames(places, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"zone": "a"}}})
	cluster := corev1.NodeSelectorRequirement{Key: keys.Cluster, Operator: corev1.NodeSelectorOpDoesNotExist}
	exists := corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpExists}
	both := label("zone", "a")
	both.MatchExpressions = append(both.MatchExpressions, cluster)
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		want   bool
	}{
		"a volume of the network":       {volume: &corev1.PersistentVolume{}},
		"one that is only in a cluster": {volume: on(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{cluster}})},
		"one in its zone":               {volume: on(label("zone", "b"), both), want: true},
		"one on it by its name":         {volume: on(named("one")), want: true},
		"one in another zone":           {volume: on(label("zone", "b"))},
		"one by what nodes have": {volume: on(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{exists}}),
			want: true},
	} {
		assert.Equal(t, test.want, nodeaccess.MayBeConfinedTo(test.volume, places), name)
	}
}
