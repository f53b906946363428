package replicas

import (
	"testing"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestVersionsAreOfOneMomentWhereverTheProvisionerDies does the same with two claims: each number is written to one, then to the other.
func TestVersionsAreOfOneMomentWhereverTheProvisionerDies(t *testing.T) {
	g := dying(t)
	namespace := space(t)
	countsInTwo(t, namespace, keys.Home)
	both := life{
		namespace: namespace, primary: keys.Home, standby: "west",
		tune: func(r *v1alpha1.VolumeReplica) { r.Spec.Claims = []string{"data", "wal"} },
		has: func(t *testing.T, _ *v1alpha1.VolumeReplica, version string) int {
			t.Helper()
			return versionIsOfOneMoment(t, namespace, version)
		},
	}
	g.rounds(t, func(n int) { both.goes(t, n) })
}
