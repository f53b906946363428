package moves

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// nothingLeft waits until nothing of a move is left but its VolumeMove and, where the
// data stayed, nothing at the target.
func nothingLeft(t *testing.T, namespace string, made *v1alpha1.VolumeMove) {
	t.Helper()
	of := metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)}
	left := func() []string {
		var names []string
		for _, place := range []struct {
			cluster   string
			namespace string
		}{{"home", fabric.Storage}, {"west", namespace}} {
			cluster := bed.West
			if place.cluster == "home" {
				cluster = bed.Home
			}
			core := cluster.Client().CoreV1()
			pods := must.List(t, core.Pods(place.namespace), of)
			claims := must.List(t, core.PersistentVolumeClaims(place.namespace), of)
			secrets := must.List(t, core.Secrets(place.namespace), of)
			for _, pod := range pods.Items {
				names = append(names, place.cluster+" pod "+pod.Name)
			}
			for _, claim := range claims.Items {
				names = append(names, place.cluster+" claim "+claim.Name)
			}
			for _, secret := range secrets.Items {
				names = append(names, place.cluster+" Secret "+secret.Name)
			}
		}
		space := must.Get(t, bed.Home.Client().CoreV1().Namespaces(), namespace)
		if space.Labels[keys.Moving] != "" {
			names = append(names, "home the label of the namespace")
		}
		return names
	}
	await.Until(t, "nothing of the move is left", func() bool { return len(left()) == 0 }, func() any { return left() })
}

// keysOf returns the Secrets of the movers of a move, and a function that makes them once
// more, as requests do that arrive late.
func keysOf(t *testing.T, namespace string, made *v1alpha1.VolumeMove) (n int, again func()) {
	t.Helper()
	var late []func()
	for _, secrets := range []corev1client.SecretInterface{bed.Home.Client().CoreV1().Secrets(fabric.Storage),
		bed.West.Client().CoreV1().Secrets(namespace)} {
		list := must.List(t, secrets, metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)})
		for i := range list.Items {
			found := &list.Items[i]
			late = append(late, func() {
				must.Create(t, secrets,
					&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: found.Name, Labels: found.Labels, OwnerReferences: found.OwnerReferences},
						Data: found.Data})
			})
		}
	}
	return len(late), func() {
		for _, create := range late {
			create()
		}
	}
}

func TestAMoveThatIsAbortedLeavesTheApplicationWhereItWas(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	from := folder(t, namespace, "data")
	for _, row := range []struct {
		in      v1alpha1.MovePhase
		deleted bool
	}{{in: v1alpha1.MoveProvision}, {in: v1alpha1.MovePreCopy}, {in: v1alpha1.MoveQuiesce}, {in: v1alpha1.MovePreCopy, deleted: true}} {
		made := move(t, namespace, "data", "west")
		reaches(t, made, row.in, v1alpha1.MoveFence, v1alpha1.MoveFinalSync)
		again := func() {}
		if row.deleted {
			var n int
			n, again = keysOf(t, namespace, made)
			require.Equal(t, 2, n, "both movers have keys")
			must.Delete(t, moves(t, namespace), made.Name)
		} else {
			act(t, made, v1alpha1.ActionAbort)
			over := reaches(t, made, v1alpha1.MoveAborted, v1alpha1.MoveDone, v1alpha1.MoveFailed)
			require.Equal(t, v1alpha1.MoveAborted, over.Status.Phase, over.Status.Message)
			must.Delete(t, moves(t, namespace), made.Name)
		}
		await.Until(t, "the VolumeMove is gone", func() bool {
			_, err := moves(t, namespace).Get(t.Context(), made.Name, metav1.GetOptions{})
			return err != nil
		})
		nothingLeft(t, namespace, made)
		again()
		nothingLeft(t, namespace, made)
		assert.Equal(t, from, folder(t, namespace, "data"), "aborted in %s", row.in)
		counts(t, from, counted(t, from)+10)
		secrets := must.List(t, bed.Home.Client().CoreV1().Secrets(fabric.System),
			metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)})
		assert.Empty(t, secrets.Items, "the record goes with the VolumeMove")
	}
}

// keepsSource has a move keep its copy at the source for longer than any test lasts.
func keepsSource(m *v1alpha1.VolumeMove) {
	m.Spec.KeepSourceFor = &metav1.Duration{Duration: time.Hour}
}

