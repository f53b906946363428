package crash

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// A fixed choice of what `make crash` sweeps.
func TestSampleOfTheCrashSweepSurvives(t *testing.T) {
	testbed.Require(t)
	outcomes, err := world.Sweep(t.Context(), Options{Sample: true})
	require.NoError(t, err)
	require.NoError(t, Print(os.Stderr, outcomes))
	flows, faults := map[string]bool{}, map[Fault]bool{}
	for _, o := range outcomes {
		require.NoError(t, o.Err, o.String())
		if o.Met {
			flows[o.Flow], faults[o.Fault] = true, true
		}
	}
	for _, f := range Flows() {
		assert.Contains(t, flows, f.Name, "no fault was met in this flow")
	}
	for _, f := range Faults() {
		assert.Contains(t, faults, f, "this fault was met in no flow")
	}
}
