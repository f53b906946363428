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

// in returns what is seen of a move of one claim in a phase.
func in(phase v1alpha1.MovePhase) decide.Observation {
	now := time.Now()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", UID: "v1"}}
	return decide.Observation{
		Now:  now,
		Move: &v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{UID: moveUID}, Spec: v1alpha1.VolumeMoveSpec{Action: v1alpha1.ActionMove}},
		Record: &record.Record{UID: moveUID, Phase: phase, Began: map[v1alpha1.MovePhase]time.Time{phase: now.Add(-2 * time.Hour)},
			Claims: []record.Claim{{Name: "data", UID: "c1", Volume: volume, Source: record.Copy{Ref: ref(record.Source, 0)}, Target: record.Copy{Ref: ref(record.Target, 0)}}}},
		Claims: []decide.Claim{{
			Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Name: "data", UID: "c1", Annotations: map[string]string{keys.Move: string(moveUID)}, Labels: map[string]string{keys.Moving: keys.MovingNow},
			}},
			Volume: volume.DeepCopy(),
		}},
		Unusable: map[record.End]string{},
	}
}

func TestAVolumeThatIsNotDetachedIsNotTakenFromItsAttacher(t *testing.T) {
	o := in(v1alpha1.MoveFence)
	now := metav1.Now()
	o.Claims[0].Volume.DeletionTimestamp = &now
	o.Claims[0].Volume.Finalizers = []string{"kubernetes.io/pv-protection", "external-attacher/disk-example-com"}
	step := decide.Next(o)
	assert.Equal(t, decide.Idle, step.Verb)
	assert.Contains(t, step.Say, "external-attacher/disk-example-com")

	o.Claims[0].Volume.Finalizers = []string{"kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer"}
	assert.Equal(t, decide.FreeVolume, decide.Next(o).Verb)
}

func TestTheSourceIsKeptWhileTheTargetIsNotKnownToBeThere(t *testing.T) {
	whole := func() decide.Observation {
		o := in(v1alpha1.MoveFinalize)
		shelved := map[string]string{keys.MoveOf: string(moveUID)}
		o.Claims[0].Source.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Source, 0).UID, Labels: shelved}}
		o.Claims[0].Target.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID}}
		o.Claims[0].Target.Real = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real-1"}}
		o.Record.Claims[0].New = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.BackingVolume: "real-1"}}}
		return o
	}
	assert.Equal(t, decide.DropBacking, decide.Next(whole()).Verb)

	for name, harm := range map[string]func(o *decide.Observation){
		"its cluster is away":          func(o *decide.Observation) { o.Unusable[record.Target] = "west is away" },
		"its real claim is gone":       func(o *decide.Observation) { o.Claims[0].Target.Backing = nil },
		"its real volume is not bound": func(o *decide.Observation) { o.Claims[0].Target.Real = nil },
		"it has another real volume":   func(o *decide.Observation) { o.Claims[0].Target.Real.Name = "empty" },
		"its real claim is deleted":    func(o *decide.Observation) { o.Claims[0].Target.Backing.DeletionTimestamp = &metav1.Time{Time: o.Now} },
		"its real volume is deleted":   func(o *decide.Observation) { o.Claims[0].Target.Real.DeletionTimestamp = &metav1.Time{Time: o.Now} },
	} {
		o := whole()
		harm(&o)
		step := decide.Next(o)
		assert.Equal(t, decide.Idle, step.Verb, name)
		assert.Contains(t, step.Say, "the copy at the source is not removed", name)
		assert.Equal(t, o.Unusable[record.Target] != "", step.Need == decide.ClusterAway, name)
		assert.NotEmpty(t, step.Need, name)
	}

	healed := whole()
	healed.Claims[0].Target.Backing.UID = "another"
	assert.Equal(t, decide.DropBacking, decide.Next(healed).Verb, "a real claim that came back has the same volume")

	deleted := whole()
	deleted.Claims[0].Claim, deleted.Claims[0].Target = nil, decide.Side{}
	assert.Equal(t, decide.DropBacking, decide.Next(deleted).Verb, "who deleted the claim wants neither copy")
}

