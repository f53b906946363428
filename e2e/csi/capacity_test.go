package csi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// room returns what is published of the room for a class, by node.
func room(t *testing.T, driver *sidecars.Driver, class string) map[string]int64 {
	t.Helper()
	published, err := clusterOf(driver).Client().StorageV1().CSIStorageCapacities("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
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
			namespace := space(t)
			await.Until(t, "two nodes have room", func() bool { return len(room(t, r.driver(), waiting)) == 2 })
			create(t, namespace, r.place, sized("40Gi"))
			c := served(t, namespace, r.driver())
			await.Until(t, "the room says what is used", func() bool {
				used := map[string]int64{}
				for _, v := range volumes(t, r.driver()) {
					used[v.Node] += v.Bytes
				}
				require.GreaterOrEqual(t, used[c.volume.Node], c.volume.Bytes)
				published := room(t, r.driver(), waiting)
				require.Len(t, published, 2)
				for node, free := range published {
					if free != poolSize-used[node] {
						return false
					}
				}
				return true
			}, func() any { return room(t, r.driver(), waiting) })
		})
	}
}

// TestATwinThatDoesNotFitGoesElsewhere does not run in parallel: it fills home.
func TestATwinThatDoesNotFitGoesElsewhere(t *testing.T) {
	namespace := space(t)
	require.NoError(t, home.Fail("CreateVolume", sidecars.Fault{Code: "RESOURCE_EXHAUSTED", Message: "the disks are full"}))
	t.Cleanup(func() { require.NoError(t, home.Heal("CreateVolume")) })
	create(t, namespace, func(pod *corev1.Pod) *corev1.Pod { return fabric.Prefer(pod, "home-1") })
	c := served(t, namespace, west)
	assert.Equal(t, bed.West, c.cluster)
	assert.Nil(t, claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(c.claim.UID)), "the twin")
	assert.Empty(t, orphans(t, home))
}

// TestKubeSchedulerKeepsAPodFromNodesWithoutRoom is about a claim of the real class
// itself: what virtual claims are to be measured by.
func TestKubeSchedulerKeepsAPodFromNodesWithoutRoom(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	claim := fabric.NewClaim(namespace, "data", waiting)
	sized("101Gi")(claim)
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	createPod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "data")))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "db", "FailedScheduling"), "did not have enough free storage")
	assert.Empty(t, claimOf(t, bed.Home, namespace, "data").Annotations[keys.SelectedNode])
}

// TestVirtualClassesHaveTheRoomThatTheRealOnesPublish does not run in parallel: it
// fills home. Published by external-provisioner for the real classes, the room is
// known for the virtual class, so that kube-scheduler chooses at once where the
// claim fits.
func TestVirtualClassesHaveTheRoomThatTheRealOnesPublish(t *testing.T) {
	filled := space(t)
	for i, node := range []string{"home-1", "home-2"} {
		claim, pod := fabric.NewClaim(filled, node, virtual), fabric.OnNode(fabric.NewPod(filled, node, node), node)
		sized("90Gi")(claim)
		_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(filled).Create(t.Context(), claim, metav1.CreateOptions{})
		require.NoError(t, err)
		createPod(t, pod)
		runs(t, filled, node)
		assert.Equal(t, node, behind(t, filled, node, home).volume.Node, "claim %d", i)
	}
	namespace := space(t)
	await.Until(t, "the virtual class has little room at home", func() bool {
		free := room(t, home, virtual)
		first, ok := free["home-1"]
		second, also := free["home-2"]
		return ok && also && first < 20*gibibyte && second < 20*gibibyte
	}, func() any { return room(t, home, virtual) })
	create(t, namespace, func(pod *corev1.Pod) *corev1.Pod { return fabric.Prefer(pod, "home-1") }, sized("50Gi"))
	c := served(t, namespace, west)
	assert.Equal(t, int64(50*gibibyte), c.volume.Bytes)
	assert.Empty(t, c.claim.Annotations[keys.Refused], "nothing was tried at home")

	t.Log("What fits nowhere says so.")
	large := space(t)
	create(t, large, func(pod *corev1.Pod) *corev1.Pod { return pod }, sized("101Gi"))
	assert.Contains(t, await.Event(t, bed.Home.Client(), large, "db", "FailedScheduling"), "did not have enough free storage")
	assert.Empty(t, claimOf(t, bed.Home, large, "data").Annotations[keys.SelectedNode])
}
