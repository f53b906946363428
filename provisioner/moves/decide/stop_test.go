package decide_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

func TestAVolumeThatIsNotDetachedIsNotTakenFromItsAttacher(t *testing.T) {
	o := in(v1alpha1.MoveFence)
	o.Record.Began[v1alpha1.MoveFence] = o.Now
	now := metav1.Now()
	o.Claims[0].Volume.DeletionTimestamp = &now
	o.Claims[0].Volume.Finalizers = []string{"kubernetes.io/pv-protection", "external-attacher/disk-example-com"}
	o.Claims[0].Volume.Spec.ClaimRef = &corev1.ObjectReference{Name: record.SecretName(moveUID)}
	o.Claims[0].Volume.Status.Phase = corev1.VolumeReleased
	step := decide.Next(o)
	assert.Equal(t, "Idle", step.Verb())
	assert.Contains(t, step.Say, "external-attacher/disk-example-com")

	o.Claims[0].Volume.Finalizers = []string{"kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer"}
	assert.Equal(t, "FreeVolume", decide.Next(o).Verb())
}

func TestAMoverThatKeepsAVolumeAttachedEndsBeforeThatIsFenced(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveQuiesce, v1alpha1.MoveFence} {
		o := in(phase)
		o.Record.Began[phase] = o.Now
		o.Claims[0].Source.Mover = movers.State{Exists: true, Running: true}
		o.Claims[0].Attached = true
		drops := decide.Next(o)
		require.Equal(t, "DropMover", drops.Verb(), "%s", phase)
		assert.Equal(t, record.Source, as[steps.DropMover](drops).End)

		o.Claims[0].Source.Mover.Leaving = true
		waits := decide.Next(o)
		require.Equal(t, "Idle", waits.Verb(), "%s", phase)
		assert.Contains(t, waits.Say, "the mover of claim")

		o.Claims[0].Source.Mover, o.Attachments = movers.State{}, []string{"node home-1, which it is attached to"}
		waits = decide.Next(o)
		require.Equal(t, "Idle", waits.Verb(), "%s", phase)
		assert.Contains(t, waits.Say, "node home-1, which it is attached to")

		o.Claims[0].Attached, o.Attachments = false, nil
		assert.NotEqual(t, "Idle", decide.Next(o).Verb(), "%s", phase)

		// A driver that attaches nothing keeps its mover, with what it knows.
		o.Claims[0].Source.Mover = movers.State{Exists: true, Running: true}
		assert.NotEqual(t, "DropMover", decide.Next(o).Verb(), "%s", phase)
	}
}

