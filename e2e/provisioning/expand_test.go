package provisioning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestClaimIsExpandedThroughItsShadow(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	claim := claimAndPod(t, namespace, fabric.Class, fabric.InWest)
	ask(t, bed.Home, namespace, "data", "3Gi")
	reaches(t, bed.West, namespace, "data", "3Gi", "3Gi", "3Gi")
	reaches(t, bed.Home, namespace, "data", "3Gi", "3Gi", "3Gi")
	noConditions(t, bed.Home, namespace, "data")
	await.Event(t, bed.Home.Client(), namespace, "data", "VolumeResizeSuccessful")
	grown := claimOf(t, bed.Home, namespace, "data")
	assert.Equal(t, claim.UID, grown.UID)
	assert.Equal(t, "3Gi", grown.Status.AllocatedResources.Storage().String())
	assert.Equal(t, int64(3<<30), bed.WestStorage.VolumesOf(namespace)[0].Bytes)
	for _, warning := range warnings(t, namespace) {
		// A provisioner that a test before this one started may still be asking west.
		assert.Contains(t, warning, "ClusterNotUsable")
	}
}

func TestClaimTellsThatItsFileSystemInTheRemoteClusterHasNotGrown(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	claimAndPod(t, namespace, fabric.Class, fabric.InWest)
	bed.WestStorage.SetClaim(namespace, "data", instant.Behavior{ExpandNever: true})
	ask(t, bed.Home, namespace, "data", "2Gi")
	assert.Contains(t, conditionOf(t, namespace, "data", corev1.PersistentVolumeClaimFileSystemResizePending), "waiting for a node")
	conditionOf(t, namespace, "data", corev1.PersistentVolumeClaimResizing)
	reaches(t, bed.Home, namespace, "data", "2Gi", "1Gi", "2Gi")
	status := claimOf(t, bed.Home, namespace, "data").Status
	assert.Equal(t, corev1.PersistentVolumeClaimNodeResizePending, status.AllocatedResourceStatuses[corev1.ResourceStorage])

	bed.WestStorage.ResetClaim(namespace, "data")
	reaches(t, bed.Home, namespace, "data", "2Gi", "2Gi", "2Gi")
	noConditions(t, bed.Home, namespace, "data")
}

func TestClaimRecoversFromAnExpansionThatFailedInTheRemoteCluster(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	claimAndPod(t, namespace, fabric.Class, fabric.InWest)
	bed.WestStorage.SetClaim(namespace, "data", instant.Behavior{ExpandRefuse: "the pool is full"})
	ask(t, bed.Home, namespace, "data", "500Gi")
	assert.Equal(t, "the pool is full", conditionOf(t, namespace, "data", corev1.PersistentVolumeClaimControllerResizeError))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "ExpansionFailed"), "the pool is full")
	assert.Equal(t, [3]string{"500Gi", "1Gi", "1Gi"}, sizes(t, bed.Home, namespace, "data"))

	bed.WestStorage.ResetClaim(namespace, "data")
	bed.WestStorage.SetClaim(namespace, "data", instant.Behavior{ExpandRefuse: "the pool is still full"})
	ask(t, bed.Home, namespace, "data", "2Gi")
	eventually(t, func() bool { return sizes(t, bed.West, namespace, "data")[0] == "2Gi" }, func() string { return "the shadow still asks for too much" })
	bed.WestStorage.ResetClaim(namespace, "data")
	reaches(t, bed.West, namespace, "data", "2Gi", "2Gi", "2Gi")
	reaches(t, bed.Home, namespace, "data", "2Gi", "2Gi", "2Gi")
	noConditions(t, bed.Home, namespace, "data")
}

func TestRequestForMoreIsRefusedWhereTheRealClassDoesNotAllowIt(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			fixed := route.storage().Class("fixed-"+namespace, storagev1.VolumeBindingImmediate)
			fixed.AllowVolumeExpansion = nil
			makeClass(t, route.cluster(), fixed)
			claimAndPod(t, namespace, newClass(t, with(keys.LocalClass, fixed.Name, keys.RemoteClass, fixed.Name)), route.place)
			eventually(t, func() bool { return claimOf(t, bed.Home, namespace, "data").Annotations[keys.FixedSize] != "" }, func() string { return "the claim does not say that it keeps its size" })
			err := patchSize(t, bed.Home, namespace, "data", "2Gi")
			require.ErrorContains(t, err, "the volume keeps its size: real storage class \""+fixed.Name+"\"")
			require.ErrorContains(t, err, "does not allow expansion")

			_, err = route.cluster().Client().StorageV1().StorageClasses().Patch(t.Context(), fixed.Name, types.MergePatchType, []byte(`{"allowVolumeExpansion":true}`), metav1.PatchOptions{})
			require.NoError(t, err)
			eventually(t, func() bool { return patchSize(t, bed.Home, namespace, "data", "2Gi") == nil }, func() string { return "the claim must not ask for more" })
			reaches(t, bed.Home, namespace, "data", "2Gi", "2Gi", "2Gi")
		})
	}
}

