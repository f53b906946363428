package crash

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// A fixed choice of what `make crash` sweeps.
func TestSampleOfTheCrashSweepSurvives(t *testing.T) {
	testbed.Require(t)
	// Of imports e2e/plugin has some.
	swept := slices.DeleteFunc(Flows(), func(f Flow) bool { return f.Of == Plugin })
	o := Options{Sample: true}
	for _, f := range swept {
		o.Flows = append(o.Flows, f.Name)
	}
	outcomes, err := world.Sweep(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, Print(os.Stderr, outcomes))
	flows, faults := map[string]bool{}, map[Fault]bool{}
	for _, o := range outcomes {
		require.NoError(t, o.Err, o.String())
		if o.Met {
			flows[o.Flow], faults[o.Fault] = true, true
		}
	}
	for _, f := range swept {
		assert.Contains(t, flows, f.Name, "no fault was met in this flow")
	}
	for _, f := range Faults() {
		assert.Contains(t, faults, f, "this fault was met in no flow")
	}
}

// A fixed choice of what `make crash-move` sweeps. It takes control planes of its own and
// dozens of moves, so it runs with E2E_LONG alone.
func TestSampleOfTheCrashSweepOfMovesSurvives(t *testing.T) {
	testbed.Require(t)
	harness.Require(t)
	if os.Getenv("E2E_LONG") == "" {
		t.Skip("it takes ten minutes: set E2E_LONG")
	}
	moves, err := NewMovesWorld(t.Context(), func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
	require.NoError(t, err)
	defer moves.Stop()
	outcomes, err := moves.Sweep(t.Context(),
		Options{Sample: true, AtOnce: 6, Flows: []string{"move-home", "move-group", "move-abort-final", "move-rollback"}})
	require.NoError(t, err)
	require.NoError(t, Print(os.Stderr, outcomes))
	require.NotEmpty(t, outcomes)
	for _, o := range outcomes {
		require.NoError(t, o.Err, o.String())
	}
}

// world is nil without control planes, so that tests get as far as to skip.
var world *World

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		world, err = NewWorld(ctx, func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
		return err
	})
}
