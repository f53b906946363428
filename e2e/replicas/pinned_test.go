package replicas

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// suspicious waits until a replica has versions that are pinned, and returns it.
func suspicious(t *testing.T, made *v1alpha1.VolumeReplica) *v1alpha1.VolumeReplica {
	t.Helper()
	return until(t, "it is suspect", made, func(now *v1alpha1.VolumeReplica) bool {
		is := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReplicaSuspect)
		return is != nil && is.Reason == "MuchChanged" &&
			strings.Contains(is.Message, "kubectl lodestone replicate accept volumereplica/"+made.Name)
	})
}

// pinnedOf are the names of the versions of a replica that are pinned.
func pinnedOf(made *v1alpha1.VolumeReplica) (names []string) {
	for _, version := range made.Status.Standbys[0].Versions {
		if version.Pinned {
			names = append(names, version.Name)
		}
	}
	return names
}

// TestAnApplicationThatScramblesItsFilesGetsThemBack has more points made of the scrambled files than versions are kept.
func TestAnApplicationThatScramblesItsFilesGetsThemBack(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	from := folder(t, namespace)
	fill(t, from)
	good, err := os.ReadFile(filepath.Join(from, "much"))
	require.NoError(t, err)
	made := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) { r.Spec.Versions.Keep = 1 })
	now := sealed(t, made, time.Time{})
	now = sealed(t, made, now.Status.Standbys[0].Sealed.Time)
	assert.Nil(t, meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReplicaSuspect), "counting changes little")

	fill(t, from)
	now = suspicious(t, made)
	pinned := pinnedOf(now)
	require.NotEmpty(t, pinned)
	suspect := now.Status.Standbys[0].Suspect
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, made.Name, "Suspect"), "at once; the versions from before it")
	for range 2 {
		now = sealed(t, made, now.Status.Standbys[0].Sealed.Time)
	}
	assert.Equal(t, suspect, now.Status.Standbys[0].Suspect)
	require.Subset(t, versionsOf(now), pinned, "they stay, though one alone is wanted")
	code, out, said := plugin(t, "replicate", "status", "data", "-n", namespace)
	require.Zero(t, code, said)
	assert.Contains(t, out, "suspect")
	assert.Contains(t, out, "kubectl lodestone failover data -n "+namespace+" --version")

	// One command brings the files back.
	has := counted(t, contentOf(t, bed.West, westDriver, namespace, pinned[0]))
	code, _, said = plugin(t, "failover", "data", "-n", namespace, "--version", pinned[0], "--yes")
	require.Zero(t, code, said)
	back := folder(t, namespace)
	require.NotEqual(t, from, back)
	is, err := os.ReadFile(filepath.Join(back, "much"))
	require.NoError(t, err)
	assert.True(t, slices.Equal(good, is), "the files are as they were")
	beyond(t, namespace, has)

	// Accepted, they go as others do.
	code, _, said = plugin(t, "replicate", "accept", "data", "-n", namespace)
	require.Zero(t, code, said)
	until(t, "no version is pinned", made, func(now *v1alpha1.VolumeReplica) bool {
		return len(now.Status.Standbys[0].Versions) == 1 && len(pinnedOf(now)) == 0 &&
			meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReplicaSuspect) == nil
	})
	code, _, said = plugin(t, "replicate", "accept", "data", "-n", namespace)
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "no version of VolumeReplica "+namespace+"/data is pinned")
	removes(t, made)
}

// TestASlotWithAPinnedVersionIsNotWrittenTo has an application remove nearly all that it has.
func TestASlotWithAPinnedVersionIsNotWrittenTo(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	from := folder(t, namespace)
	fill(t, from)
	made := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) { r.Spec.Standbys[0].ClassName = plainDriver })
	sealed(t, made, sealed(t, made, time.Time{}).Status.Standbys[0].Sealed.Time)
	require.NoError(t, os.Remove(filepath.Join(from, "much")))
	suspicious(t, made)
	says(t, made, "Pinned", "no point is made: the slot that it would be written to has the version of ")
	now := must.Get(t, objects(t).Replicas(namespace), made.Name)
	pinned := pinnedOf(now)
	require.Len(t, pinned, 1)
	has, err := os.ReadFile(filepath.Join(bed.FolderOf(t, bed.West, namespace, slotWith(t, bed.West, made, pinned[0]).Name), "much"))
	require.NoError(t, err)
	assert.Len(t, has, 16<<20)
	must.Patch(t, objects(t).Replicas(namespace), made.Name, types.MergePatchType,
		[]byte(`{"spec":{"versions":{"accepted":"`+now.Status.Standbys[0].Suspect+`"}}}`))
	now = sealed(t, made, now.Status.Standbys[0].Sealed.Time)
	assert.Empty(t, now.Status.Standbys[0].Suspect, "what was accepted is not found once more in the other slot")
	removes(t, made)
}
