package provisioning

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

func TestNoVolumeIsPublishedWhileAShadowThatBindsAtOnceIsPending(t *testing.T) {
	namespace := beside(t)
	bed.WestStorage.SetClaim(namespace, "data", never)
	claim := bed.CreateClaim(t, sized(fabric.NewClaim(namespace, "data", newClass(t, with(keys.RemoteClass, fabric.WestNow))), "1100Ki"))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))

	eventually(t, func() bool { return claimOf(t, bed.West, namespace, "data") != nil }, func() string { return "there is no shadow" })
	consistently(t, func() bool { return volumeOf(t, bed.Home, twinOf(claim)) == nil }, "published before the real volume is there")
	assert.Equal(t, corev1.ClaimPending, claimOf(t, bed.Home, namespace, "data").Status.Phase)

	bed.WestStorage.ResetClaim(namespace, "data")
	have, virtual := awaitBound(t, bed.Home, namespace, "data")
	_, real := awaitBound(t, bed.West, namespace, "data")
	assert.Equal(t, "2Mi", virtual.Spec.Capacity.Storage().String(), "the real volume is larger than asked for")
	assert.Equal(t, "2Mi", have.Status.Capacity.Storage().String())
	assert.Equal(t, real.Name, virtual.Annotations[keys.BackingVolume])
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
}

func TestVolumeFollowsAShadowThatBindsOnlyWhenItsPodIsThere(t *testing.T) {
	namespace := beside(t)
	bed.WestStorage.SetClaim(namespace, "data", never)
	bed.CreateClaim(t, sized(fabric.NewClaim(namespace, "data", fabric.Class), "1100Ki"))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))

	_, early := awaitBound(t, bed.Home, namespace, "data")
	assert.Equal(t, "1100Ki", early.Spec.Capacity.Storage().String())
	assert.Empty(t, early.Annotations[keys.BackingVolume])
	assert.Equal(t, corev1.ClaimPending, claimOf(t, bed.West, namespace, "data").Status.Phase)

	bed.WestStorage.ResetClaim(namespace, "data")
	bed.AwaitRunning(t, namespace, "db")
	_, real := awaitBound(t, bed.West, namespace, "data")
	eventually(t, func() bool {
		virtual := volumeOf(t, bed.Home, early.Name)
		return virtual.Annotations[keys.BackingVolume] == real.Name && virtual.Spec.Capacity.Storage().String() == "2Mi"
	}, func() string { return "the virtual volume does not tell of the real one" })
	assert.Empty(t, bed.HomeNodes.Violations(namespace))
}

func TestClaimsOfOnePodArePublishedTogether(t *testing.T) {
	namespace := beside(t)
	bed.WestStorage.SetClaim(namespace, "slow", never)
	quick := bed.CreateClaim(t, fabric.NewClaim(namespace, "quick", fabric.Class))
	bed.CreateClaim(t, fabric.NewClaim(namespace, "slow", newClass(t, with(keys.RemoteClass, fabric.WestNow))))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "db", "quick", "slow")))
	eventually(t, func() bool {
		return claimOf(t, bed.West, namespace, "quick") != nil && claimOf(t, bed.West, namespace, "slow") != nil
	}, func() string { return "there are not two shadows" })
	consistently(t, func() bool { return volumeOf(t, bed.Home, twinOf(quick)) == nil },
		"published although the other claim may still be refused")

	bed.WestStorage.ResetClaim(namespace, "slow")
	awaitBound(t, bed.Home, namespace, "quick")
	awaitBound(t, bed.Home, namespace, "slow")
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
	assert.Empty(t, warnings(t, namespace))
}

