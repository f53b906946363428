package csi

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
)

// TestAClaimDeletedWhileItsVolumeIsMadeLeavesNothing does not run in parallel: it
// orders failures of the drivers.
func TestAClaimDeletedWhileItsVolumeIsMadeLeavesNothing(t *testing.T) {
	for _, row := range []struct {
		name  string
		fault sidecars.Fault
		calls int // that end before all is decided
	}{
		{name: "the volume is made at last", fault: sidecars.Fault{Delay: "1s"}, calls: 1},
		{name: "it is made and the answer is lost", fault: sidecars.Fault{Delay: "1s", Code: "DEADLINE_EXCEEDED", Done: true}, calls: 2},
		{name: "it is refused at last", fault: sidecars.Fault{Delay: "1s", Code: "INVALID_ARGUMENT", Message: "no such disk"}, calls: 1},
	} {
		for _, r := range routes {
			t.Run(row.name+", "+r.name, func(t *testing.T) {
				namespace := space(t)
				before, err := r.driver().Ended("CreateVolume")
				require.NoError(t, err)
				require.NoError(t, r.driver().FailNext("CreateVolume", row.fault))
				t.Cleanup(func() { require.NoError(t, r.driver().Heal("CreateVolume")) })
				create(t, namespace, r.place)
				await.Until(t, "the driver is making the volume", func() bool {
					left, err := r.driver().Ordered("CreateVolume")
					require.NoError(t, err)
					return !left
				}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
				backing := func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.West, namespace, "data") }
				if r.driver() == home {
					twin := "pvc-" + string(claimOf(t, bed.Home, namespace, "data").UID)
					backing = func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, fabric.Storage, twin) }
				}
				made := backing()
				require.NotNil(t, made)

				remove(t, namespace)
				await.Until(t, "the driver has answered", func() bool {
					ended, err := r.driver().Ended("CreateVolume")
					require.NoError(t, err)
					return ended >= before+row.calls
				})
				await.Until(t, "the backing claim is gone", func() bool { return backing() == nil }, func() any { return backing() })
				await.Until(t, "its volume is gone, and none is without a PersistentVolume", func() bool {
					for _, v := range volumes(t, r.driver()) {
						if v.Name == "pvc-"+string(made.UID) {
							return false
						}
					}
					return len(orphans(t, r.driver())) == 0
				}, func() any { return volumes(t, r.driver()) })
			})
		}
	}
}
