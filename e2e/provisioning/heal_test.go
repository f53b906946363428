package provisioning

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestTwinThatSomebodyDeletesIsMadeAnewWithItsData(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	virtual, old, real := served(t, namespace, fabric.Class, fabric.AtHome, bed.Home)
	runs(t, namespace, "db")
	deleteClaim(t, bed.Home, old.Namespace, old.Name)
	twin := healed(t, virtual, old, real)
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingHealed"), real.Name)
	assert.Equal(t, corev1.PodRunning, podOf(t, namespace, "db").Status.Phase, "the pod did not notice")
	createPod(t, fabric.AtHome(fabric.NewPod(namespace, "later", "data")))
	runs(t, namespace, "later")

	// A second time, and then the user's own deletion ends it all.
	deleteClaim(t, bed.Home, twin.Namespace, twin.Name)
	twin = healed(t, virtual, twin, real)
	deletePod(t, namespace, "db")
	deletePod(t, namespace, "later")
	deleteClaim(t, bed.Home, namespace, "data")
	absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	assert.Nil(t, claimOf(t, bed.Home, twin.Namespace, twin.Name))
	assert.False(t, bed.HomeStorage.Exists(real.Spec.CSI.VolumeHandle))
}

func TestVolumeOfAClaimThatIsDeletedWhileItsTwinIsHealedGoesToo(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	virtual, old, real := served(t, namespace, fabric.Class, fabric.AtHome, bed.Home)
	deletePod(t, namespace, "db")
	deleteClaim(t, bed.Home, old.Namespace, old.Name)
	deleteClaim(t, bed.Home, namespace, "data")
	absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	absent(t, "twin", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, old.Namespace, old.Name) })
	eventually(t, func() bool { return !bed.HomeStorage.Exists(real.Spec.CSI.VolumeHandle) }, func() string { return "the data is still there" })
}

// The moments are not chosen: what matters at each write is tested with package
// flow. This is the real API server's and the real storage's part.
func TestHealingSurvivesAProvisionerThatIsKilledAgainAndAgain(t *testing.T) {
	namespace := space(t)
	virtual, twin, real := served(t, namespace, fabric.Class, fabric.AtHome, bed.Home)
	for _, delay := range []time.Duration{0, 10 * time.Millisecond, 30 * time.Millisecond, 80 * time.Millisecond} {
		deleteClaim(t, bed.Home, twin.Namespace, twin.Name)
		time.Sleep(delay)
		provisioner.Kill()
		require.True(t, bed.HomeStorage.Exists(real.Spec.CSI.VolumeHandle))
		startProvisioner(t)
		twin = healed(t, virtual, twin, real)
	}
}

// healed waits until another twin is bound to the real volume, and all is as if
// it had always been so. It brings the annotations of virtual up to date.
func healed(t *testing.T, virtual *corev1.PersistentVolume, old *corev1.PersistentVolumeClaim, real *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	t.Helper()
	var twin *corev1.PersistentVolumeClaim
	eventually(t, func() bool {
		require.True(t, bed.HomeStorage.Exists(real.Spec.CSI.VolumeHandle), "the data is gone")
		twin = claimOf(t, bed.Home, old.Namespace, old.Name)
		now := volumeOf(t, bed.Home, virtual.Name)
		return twin != nil && twin.UID != old.UID && twin.Status.Phase == corev1.ClaimBound && now.Annotations[keys.Healing] == "" &&
			now.Annotations[keys.Backing] != virtual.Annotations[keys.Backing]
	}, func() string { return "the twin is not healed" })
	assert.Equal(t, real.Name, twin.Spec.VolumeName)
	assert.Equal(t, old.Labels, twin.Labels)
	assert.Contains(t, twin.Finalizers, keys.BackingFinalizer)
	again := volumeOf(t, bed.Home, real.Name)
	assert.Equal(t, twin.UID, again.Spec.ClaimRef.UID)
	assert.Equal(t, real.Spec.PersistentVolumeReclaimPolicy, again.Spec.PersistentVolumeReclaimPolicy)
	virtual.Annotations = volumeOf(t, bed.Home, virtual.Name).Annotations
	assert.Equal(t, twin.UID, backingOf(t, virtual).UID)
	return twin
}
