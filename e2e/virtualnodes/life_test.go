package virtualnodes

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/app"
)

func TestANodeThatSomebodyDeletesIsMadeAgain(t *testing.T) {
	testbed.Require(t)
	before := nodeNow(t, fabric.WestNode)
	require.NoError(t, bed.Home.Client().CoreV1().Nodes().Delete(t.Context(), fabric.WestNode, metav1.DeleteOptions{}))
	await.Until(t, "there is another node", func() bool {
		return exists(t, fabric.WestNode) && nodeNow(t, fabric.WestNode).UID != before.UID
	}, func() any { return "no other node" })
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
	assert.Equal(t, before.Status.DaemonEndpoints, nodeNow(t, fabric.WestNode).Status.DaemonEndpoints)
	advances(t, bed.Home, corev1.NamespaceNodeLease, fabric.WestNode)
}

func TestWhatUsersWriteOnANodeStays(t *testing.T) {
	testbed.Require(t)
	for _, args := range [][]string{
		{"label", "node", fabric.WestNode, "team=data", "--overwrite"}, {"cordon", fabric.WestNode},
		{"taint", "node", fabric.WestNode, "gpu=yes:NoSchedule", "--overwrite"}, {"annotate", "node", fabric.WestNode, "note=mine", "--overwrite"},
		{"taint", "node", fabric.WestNode, keys.RemoteTaint + "-"}, {"label", "node", fabric.WestNode, keys.Cluster + "-"},
	} {
		_, err := bed.Home.Kubectl(t.Context(), "", args...)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		for _, args := range [][]string{{"uncordon", fabric.WestNode}, {"taint", "node", fabric.WestNode, "gpu-"}, {"label", "node", fabric.WestNode, "team-"}} {
			_, err := bed.Home.Kubectl(context.Background(), "", args...)
			require.NoError(t, err)
		}
	})
	restart(t)
	offer(t, "9")
	offer(t, "12")
	await.Until(t, "what is ours is there again", func() bool {
		node := nodeNow(t, fabric.WestNode)
		return node.Labels[keys.Cluster] == "west" && slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == keys.RemoteTaint })
	}, func() any { return nodeNow(t, fabric.WestNode) })
	node := nodeNow(t, fabric.WestNode)
	assert.Equal(t, "data", node.Labels["team"])
	assert.Equal(t, "mine", node.Annotations["note"])
	assert.True(t, node.Spec.Unschedulable)
	assert.True(t, slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == "gpu" }))
}

func TestAnotherReplicaTakesOver(t *testing.T) {
	testbed.Require(t)
	fast := func(config *app.Config) { config.LeaseDuration = 3 * time.Second }
	second, err := bed.StartVirtualNode(t.Context(), withoutPods, fast)
	require.NoError(t, err)
	before := nodeNow(t, fabric.WestNode).Status.DaemonEndpoints.KubeletEndpoint.Port
	require.NoError(t, program.Stop())
	await.Until(t, "the node's API is served by the second", func() bool {
		port := nodeNow(t, fabric.WestNode).Status.DaemonEndpoints.KubeletEndpoint.Port
		return port != 0 && port != before
	}, func() any { return nodeNow(t, fabric.WestNode).Status })
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
	advances(t, bed.Home, corev1.NamespaceNodeLease, fabric.WestNode)
	program, err = bed.StartVirtualNode(context.Background(), withoutPods)
	require.NoError(t, err)
	require.NoError(t, second.Stop())
	offer(t, "8")
	offer(t, "12")
}

func TestANodeOfThatNameThatIsNotOursIsLeftAlone(t *testing.T) {
	testbed.Require(t)
	theirs := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{keys.Cluster: "theirs"}}}
	nodes := bed.Home.Client().CoreV1().Nodes()
	_, err := nodes.Create(t.Context(), theirs, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, nodes.Delete(context.Background(), "theirs", metav1.DeleteOptions{}))
	})
	registered(t, "theirs", eastKubeconfig)
	assert.Contains(t, said(t, "theirs", metav1.ConditionFalse, "NameTaken"), "a node named theirs that is not Lodestone's")
	assert.Empty(t, nodeNow(t, "theirs").Spec.ProviderID)
	unregister(t, "theirs")
	assert.True(t, exists(t, "theirs"))
}

func TestARemoteClusterThatIsDeletedIsDrainedFirst(t *testing.T) {
	namespace := testbed.Namespace(t, bed.Home)
	registered(t, "second", eastKubeconfig)
	require.NoError(t, bed.AwaitNode(t.Context(), "second", corev1.ConditionTrue))
	bound(t, namespace, "db", "second", keys.RemotePodFinalizer)

	require.NoError(t, bed.Remotes.Delete(t.Context(), "second", metav1.DeleteOptions{}))
	assert.Contains(t, said(t, "second", metav1.ConditionFalse, "Leaving"), "node second is being emptied, pods left: 1")
	assert.True(t, nodeNow(t, "second").Spec.Unschedulable)
	await.Until(t, "the pod is asked to end", func() bool { return podNow(t, namespace, "db").DeletionTimestamp != nil }, func() any { return podNow(t, namespace, "db") })
	restart(t)
	time.Sleep(2 * time.Second)
	assert.True(t, exists(t, "second"), "its pod may still run")

	release(t, namespace, "db")
	await.Until(t, "node and RemoteCluster are gone", func() bool {
		_, err := bed.Remotes.Get(t.Context(), "second", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && !exists(t, "second")
	}, func() any { return condition(t, "second") })
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
}

func TestAVirtualNodeThatIsNotWantedGoesAndComesBack(t *testing.T) {
	testbed.Require(t)
	registered(t, "optional", eastKubeconfig)
	require.NoError(t, bed.AwaitNode(t.Context(), "optional", corev1.ConditionTrue))
	want := func(mode v1alpha1.VirtualNodeMode) {
		_, err := bed.Remotes.Patch(t.Context(), "optional", types.MergePatchType, []byte(`{"spec":{"virtualNode":"`+string(mode)+`"}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	want(v1alpha1.VirtualNodeDisabled)
	said(t, "optional", metav1.ConditionFalse, "Disabled")
	assert.False(t, exists(t, "optional"))
	want(v1alpha1.VirtualNodeEnabled)
	require.NoError(t, bed.AwaitNode(t.Context(), "optional", corev1.ConditionTrue))
	assert.False(t, nodeNow(t, "optional").Spec.Unschedulable)
}

func TestOneClusterGetsOneNodeAndHomeNone(t *testing.T) {
	testbed.Require(t)
	registered(t, "again", kubeconfigOf(t, "west"))
	assert.Contains(t, said(t, "again", metav1.ConditionFalse, "Duplicate"), `RemoteCluster "west" already stands for this cluster`)
	assert.False(t, exists(t, "again"))

	kubeconfig, err := bed.Home.ServiceAccountKubeconfig(t.Context(), fabric.System, "lodestone-provisioner")
	require.NoError(t, err)
	registered(t, "mirror", kubeconfig)
	assert.Contains(t, said(t, "mirror", metav1.ConditionFalse, "PointsHome"), "leads to the home cluster itself")
	assert.False(t, exists(t, "mirror"))
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
}
