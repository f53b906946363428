package moves

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cmd"
	statuses "github.com/lodestone-storage/lodestone/kubectl-lodestone/status"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// contexts is a kubeconfig of both clusters.
var contexts = sync.OnceValues(func() (string, error) { return bed.Contexts() })

// plugin runs the plugin and returns its exit code and what it wrote.
func plugin(t *testing.T, args ...string) (code int, out, said string) {
	t.Helper()
	kubeconfig, err := contexts()
	require.NoError(t, err)
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	code = cmd.Run(t.Context(), streams, append(args, "--kubeconfig", kubeconfig)...)
	t.Logf("$ kubectl lodestone %v\n%s%s(exit code %d)", args, stderr, stdout, code)
	return code, stdout.String(), stderr.String()
}

func TestThePluginMovesAVolumeAndSaysHowThatGoes(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")

	code, out, said := plugin(t, "move", "data", "-n", namespace, "--target-cluster", "west")
	require.Zero(t, code, said)
	assert.Contains(t, out, "claim data is now in cluster west; pods could not use it for ")
	assert.Contains(t, out, "the copy at the source is kept for 1h")
	assert.Contains(t, said, "data: Quiesce")
	counts(t, folder(t, namespace, "data"), 20)

	code, out, said = plugin(t, "move", "data", "-n", namespace, "--target-cluster", keys.Home, "--dry-run")
	require.Zero(t, code, "its source is still kept, and that forbids nothing: %s%s", out, said)

	code, out, _ = plugin(t, "move", "status", "-n", namespace)
	require.Zero(t, code)
	assert.Contains(t, out, "NAME")

	list := must.List(t, moves(t, namespace))
	var done *v1alpha1.VolumeMove
	for i := range list.Items {
		if !list.Items[i].Spec.DryRun {
			done = &list.Items[i]
		}
	}
	require.NotNil(t, done)
	code, _, said = plugin(t, "move", "abort", done.Name, "-n", namespace)
	assert.Equal(t, 3, code, "it is committed: %s", said)
	code, _, said = plugin(t, "move", "finalize", done.Name, "-n", namespace)
	require.Zero(t, code, said)
	reaches(t, done, v1alpha1.MoveDone)
}

