package replicas

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// failOver makes the VolumeMove that gives claim data a version of its replica.
func failOver(t *testing.T, name string, of *v1alpha1.VolumeReplica, version string, fence v1alpha1.FailoverFence) *v1alpha1.VolumeMove {
	t.Helper()
	return must.Create(t, objects(t).In(of.Namespace), &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.VolumeMoveSpec{Claims: of.Spec.Claims, Target: v1alpha1.MoveTarget{Cluster: of.Spec.Standbys[0].Cluster},
			Failover: &v1alpha1.MoveFailover{Replica: of.Name, Version: version, Fence: fence}},
	})
}

// inPhase waits until a move is in a phase, and returns it.
func inPhase(t *testing.T, move *v1alpha1.VolumeMove, phase v1alpha1.MovePhase) (now *v1alpha1.VolumeMove) {
	t.Helper()
	await.Until(t, fmt.Sprintf("move %s is in phase %s", move.Name, phase), func() bool {
		now = must.Get(t, objects(t).In(move.Namespace), move.Name)
		if phase != v1alpha1.MoveFailed {
			require.NotEqual(t, v1alpha1.MoveFailed, now.Status.Phase, now.Status.Message)
		}
		return now.Status.Phase == phase
	}, func() any { return now.Status }, func() any { return await.Events(t, bed.Home.Client(), move.Namespace) })
	return now
}

