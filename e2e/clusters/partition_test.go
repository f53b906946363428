package clusters

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// before is what was there when the outage began: a volume in use, and one whose
// claim is deleted during the outage.
type before struct {
	kept, doomed *corev1.PersistentVolumeClaim
	handles      []string
}

func prepare(t *testing.T, namespace string) before {
	t.Helper()
	b := before{
		kept:   bed.CreateClaim(t, fabric.NewClaim(namespace, "kept", fabric.Class)),
		doomed: bed.CreateClaim(t, fabric.NewClaim(namespace, "doomed", fabric.Class)),
	}
	for _, name := range []string{"kept", "doomed"} {
		bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, name, name)))
		require.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, name))
		await.Until(t, "the shadow is bound", func() bool { return isBound(t, bed.West, namespace, name) })
		b.handles = append(b.handles, "disk.west.test-pvc-"+string(claimOf(t, bed.West, namespace, name).UID))
	}
	for _, handle := range b.handles {
		require.True(t, bed.WestStorage.Exists(handle))
	}
	must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), "doomed")
	await.Until(t, "pod doomed is gone", func() bool { return await.Pod(t, bed.Home.Client(), namespace, "doomed") == nil })
	return b
}

// check that existing volumes are untouched, and that the deletion of one waits
// and says why.
func (b before) holds(t *testing.T, namespace string) {
	t.Helper()
	must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), "doomed")
	assert.Contains(t, await.Event(t, bed.Home.Client(), metav1.NamespaceDefault, "pvc-"+string(b.doomed.UID), "ClusterNotUsable"),
		"waiting for cluster west to delete the volume's data there")
	await.Always(t, "nothing of west's volumes is touched", func() bool {
		doomed := volumeOf(t, b.doomed)
		return isBound(t, bed.Home, namespace, "kept") && volumeOf(t, b.kept).Status.Phase == corev1.VolumeBound &&
			doomed != nil && doomed.Status.Phase == corev1.VolumeReleased &&
			bed.WestStorage.Exists(b.handles[0]) && bed.WestStorage.Exists(b.handles[1])
	})
}

func (b before) settles(t *testing.T, namespace string) {
	t.Helper()
	await.Until(t, "the released volume is gone", func() bool { return volumeOf(t, b.doomed) == nil })
	assert.False(t, bed.WestStorage.Exists(b.handles[1]))
	assert.Nil(t, claimOf(t, bed.West, namespace, "doomed"))
	assert.True(t, bed.WestStorage.Exists(b.handles[0]))
	assert.True(t, isBound(t, bed.West, namespace, "kept"))
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "kept"))
}

func TestClusterThatRefusesConnections(t *testing.T) {
	testbed.NotInShort(t)
	namespace := newNamespace(t)
	there := prepare(t, namespace)
	sent := bed.CreateClaim(t, fabric.NewClaim(namespace, "sent", fabric.Class))
	require.NoError(t, bed.West.StopAPIServer(t.Context()))
	t.Cleanup(func() { _ = bed.West.StartAPIServer(context.Background()) })

	// Chosen for west before anybody knows.
	sendToWest(t, namespace, "sent")
	bed.CreatePod(t, fabric.Prefer(fabric.NewPod(namespace, "sent", "sent"), fabric.WestNode))
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionFalse))
	there.holds(t, namespace)

	late := bed.CreateClaim(t, fabric.NewClaim(namespace, "late", fabric.Class))
	bed.CreatePod(t, fabric.Prefer(fabric.NewPod(namespace, "late", "late"), fabric.WestNode))
	assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "late"), "a new claim goes home at once")

	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "sent", "ClusterNotUsable"), "cluster west cannot be used now")
	assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "sent"), "a claim that was sent before goes home after a while")
	for _, claim := range []*corev1.PersistentVolumeClaim{sent, late} {
		assert.True(t, isBound(t, bed.Home, fabric.Storage, "pvc-"+string(claim.UID)))
	}

	require.NoError(t, bed.West.StartAPIServer(t.Context()))
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	there.settles(t, namespace)
	await.Always(t, "what went home has nothing in west", func() bool {
		return claimOf(t, bed.West, namespace, "sent") == nil && claimOf(t, bed.West, namespace, "late") == nil
	})
	again := bed.CreateClaim(t, fabric.NewClaim(namespace, "again", fabric.Class))
	bed.CreatePod(t, fabric.Prefer(fabric.NewPod(namespace, "again", "again"), fabric.WestNode))
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "again"), "west is used again")
	assert.Equal(t, "west", volumeOf(t, again).Labels[keys.Cluster])
}

func TestClusterThatDoesNotAnswer(t *testing.T) {
	namespace := newNamespace(t)
	there := prepare(t, namespace)
	sent := bed.CreateClaim(t, fabric.NewClaim(namespace, "sent", fabric.Class))
	require.NoError(t, bed.West.PauseAPIServer())
	paused := true
	t.Cleanup(func() {
		if paused {
			assert.NoError(t, bed.West.ResumeAPIServer())
		}
	})

	// A request is sent, and nobody knows what becomes of it.
	sendToWest(t, namespace, "sent")
	bed.CreatePod(t, fabric.Prefer(fabric.NewPod(namespace, "sent", "sent"), fabric.WestNode))
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionFalse))
	there.holds(t, namespace)

	bed.CreateClaim(t, fabric.NewClaim(namespace, "late", fabric.Class))
	bed.CreatePod(t, fabric.Prefer(fabric.NewPod(namespace, "late", "late"), fabric.WestNode))
	assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "late"), "a new claim goes home at once")

	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "sent", "ClusterNotUsable"),
		"which may hold a backing claim of this claim")
	await.Always(t, "there is no second backing claim", func() bool {
		return claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(sent.UID)) == nil && volumeOf(t, sent) == nil
	})

	require.NoError(t, bed.West.ResumeAPIServer())
	paused = false
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	there.settles(t, namespace)
	bed.AwaitRunning(t, namespace, "sent")
	atHome, inWest := claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(sent.UID)), claimOf(t, bed.West, namespace, "sent")
	assert.NotEqual(t, atHome == nil, inWest == nil, "one backing claim, not two and not none")
}

// sendToWest writes the choice of west's node on a claim, as kube-scheduler does
// that does not know yet that west is away.
func sendToWest(t *testing.T, namespace, name string) {
	t.Helper()
	claims := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace)
	must.Patch(t, claims, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, keys.SelectedNode, fabric.WestNode))
}

// volumeOf returns the virtual volume of a claim, nil if there is none.
func volumeOf(t *testing.T, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	t.Helper()
	return await.Volume(t, bed.Home.Client(), "pvc-"+string(claim.UID))
}

func isBound(t *testing.T, cluster *testbed.Cluster, namespace, name string) bool {
	t.Helper()
	claim := claimOf(t, cluster, namespace, name)
	return claim != nil && claim.Status.Phase == corev1.ClaimBound
}
