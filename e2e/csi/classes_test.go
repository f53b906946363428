package csi

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// classFor makes a virtual class that leads to a real one in both clusters.
func classFor(t *testing.T, name, real string) {
	t.Helper()
	require.NoError(t, makeClass(t.Context(), bed.Home, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: keys.Driver,
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowVolumeExpansion: ptr.To(true),
		Parameters:           map[string]string{keys.LocalClass: real, keys.RemoteClass: real},
	}))
	removeClass(t, bed.Home, name)
}

// removeClass removes a class after the test.
func removeClass(t *testing.T, cluster *testbed.Cluster, name string) {
	t.Cleanup(func() {
		assert.NoError(t, cluster.Client().StorageV1().StorageClasses().Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
}

func of(class string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = &class }
}

// TestTheTopologiesOfARealClassAtHomeAreHeeded: kube-scheduler knows only the
// virtual class, and external-provisioner makes nothing for a node outside.
func TestTheTopologiesOfARealClassAtHomeAreHeeded(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	zonal := home.Class("zonal-"+namespace, storagev1.VolumeBindingWaitForFirstConsumer)
	zonal.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
		{Key: corev1.LabelHostname, Values: []string{"home-2"}},
	}}}
	require.NoError(t, makeClass(t.Context(), bed.Home, zonal))
	removeClass(t, bed.Home, zonal.Name)
	classFor(t, namespace, zonal.Name)
	create(t, namespace, func(pod *corev1.Pod) *corev1.Pod { return fabric.Prefer(fabric.AtHome(pod), "home-1") }, of(namespace))
	c := served(t, namespace, home)
	assert.Equal(t, "home-2", c.volume.Node)
	assert.Empty(t, c.claim.Annotations[keys.Refused], "no other node was tried")
}

// TestARealClassThatBindsAtOnce has its volume wherever the driver likes, and the pod
// goes there. At home it may like a virtual node: external-provisioner counts all
// nodes that have the label of the topology.
func TestARealClassThatBindsAtOnce(t *testing.T) {
	t.Parallel()
	r := routes[1]
	namespace := space(t)
	classFor(t, namespace, atOnce)
	create(t, namespace, r.place, of(namespace))
	c := served(t, namespace, r.driver())
	ask(t, bed.Home, namespace, "data", "2Gi")
	c.requireGrown(t, r.driver(), 2)
}
