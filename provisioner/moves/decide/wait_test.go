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

func TestAMoveWaitsForANodeThatDoesNotAnswer(t *testing.T) {
	node := record.Node{Cluster: keys.Home, Name: "home-1"}
	o := in(v1alpha1.MovePreCopy)
	o.Users, o.Writers = []record.Node{node, node}, []record.Pod{runsAtHome}
	step := decide.Next(o)
	require.Equal(t, decide.Save, step.Verb, "where pods run is recorded")
	require.Equal(t, []record.Node{node}, step.Record.Ran)
	require.Equal(t, o.Writers, step.Record.Pods)

	// The pod is deleted by force while its node is silent.
	gone := in(v1alpha1.MoveFence)
	gone.Record.Ran, gone.Record.Pods = step.Record.Ran, step.Record.Pods
	gone.Away = map[record.Node]string{node: "the node is not ready"}
	waits := decide.Next(gone)
	assert.Equal(t, decide.Idle, waits.Verb)
	for _, says := range []string{"home-1", "not ready", "out-of-service"} {
		assert.Contains(t, waits.Say, says)
	}
	gone.Move.Spec.Action = v1alpha1.ActionAbort
	assert.Equal(t, v1alpha1.MoveRollBack, decide.Next(gone).Record.Phase, "it can be aborted meanwhile")

	back := in(v1alpha1.MoveFence)
	back.Record.Ran, back.Record.Pods = step.Record.Ran, step.Record.Pods
	answers := decide.Next(back)
	require.Equal(t, decide.Save, answers.Verb)
	assert.Empty(t, answers.Record.Ran, "it answers, and no pod is there")
	require.Len(t, answers.Record.Pods, 1, "but its node has only just heard that it is to end")
	back.Record = answers.Record
	assert.Equal(t, decide.Idle, decide.Next(back).Verb)
	back.Off = map[record.Node]bool{node: true}
	off := decide.Next(back)
	require.Equal(t, decide.Save, off.Verb, "it is said to be off")
	back.Record = off.Record
	assert.Equal(t, decide.DeleteVolume, decide.Next(back).Verb)
}

func TestACopyThatStandsStillGoesBackByItself(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveQuiesce, v1alpha1.MoveFence, v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying} {
		o := in(phase)
		o.Move.Spec.RollBackAfter = &metav1.Duration{Duration: time.Minute}
		o.Unusable[record.Target] = "cluster west is away"
		noted := decide.Next(o)
		require.Equal(t, decide.Save, noted.Verb, "%s", phase)
		require.Equal(t, o.Now, noted.Record.Stalled, "%s", phase)
		require.Equal(t, phase, noted.Record.Phase)
		o.Record = noted.Record

		o.Now = o.Now.Add(59 * time.Second)
		if step := decide.Next(o); step.Verb == decide.Save {
			assert.NotEqual(t, v1alpha1.MoveRollBack, step.Record.Phase, "%s: it is not time yet", phase)
		}
		away := o
		away.Now = o.Now.Add(time.Hour)
		away.Unusable = map[record.End]string{record.Target: "away", record.Source: "away too"}
		if step := decide.Next(away); step.Verb == decide.Save {
			assert.NotEqual(t, v1alpha1.MoveRollBack, step.Record.Phase, "%s: nothing is gained while the source is away too", phase)
		}
		late := o
		late.Now = o.Now.Add(2 * time.Second)
		step := decide.Next(late)
		require.Equal(t, decide.Save, step.Verb, "%s", phase)
		assert.Equal(t, v1alpha1.MoveRollBack, step.Record.Phase, "%s", phase)
		assert.True(t, step.Record.Refused)
		assert.Contains(t, step.Record.Why, "cluster west is away")
	}
	copying := in(v1alpha1.MovePreCopy)
	copying.Unusable[record.Target] = "cluster west is away"
	assert.Equal(t, decide.Idle, decide.Next(copying).Verb, "nobody waits for it")

	again := in(v1alpha1.MoveQuiesce)
	again.Record.Stalled = again.Now.Add(-time.Hour)
	step := decide.Next(again)
	require.Equal(t, decide.Save, step.Verb)
	assert.True(t, step.Record.Stalled.IsZero(), "the target is back")
}

func TestACommitDoesNotNeedTheSource(t *testing.T) {
	o := in(v1alpha1.MoveCommit)
	o.Unusable[record.Source] = "cluster east is away"
	o.Claims[0].Target.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID}}
	o.Claims[0].Volume = nil
	o.Record.Claims[0].New = virtual(0, record.Target)
	assert.Equal(t, decide.MakeVolume, decide.Next(o).Verb)

	// What could not be done there is made up for before anything is removed.
	o = in(v1alpha1.MoveFinalize)
	o.Claims[0].Target.Backing, o.Claims[0].Target.Real = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID}}, &corev1.PersistentVolume{}
	o.Claims[0].Source.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Source, 0).UID}}
	o.Claims[0].Source.Mover = decide.Mover{Exists: true, Running: true}
	assert.Equal(t, decide.Shelve, decide.Next(o).Verb)
	o.Claims[0].Source.Backing.Labels = map[string]string{keys.MoveOf: string(moveUID)}
	assert.Equal(t, decide.DropMover, decide.Next(o).Verb)
	o.Claims[0].Source.Mover = decide.Mover{}
	assert.Equal(t, decide.DropBacking, decide.Next(o).Verb)
}

func TestMoversThatGetNoFurtherStandStill(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying} {
		o := in(phase)
		running := decide.Mover{Exists: true, Running: true}
		o.Record.Claims[0].Instance, o.Record.Claims[0].Try = "i1", 1
		o.Claims[0].Source.Mover = running
		o.Claims[0].Target = decide.Side{Mover: running, Backing: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID, Labels: map[string]string{keys.MoveOf: string(moveUID)}}}}
		task := map[v1alpha1.MovePhase]string{v1alpha1.MoveFinalSync: "final-1", v1alpha1.MoveVerifying: "verify-1"}[phase]
		o.Claims[0].Copy = &movecontrol.Status{Connected: true, Instance: "i1", Task: &movecontrol.TaskStatus{Task: movecontrol.Task{ID: task}, State: movecontrol.Running}}
		if phase == v1alpha1.MoveFinalSync {
			o.Record.Claims[0].Instance = ""
		}
		o.Advanced = o.Now.Add(-50 * time.Second)
		require.Equal(t, decide.Idle, decide.Next(o).Verb, "%s: it is not long", phase)

		o.Advanced = o.Now.Add(-2 * time.Minute)
		noted := decide.Next(o)
		require.Equal(t, decide.Save, noted.Verb, "%s", phase)
		require.Equal(t, o.Now, noted.Record.Stalled)
		require.Contains(t, noted.Say, "nothing was copied or compared for 2m0s")
		o.Record = noted.Record

		// The connection was made anew, and nothing came of that yet.
		o.Now = o.Now.Add(9 * time.Minute)
		require.Equal(t, decide.Idle, decide.Next(o).Verb, "%s", phase)
		further := o
		further.Advanced = o.Now
		require.True(t, decide.Next(further).Record.Stalled.IsZero(), "%s", phase)
		o.Now = o.Now.Add(time.Minute)
		assert.Equal(t, v1alpha1.MoveRollBack, decide.Next(o).Record.Phase, "%s", phase)
	}
}
