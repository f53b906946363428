package decide_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestAPodOfAJobIsNeverStopped(t *testing.T) {
	const suspend = `kubectl patch job nightly -n shop -p '{"spec":{"suspend":true}}'`
	job := decide.Pod{Name: "nightly-1", UID: "j", Owned: true, Job: "nightly", Bound: true}
	others := decide.Pod{Name: "db-0", UID: "d", Owned: true, Bound: true}
	seen := func(phase v1alpha1.MovePhase, pods ...decide.Pod) decide.Observation {
		o := single(phase) // whose movers run
		o.Record.Namespace, o.Pods = "shop", pods
		return o
	}
	// One that began after the move was judged: nothing stands still meanwhile.
	waits := decide.Next(seen(v1alpha1.MovePreCopy, others, job))
	require.Equal(t, decide.Idle, waits.Verb)
	assert.Contains(t, waits.Say, "pod nightly-1 of Job nightly")
	assert.Contains(t, waits.Say, suspend)
	ended := job
	ended.Finished = true
	assert.Equal(t, v1alpha1.MoveQuiesce, decide.Next(seen(v1alpha1.MovePreCopy, others, ended)).Record.Phase)

	// One that came between that and the gate.
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveQuiesce, v1alpha1.MoveFence} {
		step := decide.Next(seen(phase, job, others))
		require.Equal(t, decide.Save, step.Verb)
		assert.Equal(t, v1alpha1.MoveRollBack, step.Record.Phase)
		assert.Equal(t, record.PodsInTheWay, step.Record.Cause)
		assert.Contains(t, step.Record.Why, suspend)
	}
	pending := job
	pending.Bound = false
	step := decide.Next(seen(v1alpha1.MoveQuiesce, pending, others))
	require.Equal(t, decide.DeletePod, step.Verb)
	assert.Equal(t, "db-0", step.Pod.Name)
	assert.Equal(t, v1alpha1.MoveFence, decide.Next(seen(v1alpha1.MoveQuiesce, pending)).Record.Phase, "a Job counts that one as failed, too")
}
