package virtualnodes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestTheNodeStandsForItsCluster(t *testing.T) {
	testbed.Require(t)
	node := nodeNow(t, fabric.WestNode)
	assert.Equal(t, "west", node.Labels[keys.Cluster])
	assert.Equal(t, "virtual-kubelet", node.Labels["type"])
	assert.Equal(t, "true", node.Labels[corev1.LabelNodeExcludeBalancers])
	assert.Equal(t, "linux", node.Labels[corev1.LabelOSStable])
	assert.Contains(t, node.Spec.Taints, corev1.Taint{Key: keys.RemoteTaint, Value: "west", Effect: corev1.TaintEffectNoSchedule})
	assert.Positive(t, node.Status.Allocatable.Cpu().Value())
	assert.Positive(t, node.Status.Allocatable.Pods().Value())
	assert.Equal(t, []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}, node.Status.Addresses)
	assert.Positive(t, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
}
