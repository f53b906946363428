package csi

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// makeAnew makes a shadow anew with its volume, as docs/lifecycle.md tells an
// administrator of the remote cluster, and waits until home has taken it.
func (c *chain) makeAnew(t *testing.T) {
	t.Helper()
	shadow := c.backing
	policy := func(name string) string { return `{"spec":{"persistentVolumeReclaimPolicy":"` + name + `"}}` }
	kubectl := func(args ...string) {
		t.Helper()
		_, err := c.cluster.Kubectl(t.Context(), "", args...)
		require.NoError(t, err)
	}
	kubectl("patch", "pv", c.real.Name, "-p", policy("Retain"))
	kubectl("delete", "pvc", "-n", shadow.Namespace, shadow.Name, "--wait=false")
	kubectl("patch", "pvc", "-n", shadow.Namespace, shadow.Name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	await.Until(t, "the old shadow is gone", func() bool { return claimOf(t, c.cluster, shadow.Namespace, shadow.Name) == nil })
	kubectl("patch", "pv", c.real.Name, "--type=merge", "-p", `{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`)
	again := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: shadow.Namespace, Name: shadow.Name, Labels: shadow.Labels, Annotations: map[string]string{}, Finalizers: []string{keys.BackingFinalizer},
	}, Spec: shadow.Spec}
	for key, value := range shadow.Annotations {
		if !strings.HasPrefix(key, "pv.kubernetes.io/") {
			again.Annotations[key] = value
		}
	}
	_, err := c.cluster.Client().CoreV1().PersistentVolumeClaims(shadow.Namespace).Create(t.Context(), again, metav1.CreateOptions{})
	require.NoError(t, err)
	await.Until(t, "the virtual volume names the new shadow", func() bool {
		ref, err := backing.RefOf(volumeOf(t, bed.Home, c.virtual.Name))
		require.NoError(t, err)
		return ref.UID != shadow.UID
	}, func() any { return await.Events(t, bed.Home.Client(), c.claim.Namespace) })
	kubectl("patch", "pv", c.real.Name, "-p", policy("Delete"))
	*c = behind(t, c.claim.Namespace, c.claim.Name, west)
	require.NotEqual(t, shadow.UID, c.backing.UID)
}

// TestSnapshotsBeforeAndAfterAShadowIsMadeAnew makes a shadow anew twice: the handle of
// the virtual volume names the first for ever. A snapshot can be taken each time, and
// the one from before can be restored and deleted.
func TestSnapshotsBeforeAndAfterAShadowIsMadeAnew(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	create(t, namespace, fabric.InWest)
	c := served(t, namespace, west)
	write(t, west, c.volume.ID)
	handle := c.virtual.Spec.CSI.VolumeHandle
	snap(t, namespace, "before")
	require.NoError(t, bed.Home.Client().CoreV1().Pods(namespace).Delete(t.Context(), "db", metav1.DeleteOptions{}))
	await.Until(t, "no pod there uses the shadow", func() bool {
		pods, err := bed.West.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(pods.Items) == 0
	})
	for _, name := range []string{"after", "again"} {
		c.makeAnew(t)
		require.Equal(t, handle, c.virtual.Spec.CSI.VolumeHandle)
		snap(t, namespace, name)
	}
	require.Equal(t, 3, snapshotsOf(t, west, c.volume.ID))
	for _, name := range []string{"before", "again"} {
		restore(t, namespace, "from-"+name, name)
		runs(t, namespace, "from-"+name)
		assert.Equal(t, text, read(t, west, behind(t, namespace, "from-"+name, west).volume.ID))
	}
	for _, name := range []string{"before", "after", "again"} {
		_, err := bed.Home.Kubectl(t.Context(), "", "delete", "volumesnapshot", "-n", namespace, name, "--timeout=30s")
		require.NoError(t, err)
	}
	await.Until(t, "the driver has no snapshot any more", func() bool { return snapshotsOf(t, west, c.volume.ID) == 0 })
}