func TestTheMoveGoesOnWhenThePluginIsStopped(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	code, out, said := plugin(t, "move", "data", "-n", namespace, "--target-cluster", "west", "--detach", "--keep-source-for", "1s")
	require.Zero(t, code, said)
	assert.Contains(t, out, "volumemove/data-")
	list := must.List(t, moves(t, namespace))
	require.Len(t, list.Items, 1)
	done := reaches(t, &list.Items[0], v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	assert.Equal(t, time.Second, done.Spec.KeepSourceFor.Duration)
}

func TestAMoveThatIsForbiddenChangesNothing(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	makes(t, fabric.NewClaim(namespace, "data", fabric.Class), fabric.AtHome(application(namespace, "data", "data")))
	for name, row := range map[string]struct {
		args []string
		code int
		says string
	}{
		"where it is":                 {[]string{"data", "--target-cluster", keys.Home}, 3, "is there already"},
		"a cluster that is not there": {[]string{"data", "--target-cluster", "nowhere"}, 1, `there is no RemoteCluster "nowhere"; there is: west`},
		"a node that is not there":    {[]string{"data", "--target-node", "nowhere"}, 1, `there is no node "nowhere"; there are: `},
		"a claim that is not there": {[]string{"absent", "--target-cluster", "west"}, 1, `there is no claim "absent" in namespace "` + namespace +
			`"; there is: data`},
	} {
		code, _, said := plugin(t, append([]string{"move", "-n", namespace}, row.args...)...)
		assert.Equal(t, row.code, code, name)
		assert.Contains(t, said, row.says, name)
	}
	await.Until(t, "a refused move leaves nothing that gets in the way", func() bool {
		list, err := moves(t, namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
	folder := folder(t, namespace, "data")
	counts(t, folder, counted(t, folder)+10)
}

func TestADryRunSaysWhatWouldBeAndDoesNothing(t *testing.T) {
	namespace := space(t)
	deploys(t, namespace, "data")
	from := folder(t, namespace, "data")
	code, out, said := plugin(t, "move", "data", "-n", namespace, "--target-cluster", "west", "--dry-run")
	require.Zero(t, code, said)
	assert.Contains(t, out, "would move claim data from class home-wait in home to class west-wait in west; pod data-")
	code, _, said = plugin(t, "move", "data", "-n", namespace, "--target-cluster", keys.Home, "--dry-run")
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "is there already")

	list := must.List(t, moves(t, namespace))
	for i := range list.Items {
		assert.NotNil(t, list.Items[i].DeletionTimestamp, "a dry run leaves nothing")
	}
	claim := await.Claim(t, bed.Home.Client(), namespace, "data")
	assert.NotContains(t, claim.Finalizers, keys.MoveFinalizer)
	assert.Equal(t, from, folder(t, namespace, "data"))

	// A quota in the way is told before anything is made.
	fewer := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{fabric.HomeNow + ".storageclass.storage.k8s.io/requests.storage": resource.MustParse("1Mi")}}}
	quotas := bed.Home.Client().CoreV1().ResourceQuotas(fabric.Storage)
	must.Create(t, quotas, fewer)
	t.Cleanup(func() { _ = quotas.Delete(context.Background(), "full", metav1.DeleteOptions{}) })
	class(t, namespace, fabric.HomeWait)
	deploysIn(t, namespace, namespace, "other")
	await.Until(t, "the quota is heeded", func() bool {
		code, _, said = plugin(t, "move", "other", "-n", namespace, "--target-cluster", keys.Home, "--class", fabric.HomeNow, "--dry-run")
		return code == 3
	})
	assert.Contains(t, said, "exceeded quota")
}

func TestAMoveThatIsDoneGoesBackAndIsForgotten(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	code, out, said := plugin(t, "move", "data", "-n", namespace, "--target-cluster", "west", "-o", "json", "--ttl", "1s")
	require.Zero(t, code, said)
	written := &v1alpha1.VolumeMove{}
	require.NoError(t, json.Unmarshal([]byte(out), written))
	assert.Equal(t, "west", written.Status.Target.Cluster)
	west := folder(t, namespace, "data")
	last := counts(t, west, counted(t, west)+20)

	code, out, said = plugin(t, "move", "rollback", written.Name, "-n", namespace, "--keep-source-for", "0s")
	require.Zero(t, code, said)
	assert.Contains(t, said, "what was written since is moved back into the copy that move "+written.Name+" kept")
	assert.Contains(t, out, "claim data is now in cluster home")
	home := folder(t, namespace, "data")
	assert.NotEqual(t, west, home)
	counts(t, home, last+10)
	await.Until(t, "a VolumeMove goes when its time is over", func() bool {
		_, err := moves(t, namespace).Get(t.Context(), written.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	nothingLeft(t, namespace, written)
}

func TestEndingThePluginEndsNoMove(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data", heavy)
	kubeconfig, err := contexts()
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(t.Context())
	streams, _, _, stderr := genericiooptions.NewTestIOStreams()
	ended := make(chan int, 1)
	go func() {
		ended <- cmd.Run(ctx, streams, "move", "data", "-n", namespace, "--target-cluster", "west", "--bandwidth-limit", "1Mi",
			"--keep-source-for", "1s", "--kubeconfig", kubeconfig)
	}()
	var made *v1alpha1.VolumeMove
	await.Until(t, "the move copies", func() bool {
		list := must.List(t, moves(t, namespace))
		if len(list.Items) == 1 {
			made = &list.Items[0]
		}
		return made != nil && made.Status.Phase == v1alpha1.MovePreCopy
	})
	interrupt()
	assert.NotZero(t, <-ended)
	assert.Contains(t, stderr.String(), "the move goes on: kubectl lodestone move status "+made.Name)
	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	assert.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
}

func TestThePluginEndsWhereTheNamespaceOfAMoveIsDeleted(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		phase v1alpha1.MovePhase
		// args are those of move, beside the claim and the target.
		args  []string
		claim func(namespace, name string) *corev1.PersistentVolumeClaim
	}{
		"while it copies": {phase: v1alpha1.MovePreCopy, args: []string{"--bandwidth-limit", "32Ki"},
			claim: func(namespace, name string) *corev1.PersistentVolumeClaim {
				return fabric.NewClaim(namespace, name, fabric.Class)
			}},
		"in the stop": {phase: v1alpha1.MoveFinalSync, args: []string{"--bandwidth-limit", "32Ki", "--offline"}, claim: forOnePod},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			deploysWith(t, row.claim(namespace, "data"), heavy)
			stderr, ended := moving(t, namespace, row.phase, row.args...)
			must.Delete(t, bed.Home.Client().CoreV1().Namespaces(), namespace)
			assert.Equal(t, 1, <-ended)
			lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
			assert.Equal(t, "error: the move of data ends, because namespace "+namespace+" was deleted, and its claims with it: what the move "+
				"has made elsewhere is removed by itself", lines[len(lines)-1])
			await.Until(t, "the namespace is gone", func() bool {
				_, err := bed.Home.Client().CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
				return apierrors.IsNotFound(err)
			}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
			claims := must.List(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace))
			assert.Empty(t, claims.Items, "what was made there")
		})
	}
}

func TestThePluginEndsWhereTheClaimOfAMoveIsDeletedInTheStop(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploysWith(t, forOnePod(namespace, "data"), heavy)
	stderr, ended := moving(t, namespace, v1alpha1.MoveFinalSync, "--bandwidth-limit", "32Ki", "--offline")
	must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), "data")
	assert.Equal(t, 1, <-ended)
	t.Log(stderr.String())
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	assert.Contains(t, lines[len(lines)-1], "claim data was deleted")
}

