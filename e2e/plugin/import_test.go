package plugin

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/backing"
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
	return must.Get(t, c.Client().CoreV1().PersistentVolumes(), claim.Spec.VolumeName)
}

func claimOf(t *testing.T, c *testbed.Cluster, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return must.Get(t, c.Client().CoreV1().PersistentVolumeClaims(namespace), name)
}

// importedAtHome checks that a claim is virtual and has just this real volume.
func importedAtHome(t *testing.T, namespace, name string, real *corev1.PersistentVolume) {
	t.Helper()
	claim := claimOf(t, bed.Home, namespace, name)
	assert.Equal(t, corev1.ClaimBound, claim.Status.Phase)
	assert.NotEqual(t, real.Spec.StorageClassName, *claim.Spec.StorageClassName)
	assert.NotContains(t, claim.Annotations, keys.Import)
	twin := claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(claim.UID))
	assert.True(t, backing.Protected(twin) && twin.Spec.VolumeName == real.Name, "%+v", twin)
	virtual := volumeOf(t, claim.Spec.VolumeName)
	require.NotNil(t, virtual)
	assert.Equal(t, backing.RefTo(keys.Home, twin).String(), virtual.Annotations[keys.Backing])
	assert.Equal(t, real.Spec.CSI.VolumeHandle, virtual.Spec.CSI.VolumeHandle)
	now := volumeOf(t, real.Name)
	require.NotNil(t, now)
	assert.Equal(t, real.UID, now.UID, "nothing was copied")
	assert.Equal(t, twin.UID, now.Spec.ClaimRef.UID)
	assert.Equal(t, real.Spec.PersistentVolumeReclaimPolicy, now.Spec.PersistentVolumeReclaimPolicy)
	assert.NotContains(t, now.Annotations, keys.Import)
	twins := must.List(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(fabric.Storage))
	for _, other := range twins.Items {
		assert.True(t, other.UID == twin.UID || other.Spec.VolumeName != real.Name, "one twin alone")
	}
}

func TestImportAtHomeGoesOnAfterAKillAtEachWrite(t *testing.T) {
	testbed.NotInShort(t)
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
	pods, real := bed.Home.Client().CoreV1().Pods(namespace),
		claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(claimOf(t, bed.Home, namespace, "data-1").UID)).Spec.VolumeName
	must.Create(t, pods, fabric.AtHome(fabric.NewPod(namespace, "app", "data-1")))
	await.Until(t, "a pod runs with it", func() bool { return podOf(t, namespace, "app").Status.Phase == corev1.PodRunning })
	endPod(t, namespace, "app")
	must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), "data-1")
	await.Until(t, "its data is gone", func() bool { return volumeOf(t, real) == nil })
}

func TestImportChangesNothingThatIsInUseOrDoesNotFit(t *testing.T) {
	testbed.Require(t)
	namespace := testbed.Namespace(t, bed.Home)
	real := realClaim(t, bed.Home, namespace, "data", fabric.HomeNow)
	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), fabric.AtHome(fabric.NewPod(namespace, "app", "data")))
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
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "data", metav1.GetOptions{})
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
	class = must.Create(t, bed.Home.Client().StorageV1().StorageClasses(), class)
	t.Cleanup(func() { _, _ = bed.Home.Kubectl(t.Context(), "", "delete", "storageclass", class.Name) })
	return class.Name
}

// released makes a claim of a class, has a pod use it, deletes both, and returns
// the volume that is kept.
func released(t *testing.T, namespace, name, class string, place func(*corev1.Pod) *corev1.Pod) string {
	t.Helper()
	claims := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace)
	must.Create(t, claims, fabric.NewClaim(namespace, name, class))
	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), place(fabric.NewPod(namespace, "writer", name)))
	await.Until(t, "the pod runs", func() bool { return podOf(t, namespace, "writer").Status.Phase == corev1.PodRunning })
	volume := claimOf(t, bed.Home, namespace, name).Spec.VolumeName
	endPod(t, namespace, "writer")
	must.Delete(t, claims, name)
	await.Until(t, "its volume is kept", func() bool { return volumeOf(t, volume).Status.Phase == corev1.VolumeReleased })
	return volume
}

