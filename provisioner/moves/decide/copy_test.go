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
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// single returns the observation of a move of a ReadWriteOncePod claim in a phase, whose
// movers run where they may.
func single(phase v1alpha1.MovePhase) steps.Observation {
	o := in(phase)
	o.Record.LongStop, o.Record.Claims[0].Offline, o.Record.Claims[0].Target.Ref.UID = true, true, ref(record.Target, 0).UID
	running := movers.State{Exists: true, Running: true}
	o.Claims[0].Target = steps.Side{Backing: copyOf(0), Mover: running}
	if !record.Before(phase, v1alpha1.MoveFinalSync) {
		o.Claims[0].Source.Mover = running
		o.Claims[0].Copy = &moverapi.Status{Instance: "i1", Connected: true}
	}
	return o
}

func TestAVolumeForOnePodIsReadOnceNobodyHasIt(t *testing.T) {
	w := newWorld(t, 3, 1)
	w.calm = true
	require.True(t, w.claims[0].single)
	read := false
	require.Equal(t, v1alpha1.MoveDone, w.run(func() {
		if w.claims[0].at[record.Source].mover.Exists {
			read = true
			w.must(!record.Before(w.decoded().Phase, v1alpha1.MoveFinalSync), "its mover exists in phase %s", w.decoded().Phase)
		}
	}))
	assert.True(t, read)
}

func TestWhatOnePodUsesIsNotLookedAtBeforeThePodIsStopped(t *testing.T) {
	step := decide.Next(single(v1alpha1.MoveProvision))
	require.Equal(t, "Save", step.Verb())
	assert.Equal(t, v1alpha1.MovePreCopy, step.Saved().Phase, "what is at the target is all that can be known")
	silent := single(v1alpha1.MoveProvision)
	silent.Claims[0].Target.Mover = movers.State{Exists: true, Problem: "no node has room"}
	assert.Contains(t, decide.Next(silent).Say, "no node has room", "nothing is stopped before the mover at the target runs")

	step = decide.Next(single(v1alpha1.MovePreCopy))
	require.Equal(t, "Save", step.Verb())
	assert.Equal(t, v1alpha1.MoveQuiesce, step.Saved().Phase)
	assert.Contains(t, step.Say, "stopped for the copy of data")

	step = decide.Next(single(v1alpha1.MoveFinalSync))
	require.Equal(t, "Start", step.Verb())
	assert.Equal(t, moverapi.Prepare, as[steps.Start](step).Task.Kind)
}

func TestTheLongStopMustHaveBeenAgreedTo(t *testing.T) {
	uses := []steps.Pod{{Name: "db-0", Bound: true, Owned: true}}
	agreed := single(v1alpha1.MovePreCopy)
	agreed.Pods = uses
	assert.Equal(t, v1alpha1.MoveQuiesce, decide.Next(agreed).Saved().Phase)

	began := single(v1alpha1.MovePreCopy)
	began.Record.LongStop, began.Pods = false, uses
	step := decide.Next(began)
	assert.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase)
	for _, says := range []string{"pod db-0", "claim data", "spec.offline", "nothing was stopped"} {
		assert.Contains(t, step.Saved().Why, says)
	}
	for name, pods := range map[string][]steps.Pod{
		"no pod": nil, "one that ends": {{Name: "db-0", Bound: true, Leaving: true}},
		"one that has ended":       {{Name: "job", Bound: true, Finished: true}},
		"one that has no node yet": {{Name: "db-0", Owned: true}},
	} {
		idle := single(v1alpha1.MovePreCopy)
		idle.Record.LongStop, idle.Pods = false, pods
		assert.Equal(t, v1alpha1.MoveQuiesce, decide.Next(idle).Saved().Phase, name)
	}
}

func TestWhatCannotBeKeptOfAVolumeForOnePodEndsTheMoveBeforeItIsCopied(t *testing.T) {
	o := single(v1alpha1.MoveFinalSync)
	o.Claims[0].Copy.Task = &moverapi.TaskStatus{Task: moverapi.Task{ID: "prepare"}, State: moverapi.Done,
		Prepared: &moverapi.Prepared{Refusals: []moverapi.Refusal{{Reason: "no room"}}}}
	step := decide.Next(o)
	assert.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase)
	assert.Contains(t, step.Saved().Why, "no room")
	assert.Contains(t, step.Saved().Why, "pods that use it stood still meanwhile, and go on at the source")

	o.Claims[0].Copy.Task.Prepared = &moverapi.Prepared{Source: sourceOf(0)}
	step = decide.Next(o)
	require.True(t, step.Saved().Claims[0].Prepared)
	o.Record = step.Saved()
	step = decide.Next(o)
	require.Equal(t, "Start", step.Verb())
	assert.Equal(t, moverapi.Final, as[steps.Start](step).Task.Kind)
	assert.Equal(t, sourceOf(0), as[steps.Start](step).Task.Expect)
}

