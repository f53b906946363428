package remotepods

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// edit patches a pod of a cluster, as kubectl does.
func edit(t *testing.T, cluster *testbed.Cluster, namespace, name string, patch any, subresources ...string) {
	t.Helper()
	data, err := json.Marshal(patch)
	require.NoError(t, err)
	_, err = cluster.Client().CoreV1().Pods(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, data, metav1.PatchOptions{},
		subresources...)
	require.NoError(t, err)
}

// debug adds an ephemeral container to a pod of home.
func debug(t *testing.T, namespace, pod, name string, capabilities ...corev1.Capability) {
	t.Helper()
	edit(t, bed.Home, namespace, pod, map[string]any{"spec": map[string]any{"ephemeralContainers": []corev1.EphemeralContainer{{
		TargetContainerName: "app",
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "debug", Stdin: true, TTY: true,
			SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: capabilities}}}}}}}, "ephemeralcontainers")
}

func ephemeral(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

func TestAPodInWestCanBeDebugged(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	_, west := runs(t, namespace, "web")
	debug(t, namespace, "web", "debugger")
	await.Until(t, "the pod in west has the container", func() bool { return ephemeral(get(t, bed.West, namespace, "web"), "debugger") },
		func() any { return await.Events(t, bed.Home.Client(), namespace) })
	// Its kubelet there starts it; no real one runs here.
	edit(t, bed.West, namespace, "web", map[string]any{"status": map[string]any{"ephemeralContainerStatuses": []corev1.ContainerStatus{{
		Name: "debugger", Image: "debug", ContainerID: "c1", State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}}}, "status")
	await.Until(t, "home's pod says that it runs", func() bool {
		statuses := get(t, bed.Home, namespace, "web").Status.EphemeralContainerStatuses
		return len(statuses) == 1 && statuses[0].Name == "debugger" && statuses[0].State.Running != nil
	}, func() any { return get(t, bed.Home, namespace, "web").Status })
	assert.Equal(t, west.UID, get(t, bed.West, namespace, "web").UID)

	// What west's owner does not allow is said at home, and holds up nothing else.
	debug(t, namespace, "web", "root", "SYS_ADMIN")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "web", "NotCarried"), "SYS_ADMIN")
	edit(t, bed.Home, namespace, "web", map[string]any{"metadata": map[string]any{"labels": map[string]string{"tier": "first"}}})
	await.Until(t, "a label arrives", func() bool { return get(t, bed.West, namespace, "web").Labels["tier"] == "first" })
	assert.False(t, ephemeral(get(t, bed.West, namespace, "web"), "root"))
}

// resize gives the container of a home pod CPUs.
func resize(t *testing.T, namespace, cpus string) {
	t.Helper()
	edit(t, bed.Home, namespace, "web", map[string]any{"spec": map[string]any{"containers": []map[string]any{{"name": "app",
		"resources": map[string]any{"requests": map[string]string{"cpu": cpus}}}}}}, "resize")
}

func TestAPodInWestIsResizedInPlaceWithinTheOffer(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	}))
	_, west := runs(t, namespace, "web")
	cpus := func() string {
		pod := get(t, bed.West, namespace, "web")
		return pod.Spec.Containers[0].Resources.Requests.Cpu().String()
	}
	has := func(want string) {
		t.Helper()
		await.Until(t, "the pod in west has "+want+" CPUs", func() bool { return cpus() == want },
			func() any {
				return []any{cpus(), await.Events(t, bed.Home.Client(), namespace), shadow(t, namespace, "web").Status}
			})
	}
	// A kubelet that can resize pods says which resources they have; only then API servers take a resize.
	statuses := west.Status.ContainerStatuses
	statuses[0].Resources = &corev1.ResourceRequirements{Requests: west.Spec.Containers[0].Resources.Requests}
	edit(t, bed.West, namespace, "web", map[string]any{"status": map[string]any{"containerStatuses": statuses}}, "status")
	await.Until(t, "home's pod can be resized", func() bool {
		told := get(t, bed.Home, namespace, "web").Status.ContainerStatuses
		return len(told) == 1 && told[0].Resources != nil && told[0].Resources.Requests.Cpu().String() == "100m"
	})
	resize(t, namespace, "300m")
	has("300m")

	offer := func(list corev1.ResourceList) {
		t.Helper()
		await.Until(t, "the owner changes the offer", func() bool {
			home, err := bed.Agents.HomeClusters().Get(t.Context(), homeID, metav1.GetOptions{})
			require.NoError(t, err)
			home.Spec.Offer = list
			_, err = bed.Agents.HomeClusters().Update(t.Context(), home, metav1.UpdateOptions{})
			return err == nil
		})
	}
	offer(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")})
	defer offer(nil)
	resize(t, namespace, "2")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "web", "NotCarried"), "offers home cluster")
	assert.Equal(t, "300m", cpus())
	resize(t, namespace, "500m")
	has("500m")
	await.Until(t, "nothing is left to say", func() bool { return shadow(t, namespace, "web").Status.Reason == "" })
	assert.Equal(t, west.UID, get(t, bed.West, namespace, "web").UID)
}

