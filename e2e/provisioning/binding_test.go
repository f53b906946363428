package provisioning

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestNoVolumeIsPublishedWhileAShadowThatBindsAtOnceIsPending(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	bed.WestStorage.SetClaim(namespace, "data", never)
	claim := createClaim(t, sized(fabric.NewClaim(namespace, "data", newClass(t, with(keys.RemoteClass, fabric.WestNow))), "1100Ki"))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))

	eventually(t, func() bool { return claimOf(t, bed.West, namespace, "data") != nil }, func() string { return "there is no shadow" })
	consistently(t, func() bool { return volumeOf(t, bed.Home, twinOf(claim)) == nil }, "published before the real volume is there")
	assert.Equal(t, corev1.ClaimPending, claimOf(t, bed.Home, namespace, "data").Status.Phase)

	bed.WestStorage.ResetClaim(namespace, "data")
	have, virtual := bound(t, bed.Home, namespace, "data")
	_, real := bound(t, bed.West, namespace, "data")
	assert.Equal(t, "2Mi", virtual.Spec.Capacity.Storage().String(), "the real volume is larger than asked for")
	assert.Equal(t, "2Mi", have.Status.Capacity.Storage().String())
	assert.Equal(t, real.Name, virtual.Annotations[keys.BackingVolume])
	assert.Equal(t, fabric.WestNode, runs(t, namespace, "db"))
}

func TestVolumeFollowsAShadowThatBindsOnlyWhenItsPodIsThere(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	bed.WestStorage.SetClaim(namespace, "data", never)
	createClaim(t, sized(fabric.NewClaim(namespace, "data", fabric.Class), "1100Ki"))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))

	_, early := bound(t, bed.Home, namespace, "data")
	assert.Equal(t, "1100Ki", early.Spec.Capacity.Storage().String())
	assert.Empty(t, early.Annotations[keys.BackingVolume])
	assert.Equal(t, corev1.ClaimPending, claimOf(t, bed.West, namespace, "data").Status.Phase)

	bed.WestStorage.ResetClaim(namespace, "data")
	runs(t, namespace, "db")
	_, real := bound(t, bed.West, namespace, "data")
	eventually(t, func() bool {
		virtual := volumeOf(t, bed.Home, early.Name)
		return virtual.Annotations[keys.BackingVolume] == real.Name && virtual.Spec.Capacity.Storage().String() == "2Mi"
	}, func() string { return "the virtual volume does not tell of the real one" })
	assert.Empty(t, bed.HomeNodes.Violations(namespace))
}

func TestClaimsOfOnePodArePublishedTogether(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	bed.WestStorage.SetClaim(namespace, "slow", never)
	quick := createClaim(t, fabric.NewClaim(namespace, "quick", fabric.Class))
	createClaim(t, fabric.NewClaim(namespace, "slow", newClass(t, with(keys.RemoteClass, fabric.WestNow))))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "db", "quick", "slow")))
	eventually(t, func() bool {
		return claimOf(t, bed.West, namespace, "quick") != nil && claimOf(t, bed.West, namespace, "slow") != nil
	}, func() string { return "there are not two shadows" })
	consistently(t, func() bool { return volumeOf(t, bed.Home, twinOf(quick)) == nil }, "published although the other claim may still be refused")

	bed.WestStorage.ResetClaim(namespace, "slow")
	bound(t, bed.Home, namespace, "quick")
	bound(t, bed.Home, namespace, "slow")
	assert.Equal(t, fabric.WestNode, runs(t, namespace, "db"))
	assert.Empty(t, warnings(t, namespace))
}

