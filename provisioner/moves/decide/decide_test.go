package decide_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// in returns the observation of a move of one claim in a phase.
func in(phase v1alpha1.MovePhase) steps.Observation {
	now := time.Now()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", UID: "v1"}}
	var target steps.Side
	if record.Before(phase, v1alpha1.MoveCommit) {
		target.Backing = copyOf(0)
	}
	return steps.Observation{
		Now:  now,
		Move: &v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{UID: moveUID}, Spec: v1alpha1.VolumeMoveSpec{Action: v1alpha1.ActionMove}},
		Record: &record.Record{UID: moveUID, Phase: phase, Began: map[v1alpha1.MovePhase]time.Time{phase: now.Add(-2 * time.Hour)},
			Freed: phase == v1alpha1.MoveRetain || phase == v1alpha1.MoveFinalize,
			Claims: []record.Claim{{Name: "data", UID: "c1", Volume: volume, Source: record.Copy{Ref: ref(record.Source, 0)},
				Target: record.Copy{Ref: ref(record.Target, 0)}}}},
		Claims: []steps.Claim{{
			Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Name: "data", UID: "c1", Annotations: map[string]string{keys.Move: string(moveUID)},
				Labels: map[string]string{keys.Moving: keys.MovingNow},
			}},
			Volume: volume.DeepCopy(), Target: target,
		}},
	}
}

// as returns the action of a step as this type, the zero value if it has another type.
func as[A steps.Action](step steps.Step) A {
	action, _ := step.Action.(A)
	return action
}

// copyOf returns the backing claim of a target as a move makes it.
func copyOf(i int) *corev1.PersistentVolumeClaim {
	at := ref(record.Target, i)
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: at.Name, UID: at.UID, Finalizers: []string{keys.BackingFinalizer},
		Labels: map[string]string{keys.MoveOf: string(moveUID)}, Annotations: map[string]string{keys.Unpublished: "true"}}}
}

func TestOthersWordsDoNotMakeARecordTooLarge(t *testing.T) {
	o := in(v1alpha1.MoveFinalSync)
	o.Record.Stalled = o.Now.Add(-time.Hour)
	o.Target.Unusable = strings.Repeat("<", 2<<20)
	step := decide.Next(o)
	require.Equal(t, "Save", step.Verb())
	require.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase)
	written, err := record.Encode(step.Saved())
	require.NoError(t, err)
	assert.Less(t, len(written), 64<<10)

	// A mover describes its source, and that becomes part of the record.
	tells := in(v1alpha1.MoveFinalSync)
	tells.Record.Claims[0].Offline = true
	tells.Record.Claims[0].Target.Ref.UID = ref(record.Target, 0).UID
	running := movers.State{Exists: true, Running: true}
	tells.Claims[0].Source.Mover, tells.Claims[0].Target.Mover = running, running
	for size, want := range map[int]v1alpha1.MovePhase{200: v1alpha1.MoveFinalSync, 5 << 10: v1alpha1.MoveRollBack} {
		tells.Claims[0].Copy = &moverapi.Status{Connected: true, Task: &moverapi.TaskStatus{
			Task: moverapi.Task{ID: "prepare"}, State: moverapi.Done,
			Prepared: &moverapi.Prepared{Source: []byte(`"` + strings.Repeat("x", size) + `"`)},
		}}
		step := decide.Next(tells)
		require.Equal(t, "Save", step.Verb())
		assert.Equal(t, want, step.Saved().Phase)
		assert.Equal(t, want == v1alpha1.MoveRollBack, strings.Contains(step.Saved().Why, "says more of what its source is"), step.Saved().Why)
	}

	// The record of a rollback can be written, whatever texts a remote cluster sends.
	for _, phase := range beforeCommit {
		many := in(phase)
		for i := range proof.MostPods {
			name := strings.Repeat("<", 250) + strconv.Itoa(i)
			many.Writers = append(many.Writers, proof.Pod{Cluster: "west", UID: types.UID(strconv.Itoa(i)), Name: name, Node: name})
			many.Users = append(many.Users, proof.Node{Cluster: "west", Name: name})
		}
		step := decide.Next(many)
		require.Equal(t, "Save", step.Verb())
		require.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase, phase)
		assert.Equal(t, record.TooMuch, step.Saved().Cause)
		assert.True(t, step.Saved().Fits())
	}
}