func TestClaimWaitsForTheShadowOfAnEarlierClaimOfItsName(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	_, first, _ := served(t, namespace, fabric.Class, fabric.InWest, bed.West)
	shadows := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace)
	hold := func(change string) {
		must.Patch(t, shadows, "data", types.StrategicMergePatchType,
			[]byte(`{"metadata":{"`+change+`":["test.dev/hold"]}}`))
	}
	hold("finalizers")
	remove(t, namespace)
	awaitAbsent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })

	again := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "CreateFailed"),
		"an earlier claim of that name is still being deleted")
	assert.Equal(t, first.UID, claimOf(t, bed.West, namespace, "data").UID)

	hold("$deleteFromPrimitiveList/finalizers")
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
	shadow, _ := awaitBound(t, bed.West, namespace, "data")
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
			namespace := beside(t)
			twins, shadows := watchClaims(t, bed.Home, fabric.Storage), watchClaims(t, bed.West, namespace)
			claim := claimAndPod(t, namespace, newClass(t, with(route.class...)), route.place)
			_, virtual := awaitBound(t, bed.Home, namespace, "data")
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
	namespace := beside(t)
	real := bed.HomeStorage.Class("real-"+namespace, storagev1.VolumeBindingImmediate)
	real.MountOptions = []string{"noatime", "discard"}
	makeClass(t, bed.Home, real)
	class := newClass(t, with(keys.LocalClass, real.Name), func(c *storagev1.StorageClass) { c.MountOptions = []string{"sync", "discard"} })
	block := corev1.PersistentVolumeBlock
	claim := sized(fabric.NewClaim(namespace, "data", class), "1100Ki")
	claim.Spec.VolumeMode = &block
	created := bed.CreateClaim(t, claim)
	pod := fabric.AtHome(fabric.NewPod(namespace, "db", "data"))
	pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	bed.CreatePod(t, pod)
	bed.AwaitRunning(t, namespace, "db")

	_, virtual := awaitBound(t, bed.Home, namespace, "data")
	twin, behind := awaitBound(t, bed.Home, fabric.Storage, twinOf(created))
	assert.Equal(t, behind.Spec.PersistentVolumeSource, virtual.Spec.PersistentVolumeSource)
	assert.Equal(t, "2Mi", virtual.Spec.Capacity.Storage().String())
	assert.Equal(t, class, virtual.Spec.StorageClassName)
	assert.Equal(t, []string{"sync", "discard", "noatime"}, virtual.Spec.MountOptions)
	assert.Equal(t, corev1.PersistentVolumeBlock, *virtual.Spec.VolumeMode)
	assert.Equal(t, corev1.PersistentVolumeReclaimDelete, virtual.Spec.PersistentVolumeReclaimPolicy)
	assert.Equal(t, "home/"+fabric.Storage+"/"+twin.Name+"/"+string(twin.UID), virtual.Annotations[keys.Backing])
	assert.Equal(t, string(created.UID), twin.Labels[keys.ClaimUID])
	assert.Equal(t, namespace+"/data", twin.Annotations[keys.Claim])
	system := must.Get(t, bed.Home.Client().CoreV1().Namespaces(), metav1.NamespaceSystem)
	assert.Equal(t, string(system.UID)[:8], twin.Labels[keys.HomeID])
}

// The tests of this file change which real classes a cluster has, so they run
// alone.

