package decide_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
)

// hostNode is a node that stands for west, is ready, and has 4 CPUs.
func hostNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{keys.Cluster: "west"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: keys.RemoteTaint, Value: "west", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}}}
}

// user is a pod that requests so many CPUs.
func user(cpu string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}}}
}

func TestWhetherAStandbyCouldRunThePods(t *testing.T) {
	for name, row := range map[string]struct {
		tune   func(*decide.Host)
		status metav1.ConditionStatus
		says   string
	}{
		"it could": {func(*decide.Host) {}, metav1.ConditionTrue, "for each pod that uses the claims (1)"},
		"the claims cannot go there": {func(h *decide.Host) { h.Refused = "cluster west does not answer" }, metav1.ConditionFalse,
			"cluster west does not answer"},
		"no node stands for it": {func(h *decide.Host) { h.Nodes = nil }, metav1.ConditionFalse, "no node of home stands for cluster west"},
		"no node is ready": {func(h *decide.Host) { h.Nodes[0].Status.Conditions[0].Status = corev1.ConditionUnknown }, metav1.ConditionFalse,
			"of the nodes for cluster west (1) none is ready"},
		"all nodes are cordoned": {func(h *decide.Host) { h.Nodes[0].Spec.Unschedulable = true }, metav1.ConditionFalse,
			"none is ready and takes"},
		"what the pods need is not known": {func(h *decide.Host) { h.Unread = "pod db-0 cannot be read" }, metav1.ConditionUnknown,
			"pod db-0 cannot be read"},
		"no pod uses the claims": {func(h *decide.Host) { h.Pods = nil }, metav1.ConditionUnknown, "no pod uses the claims now"},
		"a pod is too large": {func(h *decide.Host) { h.Pods = append(h.Pods, user("5")) }, metav1.ConditionFalse,
			"pod db-0 fits no node of cluster west: it requests 5 of cpu, and a node there has 4"},
		"one of two nodes is large enough": {func(h *decide.Host) {
			h.Pods[0], h.Nodes = user("5"), append(h.Nodes, hostNode("west-2"))
			h.Nodes[1].Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("8")
		}, metav1.ConditionTrue, ""},
		"no node has such a device": {func(h *decide.Host) {
			h.Pods[0].Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		}, metav1.ConditionFalse, "it requests 1 of example.com/gpu, and a node there has 0"},
		"a pod is to be elsewhere": {func(h *decide.Host) { h.Pods[0].Spec.NodeSelector = map[string]string{keys.Cluster: "east"} },
			metav1.ConditionFalse, "its node selector or affinity does not allow that"},
		"a pod is to be there": {func(h *decide.Host) { h.Pods[0].Spec.NodeSelector = map[string]string{keys.Cluster: "west"} },
			metav1.ConditionTrue, ""},
		"a taint keeps it off": {func(h *decide.Host) {
			h.Nodes[0].Spec.Taints = append(h.Nodes[0].Spec.Taints, corev1.Taint{Key: "gpu", Value: "only", Effect: corev1.TaintEffectNoExecute})
		}, metav1.ConditionFalse, "it does not tolerate taint gpu=only:NoExecute"},
		"a taint that it tolerates does not": {func(h *decide.Host) {
			h.Nodes[0].Spec.Taints = append(h.Nodes[0].Spec.Taints, corev1.Taint{Key: "gpu", Value: "only", Effect: corev1.TaintEffectNoExecute})
			h.Pods[0].Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Value: "only"}}
		}, metav1.ConditionTrue, ""},
		"one that is only preferred does not": {func(h *decide.Host) {
			h.Nodes[0].Spec.Taints = append(h.Nodes[0].Spec.Taints, corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectPreferNoSchedule})
		}, metav1.ConditionTrue, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := decide.Host{Cluster: "west", Nodes: []*corev1.Node{hostNode("west")}, Pods: []corev1.Pod{user("2")}}
			row.tune(&h)
			is := h.Runnable()
			assert.Equal(t, row.status, is.Status, is.Why)
			assert.Contains(t, is.Why, row.says)
			assert.Equal(t, row.status == metav1.ConditionFalse, is.No())
		})
	}
}
