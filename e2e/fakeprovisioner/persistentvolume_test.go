package fakeprovisioner

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSizesAreRoundedUpToWholeMebibytes(t *testing.T) {
	for request, want := range map[string]string{"0": "1Mi", "1": "1Mi", "1Mi": "1Mi", "1500k": "2Mi", "1G": "954Mi", "5Gi": "5Gi"} {
		rounded := roundUp(resource.MustParse(request))
		assert.Equal(t, want, rounded.String(), request)
	}
}

func TestNodeAffinity(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelHostname: "host-1"}}}
	zones := []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{
		Key: corev1.LabelTopologyZone, Values: []string{"a", "b"},
	}}}}
	required := func(key string, values ...string) *corev1.VolumeNodeAffinity {
		return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}},
		}}}}
	}
	tests := []struct {
		name       string
		topologies []corev1.TopologySelectorTerm
		selected   *corev1.Node
		want       *corev1.VolumeNodeAffinity
	}{
		{name: "without a node and a zone a volume can be reached from everywhere"},
		{name: "a class may confine its volumes to zones", topologies: zones, want: required(corev1.LabelTopologyZone, "a", "b")},
		{name: "a volume for a node can be reached from there alone", topologies: zones, selected: node,
			want: required(corev1.LabelHostname, "host-1")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, nodeAffinity(&storagev1.StorageClass{AllowedTopologies: test.topologies}, test.selected))
		})
	}
}

func TestBehaviorOfAClaimGoesBeforeThatOfItsClass(t *testing.T) {
	b := newBehaviors()
	b.set(b.classes, "slow", Behavior{Refuse: "class"}, true)
	_, changed := b.of("slow", "ns/data")
	b.set(b.claims, "ns/data", Behavior{Refuse: "claim"}, true)
	select {
	case <-changed:
	default:
		t.Fatal("a change must wake those who wait for one")
	}
	behavior, _ := b.of("slow", "ns/data")
	assert.Equal(t, "claim", behavior.Refuse)
	behavior, _ = b.of("slow", "ns/other")
	assert.Equal(t, "class", behavior.Refuse)
	b.set(b.claims, "ns/data", Behavior{}, false)
	behavior, _ = b.of("slow", "ns/data")
	assert.Equal(t, "class", behavior.Refuse)
}
