package provisioning

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestClaimIsExpandedThroughItsShadow(t *testing.T) {
	namespace := beside(t)
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
	testbed.NotInShort(t)
	namespace := beside(t)
	claimAndPod(t, namespace, fabric.Class, fabric.InWest)
	bed.WestStorage.SetClaim(namespace, "data", fakeprovisioner.Behavior{ExpandNever: true})
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
	testbed.NotInShort(t)
	namespace := beside(t)
	claimAndPod(t, namespace, fabric.Class, fabric.InWest)
	bed.WestStorage.SetClaim(namespace, "data", fakeprovisioner.Behavior{ExpandRefuse: "the pool is full"})
	ask(t, bed.Home, namespace, "data", "500Gi")
	assert.Equal(t, "the pool is full", conditionOf(t, namespace, "data", corev1.PersistentVolumeClaimControllerResizeError))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "ExpansionFailed"), "the pool is full")
	assert.Equal(t, [3]string{"500Gi", "1Gi", "1Gi"}, sizes(t, bed.Home, namespace, "data"))

	bed.WestStorage.ResetClaim(namespace, "data")
	bed.WestStorage.SetClaim(namespace, "data", fakeprovisioner.Behavior{ExpandRefuse: "the pool is still full"})
	ask(t, bed.Home, namespace, "data", "2Gi")
	eventually(t, func() bool { return sizes(t, bed.West, namespace, "data")[0] == "2Gi" }, func() string {
		return "the shadow still asks for too much"
	})
	bed.WestStorage.ResetClaim(namespace, "data")
	reaches(t, bed.West, namespace, "data", "2Gi", "2Gi", "2Gi")
	reaches(t, bed.Home, namespace, "data", "2Gi", "2Gi", "2Gi")
	noConditions(t, bed.Home, namespace, "data")
}

func TestRequestForMoreIsRefusedWhereTheRealClassDoesNotAllowIt(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		fixed := route.storage().Class("fixed-"+namespace, storagev1.VolumeBindingImmediate)
		fixed.AllowVolumeExpansion = nil
		makeClass(t, route.cluster(), fixed)
		claimAndPod(t, namespace, newClass(t, with(keys.LocalClass, fixed.Name, keys.RemoteClass, fixed.Name)), route.place)
		eventually(t, func() bool { return claimOf(t, bed.Home, namespace, "data").Annotations[keys.FixedSize] != "" }, func() string {
			return "the claim does not say that it keeps its size"
		})
		err := patchSize(t, bed.Home, namespace, "data", "2Gi")
		require.ErrorContains(t, err, "the volume keeps its size: real storage class \""+fixed.Name+"\"")
		require.ErrorContains(t, err, "does not allow expansion")

		must.Patch(t, route.cluster().Client().StorageV1().StorageClasses(), fixed.Name, types.MergePatchType,
			[]byte(`{"allowVolumeExpansion":true}`))
		eventually(t, func() bool { return patchSize(t, bed.Home, namespace, "data", "2Gi") == nil }, func() string {
			return "the claim must not ask for more"
		})
		reaches(t, bed.Home, namespace, "data", "2Gi", "2Gi", "2Gi")
	})
}

// TestClaimSaysWhyItsRealClassDoesNotExpandIt asks in the moment before the claim
// says that it keeps its size.
func TestClaimSaysWhyItsRealClassDoesNotExpandIt(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
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
		return sizes(t, bed.Home, namespace, "data") == [3]string{"2Gi", "1Gi", "1Gi"} &&
			sizes(t, bed.West, namespace, "data") == [3]string{"1Gi", "1Gi", "1Gi"}
	}, "the volume must keep its size")
}

func TestClaimSaysThatTheRemoteQuotaLeavesNoRoomAndMayAskForLess(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
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
	testbed.NotInShort(t)
	namespace := beside(t)
	claimAndPod(t, namespace, fabric.Class, fabric.InWest)
	ask(t, bed.West, namespace, "data", "5Gi")
	reaches(t, bed.Home, namespace, "data", "1Gi", "5Gi", "5Gi")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingResized"), "the volume has 5Gi now")
}

