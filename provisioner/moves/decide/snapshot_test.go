package decide_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
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
		Backing: &corev1.PersistentVolumeClaim{}, Mover: movers.State{Exists: true, Running: true},
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
				Backing: &corev1.PersistentVolumeClaim{}, Mover: movers.State{Exists: true, Problem: "no node has room"}}}},
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
	seen.Mover = movers.State{}
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

// together returns the observation, in PreCopy, of a move of two ReadWriteOncePod claims, this time after
// the first attempt to take one snapshot of both.
func together(after time.Duration) steps.Observation {
	o := snapped(after)
	second := o.Record.Claims[0]
	second.Name, second.Snapshot = "logs", &record.Snapshot{Since: o.Record.Claims[0].Snapshot.Since}
	o.Record.Claims = append(o.Record.Claims, second)
	o.Record.Group = &record.Group{By: "together", Version: "v1", Since: o.Record.Claims[0].Snapshot.Since}
	o.Claims = append(o.Claims, o.Claims[0])
	for i := range o.Claims {
		uid := types.UID(fmt.Sprintf("b%d", i))
		o.Record.Claims[i].Source.Ref = backing.Ref{Cluster: keys.Home, Namespace: "n", Name: string(uid), UID: uid}
		o.Claims[i].Source.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: uid,
			Labels: map[string]string{o.Record.GroupLabel(): "true"}}}
	}
	return o
}

// taken is together once the snapshot controller has made a snapshot of each claim.
func taken() steps.Observation {
	o := together(time.Minute)
	o.Group = steps.Group{Exists: true, Ready: true, UID: "g1", Members: map[int]string{0: "s-a", 1: "s-b"}}
	return o
}

func TestOneSnapshotIsTakenOfSeveralClaims(t *testing.T) {
	o := together(0)
	o.Record.Group.Since = time.Time{}
	for i := range o.Record.Claims {
		o.Record.Claims[i].Snapshot.Since = time.Time{}
	}
	step := decide.Next(o)
	require.Equal(t, "Save", step.Verb(), "what is to be done is written down first")
	assert.Contains(t, step.Say, "claims data, logs")
	assert.Equal(t, []time.Time{o.Now, o.Now, o.Now}, []time.Time{step.Saved().Group.Since, step.Saved().Claims[0].Snapshot.Since,
		step.Saved().Claims[1].Snapshot.Since})
	assert.True(t, o.Record.Group.Since.IsZero(), "a record that was read is not changed")
	o.Record = step.Saved()
	assert.Equal(t, "MakeGroup", decide.Next(o).Verb())

	o = taken()
	delete(o.Group.Members, 1)
	step = decide.Next(o)
	assert.Equal(t, "Idle", step.Verb())
	assert.Contains(t, step.Say, "waiting until the snapshot of claims data, logs is ready")
	o = taken()
	step = decide.Next(o)
	require.Equal(t, "Save", step.Verb())
	assert.Equal(t, []string{"g1", "s-a", "s-b"}, []string{string(step.Saved().Group.UID), step.Saved().Claims[0].Snapshot.Taken,
		step.Saved().Claims[1].Snapshot.Taken})

	// The label has served; then each claim is copied.
	o.Record = step.Saved()
	step = decide.Next(o)
	assert.Equal(t, []steps.Action{steps.Unlabel{Claim: 0}, steps.Unlabel{Claim: 1}}, append([]steps.Action{step.Action}, step.Also...))
	for i := range o.Claims {
		o.Claims[i].Source.Backing.Labels = nil
		o.Claims[i].Snapshot = steps.Snapshot{Exists: true, Ready: true, UID: "s1"}
	}
	assert.Equal(t, "MakeClone", decide.Next(o).Verb())
	o.Claims[0].Snapshot = steps.Snapshot{}
	assert.Equal(t, "somebody deleted it", decide.Next(o).Saved().Claims[0].Snapshot.Why, "none is taken by itself in its place")

	// All were copied.
	for i := range o.Record.Claims {
		o.Record.Claims[i].Snapshot.Copied, o.Record.Claims[i].Snapshot.Over = true, o.Now
	}
	o.Claims[0].Snapshot.Exists = true
	o.Record = decide.Next(o).Saved()
	require.True(t, o.Record.Claims[0].Snapshot.Gone, "it goes with the others, and not by itself")
	assert.False(t, o.Record.Claims[1].Snapshot.Gone)
	o.Record = decide.Next(o).Saved()
	o.Record = decide.Next(o).Saved()
	require.Equal(t, o.Now, o.Record.Group.Over)
	assert.Equal(t, "DropGroup", decide.Next(o).Verb())
	o.Group.Leaving = true
	assert.Equal(t, "waiting until VolumeGroupSnapshot n/move-m1-snapshot is gone", decide.Next(o).Say)
	stuck := o
	stuck.Now = o.Now.Add(time.Hour)
	assert.Equal(t, v1alpha1.MoveQuiesce, decide.Next(stuck).Saved().Phase, "one that does not go keeps nothing else")
	stuck.Record = stuck.Record.Enter(v1alpha1.MoveFinalize, o.Now)
	stuck.Record.GivenUp = []record.End{record.Source}
	assert.Contains(t, stuck.Record.LeftBehind(), "the VolumeGroupSnapshot n/move-m1-snapshot")
	o.Group = steps.Group{}
	o.Record = decide.Next(o).Saved()
	require.True(t, o.Record.Group.Gone)
	assert.Equal(t, v1alpha1.MoveQuiesce, decide.Next(o).Saved().Phase)
}

