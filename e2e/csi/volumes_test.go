package csi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestBackingClaimGetsItsVolumeFromTheRealProvisioner(t *testing.T) {
	t.Parallel()
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			create(t, namespace, r.place)
			c := served(t, namespace, r.driver())
			assert.Equal(t, r.driver().Name, c.real.Spec.CSI.Driver)
			assert.Equal(t, "pvc-"+string(c.backing.UID), c.volume.Name)
			assert.Equal(t, int64(gibibyte), c.volume.Bytes)
			assert.Equal(t, c.backing.Annotations[keys.SelectedNode], c.volume.Node)
			if r.driver() == west {
				assert.Equal(t, keys.Driver, c.virtual.Spec.CSI.Driver)
			} else {
				assert.Equal(t, c.real.Spec.CSI, c.virtual.Spec.CSI)
			}

			remove(t, namespace)
			await.Until(t, "the driver has deleted the volume", func() bool {
				_, there := volumes(t, r.driver())[c.volume.ID]
				return !there
			})
			await.Until(t, "the virtual volume is gone", func() bool { return volumeOf(t, bed.Home, c.virtual.Name) == nil })
			assert.Nil(t, volumeOf(t, c.cluster, c.real.Name))
		})
	}
}

// remove deletes pod "db" and claim "data".
func remove(t *testing.T, namespace string) {
	t.Helper()
	client := bed.Home.Client().CoreV1()
	require.NoError(t, client.Pods(namespace).Delete(t.Context(), "db", metav1.DeleteOptions{}))
	require.NoError(t, client.PersistentVolumeClaims(namespace).Delete(t.Context(), "data", metav1.DeleteOptions{}))
}

// TestFailuresOfTheDriverLeaveOneVolume does not run in parallel: it orders
// failures of the drivers.
func TestFailuresOfTheDriverLeaveOneVolume(t *testing.T) {
	for _, row := range []struct {
		name   string
		faults []sidecars.Fault // as it is made
		later  []sidecars.Fault // as it is deleted
	}{
		{name: "the driver fails twice", faults: []sidecars.Fault{{Code: "INTERNAL", Message: "a disk is broken"}, {Code: "UNAVAILABLE"}},
			later: []sidecars.Fault{{Code: "FAILED_PRECONDITION", Message: "a node has it"}, {Code: "DEADLINE_EXCEEDED", Done: true}}},
		{name: "the volume is made and the answer is lost", faults: []sidecars.Fault{{Code: "DEADLINE_EXCEEDED", Done: true}}},
		{name: "the driver is slow", faults: []sidecars.Fault{{Delay: "500ms"}}},
	} {
		for _, r := range routes {
			t.Run(row.name+", "+r.name, func(t *testing.T) {
				namespace := space(t)
				require.NoError(t, r.driver().FailNext("CreateVolume", row.faults...))
				require.NoError(t, r.driver().FailNext("DeleteVolume", row.later...))
				t.Cleanup(func() {
					require.NoError(t, r.driver().Heal("CreateVolume"))
					require.NoError(t, r.driver().Heal("DeleteVolume"))
				})
				create(t, namespace, r.place)
				c := served(t, namespace, r.driver())
				left, err := r.driver().Ordered("CreateVolume")
				require.NoError(t, err)
				assert.False(t, left, "not all failures happened")

				remove(t, namespace)
				await.Until(t, "the driver has deleted the volume", func() bool {
					_, there := volumes(t, r.driver())[c.volume.ID]
					return !there
				})
				await.Until(t, "each volume of the driver is one of a PersistentVolume", func() bool { return len(orphans(t, r.driver())) == 0 },
					func() any { return orphans(t, r.driver()) })
				await.Until(t, "no object is left of it", func() bool {
					return volumeOf(t, bed.Home, c.virtual.Name) == nil && volumeOf(t, c.cluster, c.real.Name) == nil &&
						claimOf(t, c.cluster, c.backing.Namespace, c.backing.Name) == nil
				})
			})
		}
	}
}

// orphans returns the volumes of a driver that no PersistentVolume stands for.
func orphans(t *testing.T, driver *sidecars.Driver) map[string]sidecars.Volume {
	t.Helper()
	left := volumes(t, driver)
	known, err := clusterOf(driver).Client().CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, pv := range known.Items {
		if pv.Spec.CSI != nil && pv.Spec.CSI.Driver == driver.Name {
			delete(left, pv.Spec.CSI.VolumeHandle)
		}
	}
	return left
}

// TestWhatIsAskedForWhileTheDriverIsAwayIsDoneLater does not run in parallel: it
// kills the driver of home with its sidecars.
func TestWhatIsAskedForWhileTheDriverIsAwayIsDoneLater(t *testing.T) {
	old, young := space(t), space(t)
	create(t, old, fabric.AtHome)
	c := served(t, old, home)
	home.Kill()
	remove(t, old)
	create(t, young, fabric.AtHome)
	await.Until(t, "there is a twin", func() bool {
		return claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(claimOf(t, bed.Home, young, "data").UID)) != nil
	})
	require.NoError(t, home.Run(t.Context()))
	served(t, young, home)
	await.Until(t, "the driver has deleted the old volume", func() bool {
		_, there := volumes(t, home)[c.volume.ID]
		return !there
	})
}