func TestClaimAtHomeIsExpandedByTheDriverOfItsVolume(t *testing.T) {
	namespace := beside(t)
	claim := claimAndPod(t, namespace, fabric.Class, fabric.AtHome)
	bed.HomeStorage.SetClaim(namespace, "data", fakeprovisioner.Behavior{ExpandNever: true})
	ask(t, bed.Home, namespace, "data", "3Gi")
	reaches(t, bed.Home, namespace, "data", "3Gi", "1Gi", "3Gi")
	consistently(t, func() bool {
		return sizes(t, bed.Home, namespace, "data") == [3]string{"3Gi", "1Gi", "3Gi"} &&
			sizes(t, bed.Home, fabric.Storage, twinOf(claim))[0] == "1Gi"
	}, "nobody but kubelet may say that the file system has grown")

	// No kubelet mounts a twin, so its file system is never seen to grow.
	bed.HomeStorage.SetClaim(fabric.Storage, twinOf(claim), fakeprovisioner.Behavior{ExpandNever: true})
	bed.HomeStorage.ResetClaim(namespace, "data")
	reaches(t, bed.Home, namespace, "data", "3Gi", "3Gi", "3Gi")
	reaches(t, bed.Home, fabric.Storage, twinOf(claim), "3Gi", "3Gi", "3Gi")
	noConditions(t, bed.Home, fabric.Storage, twinOf(claim))
	assert.Empty(t, warnings(t, namespace))
}

func TestClaimAtHomeOfAVolumeWithoutADriverIsExpandedThroughItsTwin(t *testing.T) {
	namespace := beside(t)
	static := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "nfs-" + namespace}, Provisioner: "kubernetes.io/no-provisioner",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate), AllowVolumeExpansion: ptr.To(true),
	}
	makeClass(t, bed.Home, static)
	real := nfsVolume(t, static.Name, "1Gi")
	claim := claimAndPod(t, namespace, newClass(t, with(keys.LocalClass, static.Name)), fabric.AtHome)

	ask(t, bed.Home, namespace, "data", "3Gi")
	eventually(t, func() bool { return sizes(t, bed.Home, fabric.Storage, twinOf(claim))[0] == "3Gi" }, func() string {
		return "the twin does not ask for more"
	})
	assert.Equal(t, "1Gi", sizes(t, bed.Home, namespace, "data")[1])

	// As whoever expands volumes of that class does.
	ctx, client := t.Context(), bed.Home.Client().CoreV1()
	_, err := client.PersistentVolumes().Patch(ctx, real, types.MergePatchType, []byte(`{"spec":{"capacity":{"storage":"3Gi"}}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = client.PersistentVolumeClaims(fabric.Storage).Patch(ctx, twinOf(claim), types.MergePatchType,
		[]byte(`{"status":{"capacity":{"storage":"3Gi"}}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	reaches(t, bed.Home, namespace, "data", "3Gi", "3Gi", "3Gi")
}

// ask changes what a claim asks for, as its user does.
func ask(t *testing.T, cluster *testbed.Cluster, namespace, name, size string) {
	t.Helper()
	require.NoError(t, patchSize(t, cluster, namespace, name, size))
}

func patchSize(t *testing.T, cluster *testbed.Cluster, namespace, name, size string) error {
	t.Helper()
	_, err := cluster.Client().CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size), metav1.PatchOptions{})
	return err
}

// sizes are what an object of each kind says, in the order in which a size goes
// through them: request, capacity, volume.
func sizes(t *testing.T, cluster *testbed.Cluster, namespace, name string) [3]string {
	t.Helper()
	claim := claimOf(t, cluster, namespace, name)
	require.NotNil(t, claim)
	volume := volumeOf(t, cluster, claim.Spec.VolumeName)
	if volume == nil {
		volume = &corev1.PersistentVolume{}
	}
	return [3]string{claim.Spec.Resources.Requests.Storage().String(), claim.Status.Capacity.Storage().String(),
		volume.Spec.Capacity.Storage().String()}
}

