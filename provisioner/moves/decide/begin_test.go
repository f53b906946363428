package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

func TestWhatCannotBeKeptEndsTheMoveBeforeAnythingStops(t *testing.T) {
	for want, refusals := range map[string][]moverapi.Refusal{
		"claim data cannot be moved there whole: dev/null: the target cannot keep devices: mend": {{Path: "dev/null",
			Reason: "the target cannot keep devices"}},
		"claim data cannot be moved there whole: no room (more reasons: 1): mend": {{Reason: "no room"}, {Path: "a", Reason: "b"}},
	} {
		o := in(v1alpha1.MoveProvision)
		running := movers.State{Exists: true, Running: true}
		o.Claims[0].Source.Mover, o.Claims[0].Target = running, steps.Side{Backing: copyOf(0), Mover: running}
		o.Claims[0].Copy = &moverapi.Status{Connected: true, Task: &moverapi.TaskStatus{
			Task: moverapi.Task{ID: "prepare"}, State: moverapi.Done, Prepared: &moverapi.Prepared{Refusals: refusals},
		}}
		step := decide.Next(o)
		assert.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase)
		assert.True(t, step.Saved().Refused)
		assert.Contains(t, step.Saved().Why, want)
		assert.Contains(t, step.Saved().Why, "nothing was stopped")
	}
}

func TestAMoveWhoseTargetIsRefusedForLongGoesBack(t *testing.T) {
	o := in(v1alpha1.MoveProvision)
	o.Claims[0].Target.Backing, o.Record.Claims[0].Target.Ref.UID = nil, ""
	require.Equal(t, "MakeTarget", decide.Next(o).Verb())
	o.Failing, o.FailingWhy = o.Now.Add(-9*time.Minute), "exceeded quota"
	require.Equal(t, "MakeTarget", decide.Next(o).Verb(), "it is tried again for a while, however long the phase has lasted")
	o.Failing = o.Now.Add(-11 * time.Minute)
	step := decide.Next(o)
	require.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase)
	assert.Equal(t, record.NotStarted, step.Saved().Cause)
	assert.Equal(t, "exceeded quota; nothing was stopped for the move: mend that and move again", step.Say)
	// Once pods are stopped, only the progress of the copy decides about a rollback.
	o.Record.Phase = v1alpha1.MovePreCopy
	assert.NotEqual(t, record.NotStarted, func() record.Cause {
		if step := decide.Next(o); step.Saved() != nil {
			return step.Saved().Cause
		}
		return ""
	}())
}

// Otherwise a class that binds with the first pod could create the two volumes on two
// nodes, and the pod could run on neither.
func TestClaimsOfOnePodGetTheirVolumesForOneNode(t *testing.T) {
	two := func(pods ...steps.Pod) steps.Observation {
		o := in(v1alpha1.MoveProvision)
		second := o.Record.Claims[0]
		second.Name, second.UID = "more", "c2"
		second.Source.Ref, second.Target.Ref = ref(record.Source, 1), ref(record.Target, 1)
		o.Record.Claims = append(o.Record.Claims, second)
		o.Claims = append(o.Claims, o.Claims[0])
		for i := range o.Claims {
			o.Claims[i].Source.Mover = movers.State{Exists: true, Running: true, Node: "home-1"}
			o.Claims[i].Target.Backing = copyOf(i)
		}
		o.Claims[0].Target.Mover = movers.State{Exists: true}
		o.Pods = pods
		return o
	}
	both := steps.Pod{Name: "app", Bound: true, Owned: true, Claims: []int{0, 1}}

	o := two(both)
	o.Record.Began[v1alpha1.MoveProvision] = o.Now
	step := decide.Next(o)
	assert.Equal(t, "Idle", step.Verb())
	assert.Contains(t, step.Say, "waiting until the mover of claim data runs at the target")
	o.Claims[0].Target.Mover.Running = true
	assert.Equal(t, "Idle", decide.Next(o).Verb(), "its node is not known yet")

	o.Claims[0].Target.Mover.Node = "west-2"
	step = decide.Next(o)
	assert.Equal(t, "EnsureMover", step.Verb())
	assert.Equal(t, 1, step.Subject().Claim)
	assert.Equal(t, "west-2", as[steps.EnsureMover](step).Node)

	for name, pods := range map[string][]steps.Pod{
		"two pods":                   {{Name: "app-0", Claims: []int{0}}, {Name: "app-1", Claims: []int{1}}},
		"a pod that uses one of two": {{Name: "app", Claims: []int{1}}},
	} {
		step := decide.Next(two(pods...))
		assert.Equal(t, "EnsureMover", step.Verb(), name)
		assert.Equal(t, 1, step.Subject().Claim, name)
		assert.Empty(t, as[steps.EnsureMover](step).Node, name)
	}

	for name, pods := range map[string][]steps.Pod{
		"no pod":               nil,
		"a pod that has ended": {{Name: "app", Finished: true, Claims: []int{0, 1}}},
	} {
		o := two(pods...)
		o.Record.Began[v1alpha1.MoveProvision] = o.Now
		o.Claims[0].Target.Mover.Running = true
		assert.Equal(t, "Idle", decide.Next(o).Verb(), name)
		o.Claims[0].Target.Mover.Node = "west-2"
		step := decide.Next(o)
		assert.Equal(t, "EnsureMover", step.Verb(), name)
		assert.Equal(t, 1, step.Subject().Claim, name)
		assert.Empty(t, as[steps.EnsureMover](step).Node, name)
		assert.Equal(t, "west-2", as[steps.EnsureMover](step).Near, name)
	}

	o = two(both)
	for i := range o.Record.Claims {
		o.Record.Claims[i].Target.Node = "home-2"
	}
	step = decide.Next(o)
	assert.Equal(t, "EnsureMover", step.Verb(), "its user has named the node")
	assert.Empty(t, as[steps.EnsureMover](step).Node)
}