func TestAMoveWithoutARecord(t *testing.T) {
	made := func(change func(*v1alpha1.VolumeMove)) *v1alpha1.VolumeMove {
		move := &v1alpha1.VolumeMove{Spec: v1alpha1.VolumeMoveSpec{Action: v1alpha1.ActionMove}}
		change(move)
		return move
	}
	held := func(move *v1alpha1.VolumeMove) { move.Finalizers = []string{keys.MoveFinalizer} }
	for _, test := range []struct {
		name     string
		move     *v1alpha1.VolumeMove
		mayBegin bool
		want     string
	}{
		{name: "nothing is done before its turn, not even a finalizer", move: made(func(*v1alpha1.VolumeMove) {}), want: "Idle"},
		{name: "in its turn it is held first", move: made(func(*v1alpha1.VolumeMove) {}), mayBegin: true, want: "Adopt"},
		{name: "and then looked at", move: made(held), mayBegin: true, want: "Inspect"},
		{name: "one that was held before a restart waits for its turn again", move: made(held), want: "Idle"},
		{name: "an abort waits for nothing", move: made(func(m *v1alpha1.VolumeMove) { held(m); m.Spec.Action = v1alpha1.ActionAbort }),
			want: "Inspect"},
		{name: "neither does one that is given up", move: made(func(m *v1alpha1.VolumeMove) { held(m); m.Spec.Action = v1alpha1.ActionGiveUp }),
			want: "Inspect"},
		{name: "nor one that is deleted", want: "Leave",
			move: made(func(m *v1alpha1.VolumeMove) { held(m); m.DeletionTimestamp = &metav1.Time{} })},
		{name: "one that is to be finalized has nothing to finalize yet",
			move: made(func(m *v1alpha1.VolumeMove) { held(m); m.Spec.Action = v1alpha1.ActionFinalize }), want: "Idle"},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, decide.Next(steps.Observation{Move: test.move, MayBegin: test.mayBegin}).Verb())
		})
	}
}

func TestTheRecordOfAFinishedMoveGoes(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	finished := func(phase v1alpha1.MovePhase) v1alpha1.VolumeMoveStatus {
		over := metav1.Condition{Type: v1alpha1.MoveFinished, Status: metav1.ConditionTrue}
		return v1alpha1.VolumeMoveStatus{Phase: phase, Conditions: []metav1.Condition{over},
			Phases: []v1alpha1.PhaseTime{{Phase: phase, Since: metav1.NewMicroTime(now.Add(-time.Minute))}}}
	}
	done := func(change func(*record.Record)) *record.Record {
		r := recordAt(v1alpha1.MoveDone, now.Add(-time.Minute))
		change(r)
		return r
	}
	nothing := func(*record.Record) {}
	for _, test := range []struct {
		name   string
		record *record.Record
		status v1alpha1.VolumeMoveStatus
		ttl    *int32
		held   bool
		want   string
		after  time.Duration
	}{
		{name: "not before the status says that the move is over", record: done(nothing), held: true, want: "Idle", after: time.Second},
		{name: "nor while it says that of another phase", record: done(nothing), status: finished(v1alpha1.MoveAborted), held: true, want: "Idle",
			after: time.Second},
		{name: "it goes", record: done(nothing), status: finished(v1alpha1.MoveDone), held: true, want: "Forget"},
		{name: "it stays as long as it names a volume that is kept", held: true, want: "Idle", status: finished(v1alpha1.MoveDone),
			record: done(func(r *record.Record) { r.Claims[0].Source.Stays = "pv-1" })},
		{name: "and one that was left behind in a cluster that is gone", held: true, want: "Idle", status: finished(v1alpha1.MoveDone),
			record: done(func(r *record.Record) { r.GivenUp = []record.End{record.Source} })},
		{name: "without it the move does not begin anew, and its finalizer goes", status: finished(v1alpha1.MoveDone), held: true, want: "Leave"},
		{name: "nothing more is done", status: finished(v1alpha1.MoveDone), want: "Idle"},
		{name: "the object is deleted when its time is over", status: finished(v1alpha1.MoveDone), ttl: ptr.To(int32(60)), want: "DeleteMove"},
		{name: "and not before", status: finished(v1alpha1.MoveDone), ttl: ptr.To(int32(90)), want: "Idle", after: 30 * time.Second},
		{name: "also while there is a record", held: true, want: "DeleteMove", status: finished(v1alpha1.MoveDone), ttl: ptr.To(int32(60)),
			record: done(func(r *record.Record) { r.Claims[0].Source.Stays = "pv-1" })},
		{name: "a first record that was written late is not gone by", record: recordAt(v1alpha1.MovePrepare, now), held: true, want: "Forget",
			status: finished(v1alpha1.MoveDone)},
		{name: "a move that is under way goes on, whatever its status says", record: recordAt(v1alpha1.MoveFinalize, now), held: true,
			status: finished(v1alpha1.MoveDone), want: "Save"},
	} {
		t.Run(test.name, func(t *testing.T) {
			move := &v1alpha1.VolumeMove{Spec: v1alpha1.VolumeMoveSpec{Action: v1alpha1.ActionMove, TTLSecondsAfterFinished: test.ttl},
				Status: test.status}
			if test.held {
				move.Finalizers = []string{keys.MoveFinalizer}
			}
			step := decide.Next(steps.Observation{Now: now, Move: move, Record: test.record, MayBegin: true,
				Claims: make([]steps.Claim, len(claimsOf(test.record)))})
			assert.Equal(t, test.want, step.Verb())
			assert.Equal(t, test.after, step.After)
		})
	}
}