// reaches waits until request, capacity and volume of a claim are of these sizes.
func reaches(t *testing.T, cluster *testbed.Cluster, namespace, name, request, capacity, volume string) {
	t.Helper()
	want := [3]string{request, capacity, volume}
	eventually(t, func() bool { return sizes(t, cluster, namespace, name) == want }, func() string {
		return fmt.Sprintf("claim %s/%s of %s has %v, want %v: %+v\nevents: %v", namespace, name, cluster.Name(),
			sizes(t, cluster, namespace, name), want, claimOf(t, cluster, namespace, name).Status, await.Events(t, bed.Home.Client(), namespace))
	})
}

// conditionOf waits until a claim has a condition, and returns its message.
func conditionOf(t *testing.T, namespace, name string, kind corev1.PersistentVolumeClaimConditionType) string {
	t.Helper()
	message := ""
	eventually(t, func() bool {
		conditions := claimOf(t, bed.Home, namespace, name).Status.Conditions
		i := slices.IndexFunc(conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == kind && c.Status == corev1.ConditionTrue
		})
		if i >= 0 {
			message = conditions[i].Message
		}
		return i >= 0
	}, func() string {
		return fmt.Sprintf("there is no condition %s: %+v\nevents: %v", kind, claimOf(t, bed.Home, namespace, name).Status,
			await.Events(t, bed.Home.Client(), namespace))
	})
	return message
}

func noConditions(t *testing.T, cluster *testbed.Cluster, namespace, name string) {
	t.Helper()
	eventually(t, func() bool {
		status := claimOf(t, cluster, namespace, name).Status
		return len(status.Conditions) == 0 && len(status.AllocatedResourceStatuses) == 0
	}, func() string { return fmt.Sprintf("%+v", claimOf(t, cluster, namespace, name).Status) })
}

// quota limits what the claims of a namespace may ask for together, and waits
// until that is counted.
func quota(t *testing.T, cluster *testbed.Cluster, namespace, size string) {
	t.Helper()
	quotas := cluster.Client().CoreV1().ResourceQuotas(namespace)
	must.Create(t, quotas, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "storage"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse(size)}},
	})
	eventually(t, func() bool {
		have, err := quotas.Get(t.Context(), "storage", metav1.GetOptions{})
		_, counted := have.Status.Used[corev1.ResourceRequestsStorage]
		return err == nil && counted
	}, func() string { return "the quota is not counted" })
}

// nfsVolume makes a real volume at home that is of no CSI driver.
func nfsVolume(t *testing.T, class, size string) string {
	t.Helper()
	volumes := bed.Home.Client().CoreV1().PersistentVolumes()
	must.Create(t, volumes, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.test", Path: "/data"}},
		},
	})
	t.Cleanup(func() { _ = volumes.Delete(context.Background(), class, metav1.DeleteOptions{}) })
	return class
}

// TestExpansionGoesOnWhenProvisionersAreKilled runs alone: it stops the
// provisioner that the others use.
func TestExpansionGoesOnWhenProvisionersAreKilled(t *testing.T) {
	testbed.NotInShort(t)
	namespace := newNamespace(t)
	const count = 12
	name := func(i int) string { return fmt.Sprintf("data-%d", i) }
	for i := range count {
		bed.CreateClaim(t, fabric.NewClaim(namespace, name(i), fabric.Class))
		place := fabric.AtHome
		if i%3 != 0 {
			place = fabric.InWest
		}
		bed.CreatePod(t, place(fabric.NewPod(namespace, name(i), name(i))))
	}
	for i := range count {
		bed.AwaitRunning(t, namespace, name(i))
	}
	stopProvisioner(t)
	t.Cleanup(func() { startProvisioner(t) })
	r := startReplicas(t)
	grown := func(size string) (n int) {
		for i := range count {
			if sizes(t, bed.Home, namespace, name(i)) == [3]string{size, size, size} {
				n++
			}
		}
		return n
	}
	for round, size := range []string{"2Gi", "3Gi", "4Gi"} {
		for i := range count {
			ask(t, bed.Home, namespace, name(i), size)
		}
		// Each round dies a little later in its work.
		time.Sleep(time.Duration(round) * 20 * time.Millisecond)
		r.kill(t)
		eventually(t, func() bool { return grown(size) == count }, func() string {
			return fmt.Sprintf("%d of %d claims have %s", grown(size), count, size)
		})
	}
	for i := range count {
		claim := claimOf(t, bed.Home, namespace, name(i))
		noConditions(t, bed.Home, namespace, name(i))
		if i%3 != 0 {
			reaches(t, bed.West, namespace, name(i), "4Gi", "4Gi", "4Gi")
			continue
		}
		reaches(t, bed.Home, fabric.Storage, twinOf(claim), "4Gi", "4Gi", "4Gi")
	}
	for _, volume := range bed.WestStorage.VolumesOf(namespace) {
		assert.Equal(t, int64(4<<30), volume.Bytes)
	}
}

