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
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// committing is a move that was just committed, whose movers run.
func committing() decide.Observation {
	o := in(v1alpha1.MoveCommit)
	o.Record.Began[v1alpha1.MoveCommit] = o.Now
	o.Record.Claims[0].New = virtual(0, record.Target)
	of := map[string]string{keys.MoveOf: string(moveUID)}
	o.Claims[0].Source = decide.Side{Backing: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Source, 0).UID}}, Mover: decide.Mover{Exists: true, Running: true}}
	o.Claims[0].Target = decide.Side{Backing: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID, Labels: of}}, Mover: decide.Mover{Exists: true, Running: true}}
	o.Claims[0].Volume = nil
	return o
}

func verbs(step decide.Step) []decide.Verb {
	all := []decide.Verb{step.Verb}
	for _, also := range step.Also {
		all = append(all, also.Verb)
	}
	return all
}

func TestWhatNobodyUsesYetIsDoneWhileMoversEnd(t *testing.T) {
	o := committing()
	require.Equal(t, []decide.Verb{decide.DropMover, decide.DropMover, decide.Publish, decide.Shelve}, verbs(decide.Next(o)))
	o.Claims[0].Source.Mover.Leaving, o.Claims[0].Target.Mover.Leaving = true, true
	o.Claims[0].Target.Backing.Labels = nil
	o.Claims[0].Source.Backing.Labels = map[string]string{keys.MoveOf: string(moveUID)}
	assert.Contains(t, decide.Next(o).Say, "waiting until the mover of claim data at the target has ended")
	o.Claims[0].Target.Mover = decide.Mover{}
	assert.Equal(t, decide.MakeVolume, decide.Next(o).Verb, "the mover at the source is not waited for")
}

func TestAClaimIsTouchedAgainOnceItsVolumeIsKnown(t *testing.T) {
	o := committing()
	o.Claims[0].Source.Mover, o.Claims[0].Target.Mover = decide.Mover{}, decide.Mover{}
	o.Claims[0].Target.Backing.Labels = nil
	o.Claims[0].Source.Backing.Labels = map[string]string{keys.MoveOf: string(moveUID)}
	o.Claims[0].Volume = virtual(0, record.Target)
	touched := func(why string) {
		step := decide.Next(o)
		require.Equal(t, decide.Touch, step.Verb, why)
		o.Claims[0].Claim.Annotations[keys.MoveTouched] = step.Text
		require.Equal(t, decide.Idle, decide.Next(o).Verb, "once is enough for now")
	}
	touched("it is to be looked at")
	o.Claims[0].Volume.Status.Phase = corev1.VolumeBound
	touched("whoever looked at it before may not have known of its volume")
	o.Now = o.Now.Add(5 * time.Second)
	touched("a conflict may have kept it from being bound")
	o.Claims[0].Claim.Status.Phase = corev1.ClaimBound
	assert.Equal(t, v1alpha1.MoveResume, decide.Next(o).Record.Phase)
}
