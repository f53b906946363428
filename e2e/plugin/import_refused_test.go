package plugin

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// quota makes a quota of home and waits until it counts. What is returned removes
// it, as does the end of the test.
func quota(t *testing.T, namespace string, of corev1.ResourceName, hard string) (remove func()) {
	t.Helper()
	quotas := bed.Home.Client().CoreV1().ResourceQuotas(namespace)
	made := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{GenerateName: "import-"}}
	made.Spec.Hard = corev1.ResourceList{of: resource.MustParse(hard)}
	made, err := quotas.Create(t.Context(), made, metav1.CreateOptions{})
	require.NoError(t, err)
	remove = func() {
		_, _ = bed.Home.Kubectl(t.Context(), "", "delete", "resourcequota", "-n", namespace, made.Name, "--ignore-not-found")
	}
	t.Cleanup(remove)
	await.Until(t, "the quota counts", func() bool {
		now, err := quotas.Get(t.Context(), made.Name, metav1.GetOptions{})
		return err == nil && len(now.Status.Used) == 1
	})
	return remove
}

func claimsOf(class string) corev1.ResourceName {
	return corev1.ResourceName(class + ".storageclass.storage.k8s.io/persistentvolumeclaims")
}

func TestNothingIsDeletedBeforeTheNewClaimsMayBeMade(t *testing.T) {
	testbed.Require(t)
	namespace := testbed.Namespace(t, bed.Home)
	real := realClaim(t, bed.Home, namespace, "data", fabric.HomeNow)
	before := claimOf(t, bed.Home, namespace, "data")
	args := []string{"import", "pvc", "data", "-n", namespace, "--class", fabric.Class, "--yes"}
	for in, class := range map[string]string{namespace: fabric.Class, fabric.Storage: fabric.HomeNow} {
		remove := quota(t, in, claimsOf(class), "0")
		r := lodestone(t, args...).ends(t, refused)
		assert.Contains(t, r.stderr, "may not be made, so nothing was changed")
		assert.Contains(t, r.stderr, "exceeded quota")
		remove()
	}
	assert.Equal(t, before.UID, claimOf(t, bed.Home, namespace, "data").UID)
	assert.Nil(t, claimOf(t, bed.Home, namespace, "data").DeletionTimestamp)
	assert.NotContains(t, volumeOf(t, real.Name).Annotations, keys.Import)

	r := lodestone(t, "import", "pv", real.Name, "--class", fabric.Class, "--yes").ends(t, refused)
	assert.Contains(t, r.stderr, "say with -n which namespace it is to be in")

	// A quota that is full takes the new claim for the old one.
	quota(t, namespace, corev1.ResourcePersistentVolumeClaims, "1")
	r = lodestone(t, "import", "pv", real.Name, "-n", namespace, "--class", fabric.Class, "--yes").ends(t, done)
	assert.Contains(t, r.stderr, "Claim "+namespace+"/data, which has it now, is deleted")
	importedAtHome(t, namespace, "data", real)
}

func TestAnImportFromARemoteClusterIsUndoneUntilThereIsAVolume(t *testing.T) {
	peered(t)
	namespace, k := openNamespace(t), newKiller(t)
	realClaim(t, bed.West, namespace, "data", fabric.WestNow)
	t.Cleanup(func() { dropShadow(t, namespace, "data") })
	before := claimOf(t, bed.West, namespace, "data")
	from := []string{"import", "pvc", "data", "-n", namespace, "--cluster", "west", "--remote-context", "west"}
	args, back := slices.Concat(from, []string{"--class", fabric.Class, "--yes"}), slices.Concat(from, []string{"--undo"})
	asBefore := func() {
		now := claimOf(t, bed.West, namespace, "data")
		assert.Equal(t, before.UID, now.UID)
		assert.Equal(t, before.Finalizers, now.Finalizers)
		assert.Equal(t, before.Labels, now.Labels)
		assert.Equal(t, before.Annotations, now.Annotations)
	}

	remove := quota(t, namespace, claimsOf(fabric.Class), "0")
	r := lodestone(t, args...).ends(t, refused)
	assert.Contains(t, r.stderr, "may not be made, so nothing was changed")
	asBefore()
	remove()
	lodestone(t, back...).ends(t, failed)

	// It stops after the claim was marked, after the virtual claim was made, and after
	// the one was given to the other.
	for writes := 1; writes <= 3; writes++ {
		_, dead := k.run(t, writes, args...)
		require.True(t, dead)
		require.True(t, backings.Protected(claimOf(t, bed.West, namespace, "data")))
		r = lodestone(t, back...).ends(t, done)
		assert.Equal(t, "the import of persistentvolumeclaim/data is undone\n", r.out)
		asBefore()
		await.Until(t, "the virtual claim is gone", func() bool {
			_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "data", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
	// Only the first write of taking it back was done.
	_, dead := k.run(t, 3, args...)
	require.True(t, dead)
	_, dead = k.run(t, 1, back...)
	require.True(t, dead)
	lodestone(t, back...).ends(t, done)
	asBefore()
	await.Until(t, "the virtual claim is gone", func() bool {
		_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "data", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})

	_, dead = k.run(t, 4, args...)
	require.True(t, dead)
	r = lodestone(t, back...).ends(t, refused)
	assert.Contains(t, r.stderr, "has its volume, so the import can only go on")
	lodestone(t, args...).ends(t, done)
	require.NoError(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "data", metav1.DeleteOptions{}))
	await.Until(t, "its data is gone", func() bool {
		_, err := bed.West.Client().CoreV1().PersistentVolumes().Get(t.Context(), before.Spec.VolumeName, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