// attributesClass makes a VolumeAttributesClass for the driver of a route's real
// classes, of the same name in each of the clusters.
func attributesClass(t *testing.T, driver string, clusters ...*testbed.Cluster) string {
	t.Helper()
	name := "attributes-" + rand.String(8)
	for _, cluster := range clusters {
		classes := cluster.Client().StorageV1().VolumeAttributesClasses()
		must.Create(t, classes, &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driver, Parameters: map[string]string{"iops": "100"}})
	}
	return name
}

func TestAttributesClassGoesToTheBackingClaim(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		name := attributesClass(t, route.storage().Name(), route.cluster())
		claim := fabric.NewClaim(namespace, "data", newClass(t))
		claim.Spec.VolumeAttributesClassName = &name
		bed.CreateClaim(t, claim)
		bed.CreatePod(t, route.place(fabric.NewPod(namespace, "db", "data")))
		bed.AwaitRunning(t, namespace, "db")
		have, virtual := awaitBound(t, bed.Home, namespace, "data")
		b := backingOf(t, virtual)
		assert.Equal(t, name, ptr.Deref(b.Spec.VolumeAttributesClassName, ""))
		assert.Equal(t, name, ptr.Deref(virtual.Spec.VolumeAttributesClassName, ""))
		assert.Equal(t, name, ptr.Deref(have.Status.CurrentVolumeAttributesClassName, ""))
	})
}

// A place without the class that is asked for is passed over.
func TestAttributesClassMustExistWhereTheVolumeIs(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	name := attributesClass(t, bed.HomeStorage.Name(), bed.Home)
	class := newClass(t)
	awaitCapacity(t, class, fabric.WestNode)
	claim := fabric.NewClaim(namespace, "data", class)
	claim.Spec.VolumeAttributesClassName = &name
	claim = bed.CreateClaim(t, claim)
	bed.CreatePod(t, preferWest(fabric.NewPod(namespace, "db", "data")))
	assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "NoAttributesClass"), name)
	assert.Nil(t, claimOf(t, bed.West, namespace, "data"), "nothing was made there")
	awaitBound(t, bed.Home, fabric.Storage, twinOf(claim))
}

// No program changes volumes on the test bed: the test says that it is done.
func TestAttributesOfARemoteVolumeAreChanged(t *testing.T) {
	namespace := beside(t)
	silver, gold := attributesClass(t, bed.WestStorage.Name(), bed.West), attributesClass(t, bed.WestStorage.Name(), bed.West)
	claim := fabric.NewClaim(namespace, "data", newClass(t))
	claim.Spec.VolumeAttributesClassName = &silver
	claim = bed.CreateClaim(t, claim)
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	bed.AwaitRunning(t, namespace, "db")

	wanting := func(name string) map[string]any {
		return map[string]any{"spec": map[string]any{"volumeAttributesClassName": name}}
	}
	absent := "absent-" + rand.String(8)
	change(t, bed.Home, claim, wanting(absent))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "NoAttributesClass"), absent)
	assert.Equal(t, silver, *claimOf(t, bed.West, namespace, "data").Spec.VolumeAttributesClassName)

	change(t, bed.Home, claim, wanting(gold))
	eventually(t, func() bool { return *claimOf(t, bed.West, namespace, "data").Spec.VolumeAttributesClassName == gold },
		func() string { return "the shadow does not ask for it" })
	_, virtual := awaitBound(t, bed.Home, namespace, "data")
	assert.Equal(t, silver, *virtual.Spec.VolumeAttributesClassName, "nobody has changed the volume yet")

	change(t, bed.West, claim, map[string]any{"status": map[string]any{"currentVolumeAttributesClassName": gold}}, "status")
	eventually(t, func() bool {
		have, virtual := awaitBound(t, bed.Home, namespace, "data")
		return *virtual.Spec.VolumeAttributesClassName == gold && ptr.Deref(have.Status.CurrentVolumeAttributesClassName, "") == gold
	}, func() string { return "home does not tell" })
}

