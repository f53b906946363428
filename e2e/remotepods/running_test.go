package remotepods

import (
	"context"
	"encoding/json"
	"fmt"
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
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
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
			home := must.Get(t, bed.Agents.HomeClusters(), homeID)
			home.Spec.Offer = list
			_, err := bed.Agents.HomeClusters().Update(t.Context(), home, metav1.UpdateOptions{})
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
	if bed.Home.Minor(t) < 36 || bed.West.Minor(t) < 36 {
		t.Skip("before Kubernetes 1.36 API servers keep no features that nodes declare")
	}
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
			node := must.Get(t, bed.Home.Client().CoreV1().Nodes(), fabric.WestNode)
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

// labelNodes sets a label of nodes of a cluster, and takes it off after the test.
func labelNodes(t *testing.T, cluster *testbed.Cluster, key string, values map[string]string) {
	t.Helper()
	set := func(node string, value any) {
		data, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
		require.NoError(t, err)
		_, err = cluster.Client().CoreV1().Nodes().Patch(context.WithoutCancel(t.Context()), node, types.MergePatchType, data,
			metav1.PatchOptions{})
		require.NoError(t, err)
	}
	for node, value := range values {
		set(node, value)
		t.Cleanup(func() { set(node, nil) })
	}
}

// hasPlace waits until the virtual node of west has a region or a zone.
func hasPlace(t *testing.T, why, key, want string) {
	t.Helper()
	is := func() string {
		node := must.Get(t, bed.Home.Client().CoreV1().Nodes(), fabric.WestNode)
		return node.Labels[key]
	}
	await.Until(t, why, func() bool { return is() == want }, func() any { return is() })
}

func TestTheLabelsOfItsPlaceAreThoseOfEachCluster(t *testing.T) {
	namespace := open(t)
	override := func(topology any) {
		t.Helper()
		data, err := json.Marshal(map[string]any{"spec": map[string]any{"topology": topology}})
		require.NoError(t, err)
		_, err = bed.Remotes.Patch(context.WithoutCancel(t.Context()), "west", types.MergePatchType, data, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	places := map[string]string{corev1.LabelTopologyRegion: "region", corev1.LabelTopologyZone: "zone"}
	for key, field := range places {
		hasPlace(t, "a cluster whose nodes share no "+field+" is one of its own", key, "west")
	}
	for key, field := range places {
		labelNodes(t, bed.West, key, map[string]string{"west-1": "west-" + field, "west-2": "west-" + field})
		hasPlace(t, "the shared "+field, key, "west-"+field)
	}
	override(map[string]any{"zone": "north", "region": "arctic"})
	defer override(nil)
	hasPlace(t, "the zone that the RemoteCluster says", corev1.LabelTopologyZone, "north")
	hasPlace(t, "the region that the RemoteCluster says", corev1.LabelTopologyRegion, "arctic")

	create(t, newPod(namespace, "web", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(0)) }))
	home, west := runs(t, namespace, "web")
	assert.Equal(t, saysWhere(t, bed.Home, "north"), home.Labels[corev1.LabelTopologyZone], "home's API server says where the virtual node is")
	assert.Equal(t, saysWhere(t, bed.Home, "arctic"), home.Labels[corev1.LabelTopologyRegion])
	assert.Equal(t, saysWhere(t, bed.West, "west-zone"), west.Labels[corev1.LabelTopologyZone], "and that of west where its node is")
	assert.Equal(t, saysWhere(t, bed.West, "west-region"), west.Labels[corev1.LabelTopologyRegion])
	edit(t, bed.Home, namespace, "web", map[string]any{"metadata": map[string]any{"labels": map[string]string{"tier": "first"}}})
	await.Until(t, "another label arrives", func() bool { return get(t, bed.West, namespace, "web").Labels["tier"] == "first" })
	west = get(t, bed.West, namespace, "web")
	assert.Equal(t, saysWhere(t, bed.West, "west-zone"), west.Labels[corev1.LabelTopologyZone])
	assert.Equal(t, saysWhere(t, bed.West, "west-region"), west.Labels[corev1.LabelTopologyRegion])
}

// saysWhere returns the label that a cluster's API server puts on a pod of a node in this place: none before Kubernetes 1.35.
func saysWhere(t *testing.T, cluster *testbed.Cluster, place string) string {
	t.Helper()
	if cluster.Minor(t) < 35 {
		return ""
	}
	return place
}

// TestAClusterOfSeveralZonesIsOnePlaceForTheScheduler has kube-schedulers place pods by zone: west's two nodes are in two zones there,
// home's in one.
func TestAClusterOfSeveralZonesIsOnePlaceForTheScheduler(t *testing.T) {
	testbed.Require(t)
	labelNodes(t, bed.West, corev1.LabelTopologyZone, map[string]string{"west-1": "west-a", "west-2": "west-b"})
	labelNodes(t, bed.Home, corev1.LabelTopologyZone, map[string]string{"home-1": "home", "home-2": "home"})
	labelNodes(t, bed.West, corev1.LabelTopologyRegion, map[string]string{"west-1": "west-a", "west-2": "west-b"})
	labelNodes(t, bed.Home, corev1.LabelTopologyRegion, map[string]string{"home-1": "home", "home-2": "home"})
	hasPlace(t, "a cluster whose nodes share no zone is one of its own", corev1.LabelTopologyZone, "west")
	hasPlace(t, "and so is its region", corev1.LabelTopologyRegion, "west")
	these := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "spread"}}
	spread := func(key string) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) {
			spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: key,
				WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: these}}
		}
	}
	apart := func(key string) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) {
			spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key, LabelSelector: these}}}}
		}
	}
	for name, row := range map[string]struct {
		change func(*corev1.PodSpec)
		// there and waits are how many of four pods go to west, and get no node.
		there, waits int
	}{
		"spread over zones":        {change: spread(corev1.LabelTopologyZone), there: 2},
		"spread over regions":      {change: spread(corev1.LabelTopologyRegion), there: 2},
		"one for each zone":        {change: apart(corev1.LabelTopologyZone), there: 1, waits: 2},
		"one for each region only": {change: apart(corev1.LabelTopologyRegion), there: 1, waits: 2},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := open(t)
			for i := range 4 {
				pod := fabric.NewPod(namespace, fmt.Sprint("web-", i))
				pod.Labels = these.MatchLabels
				pod.Spec.Tolerations = []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists}}
				row.change(&pod.Spec)
				create(t, pod)
			}
			want := []int{4 - row.there - row.waits, row.there, row.waits}
			placed := func() (placed []int) {
				placed = []int{0, 0, 0}
				for i := range 4 {
					switch pod := get(t, bed.Home, namespace, fmt.Sprint("web-", i)); {
					case pod.Status.Phase == corev1.PodRunning && pod.Spec.NodeName == fabric.WestNode:
						placed[1]++
					case pod.Status.Phase == corev1.PodRunning:
						placed[0]++
					case slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
						return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
					}):
						placed[2]++
					}
				}
				return placed
			}
			await.Until(t, fmt.Sprintf("%d run at home, %d in west, and no node takes %d", want[0], want[1], want[2]),
				func() bool { return slices.Equal(placed(), want) }, func() any { return placed() })
		})
	}
}
