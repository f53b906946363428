package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// snapped returns the observation, in PreCopy, of a move of a ReadWriteOncePod claim whose
// pod runs and may not be stopped for long, this time after the first attempt to take its
// snapshot.
func snapped(after time.Duration) steps.Observation {
	o := single(v1alpha1.MovePreCopy)
	o.Record.LongStop, o.Record.Passes = false, 3
	o.Record.Claims[0].Snapshot = &record.Snapshot{Since: o.Now.Add(-after)}
	o.Pods = []steps.Pod{{Name: "db-0", Bound: true, Owned: true}}
	return o
}

// cloned is snapped once a mover reads the claim created from the snapshot.
func cloned() steps.Observation {
	o := snapped(time.Minute)
	o.Claims[0].Snapshot = steps.Snapshot{Exists: true, Ready: true, UID: "s1", Side: steps.Side{
		Backing: &corev1.PersistentVolumeClaim{}, Mover: steps.Mover{Exists: true, Running: true},
	}}
	o.Claims[0].Copy = &moverapi.Status{Instance: "snapshot", Connected: true}
	return o
}

func TestASnapshotIsTakenOnlyForAPod(t *testing.T) {
	o := snapped(0)
	o.Record.Claims[0].Snapshot = &record.Snapshot{}
	step := decide.Next(o)
	require.Equal(t, "Save", step.Verb(), "what is to be done is written down first")
	assert.Equal(t, o.Now, step.Saved().Claims[0].Snapshot.Since)
	assert.True(t, o.Record.Claims[0].Snapshot.Since.IsZero(), "a record that was read is not changed")
	o.Record = step.Saved()
	assert.Equal(t, "MakeSnapshot", decide.Next(o).Verb())

	o.Record.Claims[0].Snapshot = &record.Snapshot{}
	o.Pods = nil
	assert.Equal(t, v1alpha1.MoveQuiesce, decide.Next(o).Saved().Phase, "nothing runs that would stand still")
}

func TestASnapshotThatGetsNeverReadyIsGivenUp(t *testing.T) {
	for name, row := range map[string]struct {
		after  time.Duration
		seen   steps.Snapshot
		says   string
		goesOn bool
	}{
		"none yet":                  {after: 9 * time.Minute, seen: steps.Snapshot{Exists: true}, goesOn: true},
		"with an error for a while": {after: 9 * time.Minute, seen: steps.Snapshot{Exists: true, Problem: "the pool is full"}, goesOn: true},
		"with an error for long": {after: 11 * time.Minute, seen: steps.Snapshot{Exists: true, Problem: "the pool is full"},
			says: "could not be copied within 11m0s: the pool is full"},
		"without a word for a while": {after: 59 * time.Minute, seen: steps.Snapshot{Exists: true}, goesOn: true},
		"without a word for an hour": {after: 61 * time.Minute, seen: steps.Snapshot{Exists: true},
			says: "could not be copied within 1h1m0s: it was not ready"},
		"refused":             {after: time.Second, seen: steps.Snapshot{Problem: "exceeded quota", Refused: true}, says: "exceeded quota"},
		"deleted by somebody": {after: time.Second, seen: steps.Snapshot{Exists: true, Leaving: true}, says: "somebody deleted it"},
		"a mover that never gets ready": {after: 61 * time.Minute, says: "no node has room",
			seen: steps.Snapshot{Exists: true, Ready: true, Side: steps.Side{
				Backing: &corev1.PersistentVolumeClaim{}, Mover: steps.Mover{Exists: true, Problem: "no node has room"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := snapped(row.after)
			o.Claims[0].Snapshot = row.seen
			step := decide.Next(o)
			if row.goesOn {
				assert.Equal(t, "Idle", step.Verb())
				return
			}
			require.Equal(t, "Save", step.Verb())
			assert.Equal(t, o.Now, step.Saved().Claims[0].Snapshot.Over)
			assert.Contains(t, step.Saved().Claims[0].Snapshot.Why, row.says)

			// Nobody has agreed to a long stop.
			o.Record, o.Claims[0].Snapshot = step.Saved(), steps.Snapshot{}
			o.Record = decide.Next(o).Saved()
			require.True(t, o.Record.Claims[0].Snapshot.Gone)
			step = decide.Next(o)
			assert.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase)
			for _, says := range []string{"pod db-0 would stand still", "claim data", row.says, "spec.offline", "nothing was stopped"} {
				assert.Contains(t, step.Saved().Why, says)
			}
			o.Record.LongStop = true
			assert.Equal(t, v1alpha1.MoveQuiesce, decide.Next(o).Saved().Phase, "who allows a long stop gets it")
		})
	}
}

func TestASnapshotIsRemovedBeforePodsAreStopped(t *testing.T) {
	o := cloned()
	step := decide.Next(o)
	require.Equal(t, "Start", step.Verb())
	assert.Equal(t, moverapi.Prepare, as[steps.Start](step).Task.Kind)
	o.Claims[0].Copy.Task = &moverapi.TaskStatus{Task: as[steps.Start](step).Task, State: moverapi.Done,
		Prepared: &moverapi.Prepared{Source: snapshotOf(0)}}
	o.Record = decide.Next(o).Saved()
	step = decide.Next(o)
	require.Equal(t, "Start", step.Verb())
	assert.Equal(t, moverapi.Pass, as[steps.Start](step).Task.Kind)
	o.Claims[0].Copy.Task = &moverapi.TaskStatus{Task: as[steps.Start](step).Task, State: moverapi.Done}
	o.Record = decide.Next(o).Saved()
	require.True(t, o.Record.Claims[0].Snapshot.Copied)
	assert.False(t, o.Record.Claims[0].Prepared, "the source itself was not looked at")

	seen := &o.Claims[0].Snapshot
	assert.Equal(t, "DropMover", decide.Next(o).Verb())
	seen.Mover.Leaving = true
	o.Now = o.Now.Add(time.Hour)
	assert.Equal(t, "Idle", decide.Next(o).Verb(), "a mover that may still write is waited for")
	seen.Mover = steps.Mover{}
	assert.Equal(t, "DropClone", decide.Next(o).Verb())
	seen.Backing = nil
	assert.Equal(t, "DropSnapshot", decide.Next(o).Verb())
	seen.Leaving = true
	o.Record.Claims[0].Snapshot.Over = o.Now
	assert.Contains(t, decide.Next(o).Say, "is gone")
	o.Now = o.Now.Add(time.Hour)
	step = decide.Next(o)
	assert.Equal(t, v1alpha1.MoveQuiesce, step.Saved().Phase, "one that does not go keeps nothing else")
	assert.Contains(t, step.Say, "the last changes")

	// Its deletion is awaited at the end.
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveFinalize, v1alpha1.MoveRollBack} {
		end := o
		end.Record = o.Record.Enter(phase, o.Now)
		end.Record.Freed = true
		end.Claims = []steps.Claim{{Claim: o.Claims[0].Claim, Snapshot: *seen, Target: steps.Side{Backing: o.Claims[0].Target.Backing,
			Real: &corev1.PersistentVolume{}}}}
		step := decide.Next(end)
		assert.Contains(t, step.Say, "waiting until VolumeSnapshot", phase)
		end.Source.Unusable = "it does not answer"
		end.Record.GivenUp = []record.End{record.Source}
		assert.Contains(t, end.Record.LeftBehind(), "the VolumeSnapshot, the claim, the ShadowPod and the Secret n/move-m1-0-snapshot", phase)
	}
}

