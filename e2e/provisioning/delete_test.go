package provisioning

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
	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// route is a way of a claim, with where its backing claim and real volume are
// then.
type route struct {
	name    string
	place   func(*corev1.Pod) *corev1.Pod
	cluster func() *testbed.Cluster
	storage func() *instant.Provisioner
}

// routes are both ways.
var routes = []route{
	{
		name: "at home", place: fabric.AtHome,
		cluster: func() *testbed.Cluster { return bed.Home },
		storage: func() *instant.Provisioner { return bed.HomeStorage },
	},
	{
		name: "in the remote cluster", place: fabric.InWest,
		cluster: func() *testbed.Cluster { return bed.West },
		storage: func() *instant.Provisioner { return bed.WestStorage },
	},
}

// served makes a claim and a pod that runs with it, and returns the claim's
// virtual volume, backing claim and real volume.
func served(t *testing.T, namespace, class string, place func(*corev1.Pod) *corev1.Pod, cluster *testbed.Cluster) (virtual *corev1.PersistentVolume, b *corev1.PersistentVolumeClaim, real *corev1.PersistentVolume) {
	t.Helper()
	claimAndPod(t, namespace, class, place)
	_, virtual = bound(t, bed.Home, namespace, "data")
	ref, err := backing.RefOf(virtual)
	require.NoError(t, err)
	b, real = bound(t, cluster, ref.Namespace, ref.Name)
	return virtual, b, real
}

func TestDeletedClaimTakesAllThatIsBehindIt(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			virtual, b, real := served(t, namespace, fabric.Class, route.place, route.cluster())
			deletePod(t, namespace, "db")
			deleteClaim(t, bed.Home, namespace, "data")

			absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
			assert.Nil(t, volumeOf(t, route.cluster(), real.Name), "the real volume goes first")
			assert.Nil(t, claimOf(t, route.cluster(), b.Namespace, b.Name))
			assert.False(t, route.storage().Exists(real.Spec.CSI.VolumeHandle))
			assert.Empty(t, warnings(t, namespace))
		})
	}
}

func TestVirtualVolumeStaysUntilTheRealOneIsGone(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			virtual, b, real := served(t, namespace, fabric.Class, route.place, route.cluster())
			route.storage().SetClaim(b.Namespace, b.Name, instant.Behavior{DeleteNever: true})
			deletePod(t, namespace, "db")
			deleteClaim(t, bed.Home, namespace, "data")

			absent(t, "backing claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, route.cluster(), b.Namespace, b.Name) })
			consistently(t, func() bool { return volumeOf(t, bed.Home, virtual.Name) != nil }, "the virtual volume went before the real one")
			assert.NotNil(t, volumeOf(t, route.cluster(), real.Name))
			assert.Contains(t, toldOfVolume(t, virtual.Name, "WaitingForRealVolume"), real.Name)

			route.storage().ResetClaim(b.Namespace, b.Name)
			absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
			assert.False(t, route.storage().Exists(real.Spec.CSI.VolumeHandle))
		})
	}
}

func TestDataIsNotDeletedWhileTheVolumeIsAttached(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			virtual, b, _ := served(t, namespace, fabric.Class, route.place, route.cluster())
			attachments := bed.Home.Client().StorageV1().VolumeAttachments()
			_, err := attachments.Create(t.Context(), &storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: namespace},
				Spec: storagev1.VolumeAttachmentSpec{
					Attacher: "by.hand", NodeName: "home-2",
					Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &virtual.Name},
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			t.Cleanup(func() { _ = attachments.Delete(context.Background(), namespace, metav1.DeleteOptions{}) })
			deletePod(t, namespace, "db")
			deleteClaim(t, bed.Home, namespace, "data")

			assert.Contains(t, toldOfVolume(t, virtual.Name, "StillAttached"), `"home-2"`)
			consistently(t, func() bool {
				b := claimOf(t, route.cluster(), b.Namespace, b.Name)
				return b != nil && b.DeletionTimestamp == nil
			}, "the backing claim was deleted under a node that uses it")

			require.NoError(t, attachments.Delete(t.Context(), namespace, metav1.DeleteOptions{}))
			absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
			assert.Nil(t, claimOf(t, route.cluster(), b.Namespace, b.Name))
		})
	}
}

func TestVolumeThatIsDeletedBeforeItsClaimLeaksNothing(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			virtual, b, real := served(t, namespace, fabric.Class, route.place, route.cluster())
			require.NoError(t, bed.Home.Client().CoreV1().PersistentVolumes().Delete(t.Context(), virtual.Name, metav1.DeleteOptions{}))
			consistently(t, func() bool {
				b := claimOf(t, route.cluster(), b.Namespace, b.Name)
				return b != nil && b.DeletionTimestamp == nil
			}, "the data was deleted while the claim uses it")

			deletePod(t, namespace, "db")
			deleteClaim(t, bed.Home, namespace, "data")
			absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
			assert.Nil(t, claimOf(t, route.cluster(), b.Namespace, b.Name))
			assert.False(t, route.storage().Exists(real.Spec.CSI.VolumeHandle))
		})
	}
}

func TestDeletedNamespaceTakesItsVolumesAndEnds(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			virtual, _, real := served(t, namespace, fabric.Class, route.place, route.cluster())
			deleteNamespace(t, bed.Home, namespace)

			namespaceGone(t, bed.Home, namespace)
			absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
			assert.False(t, route.storage().Exists(real.Spec.CSI.VolumeHandle))
		})
	}
}

// TestRealVolumeThatItsClassRetainsCountsAsGone covers a real class whose
// administrator wants its volumes kept.
func TestRealVolumeThatItsClassRetainsCountsAsGone(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	class := bed.WestStorage.Class("kept-"+namespace, storagev1.VolumeBindingImmediate)
	class.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRetain)
	makeClass(t, bed.West, class)
	virtual, b, real := served(t, namespace, newClass(t, with("lodestone.dev/remote-class", class.Name)), fabric.InWest, bed.West)
	t.Cleanup(func() {
		_ = bed.West.Client().CoreV1().PersistentVolumes().Delete(context.Background(), real.Name, metav1.DeleteOptions{})
	})
	deletePod(t, namespace, "db")
	deleteClaim(t, bed.Home, namespace, "data")

	absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	assert.Nil(t, claimOf(t, bed.West, b.Namespace, b.Name))
	require.NotNil(t, volumeOf(t, bed.West, real.Name))
	assert.True(t, bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle))
}
