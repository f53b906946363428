package csi

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestBackingClaimGetsItsVolumeFromTheRealProvisioner(t *testing.T) {
	onRoutes(t, func(t *testing.T, r route, namespace string) {
		create(t, namespace, r.place)
		c := awaitServed(t, namespace, r.driver())
		assert.Equal(t, r.driver().Name, c.real.Spec.CSI.Driver)
		assert.Equal(t, "pvc-"+string(c.backing.UID), c.volume.Name)
		assert.Equal(t, int64(gibibyte), c.volume.Bytes)
		assert.Equal(t, c.backing.Annotations[keys.SelectedNode], c.volume.Node)
		if r.driver() == west {
			assert.Equal(t, keys.Driver, c.virtual.Spec.CSI.Driver)
		} else {
			assert.Equal(t, c.real.Spec.CSI, c.virtual.Spec.CSI)
		}

		remove(t, namespace)
		await.Until(t, "the driver has deleted the volume", func() bool {
			_, there := volumes(t, r.driver())[c.volume.ID]
			return !there
		})
		await.Until(t, "the virtual volume is gone", func() bool { return volumeOf(t, bed.Home, c.virtual.Name) == nil })
		assert.Nil(t, volumeOf(t, c.cluster, c.real.Name))
	})
}

// remove deletes pod "db" and claim "data".
func remove(t *testing.T, namespace string) {
	t.Helper()
	client := bed.Home.Client().CoreV1()
	must.Delete(t, client.Pods(namespace), "db")
	must.Delete(t, client.PersistentVolumeClaims(namespace), "data")
}

// TestFailuresOfTheDriverLeaveOneVolume does not run in parallel: it orders
// failures of the drivers.
func TestFailuresOfTheDriverLeaveOneVolume(t *testing.T) {
	for _, row := range []struct {
		name   string
		faults []sidecars.Fault // as it is made
		later  []sidecars.Fault // as it is deleted
	}{
		{name: "the driver fails twice", faults: []sidecars.Fault{{Code: "INTERNAL", Message: "a disk is broken"}, {Code: "UNAVAILABLE"}},
			later: []sidecars.Fault{{Code: "FAILED_PRECONDITION", Message: "a node has it"}, {Code: "DEADLINE_EXCEEDED", Done: true}}},
		{name: "the volume is made and the answer is lost", faults: []sidecars.Fault{{Code: "DEADLINE_EXCEEDED", Done: true}}},
		{name: "the driver is slow", faults: []sidecars.Fault{{Delay: "500ms"}}},
	} {
		for _, r := range routes {
			t.Run(row.name+", "+r.name, func(t *testing.T) {
				namespace := newNamespace(t)
				require.NoError(t, r.driver().FailNext("CreateVolume", row.faults...))
				require.NoError(t, r.driver().FailNext("DeleteVolume", row.later...))
				t.Cleanup(func() {
					require.NoError(t, r.driver().Heal("CreateVolume"))
					require.NoError(t, r.driver().Heal("DeleteVolume"))
				})
				create(t, namespace, r.place)
				c := awaitServed(t, namespace, r.driver())
				left, err := r.driver().Ordered("CreateVolume")
				require.NoError(t, err)
				assert.False(t, left, "not all failures happened")

				remove(t, namespace)
				await.Until(t, "the driver has deleted the volume", func() bool {
					_, there := volumes(t, r.driver())[c.volume.ID]
					return !there
				})
				await.Until(t, "each volume of the driver is one of a PersistentVolume", func() bool { return len(orphans(t, r.driver())) == 0 },
					func() any { return orphans(t, r.driver()) })
				await.Until(t, "no object is left of it", func() bool {
					return volumeOf(t, bed.Home, c.virtual.Name) == nil && volumeOf(t, c.cluster, c.real.Name) == nil &&
						claimOf(t, c.cluster, c.backing.Namespace, c.backing.Name) == nil
				})
			})
		}
	}
}

// orphans returns the volumes of a driver that no PersistentVolume stands for.
func orphans(t *testing.T, driver *sidecars.Driver) map[string]sidecars.Volume {
	t.Helper()
	left := volumes(t, driver)
	known := must.List(t, clusterOf(driver).Client().CoreV1().PersistentVolumes())
	for _, pv := range known.Items {
		if pv.Spec.CSI != nil && pv.Spec.CSI.Driver == driver.Name {
			delete(left, pv.Spec.CSI.VolumeHandle)
		}
	}
	return left
}