func TestAClaimIsMovedAgainWhileAnEarlierCopyOfItIsKept(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	kept := folder(t, namespace, "data")
	real, _ := realOf(t, namespace, "data")
	first := reaches(t, move(t, namespace, "data", "west", keepsSource), v1alpha1.MoveRetain)
	west := folder(t, namespace, "data")
	realInWest, _ := realOf(t, namespace, "data")
	require.NotEqual(t, kept, west)
	counts(t, west, counted(t, west)+10)
	old := counted(t, kept)

	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce} {
		second := move(t, namespace, "data", keys.Home, keepsSource)
		reaches(t, second, phase, v1alpha1.MoveFence, v1alpha1.MoveFinalSync)
		act(t, second, v1alpha1.ActionAbort)
		require.Equal(t, v1alpha1.MoveAborted, reaches(t, second, v1alpha1.MoveAborted, v1alpha1.MoveRetain).Status.Phase)
		must.Delete(t, moves(t, namespace), second.Name)
		nothingLeft(t, namespace, second)
		await.Until(t, "the VolumeMove is gone", func() bool {
			_, err := moves(t, namespace).Get(t.Context(), second.Name, metav1.GetOptions{})
			return err != nil
		})
		assert.Equal(t, v1alpha1.MoveRetain, reaches(t, first, v1alpha1.MoveRetain).Status.Phase, "it keeps its copy")
		assert.NotNil(t, await.Volume(t, bed.Home.Client(), real.Name), "the copy is there")
		assert.Equal(t, old, counted(t, kept), "the copy is as it was")
		assert.Equal(t, west, folder(t, namespace, "data"))
		counts(t, west, counted(t, west)+10)
	}

	second := move(t, namespace, "data", keys.Home, keepsSource)
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce, v1alpha1.MoveFinalSync} {
		now := reaches(t, second, phase, v1alpha1.MoveVerifying, v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain)
		there := await.Volume(t, bed.Home.Client(), real.Name)
		if again := reaches(t, second, record.Order...); record.Before(again.Status.Phase, v1alpha1.MoveCommit) {
			assert.NotNil(t, there, "the first copy goes only after Commit, and it is in %s", now.Status.Phase)
		}
	}
	reaches(t, second, v1alpha1.MoveRetain)
	back := folder(t, namespace, "data")
	assert.NotContains(t, []string{kept, west}, back, "what was kept is no basis for the new copy")
	counts(t, back, counted(t, west)+10)
	done := reaches(t, first, v1alpha1.MoveDone)
	assert.Equal(t, "a later move has given the claims other volumes, and the copy at the source is gone", done.Status.Message)
	await.Until(t, "the first copy is gone", func() bool { return await.Volume(t, bed.Home.Client(), real.Name) == nil })
	assert.NotNil(t, await.Volume(t, bed.West.Client(), realInWest.Name), "the second move keeps its own")

	act(t, second, v1alpha1.ActionFinalize)
	reaches(t, second, v1alpha1.MoveDone)
	await.Until(t, "the second copy is gone", func() bool { return await.Volume(t, bed.West.Client(), realInWest.Name) == nil })
	requireNoAlarm(t, namespace, "data")
	counts(t, back, counted(t, back)+10)
}

func TestAProvisionerThatIsKilledGoesOnWithAMove(t *testing.T) {
	namespace := space(t)
	deploys(t, namespace, "data")
	to := map[bool]string{true: "west", false: keys.Home}
	west := true
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveFence, v1alpha1.MoveCommit} {
		made := move(t, namespace, "data", to[west])
		reaches(t, made, phase, v1alpha1.MoveRetain)
		// Not as SIGKILL would, but between two steps; steps that are cut off are the
		// business of the tests of decisions.
		restart(t)
		done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
		require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
		nothingLeft(t, namespace, made)
		at := folder(t, namespace, "data")
		counts(t, at, counted(t, at)+10)
		must.Delete(t, moves(t, namespace), made.Name)
		west = !west
	}
	claim := await.Claim(t, bed.Home.Client(), namespace, "data")
	assert.Equal(t, corev1.ClaimBound, claim.Status.Phase)
}

func TestAMoveWhoseTargetIsGoneIsGivenUp(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	deploys(t, namespace, "data", heavy)
	from := folder(t, namespace, "data")
	made := move(t, namespace, "data", "west", slowly)
	reaches(t, made, v1alpha1.MovePreCopy)
	code, _, said := plugin(t, "move", "give-up", made.Name, "-n", namespace)
	assert.Equal(t, 3, code)
	assert.Contains(t, said, `cluster "west" answers`)

	require.NoError(t, bed.West.PauseAPIServer())
	defer func() { require.NoError(t, bed.West.ResumeAPIServer()) }()
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionFalse))
	act(t, made, v1alpha1.ActionAbort)
	says(t, made, "kubectl lodestone move give-up "+made.Name)
	counts(t, from, counted(t, from)+10)
	claim := await.Claim(t, bed.Home.Client(), namespace, "data")
	assert.False(t, slices.Contains(claim.Finalizers, keys.MoveFinalizer), "it is free")

	// It can be moved elsewhere before that end is cleaned up.
	next := move(t, namespace, "data", keys.Home, toNode(elsewhere(t, namespace)))
	done := reaches(t, next, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	at := folder(t, namespace, "data")
	require.NotEqual(t, from, at)
	counts(t, at, counted(t, at)+10)

	// Not everybody who may move volumes may say that a cluster is gone.
	client, err := clients.NewVolumeMoveClient(tenant(t, namespace))
	require.NoError(t, err)
	_, err = client.In(namespace).Patch(t.Context(), made.Name, types.MergePatchType, []byte(`{"spec":{"action":"GiveUp"}}`),
		metav1.PatchOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
	code, _, said = plugin(t, "move", "give-up", made.Name, "-n", namespace)
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "short outage")
	code, _, said = plugin(t, "move", "give-up", made.Name, "-n", namespace, "--away", "0s")
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "nothing was changed")
	code, _, said = plugin(t, "move", "give-up", made.Name, "-n", namespace, "--away", "0s", "--yes")
	require.Zero(t, code, said)
	over := reaches(t, made, v1alpha1.MoveAborted, v1alpha1.MoveDone, v1alpha1.MoveFailed)
	require.Equal(t, v1alpha1.MoveAborted, over.Status.Phase, over.Status.Message)
	assert.Contains(t, over.Status.Message, "cluster west was given up")
	assert.Contains(t, over.Status.Message, "real claim "+namespace+"/data")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, made.Name, "GivenUp"), "remove by hand")
	counts(t, at, counted(t, at)+10)
}