func setDefault(t *testing.T, cluster *testbed.Cluster, class string, on bool) {
	t.Helper()
	value := "false"
	if on {
		value = "true"
	}
	must.Patch(t, cluster.Client().StorageV1().StorageClasses(), class, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"`+value+`"}}}`))
}

// offers waits until home knows the default class of west; empty for none.
func offers(t *testing.T, class string) {
	t.Helper()
	eventually(t, func() bool {
		remote := must.Get(t, bed.Remotes, "west")
		have := ""
		for _, offered := range remote.Status.StorageClasses {
			if offered.Default {
				have = offered.Name
			}
		}
		return have == class
	}, func() string { return "home does not see that " + class + " is the default of west" })
}

func TestChangedDefaultClassCountsForNewClaimsOnly(t *testing.T) {
	namespace := newNamespace(t)
	first := bed.CreateClaim(t, fabric.NewClaim(namespace, "first", fabric.Class))
	bed.CreateClaim(t, fabric.NewClaim(namespace, "there", fabric.Class))
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "first")))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "far", "there")))
	bed.AwaitRunning(t, namespace, "db")
	bed.AwaitRunning(t, namespace, "far")
	twin, _ := awaitBound(t, bed.Home, fabric.Storage, twinOf(first))
	shadow, _ := awaitBound(t, bed.West, namespace, "there")

	t.Cleanup(func() { offers(t, fabric.WestWait) })
	for cluster, classes := range map[*testbed.Cluster][2]string{bed.Home: {fabric.HomeWait, fabric.HomeNow},
		bed.West: {fabric.WestWait, fabric.WestNow}} {
		t.Cleanup(func() { setDefault(t, cluster, classes[0], true); setDefault(t, cluster, classes[1], false) })
		setDefault(t, cluster, classes[1], true)
		setDefault(t, cluster, classes[0], false)
	}
	offers(t, fabric.WestNow)
	second := bed.CreateClaim(t, fabric.NewClaim(namespace, "second", fabric.Class))
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "db2", "second")))
	bed.CreateClaim(t, fabric.NewClaim(namespace, "there2", fabric.Class))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "far2", "there2")))
	bed.AwaitRunning(t, namespace, "db2")
	bed.AwaitRunning(t, namespace, "far2")

	assert.Equal(t, fabric.HomeNow, *claimOf(t, bed.Home, fabric.Storage, twinOf(second)).Spec.StorageClassName)
	assert.Equal(t, fabric.WestNow, *claimOf(t, bed.West, namespace, "there2").Spec.StorageClassName)
	assert.Equal(t, twin.ResourceVersion, claimOf(t, bed.Home, fabric.Storage, twinOf(first)).ResourceVersion, "an existing twin was touched")
	assert.Equal(t, shadow.ResourceVersion, claimOf(t, bed.West, namespace, "there").ResourceVersion, "an existing shadow was touched")
}

// TestClaimWithoutAClassGetsTheVirtualDefault makes a virtual class the default
// while a claim without a class waits, and then a second, newer default.
func TestClaimWithoutAClassGetsTheVirtualDefault(t *testing.T) {
	namespace := newNamespace(t)
	t.Cleanup(func() { setDefault(t, bed.Home, fabric.HomeWait, true) })
	setDefault(t, bed.Home, fabric.HomeWait, false)
	early := fabric.NewClaim(namespace, "early", "")
	early.Spec.StorageClassName = nil
	early = bed.CreateClaim(t, early)
	require.Nil(t, early.Spec.StorageClassName)
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "early")))

	isDefault := func(class *storagev1.StorageClass) {
		class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	older := newClass(t, isDefault, with(keys.LocalClass, fabric.HomeWait))
	bed.AwaitRunning(t, namespace, "db")
	claim, _ := awaitBound(t, bed.Home, namespace, "early")
	assert.Equal(t, older, *claim.Spec.StorageClassName)
	awaitBound(t, bed.Home, fabric.Storage, twinOf(claim))

	time.Sleep(1100 * time.Millisecond) // creation times have seconds
	newer := newClass(t, isDefault, with(keys.LocalClass, fabric.HomeNow))
	eventually(t, func() bool {
		late := fabric.NewClaim(namespace, "late", "")
		late.Spec.StorageClassName = nil
		if late = bed.CreateClaim(t, late); *late.Spec.StorageClassName == newer {
			return true
		}
		// The API server had not seen the class yet.
		deleteClaim(t, bed.Home, namespace, "late")
		awaitAbsent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "late") })
		return false
	}, func() string { return "the newer default does not count" })
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "db2", "late")))
	bed.AwaitRunning(t, namespace, "db2")
	claim, _ = awaitBound(t, bed.Home, namespace, "late")
	twin, _ := awaitBound(t, bed.Home, fabric.Storage, twinOf(claim))
	assert.Equal(t, fabric.HomeNow, *twin.Spec.StorageClassName)
}

func TestRemoteClusterWithoutStorageIsPassedOver(t *testing.T) {
	namespace := newNamespace(t)
	classes := bed.West.Client().StorageV1().StorageClasses()
	t.Cleanup(func() { offers(t, fabric.WestWait) })
	for _, name := range []string{fabric.WestWait, fabric.WestNow} {
		class := must.Get(t, classes, name)
		must.Delete(t, classes, name)
		t.Cleanup(func() {
			class.ResourceVersion, class.UID = "", ""
			_, err := classes.Create(context.Background(), class, metav1.CreateOptions{})
			assert.NoError(t, err)
		})
	}
	offers(t, "")

	claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.CreatePod(t, preferWest(fabric.NewPod(namespace, "db", "data")))
	assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
	awaitBound(t, bed.Home, fabric.Storage, twinOf(claim))

	// A node that was chosen without the extender.
	bed.CreateClaim(t, selecting(fabric.NewClaim(namespace, "sent", fabric.Class), fabric.WestNode))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "sent", "NoRealClass"), `cluster "west" has no default storage class`)
	eventually(t, func() bool { return claimOf(t, bed.Home, namespace, "sent").Annotations[keys.SelectedNode] == "" },
		func() string { return "the claim still has its node" })
	assert.Nil(t, claimOf(t, bed.West, namespace, "sent"))
}

// TestEphemeralVolumeLivesAsLongAsItsPod has a pod with a claim of its own beside
// the ephemeral volume. Those in remote clusters need Lodestone's virtual node.
func TestEphemeralVolumeLivesAsLongAsItsPod(t *testing.T) {
	namespace := beside(t)
	bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.CreatePod(t, fabric.WithScratch(fabric.AtHome(fabric.NewPod(namespace, "db", "data")), fabric.Class))
	bed.AwaitRunning(t, namespace, "db")
	claim, virtual := awaitBound(t, bed.Home, namespace, "db-scratch")
	twin, real := awaitBound(t, bed.Home, fabric.Storage, twinOf(claim))
	assert.Equal(t, twin.UID, backingOf(t, virtual).UID)

	deletePod(t, namespace, "db")
	awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	assert.False(t, bed.HomeStorage.Exists(real.Spec.CSI.VolumeHandle), "the real volume is left")
	assert.Nil(t, claimOf(t, bed.Home, namespace, "db-scratch"))
	_, kept := awaitBound(t, bed.Home, namespace, "data")
	assert.NotNil(t, backingOf(t, kept), "the other claim stays")
}

// TestEphemeralVolumeIsRefusedOnTheNodeOfAnotherProgram has a node that is none of
// Lodestone's virtual node program, as those of Liqo and Admiralty.
func TestEphemeralVolumeIsRefusedOnTheNodeOfAnotherProgram(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	bed.CreatePod(t, fabric.WithScratch(preferWest(fabric.NewPod(namespace, "db")), fabric.Class))
	assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"), "the extender knows a better one")

	// A node that was chosen without the extender.
	owner := podOf(t, namespace, "db")
	claim := selecting(fabric.NewClaim(namespace, "sent", fabric.Class), fabric.WestNode)
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: owner.Name, UID: owner.UID,
		Controller: ptr.To(true)}}
	bed.CreateClaim(t, claim)
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "sent", "EphemeralVolume"), `whose virtual node is not Lodestone's`)
	eventually(t, func() bool { return claimOf(t, bed.Home, namespace, "sent").Annotations[keys.SelectedNode] == "" },
		func() string { return "the claim still has its node" })
	require.Nil(t, claimOf(t, bed.West, namespace, "sent"))
}

