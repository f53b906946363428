package copying_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/copying"
)

// TestAClassThatTheClaimGetsAnywayNeedsNotBeListed: a copy is routed again later, by the name of the class that it got at first.
func TestAClassThatTheClaimGetsAnywayNeedsNotBeListed(t *testing.T) {
	offered := []v1alpha1.OfferedClass{{Name: "disk", Default: true}, {Name: "fast"}, {Name: "slow"}}
	for name, row := range map[string]struct {
		parameters  map[string]string
		annotations map[string]string
		real        string
		class, says string
	}{
		"none is named":         {class: "disk"},
		"the cluster's default": {real: "disk", class: "disk"},
		"the class's own":       {parameters: map[string]string{keys.RemoteClass: "fast"}, real: "fast", class: "fast"},
		"the one that the claim names": {parameters: map[string]string{keys.Classes: "slow"},
			annotations: map[string]string{keys.Class: "slow"}, real: "slow", class: "slow"},
		"one that is listed": {parameters: map[string]string{keys.Classes: "slow"}, real: "slow", class: "slow"},
		"the claim's own is not wanted": {parameters: map[string]string{keys.Classes: "slow,fast"},
			annotations: map[string]string{keys.Class: "slow"}, real: "fast", class: "fast"},
		"one that is not listed": {real: "fast", says: `claim "data" cannot go there: the claim asks for real class "fast"`},
		"one that is not there":  {parameters: map[string]string{keys.Classes: "gone"}, real: "gone", says: `claim "data" cannot go there: `},
	} {
		t.Run(name, func(t *testing.T) {
			targets := copying.Targets{
				Class: func(string) *storagev1.StorageClass {
					return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver,
						VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), Parameters: row.parameters}
				},
				Space: func(name string) *corev1.Namespace {
					return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}}
				},
				View: func(string, string) steps.Cluster {
					return steps.Cluster{ClusterClasses: route.ClusterClasses{Known: true, Offered: offered}}
				},
			}
			claim := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", Annotations: row.annotations},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: ptr.To("lodestone"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}
			before := claim.DeepCopy()
			to, err := targets.Route(claim, row.real, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "west",
				Labels: map[string]string{keys.Cluster: "west", keys.VirtualNodeRole: ""}}})
			assert.Equal(t, before, claim)
			if row.says != "" {
				require.ErrorContains(t, err, row.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, row.class, to.Class.Name)
		})
	}
}
