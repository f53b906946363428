package replicas

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestSlotsAreWholeWhereverTheProvisionerDies does the same where the standby has no snapshots: a failover takes one of the two real
// claims that have the versions away from the replica.
func TestSlotsAreWholeWhereverTheProvisionerDies(t *testing.T) {
	g := dying(t)
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	one := life{
		namespace: namespace, primary: keys.Home, standby: "west",
		tune: func(r *v1alpha1.VolumeReplica) { r.Spec.Standbys[0].ClassName = plainDriver },
		has: func(t *testing.T, made *v1alpha1.VolumeReplica, version string) int {
			t.Helper()
			require.LessOrEqual(t, len(slotsOf(t, bed.West, made)), 2)
			return counted(t, bed.FolderOf(t, bed.West, namespace, slotWith(t, bed.West, made, version).Name))
		},
	}
	g.rounds(t, func(n int) {
		one.goes(t, n)
		await.Until(t, "the storage has no volume", func() bool {
			volumes, err := drivers[plainDriver].Volumes()
			require.NoError(t, err)
			return len(volumes) == 0
		})
	})
}
