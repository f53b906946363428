package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

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