// targetOf waits for the folder of a move's target in west.
func targetOf(t *testing.T, namespace string, made *v1alpha1.VolumeMove) (path string) {
	t.Helper()
	of := metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)}
	await.Until(t, "the target has a volume", func() bool {
		claims, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), of)
		require.NoError(t, err)
		if len(claims.Items) == 0 || claims.Items[0].Spec.VolumeName == "" {
			return false
		}
		real := await.Volume(t, bed.West.Client(), claims.Items[0].Spec.VolumeName)
		if real == nil {
			return false
		}
		path, err = bed.Disks.Of(real)
		return err == nil
	})
	return path
}

// noise is content that nothing else has.
func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// spoil turns bits of a file, here and there, until it is stopped.
func spoil(path string, size int64) (stop func()) {
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ending:
				return
			default:
			}
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				continue
			}
			one, at := make([]byte, 1), rand.Int64N(size)
			if _, err := file.ReadAt(one, at); err == nil {
				_, _ = file.WriteAt([]byte{one[0] ^ 1<<rand.IntN(8)}, at)
			}
			_ = file.Close()
		}
	}()
	return func() { close(ending); <-ended }
}

func TestACopyThatIsSpoiltIsNotUsed(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	from := folder(t, namespace, "data")
	rows := noise(1 << 20)
	require.NoError(t, os.MkdirAll(filepath.Join(from, "table"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(from, "table", "rows"), rows, 0o644))

	made := move(t, namespace, "data", "west")
	to := targetOf(t, namespace, made)
	require.NotEqual(t, from, to)
	reaches(t, made, v1alpha1.MoveQuiesce, v1alpha1.MoveFence, v1alpha1.MoveFinalSync)
	stop := spoil(filepath.Join(to, "table", "rows"), int64(len(rows)))
	defer stop()
	over := reaches(t, made, v1alpha1.MoveFailed, v1alpha1.MoveDone, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveFailed, over.Status.Phase, over.Status.Message)
	assert.Contains(t, over.Status.Message, "table/rows")
	t.Log(over.Status.Message)

	assert.Equal(t, from, folder(t, namespace, "data"))
	counts(t, from, counted(t, from)+10)
	now, err := os.ReadFile(filepath.Join(from, "table", "rows"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(rows, now), "the source is as it was")
	nothingLeft(t, namespace, made)
}

func TestASourceThatIsAnotherMountIsRefusedByAMoverThatKnowsNothing(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	begins(t, namespace, application(namespace, "data", "data"), "data")
	from := folder(t, namespace, "data")
	rows := noise(12 << 20)
	require.NoError(t, os.WriteFile(filepath.Join(from, "rows"), rows, 0o644))

	made := move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) {
		limit := resource.MustParse("1Mi")
		m.Spec.BandwidthLimit = &limit
	})
	reaches(t, made, v1alpha1.MoveFinalSync)
	// What is mounted now is empty, and the mover that saw the volume is gone.
	require.NoError(t, os.Rename(from, from+".away"))
	require.NoError(t, os.Mkdir(from, 0o755))
	pods := bed.Home.Client().CoreV1().Pods(fabric.Storage)
	require.NoError(t, pods.DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)}))
	over := reaches(t, made, v1alpha1.MoveFailed, v1alpha1.MoveDone, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveFailed, over.Status.Phase, over.Status.Message)
	assert.Contains(t, over.Status.Message, "not what the first pass saw")
	t.Log(over.Status.Message)

	require.NoError(t, os.Remove(from))
	require.NoError(t, os.Rename(from+".away", from))
	assert.Equal(t, from, folder(t, namespace, "data"))
	now, err := os.ReadFile(filepath.Join(from, "rows"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(rows, now))
	nothingLeft(t, namespace, made)
}
