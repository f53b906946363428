package replicas

import (
	"crypto/sha256"
	"os"
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

// changes writes over a hundredth of what fill has written.
func changes(t *testing.T, folder string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(folder, "much"), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(make([]byte, 16<<20/100), 4<<20)
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

// TestAfterAFailoverOnlyWhatDiffersTravels has a cluster lost and found again: the copy in the other direction begins with what is there,
// and the way back sends what differs.
func TestAfterAFailoverOnlyWhatDiffersTravels(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	counts(t, namespace, virtual, "west")
	lost := folder(t, namespace)
	fill(t, lost)
	made := replicate(t, namespace, keys.Home)
	whole := sealed(t, made, time.Time{}).Status.Standbys[0].Sent
	require.Greater(t, whole, int64(16<<20))
	reversed := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) { r.Name = "reversed" })
	says(t, reversed, "SameCluster", "is in cluster west, where its copy is, too")
	has := counted(t, contentOf(t, bed.Home, homeDriver, fabric.Storage, pause(t, made).Status.Standbys[0].Versions[0].Name))
	beyond(t, namespace, has+20)

	// West answers nobody, its pods go on, and the claim goes on at home.
	require.NoError(t, bed.West.PauseAPIServer())
	resume := sync.OnceValue(bed.West.ResumeAPIServer)
	t.Cleanup(func() { _ = resume() })
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionFalse))
	over := inPhase(t, failOver(t, "over", made, "", v1alpha1.FenceDeclared), v1alpha1.MoveRetain)
	at := folder(t, namespace)
	changes(t, at)
	beyond(t, namespace, has+10)
	require.NoError(t, resume())
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	await.Until(t, "the pod in west is ended", func() bool {
		pods, err := bed.West.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0
	})
	diverged := counted(t, lost)
	assert.Greater(t, diverged, has)

	// The copy in the other direction begins with the volume in west, which stays as it is.
	now := sealed(t, reversed, time.Time{})
	t.Logf("%d bytes travelled for the whole, %d for the copy in the other direction", whole, now.Status.Standbys[0].Sent)
	assert.LessOrEqual(t, now.Status.Standbys[0].Sent, whole/10)
	copied := contentOf(t, bed.West, westDriver, namespace, now.Status.Standbys[0].Versions[0].Name)
	assert.Greater(t, counted(t, copied), has)
	assertSame(t, filepath.Join(at, "much"), filepath.Join(copied, "much"))
	assert.Equal(t, diverged, counted(t, lost), "what had been written in west is not written over")
	names := must.Kubectl(t, bed.West, "", "get", "volumesnapshots", "-n", namespace, "-o", "name")
	assert.NotContains(t, names, "basis", "the snapshot that it began with is gone")

	// A copy that somebody deletes begins with the newest version.
	pause(t, reversed)
	must.Kubectl(t, bed.West, "", "delete", "pvc", "-n", namespace, "-l", keys.ReplicaOf+"="+string(reversed.UID), "--wait=false")
	before := now.Status.Standbys[0].Sealed.Time
	must.Patch(t, objects(t).Replicas(namespace), reversed.Name, types.MergePatchType, []byte(`{"spec":{"paused":false}}`))
	now = sealed(t, reversed, before)
	assert.LessOrEqual(t, now.Status.Standbys[0].Sent, whole/10)
	removes(t, reversed)

	// The way back, and the copy that goes on after it.
	code, out, said := plugin(t, "failback", "data", "-n", namespace, "--keep-source-for", "0s", "-o", "name")
	require.Zero(t, code, said)
	back := must.Get(t, objects(t).In(namespace), strings.TrimPrefix(strings.TrimSpace(out), "volumemove.lodestone.dev/"))
	t.Logf("%d bytes travelled for the way back", back.Status.Claims[0].Sent)
	assert.LessOrEqual(t, back.Status.Claims[0].Sent, whole/10)
	assert.Equal(t, lost, folder(t, namespace))
	before = must.Get(t, objects(t).Replicas(namespace), made.Name).Status.Standbys[0].Sealed.Time
	must.Patch(t, objects(t).Replicas(namespace), made.Name, types.MergePatchType, []byte(`{"spec":{"paused":false}}`))
	now = sealed(t, made, before)
	assert.LessOrEqual(t, now.Status.Standbys[0].Sent, whole/10)
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	removes(t, made)
}

// assertSame asserts that two files have the same content.
func assertSame(t *testing.T, one, other string) {
	t.Helper()
	a, err := os.ReadFile(one)
	require.NoError(t, err)
	b, err := os.ReadFile(other)
	require.NoError(t, err)
	assert.Equal(t, sha256.Sum256(a), sha256.Sum256(b), "%s and %s differ", one, other) // the content would fill the log
}

// TestACopyBeginsWithWhatIsKeptWhereverTheProvisionerDies has copies begin with the volume that a failover has left, and removed, while
// the provisioner dies at each kind of write.
func TestACopyBeginsWithWhatIsKeptWhereverTheProvisionerDies(t *testing.T) {
	g := dying(t)
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	fill(t, folder(t, namespace))
	made := replicate(t, namespace, "west")
	sealed(t, made, time.Time{})
	pause(t, made)
	lost := folder(t, namespace)
	over := inPhase(t, failOver(t, "over", made, "", v1alpha1.FenceProven), v1alpha1.MoveRetain)
	had := counted(t, lost)
	g.rounds(t, func(int) {
		reversed := replicate(t, namespace, keys.Home, func(r *v1alpha1.VolumeReplica) { r.Name = "reversed" })
		now := sealed(t, reversed, time.Time{})
		require.LessOrEqual(t, now.Status.Standbys[0].Sent, int64(16<<20/10))
		require.Positive(t, counted(t, contentOf(t, bed.Home, homeDriver, fabric.Storage, now.Status.Standbys[0].Versions[0].Name)))
		removes(t, reversed)
		require.Equal(t, had, counted(t, lost), "what is kept is not written to")
	})
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	removes(t, made)
}