// TestWhatIsAskedForWhileTheDriverIsAwayIsDoneLater does not run in parallel: it
// kills the driver of home with its sidecars.
func TestWhatIsAskedForWhileTheDriverIsAwayIsDoneLater(t *testing.T) {
	old, young := newNamespace(t), newNamespace(t)
	create(t, old, fabric.AtHome)
	c := awaitServed(t, old, home)
	home.Kill()
	remove(t, old)
	create(t, young, fabric.AtHome)
	await.Until(t, "there is a twin", func() bool {
		return claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(claimOf(t, bed.Home, young, "data").UID)) != nil
	})
	require.NoError(t, home.Run(t.Context()))
	awaitServed(t, young, home)
	await.Until(t, "the driver has deleted the old volume", func() bool {
		_, there := volumes(t, home)[c.volume.ID]
		return !there
	})
}

// classFor makes a virtual class that leads to a real one in both clusters.
func classFor(t *testing.T, name, real string) {
	t.Helper()
	require.NoError(t, makeClass(t.Context(), bed.Home, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: keys.Driver,
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowVolumeExpansion: ptr.To(true),
		Parameters:           map[string]string{keys.LocalClass: real, keys.RemoteClass: real},
	}))
	removeClass(t, bed.Home, name)
}

// removeClass removes a class after the test.
func removeClass(t *testing.T, cluster *testbed.Cluster, name string) {
	t.Cleanup(func() {
		assert.NoError(t, cluster.Client().StorageV1().StorageClasses().Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
}

func ofClass(class string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = &class }
}

// TestTheTopologiesOfARealClassAtHomeAreHeeded: kube-scheduler knows only the
// virtual class, and external-provisioner makes nothing for a node outside.
func TestTheTopologiesOfARealClassAtHomeAreHeeded(t *testing.T) {
	namespace := beside(t)
	zonal := home.Class("zonal-"+namespace, storagev1.VolumeBindingWaitForFirstConsumer)
	zonal.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
		{Key: corev1.LabelHostname, Values: []string{"home-2"}},
	}}}
	require.NoError(t, makeClass(t.Context(), bed.Home, zonal))
	removeClass(t, bed.Home, zonal.Name)
	classFor(t, namespace, zonal.Name)
	create(t, namespace, func(pod *corev1.Pod) *corev1.Pod { return fabric.Prefer(fabric.AtHome(pod), "home-1") }, ofClass(namespace))
	c := awaitServed(t, namespace, home)
	assert.Equal(t, "home-2", c.volume.Node)
	assert.Empty(t, c.claim.Annotations[keys.Refused], "no other node was tried")
}

// TestARealClassThatBindsAtOnce has its volume wherever the driver likes, and the pod
// goes there. At home it may like a virtual node: external-provisioner counts all
// nodes that have the label of the topology.
func TestARealClassThatBindsAtOnce(t *testing.T) {
	t.Parallel()
	r := routes[1]
	namespace := newNamespace(t)
	classFor(t, namespace, atOnce)
	create(t, namespace, r.place, ofClass(namespace))
	c := awaitServed(t, namespace, r.driver())
	requestSize(t, bed.Home, namespace, "data", "2Gi")
	c.requireGrown(t, r.driver(), 2)
}

func TestModesReachTheDriverOfTheRealClass(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		access corev1.PersistentVolumeAccessMode
		mode   corev1.PersistentVolumeMode
	}{
		{name: "a file system for one pod", access: corev1.ReadWriteOncePod, mode: corev1.PersistentVolumeFilesystem},
		{name: "a file system that is only read", access: corev1.ReadOnlyMany, mode: corev1.PersistentVolumeFilesystem},
		{name: "a device", access: corev1.ReadWriteOnce, mode: corev1.PersistentVolumeBlock},
		{name: "a device for all nodes", access: corev1.ReadWriteMany, mode: corev1.PersistentVolumeBlock},
	} {
		for _, r := range routes {
			t.Run(row.name+", "+r.name, func(t *testing.T) {
				namespace := beside(t)
				create(t, namespace, func(pod *corev1.Pod) *corev1.Pod {
					if row.mode == corev1.PersistentVolumeBlock {
						pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
					}
					return r.place(pod)
				}, func(claim *corev1.PersistentVolumeClaim) {
					claim.Spec.AccessModes, claim.Spec.VolumeMode = []corev1.PersistentVolumeAccessMode{row.access}, ptr.To(row.mode)
				})
				c := awaitServed(t, namespace, r.driver())
				for _, volume := range []*corev1.PersistentVolume{c.real, c.virtual} {
					assert.Equal(t, []corev1.PersistentVolumeAccessMode{row.access}, volume.Spec.AccessModes)
					assert.Equal(t, row.mode, ptr.Deref(volume.Spec.VolumeMode, ""))
				}
				if row.mode == corev1.PersistentVolumeFilesystem {
					assert.Equal(t, "ext4", c.real.Spec.CSI.FSType)
				} else {
					assert.Empty(t, c.real.Spec.CSI.FSType)
				}
			})
		}
	}
}

