package provisioning

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestRetainedVolumeOutlivesItsClaimItsNamespaceAndItsObject(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for _, end := range []struct {
			name   string
			remove func(t *testing.T, namespace string)
		}{
			{name: "claim deleted", remove: func(t *testing.T, namespace string) {
				t.Helper()
				deletePod(t, namespace, "db")
				deleteClaim(t, bed.Home, namespace, "data")
			}},
			{name: "namespace deleted", remove: func(t *testing.T, namespace string) {
				t.Helper()
				deleteNamespace(t, bed.Home, namespace)
				namespaceGone(t, bed.Home, namespace)
			}},
		} {
			t.Run(route.name+", "+end.name, func(t *testing.T) {
				t.Parallel()
				namespace := space(t)
				virtual, b, real := served(t, namespace, newClass(t, retain), route.place, route.cluster())
				removeAfter(t, route.cluster(), b.Namespace, b.Name)
				volumes := bed.Home.Client().CoreV1().PersistentVolumes()
				t.Cleanup(func() { _ = volumes.Delete(context.Background(), virtual.Name, metav1.DeleteOptions{}) })
				end.remove(t, namespace)

				eventually(t, func() bool { return volumeOf(t, bed.Home, virtual.Name).Status.Phase == corev1.VolumeReleased }, func() string { return "the virtual volume is not released" })
				consistently(t, func() bool { return isKept(t, route.cluster(), route.storage(), b, real) }, "a retained volume was touched")

				require.NoError(t, volumes.Delete(t.Context(), virtual.Name, metav1.DeleteOptions{}))
				absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
				consistently(t, func() bool { return isKept(t, route.cluster(), route.storage(), b, real) }, "a retained volume was touched when its object was deleted")
			})
		}
	}
}

func isKept(t *testing.T, cluster *testbed.Cluster, storage *instant.Provisioner, b *corev1.PersistentVolumeClaim, real *corev1.PersistentVolume) bool {
	t.Helper()
	have := claimOf(t, cluster, b.Namespace, b.Name)
	return have != nil && have.UID == b.UID && have.DeletionTimestamp == nil && have.Status.Phase == corev1.ClaimBound &&
		volumeOf(t, cluster, real.Name) != nil && storage.Exists(real.Spec.CSI.VolumeHandle)
}

func TestRetainedShadowHoldsItsNameAndANewClaimGoesHome(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	class := newClass(t, retain)
	virtual, b, real := served(t, namespace, class, fabric.InWest, bed.West)
	removeAfter(t, bed.West, b.Namespace, b.Name)
	volumes := bed.Home.Client().CoreV1().PersistentVolumes()
	t.Cleanup(func() { _ = volumes.Delete(context.Background(), virtual.Name, metav1.DeleteOptions{}) })
	deletePod(t, namespace, "db")
	deleteClaim(t, bed.Home, namespace, "data")
	absent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })

	again := createClaim(t, fabric.NewClaim(namespace, "data", class))
	removeAfter(t, bed.Home, fabric.Storage, twinOf(again))
	t.Cleanup(func() { _ = volumes.Delete(context.Background(), twinOf(again), metav1.DeleteOptions{}) })
	createPod(t, preferWest(fabric.NewPod(namespace, "db", "data")))
	await.Event(t, bed.Home.Client(), namespace, "data", "ForeignClaim")
	assert.NotEqual(t, fabric.WestNode, runs(t, namespace, "db"))
	assert.True(t, isKept(t, bed.West, bed.WestStorage, b, real))
}