func TestWhatOutlivesItsClaimIsRecordedBeforeThatIsRemoved(t *testing.T) {
	labels := map[string]string{keys.MoveOf: string(moveUID)}
	for end, phase := range map[record.End]v1alpha1.MovePhase{record.Source: v1alpha1.MoveFinalize, record.Target: v1alpha1.MoveRollBack} {
		o := in(phase)
		o.Record.Freed = end == record.Target
		o.Claims[0].Target.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID}}
		o.Claims[0].Target.Real = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "to"}}
		side := &o.Claims[0].Target
		if end == record.Source {
			side = &o.Claims[0].Source
		}
		real := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real-1"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain}}
		*side = decide.Side{Backing: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(end, 0).UID, Labels: labels}}, Real: real}
		step := decide.Next(o)
		require.Equal(t, decide.Save, step.Verb)
		require.Equal(t, "real-1", step.Record.Claims[0].At(end).Stays)
		o.Record = again(t, step.Record)
		require.Equal(t, decide.DropBacking, decide.Next(o).Verb)
		assert.Contains(t, o.Record.Kept(), "real-1")

		real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		step = decide.Next(o)
		require.Equal(t, decide.Save, step.Verb, "it was changed meanwhile")
		assert.Empty(t, step.Record.Kept())
	}
}

func TestWhatCannotBeKeptEndsTheMoveBeforeAnythingStops(t *testing.T) {
	for want, refusals := range map[string][]movecontrol.Refusal{
		"claim data cannot be moved there whole: dev/null: the target cannot keep devices: mend": {{Path: "dev/null", Reason: "the target cannot keep devices"}},
		"claim data cannot be moved there whole: no room (more reasons: 1): mend":                {{Reason: "no room"}, {Path: "a", Reason: "b"}},
	} {
		o := in(v1alpha1.MoveProvision)
		backing := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID, Labels: map[string]string{keys.MoveOf: string(moveUID)}}}
		running := decide.Mover{Exists: true, Running: true}
		o.Claims[0].Source.Mover, o.Claims[0].Target = running, decide.Side{Backing: backing, Mover: running}
		o.Claims[0].Copy = &movecontrol.Status{Connected: true, Task: &movecontrol.TaskStatus{
			Task: movecontrol.Task{ID: "prepare"}, State: movecontrol.Done, Prepared: &movecontrol.Prepared{Refusals: refusals},
		}}
		step := decide.Next(o)
		assert.Equal(t, v1alpha1.MoveRollBack, step.Record.Phase)
		assert.True(t, step.Record.Refused)
		assert.Contains(t, step.Record.Why, want)
		assert.Contains(t, step.Record.Why, "nothing was stopped")
	}
}

func TestAMoveWhoseTargetIsRefusedForLongGoesBack(t *testing.T) {
	o := in(v1alpha1.MoveProvision)
	o.Claims[0].Target.Backing, o.Record.Claims[0].Target.Ref.UID = nil, ""
	require.Equal(t, decide.MakeTarget, decide.Next(o).Verb)
	o.Failing, o.FailingWhy = o.Now.Add(-9*time.Minute), "exceeded quota"
	require.Equal(t, decide.MakeTarget, decide.Next(o).Verb, "it is tried again for a while, however long the phase has lasted")
	o.Failing = o.Now.Add(-11 * time.Minute)
	step := decide.Next(o)
	require.Equal(t, v1alpha1.MoveRollBack, step.Record.Phase)
	assert.Equal(t, record.NotStarted, step.Record.Cause)
	assert.Equal(t, "exceeded quota; nothing was stopped for the move: mend that and move again", step.Say)
	// Once pods have stopped, the copy alone says when to go back.
	o.Record.Phase = v1alpha1.MovePreCopy
	assert.NotEqual(t, record.NotStarted, func() record.Cause {
		if step := decide.Next(o); step.Record != nil {
			return step.Record.Cause
		}
		return ""
	}())
}
