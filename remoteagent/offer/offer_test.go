package offer

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

func list(cpu, pods string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourcePods: resource.MustParse(pods)}
}

func node(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			corev1.LabelTopologyZone: "a"}},
		Status: corev1.NodeStatus{Allocatable: list("8", "10"), Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		}},
	}
	for _, c := range change {
		c(n)
	}
	return n
}

func pod(home, node, cpu string, phase corev1.PodPhase) *sources.Pod {
	return sources.NewPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.HomeID: home}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}}}},
		Status: corev1.PodStatus{Phase: phase},
	})
}

// none are no pods.
var none = slices.Values([]*sources.Pod(nil))

func TestSum(t *testing.T) {
	running, done := corev1.PodRunning, corev1.PodSucceeded
	for name, test := range map[string]struct {
		limits         corev1.ResourceList
		pods           []*sources.Pod
		capacity, free [2]string
		own            int32
	}{
		"an empty cluster": {capacity: [2]string{"16", "20"}, free: [2]string{"16", "20"}},
		"others take theirs": {pods: []*sources.Pod{pod("", "n1", "3", running), pod("h2", "n2", "2", running)},
			capacity: [2]string{"16", "20"}, free: [2]string{"11", "18"}},
		"its own pods take nothing": {pods: []*sources.Pod{pod("h1", "n1", "3", running)}, capacity: [2]string{"16", "20"},
			free: [2]string{"16", "20"}, own: 1},
		"ended pods take nothing": {pods: []*sources.Pod{pod("", "n1", "3", done)}, capacity: [2]string{"16", "20"},
			free: [2]string{"16", "20"}},
		"pods that wait take nothing": {pods: []*sources.Pod{pod("", "", "3", corev1.PodPending)}, capacity: [2]string{"16", "20"},
			free: [2]string{"16", "20"}},
		"pods of other nodes take nothing": {pods: []*sources.Pod{pod("", "elsewhere", "3", running)}, capacity: [2]string{"16", "20"},
			free: [2]string{"16", "20"}},
		"an offer caps": {limits: list("4", "5"), capacity: [2]string{"4", "5"}, free: [2]string{"4", "5"}},
		"an offer caps what is left": {limits: list("4", "5"), pods: []*sources.Pod{pod("", "n1", "13", running)},
			capacity: [2]string{"4", "5"}, free: [2]string{"3", "5"}},
		"an offer of what is not there": {limits: list("99", "99"), capacity: [2]string{"16", "20"}, free: [2]string{"16", "20"}},
		"an offer of nothing":           {limits: list("0", "0"), capacity: [2]string{"0", "0"}, free: [2]string{"0", "0"}},
		"others take more than there is": {pods: []*sources.Pod{pod("", "n1", "40", running)}, capacity: [2]string{"16", "20"},
			free: [2]string{"0", "19"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := Sum("h1", test.limits, []*corev1.Node{node("n1"), node("n2")}, slices.Values(test.pods))
			capacity, free := [2]string{o.Capacity.Cpu().String(), o.Capacity.Pods().String()},
				[2]string{o.Allocatable.Cpu().String(), o.Allocatable.Pods().String()}
			assert.Equal(t, test.capacity, capacity)
			assert.Equal(t, test.free, free)
			assert.Equal(t, test.own, o.Pods)
		})
	}
}

func TestOnlyNodesThatCanRunPodsOfHomeClustersCount(t *testing.T) {
	taint := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x", Effect: effect}} }
	}
	label := func(key, value string) func(*corev1.Node) { return func(n *corev1.Node) { n.Labels[key] = value } }
	for name, test := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"a plain one":           {node: node("n"), want: true},
		"one to be avoided":     {node: node("n", taint(corev1.TaintEffectPreferNoSchedule)), want: true},
		"a tainted one":         {node: node("n", taint(corev1.TaintEffectNoSchedule))},
		"a cordoned one":        {node: node("n", func(n *corev1.Node) { n.Spec.Unschedulable = true })},
		"one that is not ready": {node: node("n", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })},
		"another cluster":       {node: node("n", label(keys.Cluster, "east"))},
		"a virtual kubelet":     {node: node("n", label("type", "virtual-kubelet"))},
		"a Liqo node":           {node: node("n", label("liqo.io/type", "virtual-node"))},
		"an Admiralty node": {node: node("n", label("type", "virtual-kubelet"), label("virtual-kubelet.io/provider", "admiralty"),
			taint(corev1.TaintEffectNoSchedule))},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, Usable(test.node)) })
	}
}

func TestSummaryIsWhatAllNodesShare(t *testing.T) {
	o := Sum("h1", nil, []*corev1.Node{node("n1"), node("n2", func(n *corev1.Node) { n.Labels[corev1.LabelArchStable] = "arm64" })}, none)
	assert.Equal(t, int32(2), o.Nodes.Count)
	assert.Equal(t, "linux", o.Nodes.OperatingSystem)
	assert.Empty(t, o.Nodes.Architecture)
	assert.Equal(t, map[string]string{corev1.LabelTopologyZone: "a"}, o.Nodes.Topology)
	assert.Zero(t, Sum("h1", nil, nil, none).Nodes.Count)
}

func TestFeaturesAreThoseOfAllNodes(t *testing.T) {
	declaring := func(names ...string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.DeclaredFeatures = names }
	}
	sum := func(nodes ...*corev1.Node) []string { return Sum("h1", nil, nodes, none).Nodes.DeclaredFeatures }
	assert.Equal(t, []string{"A", "B"}, sum(node("n1", declaring("B", "A"))))
	assert.Equal(t, []string{"B"}, sum(node("n1", declaring("A", "B")), node("n2", declaring("B", "C"))))
	assert.Empty(t, sum(node("n1", declaring("A")), node("n2")), "one that is older")
	assert.Equal(t, []string{"A"}, sum(node("n1", declaring("A")), node("n2", func(n *corev1.Node) { n.Spec.Unschedulable = true })),
		"one that takes no pods does not count")
	assert.Empty(t, sum())
}