func TestClaimWaitsForTheShadowOfAnEarlierClaimOfItsName(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	_, first, _ := served(t, namespace, fabric.Class, fabric.InWest, bed.West)
	shadows := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace)
	hold := func(change string) {
		_, err := shadows.Patch(context.Background(), "data", types.StrategicMergePatchType, []byte(`{"metadata":{"`+change+`":["test.dev/hold"]}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	hold("finalizers")
	deletePod(t, namespace, "db")
	deleteClaim(t, bed.Home, namespace, "data")
	absent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })

	again := createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "CreateFailed"), "an earlier claim of that name is still being deleted")
	assert.Equal(t, first.UID, claimOf(t, bed.West, namespace, "data").UID)

	hold("$deleteFromPrimitiveList/finalizers")
	assert.Equal(t, fabric.WestNode, runs(t, namespace, "db"))
	shadow, _ := bound(t, bed.West, namespace, "data")
	assert.Equal(t, string(again.UID), shadow.Labels[keys.ClaimUID])
}

func TestNormalClaimsTakeOneBackingClaimAndCauseNoWarning(t *testing.T) {
	t.Parallel()
	for _, route := range []struct {
		name  string
		place func(*corev1.Pod) *corev1.Pod
		class []string
	}{
		{name: "a twin that follows its pod", place: fabric.AtHome},
		{name: "a twin that binds at once", place: fabric.AtHome, class: []string{keys.LocalClass, fabric.HomeNow}},
		{name: "a shadow that follows its pod", place: fabric.InWest},
		{name: "a shadow that binds at once", place: fabric.InWest, class: []string{keys.RemoteClass, fabric.WestNow}},
	} {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			twins, shadows := watchClaims(t, bed.Home, fabric.Storage), watchClaims(t, bed.West, namespace)
			claim := claimAndPod(t, namespace, newClass(t, with(route.class...)), route.place)
			_, virtual := bound(t, bed.Home, namespace, "data")
			eventually(t, func() bool {
				b := backingOf(t, virtual)
				return b.Annotations[keys.Unpublished] == ""
			}, func() string { return "the backing claim is not marked as published" })

			assert.Len(t, append(twins(twinOf(claim)), shadows("data")...), 1, "backing claims ever made")
			assert.Empty(t, warnings(t, namespace))
			assert.Contains(t, virtual.Finalizers, "external-provisioner.volume.kubernetes.io/finalizer")
		})
	}
}

// TestVolumeHasWhatTheRealOneSays covers the fields that cross at home.
func TestVolumeHasWhatTheRealOneSays(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	real := bed.HomeStorage.Class("real-"+namespace, storagev1.VolumeBindingImmediate)
	real.MountOptions = []string{"noatime", "discard"}
	makeClass(t, bed.Home, real)
	class := newClass(t, with(keys.LocalClass, real.Name), func(c *storagev1.StorageClass) { c.MountOptions = []string{"sync", "discard"} })
	block := corev1.PersistentVolumeBlock
	claim := sized(fabric.NewClaim(namespace, "data", class), "1100Ki")
	claim.Spec.VolumeMode = &block
	created := createClaim(t, claim)
	pod := fabric.AtHome(fabric.NewPod(namespace, "db", "data"))
	pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	createPod(t, pod)
	runs(t, namespace, "db")

	_, virtual := bound(t, bed.Home, namespace, "data")
	twin, behind := bound(t, bed.Home, fabric.Storage, twinOf(created))
	assert.Equal(t, behind.Spec.PersistentVolumeSource, virtual.Spec.PersistentVolumeSource)
	assert.Equal(t, "2Mi", virtual.Spec.Capacity.Storage().String())
	assert.Equal(t, class, virtual.Spec.StorageClassName)
	assert.Equal(t, []string{"sync", "discard", "noatime"}, virtual.Spec.MountOptions)
	assert.Equal(t, corev1.PersistentVolumeBlock, *virtual.Spec.VolumeMode)
	assert.Equal(t, corev1.PersistentVolumeReclaimDelete, virtual.Spec.PersistentVolumeReclaimPolicy)
	assert.Equal(t, "home/"+fabric.Storage+"/"+twin.Name+"/"+string(twin.UID), virtual.Annotations[keys.Backing])
	assert.Equal(t, string(created.UID), twin.Labels[keys.ClaimUID])
	assert.Equal(t, namespace+"/data", twin.Annotations[keys.Claim])
	system, err := bed.Home.Client().CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, string(system.UID)[:8], twin.Labels[keys.HomeID])
}
