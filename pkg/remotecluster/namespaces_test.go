package remotecluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestRemoteNamespaceFollowsTheStrategy(t *testing.T) {
	assert.Equal(t, "shop", Namespace(v1alpha1.SameName, "shop", "h1"))
	assert.Equal(t, "shop", Namespace("", "shop", "h1"))
	assert.Equal(t, "shop-h1", Namespace(v1alpha1.Suffixed, "shop", "h1"))
}

func TestNamespaceMayUseOnlyClustersThatItIsOpenTo(t *testing.T) {
	enabled := map[string]string{keys.Offload: keys.OffloadEnabled}
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		want      bool
	}{
		"no namespace":                  {namespace: nil},
		"no label":                      {namespace: &corev1.Namespace{}},
		"another value":                 {namespace: labelled(map[string]string{keys.Offload: "yes"}, nil)},
		"the label":                     {namespace: labelled(enabled, nil), want: true},
		"a list with the cluster":       {namespace: labelled(enabled, map[string]string{keys.OffloadClusters: "east, west"}), want: true},
		"a list without the cluster":    {namespace: labelled(enabled, map[string]string{keys.OffloadClusters: "east"})},
		"an empty list":                 {namespace: labelled(enabled, map[string]string{keys.OffloadClusters: ""})},
		"the list but not the label":    {namespace: labelled(nil, map[string]string{keys.OffloadClusters: "west"})},
		"a list with a similar cluster": {namespace: labelled(enabled, map[string]string{keys.OffloadClusters: "west2"})},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, MayUse(test.namespace, "west"))
		})
	}
}

func TestANamespaceMayReachClustersThatItsPodsDoNotRunIn(t *testing.T) {
	fabric := map[string]string{keys.Fabric: keys.FabricEnabled}
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		want      bool
	}{
		"no namespace":               {namespace: nil},
		"no label":                   {namespace: &corev1.Namespace{}},
		"another value":              {namespace: labelled(map[string]string{keys.Fabric: "yes"}, nil)},
		"the label":                  {namespace: labelled(fabric, nil), want: true},
		"a list with the cluster":    {namespace: labelled(fabric, map[string]string{keys.OffloadClusters: "west"}), want: true},
		"a list without the cluster": {namespace: labelled(fabric, map[string]string{keys.OffloadClusters: "east"})},
		"offloaded":                  {namespace: labelled(map[string]string{keys.Offload: keys.OffloadEnabled}, nil), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, MayReach(test.namespace, "west"))
		})
	}
	assert.False(t, MayUse(labelled(fabric, nil), "west"), "none of its pods runs there")
}

func labelled(labels, annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}}
}
