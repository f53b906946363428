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
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
)

// deleteTwin deletes the twin of a claim, as an administrator does by mistake.
func (c chain) deleteTwin(t *testing.T) {
	t.Helper()
	twins := bed.Home.Client().CoreV1().PersistentVolumeClaims(c.backing.Namespace)
	require.NoError(t, twins.Delete(t.Context(), c.backing.Name, metav1.DeleteOptions{}))
}

// requireHealed waits until another twin is bound to the same real volume, and all
// is as before.
func (c chain) requireHealed(t *testing.T) {
	t.Helper()
	await.Until(t, "another twin is bound to the real volume", func() bool {
		twin := claimOf(t, bed.Home, c.backing.Namespace, c.backing.Name)
		return twin != nil && twin.UID != c.backing.UID && twin.Status.Phase == corev1.ClaimBound && twin.Spec.VolumeName == c.real.Name
	}, func() any { return claimOf(t, bed.Home, c.backing.Namespace, c.backing.Name) })
	await.Until(t, "the real volume is to be deleted with its claim again", func() bool {
		return volumeOf(t, bed.Home, c.real.Name).Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	})
	assert.Equal(t, c.volume.ID, volumeOf(t, bed.Home, c.real.Name).Spec.CSI.VolumeHandle)
}

func TestAVolumeWhoseTwinCameBackGrowsIsCopiedAndGoesWithItsClaim(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	create(t, namespace, fabric.AtHome)
	c := served(t, namespace, home)
	write(t, home, c.volume.ID)
	c.deleteTwin(t)
	c.requireHealed(t)
	ask(t, bed.Home, namespace, "data", "2Gi")
	c.requireGrown(t, home, 2)

	copyOf(t, namespace, func(pod *corev1.Pod) *corev1.Pod { return fabric.OnNode(pod, c.volume.Node) }, sized("2Gi"))
	runs(t, namespace, "reader")
	copied := behind(t, namespace, "copy", home)
	assert.Equal(t, c.volume.ID, copied.volume.Source)
	assert.Equal(t, text, read(t, home, copied.volume.ID))
	assert.Equal(t, text, read(t, home, c.volume.ID))

	remove(t, namespace)
	await.Until(t, "the driver has deleted the volume, and that alone", func() bool {
		left := volumes(t, home)
		_, there := left[c.volume.ID]
		return !there && left[copied.volume.ID].ID != ""
	})
	await.Until(t, "no volume is left of it", func() bool {
		return volumeOf(t, bed.Home, c.real.Name) == nil && volumeOf(t, bed.Home, c.virtual.Name) == nil
	})
}

// TestATwinThatIsDeletedWhileItsVolumeGrowsComesBack does not run in parallel: it
// makes the driver of home slow.
func TestATwinThatIsDeletedWhileItsVolumeGrowsComesBack(t *testing.T) {
	namespace := space(t)
	create(t, namespace, fabric.AtHome)
	c := served(t, namespace, home)
	write(t, home, c.volume.ID)
	require.NoError(t, home.FailNext("ControllerExpandVolume", sidecars.Fault{Delay: "1s", Code: "DEADLINE_EXCEEDED", Done: true}))
	t.Cleanup(func() { require.NoError(t, home.Heal("ControllerExpandVolume")) })
	ask(t, bed.Home, namespace, "data", "2Gi")
	await.Until(t, "the driver is growing the volume", func() bool {
		left, err := home.Ordered("ControllerExpandVolume")
		require.NoError(t, err)
		return !left
	})
	c.deleteTwin(t)
	c.requireHealed(t)
	c.requireGrown(t, home, 2)
	assert.Equal(t, text, read(t, home, c.volume.ID))
}

// TestTheSourceOfACopyIsDeletedWhileItIsCopied does not run in parallel: it makes
// the drivers slow. Where the pod of the copy is on a node that has not the source,
// the driver refuses in the end, and nobody may go on holding the source.
func TestTheSourceOfACopyIsDeletedWhileItIsCopied(t *testing.T) {
	elsewhere := copyRoute{route{"at home, on another node", fabric.AtHome, routes[0].driver}, waiting, func(source chain) func(*corev1.Pod) *corev1.Pod {
		other := map[string]string{"home-1": "home-2", "home-2": "home-1"}[source.volume.Node]
		return func(pod *corev1.Pod) *corev1.Pod { return fabric.OnNode(pod, other) }
	}}
	for _, r := range append([]copyRoute{elsewhere}, copyRoutes...) {
		t.Run(r.name, func(t *testing.T) {
			namespace := space(t)
			c := r.source(t, namespace)
			require.NoError(t, r.driver().FailNext("CreateVolume", sidecars.Fault{Delay: "2s"}))
			t.Cleanup(func() { require.NoError(t, r.driver().Heal("CreateVolume")) })
			copyOf(t, namespace, r.reader(c), of(namespace))
			await.Until(t, "the driver is making the copy", func() bool {
				left, err := r.driver().Ordered("CreateVolume")
				require.NoError(t, err)
				return !left
			}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
			remove(t, namespace)
			// What becomes of the copy depends on who comes first: it has the data, or it
			// waits for a source and has no volume. It is never empty.
			await.Until(t, "the source is gone", func() bool {
				_, there := volumes(t, r.driver())[c.volume.ID]
				return !there
			}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
			await.Until(t, "the copy is made, or its user is told why not", func() bool {
				claim := claimOf(t, bed.Home, namespace, "copy")
				if claim.Status.Phase == corev1.ClaimBound {
					return assert.Equal(t, text, read(t, r.driver(), behind(t, namespace, "copy", r.driver()).volume.ID))
				}
				for _, event := range await.Events(t, bed.Home.Client(), namespace) {
					if strings.Contains(event, "PersistentVolumeClaim/copy SourceNotBound: ") {
						return true
					}
				}
				return false
			}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
		})
	}
}

// TestSizeAndAttributesChangeAtOnce asks for both in one write.
func TestSizeAndAttributesChangeAtOnce(t *testing.T) {
	t.Parallel()
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			slow, fast := attributes(t, r.driver(), namespace)
			create(t, namespace, r.place, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeAttributesClassName = &slow })
			c := served(t, namespace, r.driver())
			_, err := bed.Home.Kubectl(t.Context(), "", "patch", "pvc", "-n", namespace, "data",
				"-p", `{"spec":{"volumeAttributesClassName":"`+fast+`","resources":{"requests":{"storage":"2Gi"}}}}`)
			require.NoError(t, err)
			c.requireGrown(t, r.driver(), 2)
			requireAttributes(t, c, fast)
			assert.Equal(t, "5000", volumes(t, r.driver())[c.volume.ID].Mutable["iops"])
		})
	}
}
