package provisioning

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// refuseVolumes makes home refuse the volumes of a class.
func refuseVolumes(t *testing.T, class string) (undo func()) {
	t.Helper()
	return refuse(t, bed.Home, class, "persistentvolumes", "object.spec.storageClassName == '"+class+"'", func(ctx context.Context) error {
		_, err := bed.Home.Client().CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: class},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName:       class,
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.test", Path: "/"}},
			},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

func TestVolumeThatCannotBeCreatedForAWhileIsCreatedLater(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			class := newClass(t)
			twins, shadows := watchClaims(t, bed.Home, fabric.Storage), watchClaims(t, bed.West, namespace)
			undo := refuseVolumes(t, class)
			claim := createClaim(t, fabric.NewClaim(namespace, "data", class))
			createPod(t, route.place(fabric.NewPod(namespace, "db", "data")))
			made := func() int { return len(twins(twinOf(claim))) + len(shadows("data")) }
			eventually(t, func() bool { return made() == 1 }, func() string { return "there is no backing claim" })
			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "VolumeNotStored"), twinOf(claim))
			assert.Nil(t, volumeOf(t, bed.Home, twinOf(claim)))

			undo()
			_, virtual := bound(t, bed.Home, namespace, "data")
			runs(t, namespace, "db")
			require.NotNil(t, backingOf(t, virtual))
			assert.Equal(t, 1, made(), "the backing claim was made anew")
		})
	}
}

func TestClaimThatIsDeletedWhileItsVolumeCannotBeCreatedLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			class := newClass(t)
			undo := refuseVolumes(t, class)
			claim := createClaim(t, fabric.NewClaim(namespace, "data", class))
			createPod(t, route.place(fabric.NewPod(namespace, "db", "data")))
			await.Event(t, bed.Home.Client(), namespace, "data", "VolumeNotStored")
			deletePod(t, namespace, "db")
			deleteClaim(t, bed.Home, namespace, "data")
			absent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })

			undo()
			absent(t, "twin", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, fabric.Storage, twinOf(claim)) })
			absent(t, "shadow", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.West, namespace, "data") })
			absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, twinOf(claim)) })
			eventually(t, func() bool { return len(bed.WestStorage.VolumesOf(namespace)) == 0 }, func() string { return "a real volume leaked in west" })
			eventually(t, func() bool {
				for _, volume := range bed.HomeStorage.VolumesOf(fabric.Storage) {
					if volume.Claim == twinOf(claim) {
						return false
					}
				}
				return true
			}, func() string { return "a real volume leaked at home" })
		})
	}
}

func TestClaimThatIsDeletedWhileItsBackingClaimIsPendingLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			class := newClass(t, with(keys.RemoteClass, fabric.WestNow))
			claim := fabric.NewClaim(namespace, "data", class)
			claim = createClaim(t, claim)
			bed.WestStorage.SetClaim(namespace, "data", never)
			bed.HomeStorage.SetClaim(fabric.Storage, twinOf(claim), never)
			createPod(t, route.place(fabric.NewPod(namespace, "db", "data")))
			pending := func() *corev1.PersistentVolumeClaim {
				if b := claimOf(t, bed.Home, fabric.Storage, twinOf(claim)); b != nil {
					return b
				}
				return claimOf(t, bed.West, namespace, "data")
			}
			eventually(t, func() bool { return pending() != nil }, func() string { return "there is no backing claim" })
			deletePod(t, namespace, "db")
			deleteClaim(t, bed.Home, namespace, "data")
			absent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })
			absent(t, "backing claim", pending)
		})
	}
}
