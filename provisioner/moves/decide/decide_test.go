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

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
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
	running := steps.Mover{Exists: true, Running: true}
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
		for i := range record.MostPods {
			name := strings.Repeat("<", 250) + strconv.Itoa(i)
			many.Writers = append(many.Writers, record.Pod{Cluster: "west", UID: types.UID(strconv.Itoa(i)), Name: name, Node: name})
			many.Users = append(many.Users, record.Node{Cluster: "west", Name: name})
		}
		step := decide.Next(many)
		require.Equal(t, "Save", step.Verb())
		require.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase, phase)
		assert.Equal(t, record.TooMuch, step.Saved().Cause)
		assert.True(t, step.Saved().Fits())
	}
}
