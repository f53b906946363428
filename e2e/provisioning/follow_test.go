package provisioning

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// spread makes a StatefulSet of two replicas, one at home and one in west.
func spread(t *testing.T, namespace string) {
	t.Helper()
	labels := map[string]string{"app": "db"}
	pod := fabric.NewPod(namespace, "")
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, TopologyKey: corev1.LabelTopologyZone,
		}}}}
	claim := fabric.NewClaim("", "data", fabric.Class)
	must.Create(t, bed.Home.Client().AppsV1().StatefulSets(namespace), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(int32(2)), ServiceName: "db", PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:             &metav1.LabelSelector{MatchLabels: labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claim},
		},
	})
}

func scale(t *testing.T, namespace string, replicas int) {
	t.Helper()
	must.Patch(t, bed.Home.Client().AppsV1().StatefulSets(namespace), "db", types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
}

func cordon(t *testing.T, node string, on bool) {
	t.Helper()
	must.Patch(t, bed.Home.Client().CoreV1().Nodes(), node, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on))
}

// TestPodsFollowTheirVolumes cordons nodes that other tests use, so it runs alone.
func TestPodsFollowTheirVolumes(t *testing.T) {
	namespace := newNamespace(t)
	spread(t, namespace)
	nodeOf := map[string]string{"db-0": bed.AwaitRunning(t, namespace, "db-0"), "db-1": bed.AwaitRunning(t, namespace, "db-1")}
	remote, local := "db-0", "db-1"
	if nodeOf["db-1"] == fabric.WestNode {
		remote, local = local, remote
	}
	require.Equal(t, fabric.WestNode, nodeOf[remote])
	require.NotEqual(t, fabric.WestNode, nodeOf[local])
	_, there := awaitBound(t, bed.Home, namespace, "data-"+remote)
	_, here := awaitBound(t, bed.Home, namespace, "data-"+local)
	assert.Equal(t, "west", there.Labels[keys.Cluster])
	assert.Equal(t, keys.Home, here.Labels[keys.Cluster])

	for _, replica := range []string{remote, local} {
		t.Run("the pod on "+nodeOf[replica]+" waits while its node is cordoned and returns to it", func(t *testing.T) {
			cordon(t, nodeOf[replica], true)
			t.Cleanup(func() { cordon(t, nodeOf[replica], false) })
			first := podOf(t, namespace, replica)
			must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), replica)
			eventually(t, func() bool {
				pod := podOf(t, namespace, replica)
				return pod != nil && pod.UID != first.UID
			}, func() string { return "the pod is not made anew" })
			consistently(t, func() bool {
				pod := podOf(t, namespace, replica)
				return pod != nil && pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName == ""
			}, "the pod must wait for the node of its volume")

			cordon(t, nodeOf[replica], false)
			assert.Equal(t, nodeOf[replica], bed.AwaitRunning(t, namespace, replica))
		})
	}

	t.Run("scaled to nothing and back, each pod is where its volume is", func(t *testing.T) {
		scale(t, namespace, 0)
		for replica := range nodeOf {
			awaitAbsent(t, "pod", func() *corev1.Pod { return podOf(t, namespace, replica) })
		}
		scale(t, namespace, 2)
		for replica, node := range nodeOf {
			assert.Equal(t, node, bed.AwaitRunning(t, namespace, replica))
		}
		_, same := awaitBound(t, bed.Home, namespace, "data-"+remote)
		assert.Equal(t, there.UID, same.UID)
	})
	assert.Empty(t, bed.HomeNodes.Violations(namespace))
	assert.Empty(t, warnings(t, namespace))
}

// change merges a change into a claim, as its user or an administrator may.
func change(t *testing.T, cluster *testbed.Cluster, claim *corev1.PersistentVolumeClaim, patch map[string]any, subresource ...string) {
	t.Helper()
	data, err := json.Marshal(patch)
	require.NoError(t, err)
	_, err = cluster.Client().CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(t.Context(), claim.Name, types.MergePatchType, data,
		metav1.PatchOptions{}, subresource...)
	require.NoError(t, err)
}

func annotations(pairs map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": pairs}}
}

func TestLabelsAndAnnotationsThatTheClassListsAreCarried(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		claim := annotated(annotated(fabric.NewClaim(namespace, "data", newClass(t, with(keys.Carry, "team,backup/*"))), "backup/daily", "yes"),
			"note", "mine")
		claim.Labels = map[string]string{"team": "a", "app": "db"}
		claim = bed.CreateClaim(t, claim)
		bed.CreatePod(t, route.place(fabric.NewPod(namespace, "db", "data")))
		bed.AwaitRunning(t, namespace, "db")
		_, virtual := awaitBound(t, bed.Home, namespace, "data")
		first := backingOf(t, virtual)
		assert.Equal(t, "a", first.Labels["team"])
		assert.Equal(t, "yes", first.Annotations["backup/daily"])
		assert.NotContains(t, first.Labels, "app")
		assert.NotContains(t, first.Annotations, "note")

		change(t, bed.Home, claim, annotations(map[string]any{"backup/daily": nil, "backup/hourly": "yes", "note": "ours"}))
		eventually(t, func() bool {
			b := backingOf(t, virtual)
			_, daily := b.Annotations["backup/daily"]
			return b.Annotations["backup/hourly"] == "yes" && !daily
		}, func() string { return "what the user changed is not carried" })

		change(t, route.cluster(), first, annotations(map[string]any{"backup/hourly": "no", "local": "theirs"}))
		eventually(t, func() bool {
			b := backingOf(t, virtual)
			return b.Annotations["backup/hourly"] == "yes" && b.Annotations["local"] == "theirs"
		}, func() string { return "what drifted is not put right, or more than that" })
		assert.Equal(t, string(claim.UID), backingOf(t, virtual).Labels[keys.ClaimUID])
	})
}