func TestWhereNoSnapshotOfAllCanBeTakenEachClaimGetsItsOwn(t *testing.T) {
	for name, row := range map[string]struct {
		after  time.Duration
		seen   steps.Group
		says   string
		goesOn bool
	}{
		"none yet":                  {after: 9 * time.Minute, seen: steps.Group{Exists: true}, goesOn: true},
		"with an error for a while": {after: 9 * time.Minute, seen: steps.Group{Exists: true, Problem: "not supported"}, goesOn: true},
		"with an error for long": {after: 11 * time.Minute, seen: steps.Group{Exists: true, Problem: "not supported"},
			says: "it was not taken within 11m0s: not supported"},
		"without a word for an hour": {after: 61 * time.Minute, seen: steps.Group{Exists: true},
			says: "it was not taken within 1h1m0s: it was not ready"},
		"refused":             {after: time.Second, seen: steps.Group{Problem: "exceeded quota", Refused: true}, says: "exceeded quota"},
		"deleted by somebody": {after: time.Second, seen: steps.Group{Exists: true, Leaving: true}, says: "somebody deleted it"},
	} {
		t.Run(name, func(t *testing.T) {
			o := together(row.after)
			o.Group = row.seen
			step := decide.Next(o)
			if row.goesOn {
				assert.Equal(t, "Idle", step.Verb())
				return
			}
			require.Equal(t, "Save", step.Verb())
			assert.Contains(t, step.Say, row.says)
			assert.Contains(t, step.Say, "one of each is taken")
			o.Record = step.Saved()
			assert.Contains(t, o.Record.Group.Why, row.says)

			assert.Equal(t, "Unlabel", decide.Next(o).Verb())
			for i := range o.Claims {
				o.Claims[i].Source.Backing.Labels = nil
			}
			if o.Group.Exists {
				assert.Equal(t, !o.Group.Leaving, decide.Next(o).Verb() == "DropGroup")
			}
			o.Group = steps.Group{}
			o.Record = decide.Next(o).Saved()
			require.True(t, o.Record.Group.Gone)
			for range o.Record.Claims {
				step = decide.Next(o)
				if step.Saved() == nil {
					break
				}
				assert.Contains(t, step.Say, "a snapshot is taken of claim ")
				o.Record = step.Saved()
			}
			assert.Equal(t, steps.MakeSnapshot{Claim: 0}, decide.Next(o).Action)
		})
	}
}

func TestAnAbortLeavesNothingOfASnapshotOfSeveralClaims(t *testing.T) {
	for name, at := range map[string]func(*world, *record.Record) bool{
		"when it is to be taken": func(_ *world, r *record.Record) bool { return r.Group.MayExist() },
		"the claims labelled": func(w *world, r *record.Record) bool {
			return w.claims[0].at[record.Source].backing.Labels[r.GroupLabel()] != ""
		},
		"taken":               func(w *world, _ *record.Record) bool { return w.group.ready },
		"a claim made of it":  func(w *world, _ *record.Record) bool { return w.claims[1].at[record.Snapped].backing != nil },
		"one of them copied":  func(_ *world, r *record.Record) bool { return r.Claims[0].Snapshot.Copied },
		"all of them copied":  func(_ *world, r *record.Record) bool { return !r.Group.Over.IsZero() },
		"when it is deleted":  func(w *world, _ *record.Record) bool { return w.group.leaving },
		"when it was deleted": func(_ *world, r *record.Record) bool { return r.Group.Gone },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 11, 2)
			w.calm = true
			reached := false
			require.Equal(t, v1alpha1.MoveAborted, w.run(func() {
				if r := w.decoded(); r != nil && r.Phase == v1alpha1.MovePreCopy && at(w, r) {
					reached, w.move.Spec.Action = true, v1alpha1.ActionAbort
				}
			}))
			assert.True(t, reached)
		})
	}
}
