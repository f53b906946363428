package csi

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
)

// TestARealVolumeThatAnAdministratorGrowsIsSeenAtHome grows the backing claim of a
// remote volume, and has the first try fail.
func TestARealVolumeThatAnAdministratorGrowsIsSeenAtHome(t *testing.T) {
	namespace := space(t)
	create(t, namespace, routes[1].place)
	c := served(t, namespace, west)
	require.NoError(t, west.FailNext("ControllerExpandVolume", sidecars.Fault{Code: "INTERNAL", Message: "not now"}))
	t.Cleanup(func() { require.NoError(t, west.Heal("ControllerExpandVolume")) })
	ask(t, bed.West, c.backing.Namespace, c.backing.Name, "3Gi")
	await.Until(t, "the driver has grown the volume", func() bool { return volumes(t, west)[c.volume.ID].Bytes == 3*gibibyte })
	await.Until(t, "the virtual volume has the new size", func() bool {
		size := volumeOf(t, bed.Home, c.virtual.Name).Spec.Capacity[corev1.ResourceStorage]
		return size.Value() == 3*gibibyte
	}, func() any { return volumeOf(t, bed.Home, c.virtual.Name).Spec.Capacity })
}

// TestTheRealResizerGrowsAClaimAtHome shows what external-resizer does with a
// virtual volume whose source is that of its own driver: it grows it, as it would
// grow the real one.
func TestTheRealResizerGrowsAClaimAtHome(t *testing.T) {
	namespace := space(t)
	create(t, namespace, routes[0].place)
	c := served(t, namespace, home)
	ask(t, bed.Home, namespace, "data", "2Gi")
	await.Until(t, "the driver has grown the volume", func() bool { return volumes(t, home)[c.volume.ID].Bytes == 2*gibibyte })
	await.Until(t, "the user's claim has the new size", func() bool {
		size := claimOf(t, bed.Home, namespace, "data").Status.Capacity[corev1.ResourceStorage]
		return size.Value() == 2*gibibyte
	}, func() any { return claimOf(t, bed.Home, namespace, "data").Status })
}
