package provisioning

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// provider is the key of the label and of the taint that nodes of Admiralty have.
const provider = "virtual-kubelet.io/provider"

// admiraltyNode is a node as Admiralty registers it for a target, with the label by which its administrator says which cluster that is.
func admiraltyNode(target string) fakekubelet.Node {
	taint := corev1.Taint{Key: provider, Value: "admiralty", Effect: corev1.TaintEffectNoSchedule}
	evicts := taint
	evicts.Effect = corev1.TaintEffectNoExecute
	return fakekubelet.Node{
		Name: "admiralty-" + target,
		Labels: map[string]string{
			provider: "admiralty", "kubernetes.io/role": "cluster", "multicluster.admiralty.io/cluster-target-name": target,
			"alpha.service-controller.kubernetes.io/exclude-balancer": "true", corev1.LabelNodeExcludeBalancers: "true",
		},
		Taints: []corev1.Taint{taint, evicts},
		Remote: &fakekubelet.Remote{ID: target, Config: bed.West.AdminConfig()},
	}
}

// proxy makes a pod what Admiralty's webhook makes of one that its user has annotated, but for the name of the scheduler: that of this
// bed is in the place of Admiralty's, which is a kube-scheduler too.
func proxy(pod *corev1.Pod) *corev1.Pod {
	pod.Annotations = map[string]string{
		"multicluster.admiralty.io/elect": "", "multicluster.admiralty.io/no-reservation": "",
		"multicluster.admiralty.io/sourcepod-manifest": "kind: Pod\n",
	}
	pod.Labels = map[string]string{"multicluster.admiralty.io/has-finalizer": "true"}
	pod.Spec.NodeSelector = map[string]string{provider: "admiralty"}
	pod.Spec.Tolerations = []corev1.Toleration{
		{Key: provider, Value: "admiralty"}, {Key: corev1.TaintNodeNetworkUnavailable, Operator: corev1.TolerationOpExists},
	}
	return pod
}

// TestAClaimGetsItsVolumeThroughANodeOfAdmiralty has nodes and pods of Admiralty's shape, as its documentation and its source say;
// Admiralty itself does not run. It adds nodes that other tests would see, so it runs alone.
func TestAClaimGetsItsVolumeThroughANodeOfAdmiralty(t *testing.T) {
	testbed.Require(t)
	// No RemoteCluster is there for mars: of Admiralty's nodes Lodestone allows that of west alone, for a claim that has no volume yet.
	for _, target := range []string{"west", "mars"} {
		node := admiraltyNode(target)
		require.NoError(t, bed.HomeNodes.AddNodes(t.Context(), node))
		t.Cleanup(func() { assert.NoError(t, bed.HomeNodes.RemoveNode(context.WithoutCancel(t.Context()), node.Name)) })
	}
	namespace := newNamespace(t)
	bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.CreatePod(t, fabric.Prefer(proxy(fabric.NewPod(namespace, "first", "data")), "admiralty-mars"))
	require.Equal(t, "admiralty-west", bed.AwaitRunning(t, namespace, "first"))
	_, virtual := awaitBound(t, bed.Home, namespace, "data")
	shadow, _ := awaitBound(t, bed.West, namespace, "data")
	cluster, known := locality.OfVolume(virtual.Spec.NodeAffinity)
	require.True(t, known)
	assert.Equal(t, "west", cluster)
	assert.Equal(t, shadow.UID, backingOf(t, virtual).UID)

	deletePod(t, namespace, "first")
	bed.CreatePod(t, fabric.Prefer(proxy(fabric.NewPod(namespace, "second", "data")), "admiralty-mars"))
	assert.Equal(t, "admiralty-west", bed.AwaitRunning(t, namespace, "second"))

	// One that Admiralty has not changed, and that would rather be at home.
	deletePod(t, namespace, "second")
	third := fabric.Prefer(fabric.NewPod(namespace, "third", "data"), "home-1")
	third.Spec.Tolerations = []corev1.Toleration{{Key: provider, Operator: corev1.TolerationOpExists}}
	bed.CreatePod(t, third)
	assert.Contains(t, []string{"admiralty-west", fabric.WestNode}, bed.AwaitRunning(t, namespace, "third"))

	_, same := awaitBound(t, bed.Home, namespace, "data")
	assert.Equal(t, virtual.UID, same.UID)
	assert.Equal(t, "west", same.Labels[keys.Cluster])
	assert.Empty(t, bed.HomeNodes.Violations(namespace))
}