func TestAVolumeThatIsNotFencedForReasonsOfOurOwnGoesBack(t *testing.T) {
	for name, row := range map[string]struct {
		phase  v1alpha1.MovePhase
		stands func(*steps.Observation)
		pods   bool
	}{
		"a mover that does not end": {phase: v1alpha1.MoveQuiesce, stands: func(o *steps.Observation) {
			o.Claims[0].Attached, o.Claims[0].Source.Mover = true, movers.State{Exists: true, Leaving: true}
		}},
		"a volume that is not detached": {phase: v1alpha1.MoveQuiesce, stands: func(o *steps.Observation) {
			o.Attachments = []string{"node home-1, which it is attached to"}
		}},
		"one that its attacher does not let go": {phase: v1alpha1.MoveFence, stands: func(o *steps.Observation) {
			o.Claims[0].Volume.DeletionTimestamp = &metav1.Time{Time: o.Now}
			o.Claims[0].Volume.Finalizers = []string{"external-attacher/disk-example-com"}
		}},
		"a claim that is not seen without a volume": {phase: v1alpha1.MoveFence, stands: func(o *steps.Observation) {
			o.Claims[0].Volume = nil
			o.Claims[0].Claim.Status.Phase = corev1.ClaimBound
		}},
		"but not a pod that takes its time": {phase: v1alpha1.MoveQuiesce, pods: true, stands: func(o *steps.Observation) {
			o.Pods = []steps.Pod{{Name: "db-0", Bound: true, Leaving: true, Owned: true}}
			o.Attachments = []string{"node home-1, which it is attached to"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := in(row.phase)
			o.Record.Began[row.phase] = o.Now.Add(-time.Minute)
			row.stands(&o)
			noted := decide.Next(o)
			if row.pods {
				require.Equal(t, "Idle", noted.Verb())
				return
			}
			require.Equal(t, "Save", noted.Verb())
			require.Equal(t, o.Now, noted.Saved().Stalled)
			o.Record = noted.Saved()
			assert.NotEqual(t, "Save", decide.Next(o).Verb())
			o.Now = o.Now.Add(10 * time.Minute)
			back := decide.Next(o)
			require.Equal(t, "Save", back.Verb())
			assert.Equal(t, v1alpha1.MoveRollBack, back.Saved().Phase)
			assert.Equal(t, record.StoodStill, back.Saved().Cause)
		})
	}
}

func TestNoPodIsStoppedUnlessItsSuccessorIsHeldBack(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveQuiesce, v1alpha1.MoveFence} {
		o := in(phase)
		o.Record.Began[phase] = o.Now
		o.Claims[0].Attached, o.Claims[0].Source.Mover = true, movers.State{Exists: true, Running: true}
		o.Pods = []steps.Pod{{Name: "db-0", UID: "d", Owned: true, Bound: true, NotHeld: "nothing gave it the gate"}}
		waits := decide.Next(o)
		require.Equal(t, "Idle", waits.Verb(), "an API server may not have seen the lock yet")
		assert.Contains(t, waits.Say, "pod db-0 is not stopped, for a new one would not be held back: nothing gave it the gate")

		o.Now = o.Now.Add(10 * time.Second)
		back := decide.Next(o)
		require.Equal(t, "Save", back.Verb())
		assert.Equal(t, v1alpha1.MoveRollBack, back.Saved().Phase)
		assert.Equal(t, record.NotHeldBack, back.Saved().Cause)
		assert.Contains(t, back.Saved().Why, "apply deploy/base of this version")

		o.Pods[0].Held, o.Pods[0].NotHeld = true, ""
		assert.Equal(t, "DeletePod", decide.Next(o).Verb())
	}
}

func TestWhatSomebodyMayHaveWrittenToIsCopiedAgain(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying} {
		o := in(phase)
		o.Record.Stalled = o.Now // there are no movers
		c := &o.Record.Claims[0]
		c.Instance, c.SourceRoot, c.TargetRoot, c.Try = "i1", "root", "root", 3
		o.Others = []string{"pod shell in west"}
		noted := decide.Next(o)
		require.Equal(t, "Save", noted.Verb())
		require.True(t, noted.Saved().Intruded, "a provisioner that is killed now still knows")
		require.Contains(t, noted.Say, "pod shell in west")

		o.Record = noted.Saved()
		waits := decide.Next(o)
		require.Equal(t, "Idle", waits.Verb())
		require.Contains(t, waits.Say, "pod shell in west")

		o.Others = nil
		again := decide.Next(o)
		require.Equal(t, "Save", again.Verb())
		assert.Equal(t, v1alpha1.MoveFinalSync, again.Saved().Phase)
		assert.False(t, again.Saved().Intruded)
		claim := again.Saved().Claims[0]
		assert.Equal(t, 4, claim.Try)
		assert.Empty(t, claim.Instance+claim.SourceRoot+claim.TargetRoot)
	}
}

func TestAPodOfAJobIsNeverStopped(t *testing.T) {
	const suspend = `kubectl patch job nightly -n shop -p '{"spec":{"suspend":true}}'`
	job := steps.Pod{Name: "nightly-1", UID: "j", Owned: true, Job: "nightly", Bound: true}
	others := steps.Pod{Name: "db-0", UID: "d", Owned: true, Bound: true, Held: true}
	seen := func(phase v1alpha1.MovePhase, pods ...steps.Pod) steps.Observation {
		o := single(phase) // whose movers run
		o.Record.Namespace, o.Pods = "shop", pods
		return o
	}
	// It began after the inspection: no pod is stopped while the move waits.
	waits := decide.Next(seen(v1alpha1.MovePreCopy, others, job))
	require.Equal(t, "Idle", waits.Verb())
	assert.Contains(t, waits.Say, "pod nightly-1 of Job nightly")
	assert.Contains(t, waits.Say, suspend)
	ended := job
	ended.Finished = true
	assert.Equal(t, v1alpha1.MoveQuiesce, decide.Next(seen(v1alpha1.MovePreCopy, others, ended)).Saved().Phase)

	// It began between the inspection and the gate.
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveQuiesce, v1alpha1.MoveFence} {
		step := decide.Next(seen(phase, job, others))
		require.Equal(t, "Save", step.Verb())
		assert.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase)
		assert.Equal(t, record.PodsInTheWay, step.Saved().Cause)
		assert.Contains(t, step.Saved().Why, suspend)
	}
	pending := job
	pending.Bound = false
	step := decide.Next(seen(v1alpha1.MoveQuiesce, pending, others))
	require.Equal(t, "DeletePod", step.Verb())
	assert.Equal(t, "db-0", as[steps.DeletePod](step).Pod.Name)
	assert.Equal(t, v1alpha1.MoveFence, decide.Next(seen(v1alpha1.MoveQuiesce, pending)).Saved().Phase, "a Job counts that one as failed, too")
}

