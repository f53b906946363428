package route

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

func TestEphemeralVolumeGoesOnlyWhereCopiesOfPodsUseItsClaim(t *testing.T) {
	class, err := virtualclass.Parse(&storagev1.StorageClass{
		Provisioner: keys.Driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	require.NoError(t, err)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "web-scratch", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Pod", Name: "web", Controller: ptr.To(true)},
	}}}
	opened := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}}
	to := func(node *corev1.Node) (Route, error) {
		return To(Input{Claim: claim, Class: class, Node: node, Namespace: opened, Cluster: func(string) Cluster {
			return Cluster{Known: true, Offered: []v1alpha1.OfferedClass{{Name: "real", Default: true}}}
		}})
	}
	_, err = to(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "west", Labels: map[string]string{keys.Cluster: "west"}}})
	var refused *Refused
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "EphemeralVolume", refused.Reason)
	assert.Contains(t, refused.Message, `pod "web"`)

	route, err := to(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "west", Labels: map[string]string{keys.Cluster: "west", keys.VirtualNodeRole: ""}}})
	require.NoError(t, err)
	assert.Equal(t, "west", route.Cluster)

	route, err = to(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "home-1"}})
	require.NoError(t, err)
	assert.Equal(t, keys.Home, route.Cluster)
}
