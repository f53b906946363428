package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

func TestTheSourceIsKeptWhileTheTargetIsNotKnownToBeThere(t *testing.T) {
	whole := func() steps.Observation {
		o := in(v1alpha1.MoveFinalize)
		shelved := map[string]string{keys.MoveOf: string(moveUID)}
		o.Claims[0].Source.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Source, 0).UID, Labels: shelved}}
		o.Claims[0].Target.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID}}
		o.Claims[0].Target.Real = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real-1"}}
		o.Record.Claims[0].New = &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.BackingVolume: "real-1"}},
		}
		return o
	}
	assert.Equal(t, "DropBacking", decide.Next(whole()).Verb())

	for name, harm := range map[string]func(o *steps.Observation){
		"its cluster is away":          func(o *steps.Observation) { o.Target.Unusable = "west is away" },
		"its real claim is gone":       func(o *steps.Observation) { o.Claims[0].Target.Backing = nil },
		"its real volume is not bound": func(o *steps.Observation) { o.Claims[0].Target.Real = nil },
		"it has another real volume":   func(o *steps.Observation) { o.Claims[0].Target.Real.Name = "empty" },
		"its real claim is deleted":    func(o *steps.Observation) { o.Claims[0].Target.Backing.DeletionTimestamp = &metav1.Time{Time: o.Now} },
		"its real volume is deleted":   func(o *steps.Observation) { o.Claims[0].Target.Real.DeletionTimestamp = &metav1.Time{Time: o.Now} },
	} {
		o := whole()
		harm(&o)
		step := decide.Next(o)
		assert.Equal(t, "Idle", step.Verb(), name)
		assert.Contains(t, step.Say, "the copy at the source is not removed", name)
		assert.Equal(t, o.Target.Unusable != "", step.Need == steps.ClusterAway, name)
		assert.NotEmpty(t, step.Need, name)
	}

	healed := whole()
	healed.Claims[0].Target.Backing.UID = "another"
	assert.Equal(t, "DropBacking", decide.Next(healed).Verb(), "a real claim that came back has the same volume")

	deleted := whole()
	deleted.Claims[0].Claim, deleted.Claims[0].Target = nil, steps.Side{}
	assert.Equal(t, "DropBacking", decide.Next(deleted).Verb(), "who deleted the claim wants neither copy")
}

func TestWhatOutlivesItsClaimIsRecordedBeforeThatIsRemoved(t *testing.T) {
	labels := map[string]string{keys.MoveOf: string(moveUID)}
	for end, phase := range map[record.End]v1alpha1.MovePhase{record.Source: v1alpha1.MoveFinalize, record.Target: v1alpha1.MoveRollBack} {
		o := in(phase)
		o.Record.Freed = true
		o.Claims[0].Target.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID}}
		o.Claims[0].Target.Real = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "to"}}
		side := &o.Claims[0].Target
		if end == record.Source {
			side = &o.Claims[0].Source
		}
		real := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real-1"},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain}}
		*side = steps.Side{Backing: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(end, 0).UID, Labels: labels}},
			Real: real}
		step := decide.Next(o)
		require.Equal(t, "Save", step.Verb())
		require.Equal(t, "real-1", step.Saved().Claims[0].At(end).Stays)
		o.Record = touchEvery(t, step.Saved())
		require.Equal(t, "DropBacking", decide.Next(o).Verb())
		assert.Contains(t, o.Record.KeptVolumes(), "real-1")

		real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		step = decide.Next(o)
		require.Equal(t, "Save", step.Verb(), "it was changed meanwhile")
		assert.Empty(t, step.Saved().KeptVolumes())
	}
}