func act(t *testing.T, move *v1alpha1.VolumeMove, action v1alpha1.MoveAction) {
	t.Helper()
	must.Patch(t, objects(t).In(move.Namespace), move.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"action":%q}}`, action))
}

// pause stops the points of a replica, and returns it once none is being made.
func pause(t *testing.T, made *v1alpha1.VolumeReplica) *v1alpha1.VolumeReplica {
	t.Helper()
	must.Patch(t, objects(t).Replicas(made.Namespace), made.Name, types.MergePatchType, []byte(`{"spec":{"paused":true}}`))
	return until(t, "no point is being made", made, func(now *v1alpha1.VolumeReplica) bool {
		return len(now.Status.Standbys) == 1 && now.Status.Standbys[0].Point == "" && now.Status.Standbys[0].Sealed != nil
	})
}

func TestAClaimGetsItsCopyWhenItsClusterIsLostAndGoesBack(t *testing.T) {
	namespace := space(t)
	counts(t, namespace, virtual, "west")
	claim := await.Claim(t, bed.Home.Client(), namespace, "data")
	made := replicate(t, namespace, keys.Home)
	sealed(t, made, time.Time{})
	now := pause(t, made)
	version := now.Status.Standbys[0].Versions[0]
	has := counted(t, contentOf(t, bed.Home, homeDriver, fabric.Storage, version.Name))
	lost := folder(t, namespace)
	beyond(t, namespace, has+20)

	// West answers nobody, and its pods go on.
	require.NoError(t, bed.West.PauseAPIServer())
	resume := sync.OnceValue(bed.West.ResumeAPIServer)
	t.Cleanup(func() { _ = resume() })
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionFalse))
	refused := inPhase(t, failOver(t, "proven", made, "", v1alpha1.FenceProven), v1alpha1.MoveFailed)
	assert.Contains(t, refused.Status.Message, "fail over with spec.failover.fence Declared")

	as := editor(t, namespace)
	// Does the application start with the copy?
	code, out, said := plugin(t, append([]string{"failover", "data", "--test", "--name", "tried", "-o", "name"}, as...)...)
	require.Zero(t, code, said)
	assert.Equal(t, "persistentvolumeclaim/tried\n", out)
	drill(t, namespace, "tried")
	tried, place := drilled(t, namespace, "tried")
	assert.Equal(t, has, tried)
	assert.True(t, strings.HasPrefix(place, filepath.Join(bed.Disks.Root, homeDriver)), place)

	code, _, said = plugin(t, append([]string{"failover", "data", "--yes", "--fence", "Declared"}, as...)...)
	assert.NotZero(t, code)
	assert.Contains(t, said, "only who may fence remoteclusters, as an administrator may, can say that nobody writes in a cluster")
	code, _, said = plugin(t, append([]string{"failover", "data", "--yes"}, as...)...)
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "fail over with spec.failover.fence Declared (--fence Declared)")
	code, _, said = plugin(t, "failover", "data", "-n", namespace, "--fence", "Declared")
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "Type data to go on: ")

	began := time.Now()
	code, out, said = plugin(t, "failover", "deployment/data", "-n", namespace, "--fence", "Declared", "--yes", "-o", "name")
	require.Zero(t, code, said)
	over, err := objects(t).In(namespace).Get(t.Context(), strings.TrimPrefix(strings.TrimSpace(out), "volumemove.lodestone.dev/"),
		metav1.GetOptions{})
	require.NoError(t, err, out)
	t.Logf("failed over after %s, pods could not use the claim for %s", time.Since(began).Round(time.Millisecond), over.Status.Downtime)
	assert.Equal(t, &v1alpha1.FailoverStatus{Version: version.Name, Cut: version.Cut, Fence: v1alpha1.FenceDeclared}, over.Status.Failover)
	assert.Equal(t, claim.UID, await.Claim(t, bed.Home.Client(), namespace, "data").UID)
	at := folder(t, namespace)
	require.True(t, strings.HasPrefix(at, bed.Disks.Root) && at != lost)
	beyond(t, namespace, has)
	await.Until(t, "no pod is left on the node of west", func() bool {
		pods := must.List(t, bed.Home.Client().CoreV1().Pods(namespace))
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName == fabric.WestNode {
				return false
			}
		}
		return true
	})
	before := counted(t, lost)
	await.Until(t, "the pod in west still writes", func() bool { return counted(t, lost) > before })

	// West is back: its pod ends, and what it wrote is kept.
	require.NoError(t, resume())
	until(t, "it says where the data is now", made, func(now *v1alpha1.VolumeReplica) bool {
		return now.Status.Primary == keys.Home && now.Status.Epoch == 2
	})
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	await.Until(t, "the pod in west is ended", func() bool {
		pods, err := bed.West.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0
	})
	diverged := counted(t, lost)
	assert.Greater(t, diverged, has)
	await.Until(t, "the copy in west is the move's", func() bool {
		behind := await.Claim(t, bed.West.Client(), namespace, "data")
		return behind != nil && behind.Labels[keys.MoveOf] == string(over.UID)
	}, func() any { return inPhase(t, over, v1alpha1.MoveRetain).Status.Message })
	await.Until(t, "it says what is kept", func() bool {
		return strings.Contains(inPhase(t, over, v1alpha1.MoveRetain).Status.Message, "kubectl lodestone failback "+over.Name)
	}, func() any { return inPhase(t, over, v1alpha1.MoveRetain).Status.Message })

	// And back, with what was written at home; what had diverged stays in a snapshot until it is given up.
	atHome := beyond(t, namespace, counted(t, at)+5)
	code, _, said = plugin(t, append([]string{"failback", "data", "--keep-source-for", "0s"}, as...)...)
	require.Zero(t, code, said)
	assert.Equal(t, lost, folder(t, namespace))
	beyond(t, namespace, atHome)
	over = inPhase(t, over, v1alpha1.MoveRetain)
	assert.Contains(t, over.Status.Message, "as it was before it is in VolumeSnapshot")
	names := must.Kubectl(t, bed.West, "", "get", "volumesnapshots", "-n", namespace, "-l", keys.MoveOf+"="+string(over.UID), "-o",
		"jsonpath={.items[*].metadata.name}")
	assert.Equal(t, diverged, counted(t, contentOf(t, bed.West, westDriver, namespace, names)), "what was written in west is not lost")
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	names = must.Kubectl(t, bed.West, "", "get", "volumesnapshots", "-n", namespace, "-o", "name")
	assert.Empty(t, names)
	removes(t, made)
}

func TestAnEarlierVersionComesBackInPlaceOfWhatAnApplicationSpoiled(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	// More points may come before it is paused.
	made := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) { r.Spec.Versions.Keep = 5 })
	first := sealed(t, made, time.Time{})
	good := first.Status.Standbys[0].Versions[0]
	sealed(t, made, good.Cut.Time)
	pause(t, made)
	spoiled := folder(t, namespace)
	has := counted(t, contentOf(t, bed.West, westDriver, namespace, good.Name))

	over := inPhase(t, failOver(t, "over", made, good.Name, v1alpha1.FenceProven), v1alpha1.MoveRetain)
	assert.Equal(t, v1alpha1.FenceProven, over.Status.Failover.Fence)
	later := counted(t, spoiled)
	assert.Greater(t, later, has, "the source goes on until it is fenced, and stays")
	at := folder(t, namespace)
	require.NotEqual(t, spoiled, at)
	beyond(t, namespace, has)
	assert.Equal(t, later, counted(t, spoiled), "nobody writes there any more")
	says(t, made, "Paused", "spec.paused is set")
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	await.Until(t, "the twin is gone", func() bool {
		return await.Claim(t, bed.Home.Client(), fabric.Storage, "pvc-"+string(await.Claim(t, bed.Home.Client(), namespace, "data").UID)) == nil
	})
	removes(t, made)
	beyond(t, namespace, counted(t, at))
}

func TestAFailoverIsRefusedInWordsWhereItCannotBe(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	wanted := &v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data"}, Spec: v1alpha1.VolumeReplicaSpec{
		Claims: []string{"data"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: "west"}}}}
	says := func(name, version, text string) {
		t.Helper()
		assert.Contains(t, inPhase(t, failOver(t, name, wanted, version, v1alpha1.FenceProven), v1alpha1.MoveFailed).Status.Message, text)
	}
	says("none", "", `there is no VolumeReplica "data" in namespace `+namespace+` that has begun`)
	made := replicate(t, namespace, "west")
	sealed(t, made, time.Time{})
	says("no-version", "nothing", `VolumeReplica "data" has no version "nothing": name one of those in its status`)
	wanted.Spec.Standbys[0].Cluster = keys.Home
	says("elsewhere", "", `VolumeReplica "data" has its versions in cluster west: name that as the target`)
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, "other", virtual))
	wanted.Spec.Claims = []string{"other"}
	says("unbound", "", `claim "other" has no volume that Lodestone made`)
	removes(t, made)
}
