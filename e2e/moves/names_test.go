package moves

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
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// behind returns the real claim that a claim's volume names.
func behind(t *testing.T, namespace, claim string) backings.Ref {
	t.Helper()
	ref, err := backings.RefOf(await.Volume(t, bed.Home.Client(), await.Claim(t, bed.Home.Client(), namespace, claim).Spec.VolumeName))
	require.NoError(t, err)
	return ref
}

// moved moves a claim to a real class of a cluster, and returns what the move says when
// it is done and nothing of it is left.
func moved(t *testing.T, namespace, claim, cluster, class string) *v1alpha1.VolumeMove {
	t.Helper()
	from := folder(t, namespace, claim)
	made := move(t, namespace, claim, cluster, func(m *v1alpha1.VolumeMove) { m.Name, m.GenerateName, m.Spec.ClassName = "", "to-", class })
	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	at := folder(t, namespace, claim)
	assert.NotEqual(t, from, at)
	counts(t, at, counted(t, at)+10)
	nothingLeft(t, namespace, done)
	return done
}

// leftOver makes a claim in west that is nobody's at home.
func leftOver(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claims := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace)
	var made *corev1.PersistentVolumeClaim
	await.Until(t, "west has the namespace", func() bool {
		_, err := bed.West.Client().CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		return err == nil
	})
	_, err := claims.Create(t.Context(), fabric.NewClaim(namespace, name, fabric.WestNow), metav1.CreateOptions{})
	require.NoError(t, err)
	await.Until(t, "the left-over is bound", func() bool {
		made = await.Claim(t, bed.West.Client(), namespace, name)
		return made.Status.Phase == corev1.ClaimBound
	})
	t.Cleanup(func() { _ = claims.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	return made
}

// grows has a claim grow, and waits until it has.
func grows(t *testing.T, namespace, claim, size string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), claim, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	await.Until(t, "claim "+claim+" has grown", func() bool {
		has := await.Claim(t, bed.Home.Client(), namespace, claim).Status.Capacity[corev1.ResourceStorage]
		return has.String() == size
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

func TestAVolumeGoesFromClassToClassWithinARemoteCluster(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	class(t, namespace, fabric.HomeWait)
	deploysIn(t, namespace, namespace, "data")
	moved(t, namespace, "data", "west", fabric.WestWait)
	require.Equal(t, "data", behind(t, namespace, "data").Name)
	for _, row := range []struct {
		class string
		own   bool
	}{{fabric.WestNow, false}, {fabric.WestWait, true}, {fabric.WestNow, false}} {
		done := moved(t, namespace, "data", "west", row.class)
		t.Log("downtime", done.Status.Downtime.Duration, spans(done))
		assert.Equal(t, row.class, realClass(t, namespace, "data"))
		assert.Equal(t, row.own, behind(t, namespace, "data").Name == "data", "the name is taken while the copy of before is there")
	}
	// Under whatever name: it grows, and is made anew when somebody deletes it.
	grows(t, namespace, "data", "2Gi")
	ref := behind(t, namespace, "data")
	there := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace)
	require.NoError(t, there.Delete(t.Context(), ref.Name, metav1.DeleteOptions{}))
	core := bed.Home.Client().CoreV1()
	require.NoError(t, core.Pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	await.Until(t, "the real claim is made anew", func() bool { return behind(t, namespace, "data").UID != ref.UID },
		func() any { return await.Events(t, bed.Home.Client(), namespace) }, func() any { return await.Events(t, bed.West.Client(), namespace) })
	assert.Equal(t, ref.Name, behind(t, namespace, "data").Name)
	at := folder(t, namespace, "data")
	counts(t, at, counted(t, at)+10)

	moved(t, namespace, "data", keys.Home, "")
	assert.Nil(t, await.Claim(t, bed.West.Client(), namespace, ref.Name))
}

func TestALeftOverOfTheNameIsNotTouched(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	class(t, namespace, fabric.HomeWait)
	deploysIn(t, namespace, namespace, "data")
	before := leftOver(t, namespace, "data")
	other := leftOver(t, namespace, "pvc-"+string(await.Claim(t, bed.Home.Client(), namespace, "data").UID)+"-1")
	moved(t, namespace, "data", "west", fabric.WestWait)
	assert.NotContains(t, []string{before.Name, other.Name}, behind(t, namespace, "data").Name)
	moved(t, namespace, "data", "west", fabric.WestNow)
	ref := behind(t, namespace, "data")

	// What is deleted with the claim is its own.
	require.NoError(t, bed.Home.Client().AppsV1().Deployments(namespace).Delete(t.Context(), "data", metav1.DeleteOptions{}))
	require.NoError(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "data", metav1.DeleteOptions{}))
	await.Until(t, "the real claim is gone", func() bool { return await.Claim(t, bed.West.Client(), namespace, ref.Name) == nil },
		func() any { return await.Events(t, bed.Home.Client(), namespace) })
	for _, left := range []*corev1.PersistentVolumeClaim{before, other} {
		now := await.Claim(t, bed.West.Client(), namespace, left.Name)
		require.NotNil(t, now)
		assert.Equal(t, left.UID, now.UID)
		assert.Equal(t, left.Labels, now.Labels)
		assert.Equal(t, left.Spec, now.Spec)
		assert.Nil(t, now.DeletionTimestamp)
	}
}

func TestAMoveWithinARemoteClusterThatIsAbortedLeavesNothing(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	class(t, namespace, fabric.HomeWait)
	deploysIn(t, namespace, namespace, "data")
	moved(t, namespace, "data", "west", fabric.WestWait)
	from, ref := folder(t, namespace, "data"), behind(t, namespace, "data")
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce} {
		made := move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) { m.Name, m.GenerateName, m.Spec.ClassName = "", "within-", fabric.WestNow })
		reaches(t, made, phase, v1alpha1.MoveFence, v1alpha1.MoveFinalSync)
		act(t, made, v1alpha1.ActionAbort)
		over := reaches(t, made, v1alpha1.MoveAborted, v1alpha1.MoveDone, v1alpha1.MoveFailed)
		require.Equal(t, v1alpha1.MoveAborted, over.Status.Phase, over.Status.Message)
		nothingLeft(t, namespace, made)
		assert.Equal(t, ref, behind(t, namespace, "data"))
		counts(t, from, counted(t, from)+10)
	}
}

func TestANameThatIsTakenIsRefusedWhereNobodyFindsAnother(t *testing.T) {
	namespace := space(t)
	deploys(t, namespace, "data")
	leftOver(t, namespace, "data")
	nodes := bed.Home.Client().CoreV1().Nodes()
	say := func(value string) {
		_, err := nodes.Patch(context.Background(), fabric.WestNode, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, keys.Claims, value), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	// The program of the node would put the label on again.
	require.NoError(t, virtualNode.Stop())
	say("null")
	t.Cleanup(func() {
		var err error
		virtualNode, err = bed.StartVirtualNode(context.Background())
		require.NoError(t, err)
		require.NoError(t, bed.AwaitNode(context.Background(), fabric.WestNode, corev1.ConditionTrue))
	})
	var refused *v1alpha1.VolumeMove
	await.Until(t, "it is known that the node says nothing", func() bool {
		refused = reaches(t, move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) { m.Name, m.GenerateName, m.Spec.DryRun = "", "dry-", true }),
			v1alpha1.MoveFailed, v1alpha1.MoveChecked)
		return refused.Status.Phase == v1alpha1.MoveFailed
	})
	assert.Contains(t, refused.Status.Message, "remove that claim there if its data is not needed")
}
