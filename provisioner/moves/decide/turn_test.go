package decide_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
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
		{name: "nor one that is deleted", move: made(func(m *v1alpha1.VolumeMove) { held(m); m.DeletionTimestamp = &metav1.Time{} }), want: "Leave"},
		{name: "one that is to be finalized has nothing to finalize yet",
			move: made(func(m *v1alpha1.VolumeMove) { held(m); m.Spec.Action = v1alpha1.ActionFinalize }), want: "Idle"},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, decide.Next(steps.Observation{Move: test.move, MayBegin: test.mayBegin}).Verb())
		})
	}
}