// TestClaimSaysThatTheNodeOfItsDataIsNotReadyOrGone is about home, and about a remote
// cluster without the remote agent; with it is tested with that.
func TestClaimSaysThatTheNodeOfItsDataIsNotReadyOrGone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		route
		class, node string
		// at names the node of the data, for those who may know its name.
		at func(node string) string
	}{
		{routes[0], keys.LocalClass, "home-1", func(node string) string { return "(only on " + node + "): bring the node back" }},
		{routes[1], keys.RemoteClass, fabric.WestNode, func(string) string { return "left there: let its administrator bring the node back" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			namespace := beside(t)
			remove, err := fabric.MakeLocalVolume(t.Context(), test.cluster(), namespace)
			t.Cleanup(remove)
			require.NoError(t, err)
			bed.CreateClaim(t, selecting(fabric.NewClaim(namespace, "data", newClass(t, with(test.class, namespace))), test.node))
			awaitBound(t, bed.Home, namespace, "data")
			for _, warning := range warnings(t, namespace) { // a controller manager that saw the claim before the local volume said so
				assert.Contains(t, warning, "no volume plugin matched name: kubernetes.io/no-provisioner")
			}

			nodes := test.cluster().Client().CoreV1().Nodes()
			_, err = nodes.Patch(t.Context(), namespace, types.StrategicMergePatchType,
				[]byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`), metav1.PatchOptions{}, "status")
			require.NoError(t, err)
			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingNodeNotReady"), "on no node that is ready there")
			must.Delete(t, nodes, namespace)
			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingNodeGone"), test.at(namespace))
			eventually(t, func() bool {
				condition := trouble(t, namespace, "data")
				return condition != nil && condition.Reason == "BackingNodeGone"
			}, func() string { return "the claim has no condition that says so" })
			_, virtual := awaitBound(t, bed.Home, namespace, "data")
			assert.NotNil(t, backingOf(t, virtual), "nothing is deleted for it")
		})
	}
}

func TestClaimOfAPodAtHomeGetsATwinThere(t *testing.T) {
	namespace := beside(t)
	claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "data")))
	node := bed.AwaitRunning(t, namespace, "db")

	_, virtual := awaitBound(t, bed.Home, namespace, "data")
	twin, real := awaitBound(t, bed.Home, fabric.Storage, twinOf(claim))
	cluster, ok := locality.OfVolume(virtual.Spec.NodeAffinity)
	require.True(t, ok)
	assert.Equal(t, keys.Home, cluster)
	assert.Equal(t, real.Spec.CSI.VolumeHandle, virtual.Spec.CSI.VolumeHandle)
	assert.Equal(t, node, twin.Annotations[keys.SelectedNode])
	assert.Contains(t, twin.Finalizers, keys.BackingFinalizer)
	assert.Equal(t, fabric.HomeWait, *twin.Spec.StorageClassName)
	assert.Nil(t, claimOf(t, bed.West, namespace, "data"))
}

func TestClaimOfAPodInTheRemoteClusterGetsAShadowThere(t *testing.T) {
	namespace := beside(t)
	bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	require.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))

	_, virtual := awaitBound(t, bed.Home, namespace, "data")
	shadow, _ := awaitBound(t, bed.West, namespace, "data")
	cluster, ok := locality.OfVolume(virtual.Spec.NodeAffinity)
	require.True(t, ok)
	assert.Equal(t, "west", cluster)
	assert.Equal(t, keys.Driver, virtual.Spec.CSI.Driver)
	assert.Equal(t, string(shadow.UID), lastPart(virtual.Spec.CSI.VolumeHandle))
	assert.Contains(t, shadow.Finalizers, keys.BackingFinalizer)
	assert.Equal(t, corev1.ClaimBound, shadow.Status.Phase)
}