// moving has the plugin move claim data to west, and waits until that is in a phase. It returns what the plugin writes, and how it ends.
func moving(t *testing.T, namespace string, phase v1alpha1.MovePhase, args ...string) (stderr *bytes.Buffer, ended chan int) {
	t.Helper()
	kubeconfig, err := contexts()
	require.NoError(t, err)
	streams, _, _, stderr := genericiooptions.NewTestIOStreams()
	ended = make(chan int, 1)
	go func() {
		ended <- cmd.Run(t.Context(), streams, append([]string{"move", "data", "-n", namespace, "--target-cluster", "west", "--kubeconfig",
			kubeconfig}, args...)...)
	}()
	await.Until(t, "the move is in "+string(phase), func() bool {
		list := must.List(t, moves(t, namespace))
		return len(list.Items) == 1 && list.Items[0].Status.Phase == phase
	})
	return stderr, ended
}

// TestAbortOfAClaimMeansTheMoveThatRuns has somebody mistype another move while one runs, as an object, which stays when it is refused.
func TestAbortOfAClaimMeansTheMoveThatRuns(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data", heavy)
	from := folder(t, namespace, "data")
	running := move(t, namespace, "data", "west", slowly)
	reaches(t, running, v1alpha1.MovePreCopy)
	refused := reaches(t, move(t, namespace, "data", "wets", func(m *v1alpha1.VolumeMove) { m.Name = "mistyped" }), v1alpha1.MoveFailed)
	require.True(t, running.CreationTimestamp.Before(&refused.CreationTimestamp), "the refused one is newer")

	code, out, said := plugin(t, "move", "abort", "data", "-n", namespace)
	require.Zero(t, code, said)
	assert.Equal(t, "volumemove/"+running.Name+": asked to abort\n", out)
	reaches(t, running, v1alpha1.MoveAborted)
	assert.Equal(t, from, folder(t, namespace, "data"))
	code, _, said = plugin(t, "move", "abort", "data", "-n", namespace)
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "is over (")
}

func TestTheDashboardShowsAMoveAndHowFarItIs(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data", heavy)
	kubeconfig, err := contexts()
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(t.Context())
	out, writes := io.Pipe()
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	streams.Out = writes
	ended := make(chan int, 1)
	go func() { ended <- cmd.Run(ctx, streams, "dashboard", "-n", namespace, "--kubeconfig", kubeconfig) }()
	t.Cleanup(func() {
		interrupt()
		assert.Zero(t, <-ended)
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, out) }()

	shown := func() *statuses.Move {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSpace(line)+"status.json", nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		var all statuses.Status
		if json.NewDecoder(response.Body).Decode(&all) != nil || len(all.Moves) != 1 {
			return nil
		}
		return &all.Moves[0]
	}
	made := move(t, namespace, "data", "west", slowly)
	far := int64(0)
	await.Until(t, "the move gets further on the page", func() bool {
		m := shown()
		if m == nil || m.Phase != string(v1alpha1.MovePreCopy) || m.BytesTotal == 0 || m.Bytes == 0 {
			return false
		}
		assert.Equal(t, []string{made.Name, keys.Home, "west", statuses.Going}, []string{m.Name, m.Source, m.Target, m.State})
		assert.LessOrEqual(t, m.Bytes, m.BytesTotal)
		if far == 0 {
			far = m.Bytes
		}
		return m.Bytes > far
	}, func() any { return shown() }, func() any { return seen(t, made).Status })
	abort(t, made)
	await.Until(t, "and its end is shown", func() bool { return shown() != nil && shown().State == statuses.Aborted },
		func() any { return shown() })
	reaches(t, made, v1alpha1.MoveAborted)
}
