package csi

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
)

// TestAttributesOfAClaimReachTheDriver is about a claim of the real class itself:
// what virtual claims are to be measured by.
func TestAttributesOfAClaimReachTheDriver(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	classes := bed.Home.Client().StorageV1().VolumeAttributesClasses()
	for name, iops := range map[string]string{"slow-" + namespace: "100", "fast-" + namespace: "5000"} {
		class := &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: homeDriver, Parameters: map[string]string{"iops": iops},
		}
		_, err := classes.Create(t.Context(), class, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, classes.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	}
	claim := fabric.NewClaim(namespace, "data", waiting)
	slow := "slow-" + namespace
	claim.Spec.VolumeAttributesClassName = &slow
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	createPod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "data")))
	volume := func() (v sidecars.Volume) {
		if bound := claimOf(t, bed.Home, namespace, "data"); bound.Spec.VolumeName != "" {
			v = volumes(t, home)[volumeOf(t, bed.Home, bound.Spec.VolumeName).Spec.CSI.VolumeHandle]
		}
		return v
	}
	await.Until(t, "the driver has the attributes of the first class", func() bool { return volume().Mutable["iops"] == "100" },
		func() any { return await.Events(t, bed.Home.Client(), namespace) })

	_, err = bed.Home.Kubectl(t.Context(), "", "patch", "pvc", "-n", namespace, "data", "-p", `{"spec":{"volumeAttributesClassName":"fast-`+namespace+`"}}`)
	require.NoError(t, err)
	await.Until(t, "the driver has those of the second", func() bool { return volume().Mutable["iops"] == "5000" },
		func() any { return await.Events(t, bed.Home.Client(), namespace) })
}