func TestALongCopyThatGoesOnIsNotRolledBack(t *testing.T) {
	o := single(v1alpha1.MoveFinalSync)
	o.Move.Spec.RollBackAfter = &metav1.Duration{}
	o.Record.Claims[0].Prepared = true
	o.Claims[0].Copy.Task = &moverapi.TaskStatus{Task: moverapi.Task{ID: "final-0"}, State: moverapi.Running}
	o.Record.Down = o.Now
	assert.Less(t, decide.Next(o).After, time.Second, "pods wait")
	for range 3 {
		o.Now = o.Now.Add(24 * time.Hour)
		step := decide.Next(o)
		assert.Equal(t, "Idle", step.Verb())
		assert.Equal(t, time.Second, step.After, "no API server is asked ten times a second for days")
	}

	// Until its mover runs there is no progress, and starting it takes time, however short
	// the patience.
	begins := single(v1alpha1.MoveFinalSync)
	begins.Move.Spec.RollBackAfter = &metav1.Duration{}
	begins.Claims[0].Source.Mover, begins.Claims[0].Copy = movers.State{}, nil
	begins.Record = decide.Next(begins).Saved()
	require.False(t, begins.Record.Stalled.IsZero())
	begins.Now = begins.Now.Add(20 * time.Second)
	step := decide.Next(begins)
	assert.Equal(t, "EnsureMover", step.Verb())
	assert.Equal(t, record.Source, step.Subject().End)
	begins.Claims[0].Source.Mover = movers.State{Exists: true, Problem: "no node has room"}
	begins.Now = begins.Now.Add(time.Minute)
	step = decide.Next(begins)
	require.Equal(t, "Save", step.Verb())
	assert.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase)
	assert.Contains(t, step.Saved().Why, "no node has room")
}

func TestACopyThatStandsStillGoesBackByItself(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveQuiesce, v1alpha1.MoveFence, v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying} {
		o := in(phase)
		o.Move.Spec.RollBackAfter = &metav1.Duration{Duration: time.Minute}
		o.Target.Unusable = "cluster west is away"
		noted := decide.Next(o)
		require.Equal(t, "Save", noted.Verb(), "%s", phase)
		require.Equal(t, o.Now, noted.Saved().Stalled, "%s", phase)
		require.Equal(t, phase, noted.Saved().Phase)
		o.Record = noted.Saved()

		o.Now = o.Now.Add(59 * time.Second)
		if step := decide.Next(o); step.Verb() == "Save" {
			assert.NotEqual(t, v1alpha1.MoveRollBack, step.Saved().Phase, "%s: it is not time yet", phase)
		}
		away := o
		away.Now = o.Now.Add(time.Hour)
		away.Source.Unusable, away.Target.Unusable = "away too", "away"
		if step := decide.Next(away); step.Verb() == "Save" {
			assert.NotEqual(t, v1alpha1.MoveRollBack, step.Saved().Phase, "%s: nothing is gained while the source is away too", phase)
		}
		late := o
		late.Now = o.Now.Add(2 * time.Second)
		step := decide.Next(late)
		require.Equal(t, "Save", step.Verb(), "%s", phase)
		assert.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase, "%s", phase)
		assert.True(t, step.Saved().Refused)
		assert.Contains(t, step.Saved().Why, "cluster west is away")
	}
	copying := in(v1alpha1.MovePreCopy)
	copying.Target.Unusable = "cluster west is away"
	assert.Equal(t, "Idle", decide.Next(copying).Verb(), "nobody waits for it")

	again := in(v1alpha1.MoveQuiesce)
	again.Record.Stalled = again.Now.Add(-time.Hour)
	step := decide.Next(again)
	require.Equal(t, "Save", step.Verb())
	assert.True(t, step.Saved().Stalled.IsZero(), "the target is back")
}

