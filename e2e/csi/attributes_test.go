package csi

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
)

// TestAttributesOfAClaimReachTheDriver is about a claim of the real class itself:
// what virtual claims are to be measured by.
func TestAttributesOfAClaimReachTheDriver(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	slow, fast := attributes(t, home, namespace)
	claim := fabric.NewClaim(namespace, "data", waiting)
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

	_, err = bed.Home.Kubectl(t.Context(), "", "patch", "pvc", "-n", namespace, "data", "-p", `{"spec":{"volumeAttributesClassName":"`+fast+`"}}`)
	require.NoError(t, err)
	await.Until(t, "the driver has those of the second", func() bool { return volume().Mutable["iops"] == "5000" },
		func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

// TestAttributesOfAVirtualClaimReachTheDriver shows both ways: at home the real
// sidecars change the volume for the virtual claim, and the twin is brought after;
// in a remote cluster they do so for the shadow.
func TestAttributesOfAVirtualClaimReachTheDriver(t *testing.T) {
	t.Parallel()
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			slow, fast := attributes(t, r.driver(), namespace)
			create(t, namespace, r.place, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeAttributesClassName = &slow })
			c := served(t, namespace, r.driver())
			assert.Equal(t, "100", c.volume.Mutable["iops"])
			requireAttributes(t, c, slow)

			_, err := bed.Home.Kubectl(t.Context(), "", "patch", "pvc", "-n", namespace, "data", "-p", `{"spec":{"volumeAttributesClassName":"`+fast+`"}}`)
			require.NoError(t, err)
			await.Until(t, "the driver has the attributes of the second class", func() bool { return volumes(t, r.driver())[c.volume.ID].Mutable["iops"] == "5000" },
				func() any { return await.Events(t, bed.Home.Client(), namespace) })
			requireAttributes(t, c, fast)
		})
	}
}

// requireAttributes waits until all that is behind a claim says that it has the
// attributes of a class.
func requireAttributes(t *testing.T, c chain, name string) {
	t.Helper()
	told := func() []string {
		claim, backing := claimOf(t, bed.Home, c.claim.Namespace, c.claim.Name), claimOf(t, c.cluster, c.backing.Namespace, c.backing.Name)
		return []string{
			ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, ""),
			ptr.Deref(volumeOf(t, bed.Home, c.virtual.Name).Spec.VolumeAttributesClassName, ""),
			ptr.Deref(backing.Spec.VolumeAttributesClassName, ""),
			ptr.Deref(backing.Status.CurrentVolumeAttributesClassName, ""),
			ptr.Deref(volumeOf(t, c.cluster, c.real.Name).Spec.VolumeAttributesClassName, ""),
		}
	}
	await.Until(t, "all say that the volume has the attributes of "+name, func() bool {
		return slices.Equal(told(), []string{name, name, name, name, name})
	}, func() any { return told() })
}

// attributes makes two classes of attributes in the cluster of a driver.
func attributes(t *testing.T, driver *sidecars.Driver, suffix string) (slow, fast string) {
	t.Helper()
	classes := clusterOf(driver).Client().StorageV1().VolumeAttributesClasses()
	slow, fast = "slow-"+suffix, "fast-"+suffix
	for name, iops := range map[string]string{slow: "100", fast: "5000"} {
		class := &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driver.Name, Parameters: map[string]string{"iops": iops},
		}
		_, err := classes.Create(t.Context(), class, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, classes.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	}
	return slow, fast
}
