package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDataIsOnANodeThatItsVolumeIsBoundTo(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "home-1", Labels: map[string]string{corev1.LabelHostname: "home-1"}}}
	on := func(name string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
			}}},
		}}}}
	}
	assert.True(t, isOn(on("home-1"), node))
	assert.False(t, isOn(on("home-2"), node))
	assert.False(t, isOn(&corev1.PersistentVolume{}, node), "one that is bound to no node may be copied for one")
	assert.False(t, isOn(nil, node))
}