func TestWhatWasKeptAtHomeGetsAClaimAgain(t *testing.T) {
	testbed.NotInShort(t)
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
			if n > 10 && volumeOf(t, old) == nil {
				// All is done and nothing remembers that volume; a write that met a conflict counts, too.
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

// quota makes a quota of home and waits until it counts. What is returned removes
// it, as does the end of the test.
func quota(t *testing.T, namespace string, of corev1.ResourceName, hard string) (remove func()) {
	t.Helper()
	quotas := bed.Home.Client().CoreV1().ResourceQuotas(namespace)
	made := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{GenerateName: "import-"}}
	made.Spec.Hard = corev1.ResourceList{of: resource.MustParse(hard)}
	made = must.Create(t, quotas, made)
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
	testbed.NotInShort(t)
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
		require.True(t, backing.Protected(claimOf(t, bed.West, namespace, "data")))
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
	must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), "data")
	await.Until(t, "its data is gone", func() bool {
		_, err := bed.West.Client().CoreV1().PersistentVolumes().Get(t.Context(), before.Spec.VolumeName, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestImportFromARemoteClusterGoesOnAfterAKillAtEachWrite(t *testing.T) {
	testbed.NotInShort(t)
	peered(t)
	namespace, class, k := openNamespace(t), keepingClass(t), newKiller(t)
	for n := 1; ; n++ {
		// One that the people of west made, one that home kept there.
		name, old := fmt.Sprintf("data-%d", n), ""
		if n == 2 {
			old = released(t, namespace, name, class, fabric.InWest)
		} else {
			realClaim(t, bed.West, namespace, name, fabric.WestNow)
		}
		before := claimOf(t, bed.West, namespace, name)
		args := []string{"import", "pvc", name, "-n", namespace, "--class", fabric.Class, "--yes", "--cluster", "west", "--remote-context",
			"west"}
		r, dead := k.run(t, n, args...)
		if dead {
			r, _ = k.run(t, 0, args...)
		}
		r.ends(t, done)
		claim, shadow := claimOf(t, bed.Home, namespace, name), claimOf(t, bed.West, namespace, name)
		assert.Equal(t, corev1.ClaimBound, claim.Status.Phase)
		assert.Equal(t, before.UID, shadow.UID, "nothing was copied")
		assert.Equal(t, string(claim.UID), shadow.Labels[keys.ClaimUID])
		assert.True(t, backing.Protected(shadow))
		assert.Equal(t, backing.RefTo("west", shadow).String(), volumeOf(t, claim.Spec.VolumeName).Annotations[keys.Backing])
		assert.NotContains(t, claim.Annotations, keys.Import)
		if old != "" {
			assert.Nil(t, volumeOf(t, old), "one volume stands for the data")
		}
		// Its data goes with it, and for the peering to end after the test.
		real := shadow.Spec.VolumeName
		must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), name)
		await.Until(t, "the data of "+name+" is gone", func() bool {
			_, err := bed.West.Client().CoreV1().PersistentVolumes().Get(t.Context(), real, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
		if !dead {
			assert.Equal(t, 6, n-1)
			return
		}
	}
}

func TestImportFromARemoteClusterRefusesWhatIsNotHomesToTake(t *testing.T) {
	testbed.NotInShort(t)
	peered(t)
	namespace := openNamespace(t)
	realClaim(t, bed.West, namespace, "data", fabric.WestNow)
	t.Cleanup(func() { dropShadow(t, namespace, "data") })
	args := []string{"import", "pvc", "data", "-n", namespace, "--class", fabric.Class, "--yes", "--cluster", "west", "--remote-context",
		"west"}
	must.Create(t, bed.West.Client().CoreV1().Pods(namespace), fabric.NewPod(namespace, "app", "data"))
	r := lodestone(t, args...).ends(t, refused)
	assert.Contains(t, r.stderr, "is used by pod app")
	require.NoError(t, bed.West.Client().CoreV1().Pods(namespace).Delete(t.Context(), "app",
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	r = lodestone(t, append(args[:len(args)-1:len(args)-1], "home-again")...).ends(t, refused)
	assert.Contains(t, r.stderr, `is not that of cluster "west"`)
	must.Patch(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace), "data", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+keys.HomeID+`":"another"}}}`))
	await.Until(t, "the pod is gone", func() bool {
		_, err := bed.West.Client().CoreV1().Pods(namespace).Get(t.Context(), "app", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	r = lodestone(t, args...).ends(t, refused)
	assert.Contains(t, r.stderr, `belongs to home cluster "another"`)
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "data", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "nothing was made")
}

func TestPeerGoesOnAfterAKillAtEachWrite(t *testing.T) {
	testbed.NotInShort(t)
	testbed.Require(t)
	k := newKiller(t)
	ca := t.TempDir() + "/ca.crt"
	require.NoError(t, os.WriteFile(ca, bed.West.AdminConfig().CAData, 0o600))
	for auth, writes := range map[string]int{"token": 4, "certificate": 6} {
		t.Run(auth, func(t *testing.T) {
			args := []string{"peer", "--remote-context", "west", "--auth", auth, "--remote-server", bed.West.AdminConfig().Host, "--remote-ca-file",
				ca}
			killed := 0
			for n := 1; ; n++ {
				requests := signingRequests(t)
				r, dead := k.run(t, n, args...)
				if !dead {
					r.ends(t, done)
					unpeered(t)
					break
				}
				killed++
				r, _ = k.run(t, 0, args...)
				r.ends(t, done)
				assert.True(t, accepted(t, kubeconfigOf(t, "west")))
				assert.NotContains(t, secretOf(t, "west").Data, "pending.key")
				if auth == "certificate" {
					assert.Equal(t, requests+1, signingRequests(t), "the second run goes on with the request of the first")
				}
				unpeered(t)
			}
			assert.Equal(t, writes, killed)
		})
	}
}

// Only the last but one write takes the token's rights away; before it there is
// a certificate.
func TestATokenWorksUntilThereIsACertificate(t *testing.T) {
	peered(t)
	k := newKiller(t)
	for n := 1; n <= 3; n++ {
		_, dead := k.run(t, n, "peer", "--remote-context", "west", "--auth", "certificate")
		require.True(t, dead)
		home, err := homeClusterOf(t)
		require.NoError(t, err)
		assert.Empty(t, home.Spec.User)
		assert.True(t, accepted(t, kubeconfigOf(t, "west")))
		lodestone(t, "peer", "--remote-context", "west").ends(t, done)
		assert.NotContains(t, secretOf(t, "west").Data, "pending.key")
	}
	r := lodestone(t, "peer", "--remote-context", "west", "--auth", "certificate").ends(t, done)
	assert.Contains(t, r.stderr, "got a client certificate")
	home, err := homeClusterOf(t)
	require.NoError(t, err)
	assert.NotEmpty(t, home.Spec.User)
	assert.True(t, accepted(t, kubeconfigOf(t, "west")))
	lodestone(t, "peer", "--remote-context", "west", "--auth", "token").ends(t, done)
	assert.True(t, accepted(t, kubeconfigOf(t, "west")))
}

func TestUnpeerGoesOnAfterAKillAtEachWrite(t *testing.T) {
	testbed.Require(t)
	k := newKiller(t)
	killed := 0
	for n := 1; ; n++ {
		peered(t)
		r, dead := k.run(t, n, "unpeer", "west", "--remote-context", "west")
		if dead {
			killed++
			r, _ = k.run(t, 0, "unpeer", "west", "--remote-context", "west")
		}
		r.ends(t, done)
		nothingIsLeft(t)
		_, err := homeClusterOf(t)
		assert.True(t, apierrors.IsNotFound(err))
		if !dead {
			break
		}
	}
	assert.Equal(t, 3, killed)
}

func signingRequests(t *testing.T) int {
	t.Helper()
	list := must.List(t, bed.West.Client().CertificatesV1().CertificateSigningRequests())
	return len(list.Items)
}
