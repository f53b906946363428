package replicas

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestNothingStaysFrozenWhereverTheProvisionerDies has an application frozen for each point, while the provisioner dies also right
// before a hook is run, and when it has ended, before it hears of that.
func TestNothingStaysFrozenWhereverTheProvisionerDies(t *testing.T) {
	g := dying(t)
	namespace := space(t)
	countsUnlessFrozen(t, namespace, keys.Home)
	bind(t, namespace)
	hook := hookFolder(t, namespace)
	g.rounds(t, func(int) {
		made := replicate(t, namespace, "west", hooks(freezeHook, thawHook, "20s"), func(r *v1alpha1.VolumeReplica) {
			r.Spec.Versions.Keep = 1
		})
		first := sealed(t, made, time.Time{})
		sealed(t, made, first.Status.Standbys[0].Sealed.Time)
		version := pause(t, made).Status.Standbys[0].Versions[0]
		require.Equal(t, v1alpha1.VersionFrozen, version.Consistency)
		require.Contains(t, frozenAt(t, hook), counted(t, contentOf(t, bed.West, westDriver, namespace, version.Name)))
		removes(t, made)
		require.NoFileExists(t, filepath.Join(hook, "freeze"))
		last := len(calls(t, hook))
		beyond(t, namespace, counted(t, folder(t, namespace)))
		await.Never(t, "it is frozen once more", func() bool { return len(calls(t, hook)) > last })
	})
}

// frozenAt returns how far the application had counted whenever it was frozen, and fails unless it was thawed each time.
func frozenAt(t *testing.T, hook string) (numbers []int) {
	t.Helper()
	all := calls(t, hook)
	for i, call := range all {
		if call[0] != "freeze" {
			continue
		}
		require.Less(t, i+1, len(all), "it is still frozen: %v", all)
		require.Equal(t, [2]string{"thaw", call[1]}, all[i+1], "nothing is written between freeze and thaw: %v", all)
		n, err := strconv.Atoi(call[1])
		require.NoError(t, err)
		numbers = append(numbers, n)
	}
	return numbers
}
