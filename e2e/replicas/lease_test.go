package replicas

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// cutOff has home reach nobody at the address of west, whose own programs go on, until the test ends or mend is called.
func cutOff(t *testing.T) (mend func()) {
	t.Helper()
	secrets := bed.Home.Client().CoreV1().Secrets(fabric.System)
	whole := must.Get(t, secrets, "west").Data["kubeconfig"]
	config, err := clientcmd.Load(whole)
	require.NoError(t, err)
	for _, cluster := range config.Clusters {
		cluster.Server = "https://127.0.0.1:1"
	}
	nowhere, err := clientcmd.Write(*config)
	require.NoError(t, err)
	write := func(ctx context.Context, kubeconfig []byte) error {
		secret, err := secrets.Get(ctx, "west", metav1.GetOptions{})
		if err != nil {
			return err
		}
		secret.Data["kubeconfig"] = kubeconfig
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		return err
	}
	require.NoError(t, write(t.Context(), nowhere))
	back := sync.OnceValue(func() error { return write(context.Background(), whole) })
	t.Cleanup(func() { _ = back() })
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionFalse))
	return func() {
		t.Helper()
		require.NoError(t, back())
		require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	}
}

// leases has an administrator ask west for a lease, which its agent promises, until the test ends.
func leases(t *testing.T) {
	t.Helper()
	must.Patch(t, bed.Remotes, "west", types.MergePatchType, []byte(`{"spec":{"podLease":"1m"}}`))
	t.Cleanup(func() {
		_, err := bed.Remotes.Patch(context.Background(), "west", types.MergePatchType, []byte(`{"spec":{"podLease":null}}`),
			metav1.PatchOptions{})
		assert.NoError(t, err)
		await.Until(t, "nothing is promised any more", func() bool { return tenant(t).Status.PodLease == nil })
	})
	await.Until(t, "west has promised to end pods", func() bool {
		west := must.Get(t, bed.Remotes, "west")
		return meta.IsStatusConditionTrue(west.Status.Conditions, v1alpha1.PodLeasePromised)
	}, func() any { return must.Get(t, bed.Remotes, "west").Status.Conditions }, func() any { return tenant(t).Status })
}

// tenant is what west's agent shows of home.
func tenant(t *testing.T) *remotev1alpha1.HomeCluster {
	t.Helper()
	id, err := bed.HomeID(context.Background())
	require.NoError(t, err)
	return must.Get(t, bed.Agents.HomeClusters(), id)
}

// restartAgent has another process of west's agent begin, which knows nothing of the one before.
func restartAgent(t *testing.T) {
	t.Helper()
	require.NoError(t, agent.Stop())
	var err error
	agent, err = bed.StartAgent(context.Background())
	require.NoError(t, err)
}

// holds waits until west shows whether home holds its lease.
func holds(t *testing.T, status metav1.ConditionStatus) {
	t.Helper()
	await.Until(t, "the condition PodLease is "+string(status), func() bool {
		return meta.IsStatusConditionPresentAndEqual(tenant(t).Status.Conditions, remotev1alpha1.PodLease, status)
	}, func() any { return tenant(t).Status.Conditions })
}

// none waits until no pod of a namespace is left in west.
func none(t *testing.T, namespace string) {
	t.Helper()
	await.Until(t, "the pods in west are ended", func() bool {
		pods, err := bed.West.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0
	}, func() any { return tenant(t).Status.Conditions })
}

// TestAClaimFailsOverOnceTheSilentClusterOfItsPodsHasEndedThem: home is cut off from west, whose agent ends the pods there, as an
// administrator has asked for, also an agent that starts anew in between.
func TestAClaimFailsOverOnceTheSilentClusterOfItsPodsHasEndedThem(t *testing.T) {
	testbed.NotInShort(t)
	await.Stretch(t, 2)
	namespace, stays := space(t), space(t)
	counts(t, namespace, virtual, "west")
	counts(t, stays, virtual, "west")
	made := replicate(t, namespace, keys.Home)
	sealed(t, made, time.Time{})
	version := pause(t, made).Status.Standbys[0].Versions[0]
	lost, other := folder(t, namespace), folder(t, stays)

	// Without a promise nothing is known.
	mend := cutOff(t)
	refused := inPhase(t, failOver(t, "early", made, "", v1alpha1.FenceLease), v1alpha1.MoveFailed)
	assert.Contains(t, refused.Status.Message, "fence Lease proves nothing: spec.podLease of RemoteCluster west is not set")
	must.Patch(t, bed.Remotes, "west", types.MergePatchType, []byte(`{"spec":{"podLease":"1m"}}`))
	refused = inPhase(t, failOver(t, "late", made, "", v1alpha1.FenceLease), v1alpha1.MoveFailed)
	assert.Contains(t, refused.Status.Message, "was not seen to promise, before it fell silent, that it ends pods there")
	mend()
	leases(t)
	assert.Equal(t, int64(60), tenant(t).Status.PodLease.Seconds)
	beyond(t, namespace, counted(t, lost)+5)

	mend = cutOff(t)
	refused = inPhase(t, failOver(t, "proven", made, "", v1alpha1.FenceProven), v1alpha1.MoveFailed)
	assert.Contains(t, refused.Status.Message, "its remote agent has promised to end these: fail over with spec.failover.fence Lease")
	over := failOver(t, "over", made, "", v1alpha1.FenceLease)
	waits := func() bool {
		over = must.Get(t, objects(t).In(namespace), over.Name)
		return over.Status.Phase == v1alpha1.MoveQuiesce || over.Status.Phase == v1alpha1.MoveFence
	}
	await.Until(t, "it is waited for the pods", waits, func() any { return over.Status })
	before := counted(t, lost)
	await.Until(t, "the pod in west still writes", func() bool { return counted(t, lost) > before })
	restartAgent(t)
	none(t, namespace)
	none(t, stays)
	require.True(t, waits(), "home waits for longer than the agent")
	assert.Contains(t, over.Status.Message, "cluster west does not answer: its remote agent ends the pods there, and it is waited until")
	holds(t, metav1.ConditionFalse)
	diverged, rests := counted(t, lost), counted(t, other)
	restartAgent(t)

	over = inPhase(t, over, v1alpha1.MoveRetain)
	assert.Equal(t, &v1alpha1.FailoverStatus{Version: version.Name, Cut: version.Cut, Fence: v1alpha1.FenceLease}, over.Status.Failover)
	at := folder(t, namespace)
	require.NotEqual(t, lost, at)
	beyond(t, namespace, counted(t, at)+5)
	none(t, namespace)
	none(t, stays)
	assert.Equal(t, rests, counted(t, other), "nobody makes pods of a home that is silent")

	// West is back. What has failed over stays where it is, and the other pods run again by themselves.
	mend()
	beyond(t, stays, rests)
	assert.Equal(t, other, folder(t, stays))
	none(t, namespace)
	assert.Equal(t, diverged, counted(t, lost), "nobody has written there since its pods were ended")
	beyond(t, namespace, counted(t, at)+5)
	holds(t, metav1.ConditionTrue)
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	removes(t, made)
}