func TestAMoverThatOnlyReadsHoldsNobodyUp(t *testing.T) {
	ending := movers.State{Exists: true, Leaving: true}
	o := in(v1alpha1.MoveCommit)
	o.Claims[0].Target.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID}}
	o.Claims[0].Volume, o.Record.Claims[0].New = nil, virtual(0, record.Target)
	o.Claims[0].Source.Mover = movers.State{Exists: true, Running: true}
	assert.Equal(t, "DropMover", decide.Next(o).Verb(), "it is told to end")
	o.Claims[0].Source.Mover = ending
	assert.Equal(t, "MakeVolume", decide.Next(o).Verb(), "its node may be gone")
	o.Claims[0].Target.Mover = ending
	o.Record.Began[v1alpha1.MoveCommit] = o.Now
	soon := decide.Next(o)
	assert.Equal(t, "Idle", soon.Verb(), "that at the target writes")
	assert.Empty(t, soon.Need)
	o.Now, o.Claims[0].Target.Mover.Node = o.Now.Add(time.Minute), "west-1"
	late := decide.Next(o)
	assert.Equal(t, "Idle", late.Verb(), "it still does")
	assert.Equal(t, steps.NodeAway, late.Need, "which is not waited for in silence")
	assert.Contains(t, late.Say, "waiting until the mover of claim ")
	assert.Contains(t, late.Say, "its node west-1 of ")
	assert.Contains(t, late.Say, "once it is surely off delete the Node or taint it node.kubernetes.io/out-of-service there")
	o.Claims[0].Target.Mover.Node = ""
	assert.Equal(t, steps.NodeAway, decide.Next(o).Need)

	back := in(v1alpha1.MoveRollBack)
	back.Record.Claims[0].Volume = virtual(0, record.Source)
	back.Claims[0].Volume, back.Claims[0].Source.Mover = nil, ending
	back.Record.Began[v1alpha1.MoveRollBack] = back.Now
	assert.Equal(t, "Idle", decide.Next(back).Verb())
	back.Now = back.Now.Add(time.Minute)
	assert.Equal(t, "MakeVolume", decide.Next(back).Verb())
}

func TestACopyIsKeptUntilPodsAreReadyAlsoIfTheMoveIsDeleted(t *testing.T) {
	o := in(v1alpha1.MoveRetain)
	o.Claims[0].Claim.Annotations, o.Claims[0].Claim.Labels = nil, nil
	o.Claims[0].Source.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Source, 0).UID,
		Labels: map[string]string{keys.MoveOf: string(moveUID)}}}
	o.Move.DeletionTimestamp = &metav1.Time{Time: o.Now}
	o.Pods = []steps.Pod{{Name: "db-0", Bound: true}}
	waits := decide.Next(o)
	assert.Equal(t, "Idle", waits.Verb())
	assert.Contains(t, waits.Say, "pod db-0 is ready")
	finalize := o
	finalize.Move = o.Move.DeepCopy()
	finalize.Move.Spec.Action = v1alpha1.ActionFinalize
	assert.Equal(t, v1alpha1.MoveFinalize, decide.Next(finalize).Saved().Phase)
	o.Pods[0].Ready = true
	assert.Equal(t, v1alpha1.MoveFinalize, decide.Next(o).Saved().Phase, "it is not kept for as long as was asked")
}

func TestACommitDoesNotNeedTheSource(t *testing.T) {
	o := in(v1alpha1.MoveCommit)
	o.Source.Unusable = "cluster east is away"
	o.Claims[0].Target.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID}}
	o.Claims[0].Volume = nil
	o.Record.Claims[0].New = virtual(0, record.Target)
	assert.Equal(t, "MakeVolume", decide.Next(o).Verb())

	// Changes that were not possible then are made before anything is deleted.
	o = in(v1alpha1.MoveFinalize)
	o.Claims[0].Target.Backing, o.Claims[0].Target.Real = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target,
		0).UID}}, &corev1.PersistentVolume{}
	o.Claims[0].Source.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Source, 0).UID}}
	o.Claims[0].Source.Mover = movers.State{Exists: true, Running: true}
	assert.Equal(t, "Shelve", decide.Next(o).Verb())
	o.Claims[0].Source.Backing.Labels = map[string]string{keys.MoveOf: string(moveUID)}
	assert.Equal(t, "DropMover", decide.Next(o).Verb())
	o.Claims[0].Source.Mover = movers.State{}
	assert.Equal(t, "DropBacking", decide.Next(o).Verb())
}

