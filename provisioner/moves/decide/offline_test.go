package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// single returns what is seen of a move of a ReadWriteOncePod claim in a phase, whose
// movers run where they may.
func single(phase v1alpha1.MovePhase) decide.Observation {
	o := in(phase)
	o.Record.LongStop, o.Record.Claims[0].Offline, o.Record.Claims[0].Target.Ref.UID = true, true, ref(record.Target, 0).UID
	running := decide.Mover{Exists: true, Running: true}
	backing := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID, Labels: map[string]string{keys.MoveOf: string(moveUID)}}}
	o.Claims[0].Target = decide.Side{Backing: backing, Mover: running}
	if !record.Before(phase, v1alpha1.MoveFinalSync) {
		o.Claims[0].Source.Mover = running
		o.Claims[0].Copy = &movecontrol.Status{Instance: "i1", Connected: true}
	}
	return o
}

func TestAVolumeForOnePodIsReadOnceNobodyHasIt(t *testing.T) {
	w := newWorld(t, 3, 1)
	w.calm = true
	require.True(t, w.claims[0].single)
	read := false
	require.Equal(t, v1alpha1.MoveDone, w.run(func() {
		if w.claims[0].at[record.Source].mover.Exists {
			read = true
			w.must(!record.Before(w.decoded().Phase, v1alpha1.MoveFinalSync), "its mover exists in phase %s", w.decoded().Phase)
		}
	}))
	assert.True(t, read)
}

func TestWhatOnePodUsesIsNotLookedAtBeforeThePodIsStopped(t *testing.T) {
	step := decide.Next(single(v1alpha1.MoveProvision))
	require.Equal(t, decide.Save, step.Verb)
	assert.Equal(t, v1alpha1.MovePreCopy, step.Record.Phase, "what is at the target is all that can be known")
	silent := single(v1alpha1.MoveProvision)
	silent.Claims[0].Target.Mover = decide.Mover{Exists: true, Problem: "no node has room"}
	assert.Contains(t, decide.Next(silent).Say, "no node has room", "nothing is stopped before the mover at the target runs")

	step = decide.Next(single(v1alpha1.MovePreCopy))
	require.Equal(t, decide.Save, step.Verb)
	assert.Equal(t, v1alpha1.MoveQuiesce, step.Record.Phase)
	assert.Contains(t, step.Say, "stopped for the copy of data")

	step = decide.Next(single(v1alpha1.MoveFinalSync))
	require.Equal(t, decide.Start, step.Verb)
	assert.Equal(t, movecontrol.Prepare, step.Task.Kind)
}

func TestTheLongStopMustHaveBeenAgreedTo(t *testing.T) {
	uses := []decide.Pod{{Name: "db-0", Bound: true, Owned: true}}
	agreed := single(v1alpha1.MovePreCopy)
	agreed.Pods = uses
	assert.Equal(t, v1alpha1.MoveQuiesce, decide.Next(agreed).Record.Phase)

	began := single(v1alpha1.MovePreCopy)
	began.Record.LongStop, began.Pods = false, uses
	step := decide.Next(began)
	assert.Equal(t, v1alpha1.MoveRollBack, step.Record.Phase)
	for _, says := range []string{"pod db-0", "claim data", "spec.offline", "nothing was stopped"} {
		assert.Contains(t, step.Record.Why, says)
	}
	for name, pods := range map[string][]decide.Pod{
		"no pod": nil, "one that ends": {{Name: "db-0", Bound: true, Leaving: true}}, "one that has ended": {{Name: "job", Bound: true, Finished: true}},
		"one that has no node yet": {{Name: "db-0", Owned: true}},
	} {
		idle := single(v1alpha1.MovePreCopy)
		idle.Record.LongStop, idle.Pods = false, pods
		assert.Equal(t, v1alpha1.MoveQuiesce, decide.Next(idle).Record.Phase, name)
	}
}

func TestWhatCannotBeKeptOfAVolumeForOnePodEndsTheMoveBeforeItIsCopied(t *testing.T) {
	o := single(v1alpha1.MoveFinalSync)
	o.Claims[0].Copy.Task = &movecontrol.TaskStatus{Task: movecontrol.Task{ID: "prepare"}, State: movecontrol.Done,
		Prepared: &movecontrol.Prepared{Refusals: []movecontrol.Refusal{{Reason: "no room"}}}}
	step := decide.Next(o)
	assert.Equal(t, v1alpha1.MoveRollBack, step.Record.Phase)
	assert.Contains(t, step.Record.Why, "no room")
	assert.Contains(t, step.Record.Why, "pods that use it stood still meanwhile, and go on at the source")

	o.Claims[0].Copy.Task.Prepared = &movecontrol.Prepared{Source: sourceOf(0)}
	step = decide.Next(o)
	require.True(t, step.Record.Claims[0].Prepared)
	o.Record = step.Record
	step = decide.Next(o)
	require.Equal(t, decide.Start, step.Verb)
	assert.Equal(t, movecontrol.Final, step.Task.Kind)
	assert.Equal(t, sourceOf(0), step.Task.Expect)
}

func TestALongCopyThatGoesOnIsNotRolledBack(t *testing.T) {
	o := single(v1alpha1.MoveFinalSync)
	o.Move.Spec.RollBackAfter = &metav1.Duration{}
	o.Record.Claims[0].Prepared = true
	o.Claims[0].Copy.Task = &movecontrol.TaskStatus{Task: movecontrol.Task{ID: "final-0"}, State: movecontrol.Running}
	o.Record.Down = o.Now
	assert.Less(t, decide.Next(o).After, time.Second, "pods wait")
	for range 3 {
		o.Now = o.Now.Add(24 * time.Hour)
		step := decide.Next(o)
		assert.Equal(t, decide.Idle, step.Verb)
		assert.Equal(t, time.Second, step.After, "no API server is asked ten times a second for days")
	}

	// It stands still until its mover runs, which takes its time, however short the patience.
	begins := single(v1alpha1.MoveFinalSync)
	begins.Move.Spec.RollBackAfter = &metav1.Duration{}
	begins.Claims[0].Source.Mover, begins.Claims[0].Copy = decide.Mover{}, nil
	begins.Record = decide.Next(begins).Record
	require.False(t, begins.Record.Stalled.IsZero())
	begins.Now = begins.Now.Add(20 * time.Second)
	step := decide.Next(begins)
	assert.Equal(t, decide.EnsureMover, step.Verb)
	assert.Equal(t, record.Source, step.End)
	begins.Claims[0].Source.Mover = decide.Mover{Exists: true, Problem: "no node has room"}
	begins.Now = begins.Now.Add(time.Minute)
	step = decide.Next(begins)
	require.Equal(t, decide.Save, step.Verb)
	assert.Equal(t, v1alpha1.MoveRollBack, step.Record.Phase)
	assert.Contains(t, step.Record.Why, "no node has room")
}