// TestClaimSaysWhyItsRealClassDoesNotExpandIt asks in the moment before the claim
// says that it keeps its size.
func TestClaimSaysWhyItsRealClassDoesNotExpandIt(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	fixed := bed.WestStorage.Class("fixed-"+namespace, storagev1.VolumeBindingImmediate)
	fixed.AllowVolumeExpansion = nil
	makeClass(t, bed.West, fixed)
	claimAndPod(t, namespace, newClass(t, with(keys.RemoteClass, fixed.Name)), fabric.InWest)
	eventually(t, func() bool {
		_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), "data", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+keys.FixedSize+`":null}}}`), metav1.PatchOptions{})
		return err == nil && patchSize(t, bed.Home, namespace, "data", "2Gi") == nil
	}, func() string { return "the claim says at once that it keeps its size" })
	assert.Contains(t, conditionOf(t, namespace, "data", corev1.PersistentVolumeClaimControllerResizeError), "set allowVolumeExpansion there")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "ExpansionNotAllowed"), fixed.Name)
	consistently(t, func() bool {
		return sizes(t, bed.Home, namespace, "data") == [3]string{"2Gi", "1Gi", "1Gi"} && sizes(t, bed.West, namespace, "data") == [3]string{"1Gi", "1Gi", "1Gi"}
	}, "the volume must keep its size")
}

func TestClaimSaysThatTheRemoteQuotaLeavesNoRoomAndMayAskForLess(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	claimAndPod(t, namespace, fabric.Class, fabric.InWest)
	quota(t, bed.West, namespace, "4Gi")
	ask(t, bed.Home, namespace, "data", "9Gi")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "QuotaExceeded"), "leaves no room for 9Gi")
	assert.Contains(t, conditionOf(t, namespace, "data", corev1.PersistentVolumeClaimControllerResizeError), "ask for less")
	ask(t, bed.Home, namespace, "data", "4Gi")
	reaches(t, bed.Home, namespace, "data", "4Gi", "4Gi", "4Gi")
	noConditions(t, bed.Home, namespace, "data")
}

func TestVolumeThatTheRemoteAdministratorMadeLargerIsLargerAtHome(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	claimAndPod(t, namespace, fabric.Class, fabric.InWest)
	ask(t, bed.West, namespace, "data", "5Gi")
	reaches(t, bed.Home, namespace, "data", "1Gi", "5Gi", "5Gi")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingResized"), "the volume has 5Gi now")
}

func TestClaimAtHomeIsExpandedByTheDriverOfItsVolume(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	claim := claimAndPod(t, namespace, fabric.Class, fabric.AtHome)
	bed.HomeStorage.SetClaim(namespace, "data", instant.Behavior{ExpandNever: true})
	ask(t, bed.Home, namespace, "data", "3Gi")
	reaches(t, bed.Home, namespace, "data", "3Gi", "1Gi", "3Gi")
	consistently(t, func() bool {
		return sizes(t, bed.Home, namespace, "data") == [3]string{"3Gi", "1Gi", "3Gi"} && sizes(t, bed.Home, fabric.Storage, twinOf(claim))[0] == "1Gi"
	}, "nobody but kubelet may say that the file system has grown")

	// No kubelet mounts a twin, so its file system is never seen to grow.
	bed.HomeStorage.SetClaim(fabric.Storage, twinOf(claim), instant.Behavior{ExpandNever: true})
	bed.HomeStorage.ResetClaim(namespace, "data")
	reaches(t, bed.Home, namespace, "data", "3Gi", "3Gi", "3Gi")
	reaches(t, bed.Home, fabric.Storage, twinOf(claim), "3Gi", "3Gi", "3Gi")
	noConditions(t, bed.Home, fabric.Storage, twinOf(claim))
	assert.Empty(t, warnings(t, namespace))
}

func TestClaimAtHomeOfAVolumeWithoutADriverIsExpandedThroughItsTwin(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	static := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "nfs-" + namespace}, Provisioner: "kubernetes.io/no-provisioner",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate), AllowVolumeExpansion: ptr.To(true),
	}
	makeClass(t, bed.Home, static)
	real := nfsVolume(t, static.Name, "1Gi")
	claim := claimAndPod(t, namespace, newClass(t, with(keys.LocalClass, static.Name)), fabric.AtHome)

	ask(t, bed.Home, namespace, "data", "3Gi")
	eventually(t, func() bool { return sizes(t, bed.Home, fabric.Storage, twinOf(claim))[0] == "3Gi" }, func() string { return "the twin does not ask for more" })
	assert.Equal(t, "1Gi", sizes(t, bed.Home, namespace, "data")[1])

	// As whoever expands volumes of that class does.
	ctx, client := t.Context(), bed.Home.Client().CoreV1()
	_, err := client.PersistentVolumes().Patch(ctx, real, types.MergePatchType, []byte(`{"spec":{"capacity":{"storage":"3Gi"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = client.PersistentVolumeClaims(fabric.Storage).Patch(ctx, twinOf(claim), types.MergePatchType,
		[]byte(`{"status":{"capacity":{"storage":"3Gi"}}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	reaches(t, bed.Home, namespace, "data", "3Gi", "3Gi", "3Gi")
}