func TestMoversThatGetNoFurtherStandStill(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying} {
		o := in(phase)
		running := movers.State{Exists: true, Running: true}
		o.Record.Claims[0].Instance, o.Record.Claims[0].Try = "i1", 1
		o.Claims[0].Source.Mover = running
		o.Claims[0].Target = steps.Side{Mover: running, Backing: copyOf(0)}
		task := map[v1alpha1.MovePhase]string{v1alpha1.MoveFinalSync: "final-1", v1alpha1.MoveVerifying: "verify-1"}[phase]
		o.Claims[0].Copy = &moverapi.Status{Connected: true, Instance: "i1", Task: &moverapi.TaskStatus{Task: moverapi.Task{ID: task},
			State: moverapi.Running}}
		if phase == v1alpha1.MoveFinalSync {
			o.Record.Claims[0].Instance = ""
		}
		o.Advanced = o.Now.Add(-50 * time.Second)
		require.Equal(t, "Idle", decide.Next(o).Verb(), "%s: it is not long", phase)

		o.Advanced = o.Now.Add(-2 * time.Minute)
		noted := decide.Next(o)
		require.Equal(t, "Save", noted.Verb(), "%s", phase)
		require.Equal(t, o.Now, noted.Saved().Stalled)
		require.Contains(t, noted.Say, "nothing was copied or compared for 2m0s")
		o.Record = noted.Saved()

		// The movers have reconnected, without progress so far.
		o.Now = o.Now.Add(9 * time.Minute)
		require.Equal(t, "Idle", decide.Next(o).Verb(), "%s", phase)
		further := o
		further.Advanced = o.Now
		require.True(t, decide.Next(further).Saved().Stalled.IsZero(), "%s", phase)
		o.Now = o.Now.Add(time.Minute)
		assert.Equal(t, v1alpha1.MoveRollBack, decide.Next(o).Saved().Phase, "%s", phase)
	}
}

// A home that was restored from a backup knows the move as it was then; meanwhile it was committed, and pods have
// written at the target.
func TestAMoveOfARestoredHomeWritesNothingOverACopyThatIsInUseSince(t *testing.T) {
	for _, phase := range beforeCommit {
		for seed := range uint64(4) {
			w := newWorld(t, seed, 1+int(seed%2))
			w.within = seed == 3
			w.turns("the phase", at(phase))
			then, volumes := w.record, make([]*corev1.PersistentVolume, len(w.claims))
			for i, c := range w.claims {
				volumes[i] = c.volume.DeepCopy()
			}
			w.turns("a pod at the target", func(r *record.Record) bool {
				return r.Phase == v1alpha1.MoveRetain && len(w.pods) > 0 && w.pods[0].Ready && w.pods[0].at == record.Target
			})
			w.record, w.pods = then, nil
			written := make([]int, len(w.claims))
			for i, c := range w.claims {
				c.volume, written[i] = volumes[i], c.at[record.Target].content
			}
			for range 600 {
				w.live()
				step := decide.Next(w.observe())
				for _, one := range step.Each() {
					w.must(!slices.Contains([]string{"Start", "EnsureMover", "DropBacking"}, one.Verb()), "%s in phase %s", one.Verb(), phase)
					w.apply(one)
				}
				for i, c := range w.claims {
					w.must(c.at[record.Target].content == written[i], "the target is written over in phase %s", phase)
				}
				if w.decoded().Over() {
					break
				}
			}
			require.Equal(t, v1alpha1.MoveFailed, w.decoded().Phase, "from phase %s", phase)
			assert.Equal(t, record.TargetChanged, w.decoded().Cause)
			for _, c := range w.claims {
				assert.Equal(t, string(moveUID), c.at[record.Source].backing.Labels[keys.MoveOf], "that it was replaced is known still")
			}
		}
	}
}

func TestATargetThatIsDeletedEndsTheMoveAtOnce(t *testing.T) {
	for _, phase := range beforeCommit[2:] {
		for name, lose := range map[string]func(*steps.Observation){
			"gone":       func(o *steps.Observation) { o.Claims[0].Target.Backing = nil },
			"another":    func(o *steps.Observation) { o.Claims[0].Target.Backing.UID = "other" },
			"on its way": func(o *steps.Observation) { o.Claims[0].Target.Backing.DeletionTimestamp = &metav1.Time{Time: o.Now} },
		} {
			o := in(phase)
			lose(&o)
			step := decide.Next(o)
			require.Equal(t, "Save", step.Verb(), "%s in %s", name, phase)
			assert.Equal(t, record.TargetChanged, step.Saved().Cause, "%s in %s", name, phase)
			assert.Contains(t, step.Say, "somebody deleted real claim", "%s in %s", name, phase)
		}
		o := in(phase)
		o.Claims[0].Target, o.Target.Unusable = steps.Side{}, "it does not answer"
		if saved := decide.Next(o).Saved(); saved != nil {
			assert.NotEqual(t, record.TargetChanged, saved.Cause, "nothing is known of it in %s", phase)
		}
	}
}
