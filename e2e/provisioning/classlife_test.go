package provisioning

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// realClass makes a real class of its own in the cluster of a route, whose volumes
// are never made if stuck, and returns the parameters with which a virtual class
// names it.
func realClass(t *testing.T, r route, name string, stuck bool) func(*storagev1.StorageClass) {
	t.Helper()
	mode := storagev1.VolumeBindingImmediate
	if stuck {
		r.storage().SetClass(name, never)
		t.Cleanup(func() { r.storage().ResetClass(name) })
	}
	makeClass(t, r.cluster(), r.storage().Class(name, mode))
	return r.named(name)
}

// named has a virtual class take a real class of the cluster of a route.
func (r route) named(class string) func(*storagev1.StorageClass) {
	return with(keys.LocalClass, class, keys.RemoteClass, class)
}

// backingPlace is where the backing claim of a claim is.
func (r route) backingPlace(claim *corev1.PersistentVolumeClaim) (namespace, name string) {
	if r.cluster() == bed.Home {
		return fabric.Storage, twinOf(claim)
	}
	return claim.Namespace, claim.Name
}

// backingIs waits until the backing claim of a claim is there and of a real class.
func (r route) backingIs(t *testing.T, claim *corev1.PersistentVolumeClaim, class string) *corev1.PersistentVolumeClaim {
	t.Helper()
	namespace, name := r.backingPlace(claim)
	var b *corev1.PersistentVolumeClaim
	eventually(t, func() bool {
		b = claimOf(t, r.cluster(), namespace, name)
		return b != nil && b.DeletionTimestamp == nil && *b.Spec.StorageClassName == class
	}, func() string { return "there is no backing claim of class " + class })
	return b
}

func removeClass(t *testing.T, cluster *testbed.Cluster, name string) {
	t.Helper()
	require.NoError(t, cluster.Client().StorageV1().StorageClasses().Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// makeAnew makes a virtual class of a name that is free again.
func makeAnew(t *testing.T, name string, change func(*storagev1.StorageClass)) {
	t.Helper()
	newClass(t, change, func(class *storagev1.StorageClass) { class.Name = name })
}

// TestClassThatIsDeletedOrMadeAnewChangesNoVolume makes the class anew with the
// other reclaim policy, and with real classes that do not exist.
func TestClassThatIsDeletedOrMadeAnewChangesNoVolume(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for _, row := range []struct {
			name          string
			before, after corev1.PersistentVolumeReclaimPolicy
			anew          bool
		}{
			{name: "deletes, class deleted", before: corev1.PersistentVolumeReclaimDelete},
			{name: "retains, class deleted", before: corev1.PersistentVolumeReclaimRetain},
			{name: "deletes, class would now retain", before: corev1.PersistentVolumeReclaimDelete, after: corev1.PersistentVolumeReclaimRetain, anew: true},
			{name: "retains, class would now delete", before: corev1.PersistentVolumeReclaimRetain, after: corev1.PersistentVolumeReclaimDelete, anew: true},
		} {
			t.Run(route.name+", "+row.name, func(t *testing.T) {
				t.Parallel()
				namespace := space(t)
				class := newClass(t, func(c *storagev1.StorageClass) { c.ReclaimPolicy = &row.before })
				virtual, b, real := served(t, namespace, class, route.place, route.cluster())
				t.Cleanup(func() {
					_ = bed.Home.Client().CoreV1().PersistentVolumes().Delete(context.Background(), virtual.Name, metav1.DeleteOptions{})
				})
				removeAfter(t, route.cluster(), b.Namespace, b.Name)
				removeClass(t, bed.Home, class)
				if row.anew {
					makeAnew(t, class, func(c *storagev1.StorageClass) {
						route.named("absent")(c)
						c.ReclaimPolicy, c.MountOptions = &row.after, []string{"ro"}
					})
				}
				have := volumeOf(t, bed.Home, virtual.Name)
				assert.Equal(t, row.before, have.Spec.PersistentVolumeReclaimPolicy)
				assert.Equal(t, virtual.Spec.MountOptions, have.Spec.MountOptions)
				deletePod(t, namespace, "db")
				createPod(t, route.place(fabric.NewPod(namespace, "again", "data")))
				runs(t, namespace, "again")
				assert.True(t, isKept(t, route.cluster(), route.storage(), b, real))

				deletePod(t, namespace, "again")
				deleteClaim(t, bed.Home, namespace, "data")
				if row.before == corev1.PersistentVolumeReclaimDelete {
					absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
					assert.False(t, route.storage().Exists(real.Spec.CSI.VolumeHandle), "the real volume is left")
					return
				}
				eventually(t, func() bool { return volumeOf(t, bed.Home, virtual.Name).Status.Phase == corev1.VolumeReleased }, func() string { return "the virtual volume is not released" })
				consistently(t, func() bool { return isKept(t, route.cluster(), route.storage(), b, real) }, "a retained volume was touched")
			})
		}
	}
}

// TestRealClassThatIsDeletedAndMadeAnew deletes the real class while one claim of
// it has its volume and another waits.
func TestRealClassThatIsDeletedAndMadeAnew(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			name := "real-" + namespace
			class := newClass(t, realClass(t, route, name, false))
			virtual, b, real := served(t, namespace, class, route.place, route.cluster())
			route.storage().SetClass(name, never)
			waiting := createClaim(t, fabric.NewClaim(namespace, "waiting", class))
			createPod(t, route.place(fabric.NewPod(namespace, "waits", "waiting")))
			old := route.backingIs(t, waiting, name)

			removeClass(t, route.cluster(), name)
			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "waiting", "NoRealClass"), name)
			absent(t, "backing claim of a class that is gone", func() *corev1.PersistentVolumeClaim {
				return claimOf(t, route.cluster(), old.Namespace, old.Name)
			})
			assert.True(t, isKept(t, route.cluster(), route.storage(), b, real))
			route.storage().ResetClass(name)
			makeClass(t, route.cluster(), route.storage().Class(name, storagev1.VolumeBindingWaitForFirstConsumer))
			runs(t, namespace, "waits")
			_, other := bound(t, bed.Home, namespace, "waiting")
			assert.NotEqual(t, old.UID, backingOf(t, other).UID)

			removeClass(t, route.cluster(), name)
			deletePod(t, namespace, "db")
			deleteClaim(t, bed.Home, namespace, "data")
			absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
			assert.False(t, route.storage().Exists(real.Spec.CSI.VolumeHandle), "its class is not needed to delete a volume")
		})
	}
}