// TestWhatTheDriverRefusesIsSaidInItsWords asks for what a disk cannot be.
func TestWhatTheDriverRefusesIsSaidInItsWords(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	create(t, namespace, fabric.AtHome, func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
	twin := "pvc-" + string(claimOf(t, bed.Home, namespace, "data").UID)
	assert.Contains(t, await.Event(t, bed.Home.Client(), fabric.Storage, twin, "ProvisioningFailed"), "one node at a time")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "WaitingForBacking"), twin)
}

// publishedCapacity returns what is published of the room for a class, by node.
func publishedCapacity(t *testing.T, driver *sidecars.Driver, class string) map[string]int64 {
	t.Helper()
	published := must.List(t, clusterOf(driver).Client().StorageV1().CSIStorageCapacities(""))
	free := map[string]int64{}
	for _, c := range published.Items {
		if c.StorageClassName == class && c.NodeTopology != nil {
			free[c.NodeTopology.MatchLabels[corev1.LabelHostname]] = c.Capacity.Value()
		}
	}
	return free
}

// TestRoomIsPublishedForEachNode does not run in parallel: it counts bytes.
func TestRoomIsPublishedForEachNode(t *testing.T) {
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			namespace := newNamespace(t)
			await.Until(t, "two nodes have room", func() bool { return len(publishedCapacity(t, r.driver(), waiting)) == 2 })
			create(t, namespace, r.place, sized("40Gi"))
			c := awaitServed(t, namespace, r.driver())
			await.Until(t, "the room says what is used", func() bool {
				used := map[string]int64{}
				for _, v := range volumes(t, r.driver()) {
					used[v.Node] += v.Bytes
				}
				require.GreaterOrEqual(t, used[c.volume.Node], c.volume.Bytes)
				published := publishedCapacity(t, r.driver(), waiting)
				require.Len(t, published, 2)
				for node, free := range published {
					if free != poolSize-used[node] {
						return false
					}
				}
				return true
			}, func() any { return publishedCapacity(t, r.driver(), waiting) })
		})
	}
}

// TestATwinThatDoesNotFitGoesElsewhere does not run in parallel: it fills home.
func TestATwinThatDoesNotFitGoesElsewhere(t *testing.T) {
	namespace := newNamespace(t)
	require.NoError(t, home.Fail("CreateVolume", sidecars.Fault{Code: "RESOURCE_EXHAUSTED", Message: "the disks are full"}))
	t.Cleanup(func() { require.NoError(t, home.Heal("CreateVolume")) })
	create(t, namespace, func(pod *corev1.Pod) *corev1.Pod { return fabric.Prefer(pod, "home-1") })
	c := awaitServed(t, namespace, west)
	assert.Equal(t, bed.West, c.cluster)
	assert.Nil(t, claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(c.claim.UID)), "the twin")
	assert.Empty(t, orphans(t, home))
}

// TestKubeSchedulerKeepsAPodFromNodesWithoutRoom is about a claim of the real class
// itself: what virtual claims are to be measured by.
func TestKubeSchedulerKeepsAPodFromNodesWithoutRoom(t *testing.T) {
	namespace := beside(t)
	claim := fabric.NewClaim(namespace, "data", waiting)
	sized("101Gi")(claim)
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), claim)
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "data")))
	await.Until(t, "kube-scheduler says that no node has room", func() bool { // it may see the pod before the claim
		return slices.ContainsFunc(await.Pod(t, bed.Home.Client(), namespace, "db").Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && strings.Contains(c.Message, "did not have enough free storage")
		})
	})
	assert.Empty(t, claimOf(t, bed.Home, namespace, "data").Annotations[keys.SelectedNode])
}