// committing is a move in Commit whose movers still run.
func committing() steps.Observation {
	o := in(v1alpha1.MoveCommit)
	o.Record.Began[v1alpha1.MoveCommit] = o.Now
	o.Record.Claims[0].New = virtual(0, record.Target)
	of := map[string]string{keys.MoveOf: string(moveUID)}
	o.Claims[0].Source = steps.Side{Backing: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Source, 0).UID}},
		Mover: movers.State{Exists: true, Running: true}}
	o.Claims[0].Target = steps.Side{Backing: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID,
		Labels: of}}, Mover: movers.State{Exists: true, Running: true}}
	o.Claims[0].Volume = nil
	return o
}

func verbs(step steps.Step) (all []string) {
	for _, one := range step.Each() {
		all = append(all, one.Verb())
	}
	return all
}

func TestWhatNobodyUsesYetIsDoneWhileMoversEnd(t *testing.T) {
	o := committing()
	require.Equal(t, []string{"DropMover", "DropMover", "Publish", "Shelve"}, verbs(decide.Next(o)))
	o.Claims[0].Source.Mover.Leaving, o.Claims[0].Target.Mover.Leaving = true, true
	o.Claims[0].Target.Backing.Labels = nil
	o.Claims[0].Source.Backing.Labels = map[string]string{keys.MoveOf: string(moveUID)}
	assert.Contains(t, decide.Next(o).Say, "waiting until the mover of claim data at the target has ended")
	o.Claims[0].Target.Mover = movers.State{}
	assert.Equal(t, "MakeVolume", decide.Next(o).Verb(), "the mover at the source is not waited for")
}

func TestAClaimIsTouchedAgainOnceItsVolumeIsKnown(t *testing.T) {
	o := committing()
	o.Claims[0].Source.Mover, o.Claims[0].Target.Mover = movers.State{}, movers.State{}
	o.Claims[0].Target.Backing.Labels = nil
	o.Claims[0].Source.Backing.Labels = map[string]string{keys.MoveOf: string(moveUID)}
	o.Claims[0].Volume = virtual(0, record.Target)
	touched := func(why string) {
		step := decide.Next(o)
		require.Equal(t, "Touch", step.Verb(), why)
		o.Claims[0].Claim.Annotations[keys.MoveTouched] = as[steps.Touch](step).Text
		require.Equal(t, "Idle", decide.Next(o).Verb(), "once is enough for now")
	}
	touched("it is to be looked at")
	o.Claims[0].Volume.Status.Phase = corev1.VolumeBound
	touched("whoever looked at it before may not have known of its volume")
	o.Now = o.Now.Add(5 * time.Second)
	touched("a conflict may have kept it from being bound")
	o.Claims[0].Claim.Status.Phase = corev1.ClaimBound
	assert.Equal(t, v1alpha1.MoveResume, decide.Next(o).Saved().Phase)
}

// letting is a move in Commit whose movers are connected.
func letting(task *moverapi.TaskStatus) steps.Observation {
	o := committing()
	o.Claims[0].Target.Backing.Labels = nil
	o.Claims[0].Source.Backing.Labels = map[string]string{keys.MoveOf: string(moveUID)}
	o.Claims[0].Copy = &moverapi.Status{Connected: true, Task: task}
	return o
}