// A change that never came about is taken back as Kubernetes allows it.
func TestAttributesThatFailThereAreToldAndTakenBack(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	gold := attributesClass(t, bed.WestStorage.Name(), bed.Home, bed.West)
	claim := claimAndPod(t, namespace, newClass(t), fabric.InWest)
	change(t, bed.Home, claim, map[string]any{"spec": map[string]any{"volumeAttributesClassName": gold}})
	asks := func() string {
		return ptr.Deref(claimOf(t, bed.West, namespace, "data").Spec.VolumeAttributesClassName, "")
	}
	eventually(t, func() bool { return asks() == gold }, func() string { return "the shadow does not ask for it" })

	change(t, bed.West, claim, map[string]any{"status": map[string]any{
		"modifyVolumeStatus": map[string]any{"targetVolumeAttributesClassName": gold,
			"status": corev1.PersistentVolumeClaimModifyVolumeInfeasible},
		"conditions": []map[string]any{{"type": corev1.PersistentVolumeClaimVolumeModifyVolumeError, "status": "True",
			"message": "no gold left"}},
	}}, "status")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "AttributesFailed"), gold)
	eventually(t, func() bool {
		have, _ := awaitBound(t, bed.Home, namespace, "data")
		state := have.Status.ModifyVolumeStatus
		return state != nil && state.Status == corev1.PersistentVolumeClaimModifyVolumeInfeasible &&
			slices.ContainsFunc(have.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
				return c.Type == corev1.PersistentVolumeClaimVolumeModifyVolumeError && c.Message == "no gold left"
			})
	}, func() string { return "the claim does not say so" })

	change(t, bed.Home, claim, map[string]any{"spec": map[string]any{"volumeAttributesClassName": nil}})
	eventually(t, func() bool { return asks() == "" }, func() string { return "the shadow still asks for it" })
	change(t, bed.West, claim, map[string]any{"status": map[string]any{"modifyVolumeStatus": nil, "conditions": nil}}, "status")
	eventually(t, func() bool {
		have, _ := awaitBound(t, bed.Home, namespace, "data")
		return have.Status.ModifyVolumeStatus == nil && len(have.Status.Conditions) == 0
	}, func() string { return "the claim still tells of it" })
}

// At home the driver of the real volume does it; the test says that it is done.
func TestAttributesOfAVolumeAtHomeAreRecordedOnItsTwin(t *testing.T) {
	namespace := beside(t)
	gold := attributesClass(t, bed.HomeStorage.Name(), bed.Home)
	claim := claimAndPod(t, namespace, newClass(t), fabric.AtHome)
	change(t, bed.Home, claim, map[string]any{"spec": map[string]any{"volumeAttributesClassName": gold}})
	consistently(t, func() bool {
		return claimOf(t, bed.Home, fabric.Storage, twinOf(claim)).Spec.VolumeAttributesClassName == nil
	}, "the twin is changed before the volume")
	change(t, bed.Home, claim, map[string]any{"status": map[string]any{"currentVolumeAttributesClassName": gold}}, "status")
	eventually(t, func() bool {
		return ptr.Deref(claimOf(t, bed.Home, fabric.Storage, twinOf(claim)).Spec.VolumeAttributesClassName, "") == gold
	}, func() string { return "the twin does not record it" })
}
