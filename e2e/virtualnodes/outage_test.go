package virtualnodes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestAClusterThatStopsAndComesBack(t *testing.T) {
	testbed.Require(t)
	require.NoError(t, bed.West.StopAPIServer(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, bed.West.StartAPIServer(context.Background()))
		require.NoError(t, bed.AwaitNode(context.Background(), fabric.WestNode, corev1.ConditionTrue))
	})
	stopped := becomes(t, fabric.WestNode, corev1.ConditionFalse, "RemoteSilent")
	assert.Contains(t, stopped.Message, "cluster west does not answer")
	assert.Equal(t, "12", nodeNow(t, fabric.WestNode).Status.Allocatable.Cpu().String(), "what was offered last is shown")
	said(t, "west", metav1.ConditionFalse, "RemoteSilent")
	lease := heartbeat(t, bed.Home, corev1.NamespaceNodeLease, fabric.WestNode)
	time.Sleep(3 * time.Second)
	assert.Equal(t, lease, heartbeat(t, bed.Home, corev1.NamespaceNodeLease, fabric.WestNode), "nobody says that it is alive")
	require.NoError(t, bed.AwaitNode(t.Context(), "home-1", corev1.ConditionTrue))

	require.NoError(t, bed.West.StartAPIServer(t.Context()))
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
	said(t, "west", metav1.ConditionTrue, "RemoteReady")
	advances(t, bed.Home, corev1.NamespaceNodeLease, fabric.WestNode)
	advances(t, bed.West, keys.TenantPrefix+homeID, keys.HeartbeatLease)

	// What the agent says is heard again, too.
	offer(t, "11")
	offer(t, "12")
}

func TestAClusterThatHangs(t *testing.T) {
	testbed.Require(t)
	require.NoError(t, bed.West.PauseAPIServer())
	t.Cleanup(func() {
		_ = bed.West.ResumeAPIServer()
		require.NoError(t, bed.AwaitNode(context.Background(), fabric.WestNode, corev1.ConditionTrue))
	})
	assert.Contains(t, becomes(t, fabric.WestNode, corev1.ConditionFalse, "RemoteSilent").Message, "no answer within")
	require.NoError(t, bed.West.ResumeAPIServer())
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
}

func TestWhatTheAgentSaysIsShown(t *testing.T) {
	testbed.Require(t)
	change := func(change func(*remotev1alpha1.HomeClusterStatus)) {
		require.NoError(t, say(context.Background(), bed.Agents, homeID, change))
	}
	t.Cleanup(func() {
		change(func(status *remotev1alpha1.HomeClusterStatus) { ready(status, metav1.ConditionTrue, "Ready", "") })
		require.NoError(t, bed.AwaitNode(context.Background(), fabric.WestNode, corev1.ConditionTrue))
	})
	change(func(status *remotev1alpha1.HomeClusterStatus) {
		ready(status, metav1.ConditionFalse, "Taken", "namespace lodestone-home-x belongs to somebody else: delete it")
		status.Nodes.Architecture = ""
		status.Nodes.Topology = map[string]string{corev1.LabelTopologyZone: "west-zone"}
	})
	assert.Contains(t, becomes(t, fabric.WestNode, corev1.ConditionFalse, "HomeClusterNotReady").Message, "belongs to somebody else")
	node := nodeNow(t, fabric.WestNode)
	assert.NotContains(t, node.Labels, corev1.LabelArchStable)
	assert.Equal(t, "west", node.Labels[corev1.LabelTopologyRegion], "none is shared any more")
	assert.Equal(t, "west-zone", node.Labels[corev1.LabelTopologyZone])
	said(t, "west", metav1.ConditionFalse, "HomeClusterNotReady")
	advances(t, bed.Home, corev1.NamespaceNodeLease, fabric.WestNode)
}

func TestAKubeconfigThatIsNoLongerAccepted(t *testing.T) {
	testbed.Require(t)
	secrets := bed.Home.Client().CoreV1().Secrets(fabric.System)
	secret := must.Get(t, secrets, "west")
	working := secret.Data["kubeconfig"]
	write := func(kubeconfig []byte) {
		secret := must.Get(t, secrets, "west")
		secret.Data["kubeconfig"] = kubeconfig
		must.Update(t, secrets, secret)
	}
	t.Cleanup(func() {
		write(working)
		require.NoError(t, bed.AwaitNode(context.Background(), fabric.WestNode, corev1.ConditionTrue))
		said(t, "west", metav1.ConditionTrue, "RemoteReady")
	})
	write(withToken(t, working, "expired"))
	assert.Contains(t, becomes(t, fabric.WestNode, corev1.ConditionFalse, "NotAuthorized").Message, "renew them in the Secret")
	said(t, "west", metav1.ConditionFalse, "NotAuthorized")

	write([]byte("nothing of use"))
	assert.Contains(t, said(t, "west", metav1.ConditionFalse, "BadKubeconfig"), "the kubeconfig")
	becomes(t, fabric.WestNode, corev1.ConditionFalse, "BadKubeconfig")
	write(working)
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
}

func TestAClusterThatIsDownAtTheStartHarmsNoOther(t *testing.T) {
	testbed.Require(t)
	secret := must.Get(t, bed.Home.Client().CoreV1().Secrets(fabric.System), "west")
	registered(t, "nowhere", withServer(t, secret.Data["kubeconfig"], "https://127.0.0.1:1"))
	assert.Contains(t, said(t, "nowhere", metav1.ConditionFalse, "RemoteSilent"), "cluster nowhere does not answer")
	assert.False(t, exists(t, "nowhere"), "nothing is known of it, so there is no node")

	restart(t)
	offer(t, "10")
	offer(t, "12")
	assert.False(t, exists(t, "nowhere"))
}

func TestAClusterWithoutAHomeClusterGetsNoNode(t *testing.T) {
	testbed.Require(t)
	account := testbed.Namespace(t, bed.West)
	kubeconfig, err := bed.West.ServiceAccountKubeconfig(t.Context(), account, "default")
	require.NoError(t, err)
	registered(t, "stranger", kubeconfig)
	assert.Contains(t, said(t, "stranger", metav1.ConditionFalse, "NoHomeCluster"), "may not read HomeCluster "+homeID)
	assert.False(t, exists(t, "stranger"))
}

// offer has the agent offer some CPUs, and waits until the node shows them.
func offer(t *testing.T, cpus string) {
	t.Helper()
	require.NoError(t, say(t.Context(), bed.Agents, homeID, func(status *remotev1alpha1.HomeClusterStatus) {
		status.Allocatable[corev1.ResourceCPU] = quantity(cpus)
	}))
	await.Until(t, "the node shows "+cpus+" CPUs", func() bool {
		return nodeNow(t, fabric.WestNode).Status.Allocatable.Cpu().String() == cpus
	}, func() any { return nodeNow(t, fabric.WestNode).Status })
}