// TestVirtualClassesHaveTheRoomThatTheRealOnesPublish does not run in parallel: it
// fills home. Published by external-provisioner for the real classes, the room is
// known for the virtual class, so that kube-scheduler chooses at once where the
// claim fits.
func TestVirtualClassesHaveTheRoomThatTheRealOnesPublish(t *testing.T) {
	filled := newNamespace(t)
	for i, node := range []string{"home-1", "home-2"} {
		claim, pod := fabric.NewClaim(filled, node, virtual), fabric.OnNode(fabric.NewPod(filled, node, node), node)
		sized("90Gi")(claim)
		must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(filled), claim)
		bed.CreatePod(t, pod)
		bed.AwaitRunning(t, filled, node)
		assert.Equal(t, node, chainOf(t, filled, node, home).volume.Node, "claim %d", i)
	}
	namespace := newNamespace(t)
	await.Until(t, "the virtual class has little room at home", func() bool {
		free := publishedCapacity(t, home, virtual)
		first, ok := free["home-1"]
		second, also := free["home-2"]
		return ok && also && first < 20*gibibyte && second < 20*gibibyte
	}, func() any { return publishedCapacity(t, home, virtual) })
	create(t, namespace, func(pod *corev1.Pod) *corev1.Pod { return fabric.Prefer(pod, "home-1") }, sized("50Gi"))
	c := awaitServed(t, namespace, west)
	assert.Equal(t, int64(50*gibibyte), c.volume.Bytes)
	assert.Empty(t, c.claim.Annotations[keys.Refused], "nothing was tried at home")

	t.Log("What fits nowhere says so.")
	large := newNamespace(t)
	create(t, large, func(pod *corev1.Pod) *corev1.Pod { return pod }, sized("101Gi"))
	// kube-scheduler may hear of the pod before it hears of the claim, and says so first.
	await.Until(t, "kube-scheduler says that there is no room", func() bool {
		return slices.ContainsFunc(await.Events(t, bed.Home.Client(), large), func(event string) bool {
			return strings.Contains(event, "FailedScheduling") && strings.Contains(event, "did not have enough free storage")
		})
	}, func() any { return await.Events(t, bed.Home.Client(), large) })
	assert.Empty(t, claimOf(t, bed.Home, large, "data").Annotations[keys.SelectedNode])
}

// TestAClaimDeletedWhileItsVolumeIsMadeLeavesNothing does not run in parallel: it
// orders failures of the drivers.
func TestAClaimDeletedWhileItsVolumeIsMadeLeavesNothing(t *testing.T) {
	testbed.NotInShort(t)
	for _, row := range []struct {
		name  string
		fault sidecars.Fault
		calls int // that end before all is decided
	}{
		{name: "the volume is made at last", fault: sidecars.Fault{Delay: "1s"}, calls: 1},
		{name: "it is made and the answer is lost", fault: sidecars.Fault{Delay: "1s", Code: "DEADLINE_EXCEEDED", Done: true}, calls: 2},
		{name: "it is refused at last", fault: sidecars.Fault{Delay: "1s", Code: "INVALID_ARGUMENT", Message: "no such disk"}, calls: 1},
	} {
		for _, r := range routes {
			t.Run(row.name+", "+r.name, func(t *testing.T) {
				namespace := newNamespace(t)
				before, err := r.driver().Ended("CreateVolume")
				require.NoError(t, err)
				require.NoError(t, r.driver().FailNext("CreateVolume", row.fault))
				t.Cleanup(func() { require.NoError(t, r.driver().Heal("CreateVolume")) })
				create(t, namespace, r.place)
				await.Until(t, "the driver is making the volume", func() bool {
					left, err := r.driver().Ordered("CreateVolume")
					require.NoError(t, err)
					return !left
				}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
				backing := func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.West, namespace, "data") }
				if r.driver() == home {
					twin := "pvc-" + string(claimOf(t, bed.Home, namespace, "data").UID)
					backing = func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, fabric.Storage, twin) }
				}
				made := backing()
				require.NotNil(t, made)

				remove(t, namespace)
				await.Until(t, "the driver has answered", func() bool {
					ended, err := r.driver().Ended("CreateVolume")
					require.NoError(t, err)
					return ended >= before+row.calls
				})
				await.Until(t, "the backing claim is gone", func() bool { return backing() == nil }, func() any { return backing() })
				await.Until(t, "its volume is gone, and none is without a PersistentVolume", func() bool {
					for _, v := range volumes(t, r.driver()) {
						if v.Name == "pvc-"+string(made.UID) {
							return false
						}
					}
					return len(orphans(t, r.driver())) == 0
				}, func() any { return volumes(t, r.driver()) })
			})
		}
	}
}