// pinned is a move whose source mover runs on a node that the pods have left.
func pinned(phase v1alpha1.MovePhase) steps.Observation {
	o := in(phase)
	o.Record.Claims[0].Target.Ref.UID = ref(record.Target, 0).UID
	o.Claims[0].Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	o.Claims[0].Source.Mover = movers.State{Exists: true, Running: true, Pod: "mover-1", Node: "a"}
	o.Claims[0].Target.Mover = movers.State{Exists: true, Running: true}
	o.Claims[0].On = []string{"b"}
	o.Pods = []steps.Pod{{Name: "db-0", Node: "b", Bound: true, Owned: true}}
	return o
}

func TestAMoverMakesWayForPodsOnAnotherNode(t *testing.T) {
	o := pinned(v1alpha1.MovePreCopy)
	noted := decide.Next(o)
	require.Equal(t, "Save", noted.Verb(), "first it is recorded")
	require.Equal(t, v1alpha1.MovePreCopy, noted.Saved().Phase)
	o.Record = noted.Saved()
	step := decide.Next(o)
	require.Equal(t, "DropMover", step.Verb())
	require.Equal(t, record.Source, step.Subject().End)
	assert.Contains(t, step.Say, "makes way for pods on node b")
	o.Claims[0].Source.Mover.Leaving = true
	require.Equal(t, "Idle", decide.Next(o).Verb())

	// It is created again on the pods' node, later each time.
	o.Claims[0].Source.Mover = movers.State{}
	assert.Contains(t, decide.Next(o).Say, "made way for pods on node b")
	o.Now = o.Now.Add(6 * time.Second)
	require.Equal(t, "EnsureMover", decide.Next(o).Verb())
	o.Claims[0].Source.Mover = movers.State{Exists: true, Pod: "mover-2", Node: "b"}
	require.Equal(t, "Idle", decide.Next(o).Verb())
	o.Claims[0].On = []string{"c"}
	noted = decide.Next(o)
	require.Equal(t, 2, noted.Saved().Claims[0].Yields)
	o.Record, o.Claims[0].Source.Mover = noted.Saved(), movers.State{}
	o.Now = o.Now.Add(6 * time.Second)
	require.Equal(t, "Idle", decide.Next(o).Verb())
	o.Record.Claims[0].Yields = 1000
	o.Now = o.Now.Add(2 * time.Minute)
	require.Equal(t, "EnsureMover", decide.Next(o).Verb())
}

func TestAMoverStaysWhereItIsInNobodysWay(t *testing.T) {
	for name, tune := range map[string]func(*steps.Observation){
		"a pod is on its node":     func(o *steps.Observation) { o.Claims[0].On = []string{"b", "a"} },
		"no pod has a node":        func(o *steps.Observation) { o.Claims[0].On = nil },
		"it has no node itself":    func(o *steps.Observation) { o.Claims[0].Source.Mover.Node = "" },
		"all nodes may write":      func(o *steps.Observation) { o.Claims[0].Claim.Spec.AccessModes[0] = corev1.ReadWriteMany },
		"all nodes may read":       func(o *steps.Observation) { o.Claims[0].Claim.Spec.AccessModes[0] = corev1.ReadOnlyMany },
		"the pods are stopped now": func(o *steps.Observation) { o.Record.Phase = v1alpha1.MoveQuiesce },
	} {
		o := pinned(v1alpha1.MovePreCopy)
		tune(&o)
		step := decide.Next(o)
		assert.NotEqual(t, "DropMover", step.Verb(), name)
		assert.False(t, step.Verb() == "Save" && step.Saved().Claims[0].Yields > 0, name)
	}
	early := pinned(v1alpha1.MoveProvision)
	early.Claims[0].Target.Backing = copyOf(0)
	assert.Equal(t, 1, decide.Next(early).Saved().Claims[0].Yields, "before the first pass it makes way too")
}

func TestEachMoverThatDoesNotRunSaysWhy(t *testing.T) {
	o := in(v1alpha1.MoveProvision)
	o.Record.Began[v1alpha1.MoveProvision] = o.Now
	o.Claims[0].Source.Mover = movers.State{Exists: true, Problem: "it starts on node home-1: FailedMount: the disk is away"}
	o.Claims[0].Target.Mover = movers.State{Exists: true, Problem: "it has no node yet"}
	step := decide.Next(o)
	require.Equal(t, "Idle", step.Verb())
	assert.Equal(t, "waiting until the mover of claim data runs at the source: it starts on node home-1: FailedMount: the disk is away; "+
		"waiting until the mover of claim data runs at the target: it has no node yet", step.Say)
}