func TestAMoverAtTheTargetIsNotWaitedForOnceItWritesNothingMore(t *testing.T) {
	verified := &moverapi.TaskStatus{Task: moverapi.Task{ID: "verify-0", Kind: moverapi.Verify}, State: moverapi.Done}
	released := func(state moverapi.State) *moverapi.TaskStatus {
		return &moverapi.TaskStatus{Task: moverapi.Task{ID: "release", Kind: moverapi.Release}, State: state}
	}
	for name, row := range map[string]struct {
		o    func() steps.Observation
		want []string
	}{
		"it is asked first": {func() steps.Observation { return letting(verified) }, []string{"Start"}},
		"what nobody uses yet is done meanwhile": {func() steps.Observation {
			o := letting(verified)
			o.Claims[0].Source.Backing.Labels = nil
			return o
		}, []string{"Start", "Shelve"}},
		"it has not answered yet": {func() steps.Observation { return letting(released(moverapi.Running)) }, []string{"Idle"}},
		"its answer is recorded":  {func() steps.Observation { return letting(released(moverapi.Done)) }, []string{"Save"}},
		"it failed, so its end is waited for": {func() steps.Observation { return letting(released(moverapi.Failed)) },
			[]string{"DropMover", "DropMover"}},
		"it takes too long": {func() steps.Observation {
			o := letting(released(moverapi.Running))
			o.Now = o.Now.Add(6 * time.Second)
			return o
		}, []string{"DropMover", "DropMover"}},
		"only one pod may have the claim": {func() steps.Observation {
			o := letting(verified)
			o.Record.Claims[0].Offline = true
			return o
		}, []string{"DropMover", "DropMover"}},
		"it has a device in west": {func() steps.Observation {
			o := letting(verified)
			o.Record.Claims[0].Volume.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
			return o
		}, []string{"Start"}},
		"it has a device at home": {func() steps.Observation {
			o := letting(verified)
			o.Record.Claims[0].Volume.Spec.VolumeMode, o.Record.Claims[0].Target.Ref.Cluster = ptr.To(corev1.PersistentVolumeBlock), keys.Home
			return o
		}, []string{"DropMover", "DropMover"}},
		"the source is away, so it cannot be asked": {func() steps.Observation {
			o := letting(verified)
			o.Source.Unusable = "east is away"
			o.Claims[0].Source = steps.Side{}
			return o
		}, []string{"DropMover"}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, row.want, verbs(decide.Next(row.o()))) })
	}
	o := letting(released(moverapi.Done))
	o.Record = decide.Next(o).Saved()
	require.True(t, o.Record.Claims[0].Released)
	require.Equal(t, []string{"DropMover", "DropMover", "MakeVolume"}, verbs(decide.Next(o)), "movers end meanwhile")
	o.Claims[0].Source.Mover, o.Claims[0].Target.Mover = movers.State{Exists: true, Leaving: true}, movers.State{Exists: true, Leaving: true}
	assert.Equal(t, "MakeVolume", decide.Next(o).Verb(), "its pod may take its time")
	o.Record.Claims[0].Released = false
	assert.Equal(t, "Idle", decide.Next(o).Verb(), "else it may write")
}

func TestAVolumeThatWasTakenFromItsClaimGoesAlsoIfTheClaimIsDeleted(t *testing.T) {
	o := in(v1alpha1.MoveRollBack)
	o.Claims[0].Claim = nil
	volume := o.Claims[0].Volume
	volume.DeletionTimestamp, volume.Spec.ClaimRef = &metav1.Time{Time: o.Now}, &corev1.ObjectReference{Name: "data", UID: "c1"}
	assert.NotEqual(t, "FreeVolume", decide.Next(o).Verb(), "that is the matter of who deleted the claim")
	volume.Spec.ClaimRef.Name = record.SecretName(moveUID)
	volume.Finalizers = []string{"external-attacher/disk-example-com"}
	assert.Contains(t, decide.Next(o).Say, "external-attacher/disk-example-com")
	volume.Finalizers = nil
	assert.Equal(t, "FreeVolume", decide.Next(o).Verb(), "it would be kept with its data for ever")
	o.Claims[0].Volume = nil
	assert.Equal(t, "MakeVolume", decide.Next(o).Verb(), "the one from before, whose policy says what becomes of the data")
}
