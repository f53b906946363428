package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// kept is an object as informers keep it.
func kept[T any](t *testing.T, object T) T {
	t.Helper()
	left, err := transform(object)
	require.NoError(t, err)
	return left.(T)
}

func TestWhatNodesSayAllTheTimeChangesNothing(t *testing.T) {
	node := func(changes ...func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1", ResourceVersion: "5", Labels: map[string]string{"arch": "arm"}},
			Spec: corev1.NodeSpec{PodCIDRs: []string{"10.1.0.0/24"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.30.1.10"}},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		for _, change := range changes {
			change(n)
		}
		return kept(t, n)
	}
	for name, row := range map[string]struct {
		change func(*corev1.Node)
		same   bool
	}{
		"a heartbeat": {func(n *corev1.Node) {
			n.ResourceVersion, n.Status.Conditions[0].LastHeartbeatTime = "6", metav1.NewTime(time.Unix(9, 0))
		}, true},
		"images": {func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{Names: []string{"app"}}} }, true},
		"another condition": {func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "x"})
		}, true},
		"a taint":                  {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} }, true},
		"a label of others":        {func(n *corev1.Node) { n.Labels["zone"] = "a" }, true},
		"it is a gateway":          {func(n *corev1.Node) { n.Labels[keys.Gateway] = keys.GatewayEnabled }, false},
		"it stands for another":    {func(n *corev1.Node) { n.Labels[keys.Cluster] = "west" }, false},
		"it is a virtual kubelet":  {func(n *corev1.Node) { n.Labels["type"] = "virtual-kubelet" }, false},
		"another address":          {func(n *corev1.Node) { n.Status.Addresses[0].Address = "172.30.1.11" }, false},
		"another range":            {func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.1.1.0/24"} }, false},
		"it is no longer ready":    {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, false},
		"another of the same name": {func(n *corev1.Node) { n.UID = "2" }, false},
	} {
		assert.Equal(t, row.same, sameNode(node(), node(row.change)), name)
	}
	assert.Equal(t, map[string]string{keys.GatewayAddress: "192.0.2.1:7"}, node(func(n *corev1.Node) {
		n.Annotations = map[string]string{keys.GatewayAddress: "192.0.2.1:7", "other": "x"}
	}).Annotations, "at which it is dialed is read when it is written")
}

func TestWhatPodsSayOfThemselvesChangesNothing(t *testing.T) {
	pod := func(changes ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop", Labels: map[string]string{}},
			Spec:   corev1.PodSpec{NodeName: "n"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.1.0.2"}}}}
		for _, change := range changes {
			change(p)
		}
		return kept(t, p)
	}
	for name, row := range map[string]struct {
		change func(*corev1.Pod)
		same   bool
	}{
		"a condition":         {func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}} }, true},
		"an annotation":       {func(p *corev1.Pod) { p.Annotations = map[string]string{"x": "y"} }, true},
		"it has ended":        {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		"another address":     {func(p *corev1.Pod) { p.Status.PodIPs[0].IP = "10.1.0.3" }, false},
		"another node":        {func(p *corev1.Pod) { p.Spec.NodeName = "m" }, false},
		"it probes":           {func(p *corev1.Pod) { p.Labels["app.kubernetes.io/component"] = ProbeComponent }, false},
		"it has no address":   {func(p *corev1.Pod) { p.Status.PodIPs = nil }, false},
		"it is on the node's": {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, false},
	} {
		assert.Equal(t, row.same, samePod(pod(), pod(row.change)), name)
	}
}