func TestWhatCannotBeKeptIsSeenInTheSnapshot(t *testing.T) {
	o := cloned()
	o.Claims[0].Copy.Task = &moverapi.TaskStatus{Task: moverapi.Task{ID: "prepare"}, State: moverapi.Done,
		Prepared: &moverapi.Prepared{Refusals: []moverapi.Refusal{{Reason: "no room"}}}}
	step := decide.Next(o)
	assert.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase)
	assert.Contains(t, step.Saved().Why, "no room")
	assert.Contains(t, step.Saved().Why, "nothing was stopped")

	failed := cloned()
	failed.Claims[0].Copy.Task = &moverapi.TaskStatus{Task: moverapi.Task{ID: "prepare"}, State: moverapi.Failed, Error: "its disk is broken"}
	assert.Equal(t, "its mover gave up: its disk is broken", decide.Next(failed).Saved().Claims[0].Snapshot.Why)
}

func TestAClusterThatIsAwayKeepsASnapshot(t *testing.T) {
	o := snapped(time.Minute)
	o.Source.Unusable = "it does not answer"
	assert.Equal(t, "Idle", decide.Next(o).Verb())
	deleting := snapped(time.Minute)
	deleting.Claims[0].Snapshot.Backing = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: o.Now}},
	}
	assert.Equal(t, "somebody deleted it", decide.Next(deleting).Saved().Claims[0].Snapshot.Why)
}

func TestAnAbortLeavesNothingOfASnapshot(t *testing.T) {
	for name, at := range map[string]func(*claim, *record.Snapshot) bool{
		"when it is to be taken": func(_ *claim, s *record.Snapshot) bool { return s.MayExist() },
		"taken":                  func(c *claim, _ *record.Snapshot) bool { return c.snap.exists },
		"a claim made of it":     func(c *claim, _ *record.Snapshot) bool { return c.at[record.Snapped].backing != nil },
		"being copied":           func(c *claim, _ *record.Snapshot) bool { return c.snap.mover.Task != nil },
		"copied":                 func(_ *claim, s *record.Snapshot) bool { return s.Copied },
		"being removed":          func(c *claim, s *record.Snapshot) bool { return s.Copied && c.at[record.Snapped].backing == nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, 1)
			w.calm = true
			require.NotNil(t, w.claims[0].snap)
			reached := false
			require.Equal(t, v1alpha1.MoveAborted, w.run(func() {
				if r := w.decoded(); r != nil && r.Phase == v1alpha1.MovePreCopy && at(w.claims[0], r.Claims[0].Snapshot) {
					reached, w.move.Spec.Action = true, v1alpha1.ActionAbort
				}
			}))
			assert.True(t, reached)
		})
	}
}
