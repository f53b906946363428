package moves

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// into has a move go back into the copy that an earlier one keeps.
func into(earlier *v1alpha1.VolumeMove) func(*v1alpha1.VolumeMove) {
	return func(move *v1alpha1.VolumeMove) { move.Spec.Into = earlier.Name }
}

// changePages writes 1 % of the pages of 4 KiB of the file that fill made, and returns what is in it then.
func changePages(t *testing.T, folder string) []byte {
	t.Helper()
	path := filepath.Join(folder, "much")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	pages := len(content) / 4096
	for range pages / 100 {
		page := content[rand.IntN(pages)*4096:][:4096]
		for i := range page {
			page[i] = byte(rand.Uint32())
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer file.Close()
	_, err = file.Write(content)
	require.NoError(t, err)
	return content
}

// wasWritten says whether an event of a move says that the copy of an earlier one is written to.
func wasWritten(t *testing.T, made *v1alpha1.VolumeMove) bool {
	t.Helper()
	return slices.ContainsFunc(await.Events(t, bed.Home.Client(), made.Namespace), func(event string) bool {
		return strings.HasPrefix(event, "Normal VolumeMove/"+made.Name+" KeptCopyWritten: the copy of claim data that VolumeMove ")
	})
}

func acceptedWith(t *testing.T, made *v1alpha1.VolumeMove) string {
	t.Helper()
	now := must.Get(t, moves(t, made.Namespace), made.Name)
	if accepted := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.MoveAccepted); accepted != nil {
		return accepted.Message
	}
	return ""
}

func TestAMoveGoesBackIntoTheCopyThatWasKept(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	kept := folder(t, namespace, "data")
	fill(t, kept)
	real, _ := realOf(t, namespace, "data")
	policy := await.Volume(t, bed.Home.Client(), real.Name).Spec.PersistentVolumeReclaimPolicy
	first := reaches(t, move(t, namespace, "data", "west", keepsSource), v1alpha1.MoveRetain)
	west := folder(t, namespace, "data")
	realInWest, _ := realOf(t, namespace, "data")
	content := changePages(t, west)
	last := counts(t, west, counted(t, west)+10)

	second := reaches(t, move(t, namespace, "data", keys.Home, keepsSource, into(first)), v1alpha1.MoveRetain, v1alpha1.MoveFailed)
	require.Equal(t, v1alpha1.MoveRetain, second.Status.Phase, second.Status.Message)
	assert.Equal(t, kept, folder(t, namespace, "data"), "it is the same volume as before")
	counts(t, kept, last+10)
	back, err := os.ReadFile(filepath.Join(kept, "much"))
	require.NoError(t, err)
	assert.Equal(t, content, back)
	whole := first.Status.Claims[0].Sent
	t.Logf("sent %d bytes there and %d back", whole, second.Status.Claims[0].Sent)
	assert.Greater(t, whole, int64(len(content)))
	assert.Less(t, second.Status.Claims[0].Sent, whole/10, "only what changed is sent back")
	assert.Condition(t, func() bool { return wasWritten(t, second) }, "an event says that the copy is written to")
	done := reaches(t, first, v1alpha1.MoveDone)
	assert.Equal(t, "the claims have their volumes at the target, and a later move has taken the copy at the source", done.Status.Message)
	assert.Equal(t, policy, await.Volume(t, bed.Home.Client(), real.Name).Spec.PersistentVolumeReclaimPolicy)
	assert.NotNil(t, await.Volume(t, bed.West.Client(), realInWest.Name), "the way back keeps its source")

	act(t, second, v1alpha1.ActionFinalize)
	reaches(t, second, v1alpha1.MoveDone)
	await.Until(t, "the copy in west is gone", func() bool { return await.Volume(t, bed.West.Client(), realInWest.Name) == nil })
	counts(t, kept, counted(t, kept)+10)
	nothingLeft(t, namespace, first)
	nothingLeft(t, namespace, second)
}

func TestAWayBackThatIsAbortedLeavesTheCopyInUseWhole(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data", heavy)
	real, _ := realOf(t, namespace, "data")
	first := reaches(t, move(t, namespace, "data", "west", keepsSource), v1alpha1.MoveRetain)
	west := folder(t, namespace, "data")
	fill(t, west)
	second := move(t, namespace, "data", keys.Home, keepsSource, into(first), func(move *v1alpha1.VolumeMove) {
		move.Spec.BandwidthLimit = ptr.To(resource.MustParse("1Mi"))
	})
	reaches(t, second, v1alpha1.MovePreCopy)
	assert.Contains(t, acceptedWith(t, second), "is written to, and is no longer one to fall back on (no snapshot of it could be taken: "+
		"cluster home has no VolumeSnapshot")
	act(t, second, v1alpha1.ActionAbort)
	reaches(t, second, v1alpha1.MoveAborted)
	assert.Equal(t, west, folder(t, namespace, "data"))
	counts(t, west, counted(t, west)+10)
	reaches(t, first, v1alpha1.MoveDone)
	await.Until(t, "the copy that was written to is gone", func() bool { return await.Volume(t, bed.Home.Client(), real.Name) == nil })
	nothingLeft(t, namespace, first)
	nothingLeft(t, namespace, second)
}

func TestASnapshotKeepsTheCopyThatAWayBackWritesTo(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	home, west := takesSnapshots(t, bed.Home, "kept.home.test"), takesSnapshots(t, bed.West, "kept.west.test")
	snapshotClass(t, bed.Home, home.Name)
	claim := fabric.NewClaim(namespace, "data", virtualClassOf(t, home, west))
	deploysWith(t, claim, heavy)
	fill(t, folder(t, namespace, "data"))
	kept, _ := realOf(t, namespace, "data")
	first := reaches(t, move(t, namespace, "data", "west", keepsSource), v1alpha1.MoveRetain)
	taken := func() map[string]sidecars.Snapshot {
		t.Helper()
		snapshots, err := home.Snapshots()
		require.NoError(t, err)
		return snapshots
	}
	require.Empty(t, taken())

	// It is there before anything is written to the copy, and while the move goes on.
	require.NoError(t, home.Fail("CreateSnapshot", sidecars.Fault{Code: "UNAVAILABLE", Message: "not yet"}))
	aborted := move(t, namespace, "data", keys.Home, into(first), limited, func(m *v1alpha1.VolumeMove) { m.Name = "aborted" })
	says(t, first, "waiting until the snapshot of claim data is ready")
	says(t, aborted, "waiting until VolumeMove "+first.Name+" hands over the copy that it keeps")
	behind := await.Claim(t, bed.Home.Client(), fabric.Storage, kept.Spec.ClaimRef.Name)
	assert.Equal(t, string(first.UID), behind.Labels[keys.MoveOf], "it is not taken before")
	require.NoError(t, home.Heal("CreateSnapshot"))
	reaches(t, aborted, v1alpha1.MovePreCopy)
	require.Len(t, taken(), 1)
	said := "VolumeSnapshot " + fabric.Storage + "/move-" + string(first.UID) + "-0-snapshot in cluster home until "
	assert.Contains(t, acceptedWith(t, aborted), "as it was it is in "+said+"this move is committed")
	assert.Condition(t, func() bool { return wasWritten(t, aborted) })

	act(t, aborted, v1alpha1.ActionAbort)
	reaches(t, aborted, v1alpha1.MoveAborted)
	await.Until(t, "the copy that was written to is gone", func() bool { return await.Volume(t, bed.Home.Client(), kept.Name) == nil })
	says(t, first, "as it was before it is in "+said)
	require.Len(t, taken(), 1, "it is kept for as long as the copy was to be")
	act(t, first, v1alpha1.ActionFinalize)
	reaches(t, first, v1alpha1.MoveDone)
	noSnapshot(t, home, bed.Home)
	nothingLeft(t, namespace, first)
	nothingLeft(t, namespace, aborted)

	// Once the way back is committed it is not needed any more.
	west2 := folder(t, namespace, "data")
	back := move(t, namespace, "data", keys.Home, keepsSource, func(m *v1alpha1.VolumeMove) { m.Name = "back" })
	reaches(t, back, v1alpha1.MoveRetain)
	assert.NotEqual(t, west2, folder(t, namespace, "data"))
	snapshotClass(t, bed.West, west.Name)
	code, out, stderr := plugin(t, "move", "rollback", back.Name, "-n", namespace, "--keep-source-for", "1s")
	require.Zero(t, code, stderr)
	assert.Contains(t, stderr, "as it was it is in VolumeSnapshot "+namespace+"/move-"+string(back.UID)+"-0-snapshot in cluster west until "+
		"this move is committed")
	assert.Contains(t, out, "claim data is now in cluster west")
	assert.Equal(t, west2, folder(t, namespace, "data"))
	reaches(t, back, v1alpha1.MoveDone)
	noSnapshot(t, west, bed.West)
	counts(t, west2, counted(t, west2)+10)
}

func TestWhatCannotGoBackIntoAKeptCopyIsRefused(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	kept, _ := realOf(t, namespace, "data")
	refused := func(name string, change func(*v1alpha1.VolumeMove)) string {
		t.Helper()
		ended := reaches(t, move(t, namespace, "data", keys.Home, func(m *v1alpha1.VolumeMove) { m.Name = name; change(m) }), v1alpha1.MoveFailed,
			v1alpha1.MoveDone, v1alpha1.MoveRetain)
		require.Equal(t, v1alpha1.MoveFailed, ended.Status.Phase, name)
		return ended.Status.Message
	}
	unknown := func(m *v1alpha1.VolumeMove) { m.Spec.Into = "other" }
	assert.Contains(t, refused("unknown", unknown), "VolumeMove other keeps no copy at its source")
	first := reaches(t, move(t, namespace, "data", "west", keepsSource), v1alpha1.MoveRetain)

	user := application(fabric.Storage, namespace, kept.Spec.ClaimRef.Name)
	user.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "lodestone.test/never"}}
	pods := bed.Home.Client().CoreV1().Pods(fabric.Storage)
	must.Create(t, pods, user)
	assert.Contains(t, refused("used", into(first)), "pod "+fabric.Storage+"/"+namespace+" in cluster home uses real claim")
	require.NoError(t, pods.Delete(t.Context(), namespace, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))

	checked := reaches(t, move(t, namespace, "data", keys.Home, into(first), func(m *v1alpha1.VolumeMove) {
		m.Name, m.Spec.DryRun = "dry", true
	}), v1alpha1.MoveChecked)
	assert.Contains(t, checked.Status.Message, "into the copy that VolumeMove "+first.Name+" keeps")

	reaches(t, move(t, namespace, "data", keys.Home, into(first), func(m *v1alpha1.VolumeMove) { m.Name = "back" }), v1alpha1.MoveDone)
	assert.Contains(t, refused("again", into(first)), "VolumeMove "+first.Name+" keeps no copy at its source")
	counts(t, folder(t, namespace, "data"), counted(t, folder(t, namespace, "data"))+10)
}