// Classes cannot be changed, but made anew.
func TestWhatAClassNoLongerListsIsTakenOff(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	name := newClass(t, with(keys.Carry, "team"))
	claim := annotated(fabric.NewClaim(namespace, "data", name), "team", "a")
	bed.CreateClaim(t, claim)
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	bed.AwaitRunning(t, namespace, "db")
	assert.Equal(t, "a", claimOf(t, bed.West, namespace, "data").Annotations["team"])

	classes := bed.Home.Client().StorageV1().StorageClasses()
	class := must.Get(t, classes, name)
	must.Delete(t, classes, name)
	consistently(t, func() bool { return claimOf(t, bed.West, namespace, "data").Annotations["team"] == "a" },
		"it is taken off without a class")
	class.ObjectMeta, class.Parameters = metav1.ObjectMeta{Name: name}, nil
	must.Create(t, classes, class)
	eventually(t, func() bool {
		shadow := claimOf(t, bed.West, namespace, "data")
		return shadow.Annotations["team"] == "" && shadow.Annotations[keys.Carried] == ""
	}, func() string { return "it stays" })
}

// What a claim asks for of its volume is asked of the real one.
func TestAccessAndVolumeModesArePassedOn(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for _, access := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod, corev1.ReadWriteMany,
			corev1.ReadOnlyMany} {
			for _, mode := range []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock} {
				t.Run(route.name+" "+string(access)+" "+string(mode), func(t *testing.T) {
					namespace := beside(t)
					claim := fabric.NewClaim(namespace, "data", fabric.Class)
					claim.Spec.AccessModes, claim.Spec.VolumeMode = []corev1.PersistentVolumeAccessMode{access}, &mode
					bed.CreateClaim(t, claim)
					pod := route.place(fabric.NewPod(namespace, "db", "data"))
					if mode == corev1.PersistentVolumeBlock {
						pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
					}
					bed.CreatePod(t, pod)
					bed.AwaitRunning(t, namespace, "db")
					_, virtual := awaitBound(t, bed.Home, namespace, "data")
					b := backingOf(t, virtual)
					_, real := awaitBound(t, route.cluster(), b.Namespace, b.Name)
					for _, volume := range []*corev1.PersistentVolume{virtual, real} {
						assert.Equal(t, claim.Spec.AccessModes, volume.Spec.AccessModes)
						assert.Equal(t, mode, *volume.Spec.VolumeMode)
					}
					assert.Equal(t, claim.Spec.AccessModes, b.Spec.AccessModes)
				})
			}
		}
	}
}

// TestClaimSaysWhatTheRealStorageSays has the real storage refuse to make volumes.
func TestClaimSaysWhatTheRealStorageSays(t *testing.T) {
	t.Parallel()
	const refusal = "the pool \"fast\" is full"
	for _, row := range []struct {
		name   string
		route  route
		mode   storagev1.VolumeBindingMode
		reason string
	}{
		{name: "at home", route: routes[0], mode: storagev1.VolumeBindingWaitForFirstConsumer, reason: "WaitingForBacking"},
		{name: "in the remote cluster, at once", route: routes[1], mode: storagev1.VolumeBindingImmediate, reason: "WaitingForBacking"},
		{name: "in the remote cluster, once its pod is there", route: routes[1], mode: storagev1.VolumeBindingWaitForFirstConsumer,
			reason: "BackingPending"},
	} {
		t.Run(row.name, func(t *testing.T) {
			namespace := beside(t)
			real := "full-" + namespace
			row.route.storage().SetClass(real, fakeprovisioner.Behavior{Refuse: refusal})
			t.Cleanup(func() { row.route.storage().ResetClass(real) })
			makeClass(t, row.route.cluster(), row.route.storage().Class(real, row.mode))
			bed.CreateClaim(t, fabric.NewClaim(namespace, "data", newClass(t, row.route.named(real))))
			bed.CreatePod(t, row.route.place(fabric.NewPod(namespace, "db", "data")))

			told := ""
			eventually(t, func() bool {
				for _, line := range warnings(t, namespace) {
					if strings.HasPrefix(line, "Warning PersistentVolumeClaim/data "+row.reason) {
						told = line
					}
				}
				return told != ""
			}, func() string { return "the claim does not say why it waits" })
			assert.Contains(t, told, "ProvisioningFailed says ")
			assert.Contains(t, told, `the pool \"fast\" is full`)
		})
	}
}

// TestMountOptionsOfARemoteVolumeAreThoseOfItsRealClass: the kubelet there mounts
// the real volume, and nothing of that one crosses. The user is told.
func TestMountOptionsOfARemoteVolumeAreThoseOfItsRealClass(t *testing.T) {
	namespace := beside(t)
	class := bed.WestStorage.Class("real-"+namespace, storagev1.VolumeBindingImmediate)
	class.MountOptions = []string{"noatime", "discard"}
	makeClass(t, bed.West, class)
	virtual, _, real := served(t, namespace, newClass(t, with(keys.RemoteClass, class.Name), func(c *storagev1.StorageClass) {
		c.MountOptions = []string{"sync", "noatime"}
	}), fabric.InWest, bed.West)
	assert.Equal(t, []string{"sync", "noatime"}, virtual.Spec.MountOptions)
	assert.Equal(t, []string{"noatime", "discard"}, real.Spec.MountOptions)
	told := await.Event(t, bed.Home.Client(), namespace, virtual.Spec.ClaimRef.Name, "MountOptionsIgnored")
	assert.Contains(t, told, `mount options "sync" of storage class`)
	assert.Contains(t, told, class.Name)
}