// TestAVolumeIsTakenFromItsClaimBeforeItGoes is about the warning of kube-controller-manager that the data of a claim is lost.
func TestAVolumeIsTakenFromItsClaimBeforeItGoes(t *testing.T) {
	o := in(v1alpha1.MoveFence)
	o.Record.Began[v1alpha1.MoveFence] = o.Now
	volume := o.Claims[0].Volume
	volume.Spec.ClaimRef, volume.Status.Phase = &corev1.ObjectReference{Name: "data", UID: "c1"}, corev1.VolumeBound
	o.Claims[0].Claim.Status.Phase = corev1.ClaimBound
	assert.Equal(t, "DeleteVolume", decide.Next(o).Verb())
	now := metav1.Now()
	volume.DeletionTimestamp = &now
	assert.Equal(t, "DeleteVolume", decide.Next(o).Verb(), "it was deleted, and is still that of the claim")
	volume.Spec.ClaimRef.Name = record.SecretName(moveUID)
	assert.Contains(t, decide.Next(o).Say, "waiting until it is known that volume pvc-1 is no longer that of the claim")
	volume.Status.Phase = corev1.VolumeReleased
	assert.Equal(t, "FreeVolume", decide.Next(o).Verb())

	// A warning is better than pods that wait for ever.
	for name, row := range map[string]struct {
		// began and deleted are how long ago.
		began, deleted time.Duration
		named          string
		want           string
	}{
		"it was deleted long ago":                   {began: time.Minute, deleted: time.Minute, want: "FreeVolume"},
		"it was still its claim's, too":             {began: time.Minute, deleted: time.Minute, named: "data", want: "FreeVolume"},
		"it had to be detached before":              {began: time.Minute, deleted: time.Second, want: "Idle"},
		"its claim was not taken from it then":      {began: time.Minute, deleted: time.Second, named: "data", want: "DeleteVolume"},
		"the clock of the API server is behind":     {began: time.Second, deleted: time.Hour, want: "Idle"},
		"it is behind, and that takes long":         {began: time.Minute, deleted: time.Hour, want: "FreeVolume"},
		"it is ahead":                               {began: time.Minute, deleted: -time.Second, want: "Idle"},
		"it is far ahead":                           {began: time.Second, deleted: -time.Hour, want: "Idle"},
		"it is far ahead, and nobody sees the name": {began: time.Minute, deleted: -time.Hour, want: "FreeVolume"},
	} {
		t.Run(name, func(t *testing.T) {
			late := o
			late.Claims = slices.Clone(o.Claims)
			late.Claims[0].Volume = volume.DeepCopy()
			late.Claims[0].Volume.Status.Phase = corev1.VolumeBound
			late.Record = o.Record.Clone()
			late.Record.Began[v1alpha1.MoveFence] = o.Now.Add(-row.began)
			late.Claims[0].Volume.DeletionTimestamp = &metav1.Time{Time: o.Now.Add(-row.deleted)}
			if row.named != "" {
				late.Claims[0].Volume.Spec.ClaimRef.Name = row.named
			}
			assert.Equal(t, row.want, decide.Next(late).Verb())
		})
	}

	o.Claims[0].Volume, o.Now = nil, o.Record.Began[v1alpha1.MoveFence]
	touch := as[steps.Touch](decide.Next(o))
	assert.True(t, touch.Unbind, "the claim waits for its volume from now on")
	for _, phase := range []corev1.PersistentVolumeClaimPhase{corev1.ClaimPending, corev1.ClaimLost} {
		o.Claims[0].Claim.Status.Phase = phase
		assert.Equal(t, v1alpha1.MoveFinalSync, decide.Next(o).Saved().Phase, phase)
	}
}