func TestWhatAllNodesOfWestDeclareTheVirtualNodeDeclares(t *testing.T) {
	testbed.Require(t)
	declare := func(node string, features ...string) {
		t.Helper()
		data, err := json.Marshal(map[string]any{"status": map[string]any{"declaredFeatures": features}})
		require.NoError(t, err)
		_, err = bed.West.Client().CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, data, metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	declares := func(want ...string) {
		t.Helper()
		features := func() []string {
			node, err := bed.Home.Client().CoreV1().Nodes().Get(t.Context(), fabric.WestNode, metav1.GetOptions{})
			require.NoError(t, err)
			return node.Status.DeclaredFeatures
		}
		await.Until(t, "the virtual node declares them", func() bool { return slices.Equal(features(), want) }, func() any { return features() })
	}
	declare("west-1", "FastResize", "SlowResize")
	declare("west-2", "SlowResize")
	declares("SlowResize")
	declare("west-2")
	declares()
	declare("west-1")
}

func TestTheLabelsOfItsPlaceAreThoseOfEachCluster(t *testing.T) {
	namespace := open(t)
	label := func(zone any) {
		t.Helper()
		data, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{corev1.LabelTopologyZone: zone}}})
		require.NoError(t, err)
		for _, node := range []string{"west-1", "west-2"} {
			_, err := bed.West.Client().CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, data, metav1.PatchOptions{})
			require.NoError(t, err)
		}
	}
	zone := func() string {
		node, err := bed.Home.Client().CoreV1().Nodes().Get(t.Context(), fabric.WestNode, metav1.GetOptions{})
		require.NoError(t, err)
		return node.Labels[corev1.LabelTopologyZone]
	}
	override := func(zone any) {
		t.Helper()
		data, err := json.Marshal(map[string]any{"spec": map[string]any{"topology": map[string]any{"zone": zone}}})
		require.NoError(t, err)
		_, err = bed.Remotes.Patch(t.Context(), "west", types.MergePatchType, data, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	await.Until(t, "a cluster whose nodes share no zone is one of its own", func() bool { return zone() == "west" },
		func() any { return zone() })
	label("west-a")
	defer label(nil)
	await.Until(t, "the shared zone", func() bool { return zone() == "west-a" }, func() any { return zone() })
	override("north")
	defer override(nil)
	await.Until(t, "what the RemoteCluster says", func() bool { return zone() == "north" }, func() any { return zone() })

	create(t, newPod(namespace, "web", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(0)) }))
	home, west := runs(t, namespace, "web")
	assert.Equal(t, "north", home.Labels[corev1.LabelTopologyZone], "home's API server says where the virtual node is")
	assert.Equal(t, "west-a", west.Labels[corev1.LabelTopologyZone], "and that of west where its node is")
	edit(t, bed.Home, namespace, "web", map[string]any{"metadata": map[string]any{"labels": map[string]string{"tier": "first"}}})
	await.Until(t, "another label arrives", func() bool { return get(t, bed.West, namespace, "web").Labels["tier"] == "first" })
	assert.Equal(t, "west-a", get(t, bed.West, namespace, "web").Labels[corev1.LabelTopologyZone])
}
