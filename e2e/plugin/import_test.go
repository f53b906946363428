package plugin

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// realClaim makes a claim of a real class that binds at once, and returns its
// volume.
func realClaim(t *testing.T, c *testbed.Cluster, namespace, name, class string) *corev1.PersistentVolume {
	t.Helper()
	claim := fabric.NewClaim(namespace, name, class)
	claim.Labels = map[string]string{"team": "a"}
	_, err := c.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	await.Until(t, "claim "+name+" is bound", func() bool {
		claim, err = c.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && claim.Status.Phase == corev1.ClaimBound
	})
	real, err := c.Client().CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	require.NoError(t, err)
	return real
}

func claimOf(t *testing.T, c *testbed.Cluster, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim, err := c.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return claim
}

// importedAtHome checks that a claim is virtual and has just this real volume.
func importedAtHome(t *testing.T, namespace, name string, real *corev1.PersistentVolume) {
	t.Helper()
	claim := claimOf(t, bed.Home, namespace, name)
	assert.Equal(t, corev1.ClaimBound, claim.Status.Phase)
	assert.NotEqual(t, real.Spec.StorageClassName, *claim.Spec.StorageClassName)
	assert.NotContains(t, claim.Annotations, keys.Import)
	twin := claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(claim.UID))
	assert.True(t, backings.Protected(twin) && twin.Spec.VolumeName == real.Name, "%+v", twin)
	virtual := volumeOf(t, claim.Spec.VolumeName)
	require.NotNil(t, virtual)
	assert.Equal(t, backings.RefTo(keys.Home, twin).String(), virtual.Annotations[keys.Backing])
	assert.Equal(t, real.Spec.CSI.VolumeHandle, virtual.Spec.CSI.VolumeHandle)
	now := volumeOf(t, real.Name)
	require.NotNil(t, now)
	assert.Equal(t, real.UID, now.UID, "nothing was copied")
	assert.Equal(t, twin.UID, now.Spec.ClaimRef.UID)
	assert.Equal(t, real.Spec.PersistentVolumeReclaimPolicy, now.Spec.PersistentVolumeReclaimPolicy)
	assert.NotContains(t, now.Annotations, keys.Import)
	twins, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(fabric.Storage).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, other := range twins.Items {
		assert.True(t, other.UID == twin.UID || other.Spec.VolumeName != real.Name, "one twin alone")
	}
}

func TestImportAtHomeGoesOnAfterAKillAtEachWrite(t *testing.T) {
	testbed.Require(t)
	namespace, k := testbed.Namespace(t, bed.Home), newKiller(t)
	killed := 0
	for n := 1; ; n++ {
		name := fmt.Sprintf("data-%d", n)
		real := realClaim(t, bed.Home, namespace, name, fabric.HomeNow)
		args := []string{"import", "pvc", name, "-n", namespace, "--class", fabric.Class, "--yes"}
		r, dead := k.run(t, n, args...)
		if dead {
			killed++
			require.NotNil(t, volumeOf(t, real.Name), "after write %d", n)
			r, _ = k.run(t, 0, args...)
		}
		r.ends(t, done)
		importedAtHome(t, namespace, name, real)
		assert.Equal(t, "a", claimOf(t, bed.Home, namespace, name).Labels["team"])
		if !dead {
			break
		}
	}
	assert.Equal(t, 9, killed)

	// It is a virtual claim as any other: a pod uses it, and its data goes with it.
	pods, real := bed.Home.Client().CoreV1().Pods(namespace), claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(claimOf(t, bed.Home, namespace, "data-1").UID)).Spec.VolumeName
	_, err := pods.Create(t.Context(), fabric.AtHome(fabric.NewPod(namespace, "app", "data-1")), metav1.CreateOptions{})
	require.NoError(t, err)
	await.Until(t, "a pod runs with it", func() bool { return podOf(t, namespace, "app").Status.Phase == corev1.PodRunning })
	endPod(t, namespace, "app")
	require.NoError(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "data-1", metav1.DeleteOptions{}))
	await.Until(t, "its data is gone", func() bool { return volumeOf(t, real) == nil })
}