func claimsOf(r *record.Record) []record.Claim {
	if r == nil {
		return nil
	}
	return r.Claims
}

func recordAt(phase v1alpha1.MovePhase, began time.Time) *record.Record {
	return &record.Record{UID: moveUID, Phase: phase, Began: map[v1alpha1.MovePhase]time.Time{phase: began},
		Claims: []record.Claim{{Name: "data", UID: "c1", Source: record.Copy{Ref: ref(record.Source, 0)},
			Target: record.Copy{Ref: ref(record.Target, 0)}}}}
}

func TestPace(t *testing.T) {
	for _, test := range []struct {
		name string
		// waits and advanced are for how long the move has waited for the same thing, and since
		// when a copy got no further; 0: it does not wait, and that is not known.
		waits, advanced time.Duration
		stopped         bool
		after, want     time.Duration
	}{
		{name: "at first a wait is looked at often", waits: time.Second, after: time.Second, want: time.Second},
		{name: "later seldom", waits: time.Minute, after: time.Second, want: 5 * time.Second},
		{name: "a copy that gets further is shown", waits: time.Minute, advanced: 2 * time.Second, after: time.Second, want: time.Second},
		{name: "one that stands still is not", waits: time.Minute, advanced: 30 * time.Second, after: time.Second, want: 5 * time.Second},
		{name: "while pods stand still it is looked at often", waits: 30 * time.Second, stopped: true, after: 100 * time.Millisecond,
			want: 100 * time.Millisecond},
		{name: "but not for ever", waits: 2 * time.Minute, stopped: true, after: 100 * time.Millisecond, want: time.Second},
		{name: "what is waited for longer is not looked at more often", waits: time.Hour, after: time.Hour, want: time.Hour},
		{name: "what only an event ends is left to that", waits: time.Hour, want: 0},
		{name: "without a wait nothing changes", after: time.Second, want: time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := in(v1alpha1.MovePreCopy)
			if test.stopped {
				o.Record.Down = o.Now.Add(-time.Hour)
			}
			var since time.Time
			if test.waits > 0 {
				since = o.Now.Add(-test.waits)
			}
			if test.advanced > 0 {
				o.Advanced = o.Now.Add(-test.advanced)
			}
			assert.Equal(t, test.want, decide.Pace(o, steps.Step{After: test.after}, since))
		})
	}
}
