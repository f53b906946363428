package moves

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
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

func TestAMoveGoesBackIntoTheCopyThatWasKept(t *testing.T) {
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
	done := reaches(t, first, v1alpha1.MoveDone)
	assert.Equal(t, "the claims have their volumes at the target, and a later move has taken the copy at the source", done.Status.Message)
	assert.Equal(t, policy, await.Volume(t, bed.Home.Client(), real.Name).Spec.PersistentVolumeReclaimPolicy)
	assert.NotNil(t, await.Volume(t, bed.West.Client(), realInWest.Name), "the way back keeps its source")

	act(t, second, v1alpha1.ActionFinalize)
	reaches(t, second, v1alpha1.MoveDone)
	await.Until(t, "the copy in west is gone", func() bool { return await.Volume(t, bed.West.Client(), realInWest.Name) == nil })
	requireNoAlarm(t, namespace, "data")
	counts(t, kept, counted(t, kept)+10)
	nothingLeft(t, namespace, first)
	nothingLeft(t, namespace, second)
}

func TestAWayBackThatIsAbortedLeavesTheCopyInUseWhole(t *testing.T) {
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
	act(t, second, v1alpha1.ActionAbort)
	reaches(t, second, v1alpha1.MoveAborted)
	assert.Equal(t, west, folder(t, namespace, "data"))
	counts(t, west, counted(t, west)+10)
	reaches(t, first, v1alpha1.MoveDone)
	await.Until(t, "the copy that was written to is gone", func() bool { return await.Volume(t, bed.Home.Client(), real.Name) == nil })
	nothingLeft(t, namespace, first)
	nothingLeft(t, namespace, second)
	requireNoAlarm(t, namespace, "data")
}