func TestImportChangesNothingThatIsInUseOrDoesNotFit(t *testing.T) {
	testbed.Require(t)
	namespace := testbed.Namespace(t, bed.Home)
	real := realClaim(t, bed.Home, namespace, "data", fabric.HomeNow)
	_, err := bed.Home.Client().CoreV1().Pods(namespace).Create(t.Context(), fabric.AtHome(fabric.NewPod(namespace, "app", "data")), metav1.CreateOptions{})
	require.NoError(t, err)
	await.Until(t, "the pod runs", func() bool { return podOf(t, namespace, "app").Status.Phase == corev1.PodRunning })
	args := []string{"import", "pvc", "data", "-n", namespace, "--class", fabric.Class}
	r := lodestone(t, append(args, "--yes")...).ends(t, refused)
	assert.Contains(t, r.stderr, "is used by pod app: stop what runs it")
	endPod(t, namespace, "app")
	r = lodestone(t, "import", "pvc", "data", "-n", namespace, "--class", fabric.HomeNow, "--yes").ends(t, refused)
	assert.Contains(t, r.stderr, "is not virtual")
	withInput(t, "no\n", args...).ends(t, refused)
	realClaim(t, bed.Home, namespace, "other", fabric.HomeNow)
	r = lodestone(t, append(args, "--yes", "--as", "other")...).ends(t, refused)
	assert.Contains(t, r.stderr, "choose another name with --as")
	// A user who may use the claim but not change volumes imports nothing.
	lodestone(t, append(args, "--yes", "--context", "home-guest")...).ends(t, failed)
	assert.Equal(t, real.Annotations, volumeOf(t, real.Name).Annotations)
	assert.Equal(t, corev1.PersistentVolumeReclaimDelete, volumeOf(t, real.Name).Spec.PersistentVolumeReclaimPolicy)

	_, dead := newKiller(t).run(t, 1, append(args, "--yes", "--as", "renamed")...)
	require.True(t, dead)
	assert.Contains(t, volumeOf(t, real.Name).Annotations, keys.Import)
	r = lodestone(t, "import", "pvc", "data", "-n", namespace, "--undo").ends(t, done)
	assert.Contains(t, r.out, "is undone")
	assert.Equal(t, real.Annotations, volumeOf(t, real.Name).Annotations)
	assert.Equal(t, corev1.PersistentVolumeReclaimDelete, volumeOf(t, real.Name).Spec.PersistentVolumeReclaimPolicy)

	lodestone(t, append(args, "--yes", "--as", "renamed")...).ends(t, done)
	importedAtHome(t, namespace, "renamed", real)
	_, err = bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "data", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err))
	r = lodestone(t, "import", "pvc", "renamed", "-n", namespace, "--class", fabric.Class).ends(t, done)
	assert.Contains(t, r.out, "is virtual already")
}

// keepingClass makes a virtual class whose volumes are kept.
func keepingClass(t *testing.T) string {
	t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "keep-"}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain),
	}
	class, err := bed.Home.Client().StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = bed.Home.Kubectl(t.Context(), "", "delete", "storageclass", class.Name) })
	return class.Name
}

// released makes a claim of a class, has a pod use it, deletes both, and returns
// the volume that is kept.
func released(t *testing.T, namespace, name, class string, place func(*corev1.Pod) *corev1.Pod) string {
	t.Helper()
	claims := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace)
	_, err := claims.Create(t.Context(), fabric.NewClaim(namespace, name, class), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = bed.Home.Client().CoreV1().Pods(namespace).Create(t.Context(), place(fabric.NewPod(namespace, "writer", name)), metav1.CreateOptions{})
	require.NoError(t, err)
	await.Until(t, "the pod runs", func() bool { return podOf(t, namespace, "writer").Status.Phase == corev1.PodRunning })
	volume := claimOf(t, bed.Home, namespace, name).Spec.VolumeName
	endPod(t, namespace, "writer")
	require.NoError(t, claims.Delete(t.Context(), name, metav1.DeleteOptions{}))
	await.Until(t, "its volume is kept", func() bool { return volumeOf(t, volume).Status.Phase == corev1.VolumeReleased })
	return volume
}

func TestWhatWasKeptAtHomeGetsAClaimAgain(t *testing.T) {
	testbed.Require(t)
	namespace, class, k := testbed.Namespace(t, bed.Home), keepingClass(t), newKiller(t)
	for n := 1; ; n++ {
		name := fmt.Sprintf("kept-%d", n)
		old := released(t, namespace, name, class, fabric.AtHome)
		real := volumeOf(t, volumeOf(t, old).Annotations[keys.BackingVolume])
		require.NotNil(t, real)
		args := []string{"import", "pv", old, "-n", namespace, "--class", class, "--yes"}
		r, dead := k.run(t, n, args...)
		if dead {
			if n == 11 {
				// All is done and nothing remembers that volume.
				args[1], args[2] = "pvc", name
			}
			r, _ = k.run(t, 0, args...)
		}
		r.ends(t, done)
		importedAtHome(t, namespace, name, real)
		assert.Nil(t, volumeOf(t, old), "one volume stands for the data")
		if !dead {
			assert.Equal(t, 11, n-1)
			return
		}
	}
}
