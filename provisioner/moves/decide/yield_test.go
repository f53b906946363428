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

// pinned is a move whose mover at the source runs on a node that the pods have left.
func pinned(phase v1alpha1.MovePhase) decide.Observation {
	o := in(phase)
	o.Record.Claims[0].Target.Ref.UID = ref(record.Target, 0).UID
	o.Claims[0].Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	o.Claims[0].Source.Mover = decide.Mover{Exists: true, Running: true, Pod: "mover-1", Node: "a"}
	o.Claims[0].Target.Mover = decide.Mover{Exists: true, Running: true}
	o.Claims[0].On = []string{"b"}
	o.Pods = []decide.Pod{{Name: "db-0", Node: "b", Bound: true, Owned: true}}
	return o
}

func TestAMoverMakesWayForPodsOnAnotherNode(t *testing.T) {
	o := pinned(v1alpha1.MovePreCopy)
	noted := decide.Next(o)
	require.Equal(t, decide.Save, noted.Verb, "first it is recorded")
	require.Equal(t, v1alpha1.MovePreCopy, noted.Record.Phase)
	o.Record = noted.Record
	step := decide.Next(o)
	require.Equal(t, decide.DropMover, step.Verb)
	require.Equal(t, record.Source, step.End)
	assert.Contains(t, step.Say, "makes way for pods on node b")
	o.Claims[0].Source.Mover.Leaving = true
	require.Equal(t, decide.Idle, decide.Next(o).Verb)

	// It comes back, where the pods are, and later each time that it made way.
	o.Claims[0].Source.Mover = decide.Mover{}
	assert.Contains(t, decide.Next(o).Say, "made way for pods on node b")
	o.Now = o.Now.Add(6 * time.Second)
	require.Equal(t, decide.EnsureMover, decide.Next(o).Verb)
	o.Claims[0].Source.Mover = decide.Mover{Exists: true, Pod: "mover-2", Node: "b"}
	require.Equal(t, decide.Idle, decide.Next(o).Verb)
	o.Claims[0].On = []string{"c"}
	noted = decide.Next(o)
	require.Equal(t, 2, noted.Record.Claims[0].Yields)
	o.Record, o.Claims[0].Source.Mover = noted.Record, decide.Mover{}
	o.Now = o.Now.Add(6 * time.Second)
	require.Equal(t, decide.Idle, decide.Next(o).Verb)
	o.Record.Claims[0].Yields = 1000
	o.Now = o.Now.Add(2 * time.Minute)
	require.Equal(t, decide.EnsureMover, decide.Next(o).Verb)
}

func TestAMoverStaysWhereItIsInNobodysWay(t *testing.T) {
	for name, tune := range map[string]func(*decide.Observation){
		"a pod is on its node":     func(o *decide.Observation) { o.Claims[0].On = []string{"b", "a"} },
		"no pod has a node":        func(o *decide.Observation) { o.Claims[0].On = nil },
		"it has no node itself":    func(o *decide.Observation) { o.Claims[0].Source.Mover.Node = "" },
		"all nodes may write":      func(o *decide.Observation) { o.Claims[0].Claim.Spec.AccessModes[0] = corev1.ReadWriteMany },
		"all nodes may read":       func(o *decide.Observation) { o.Claims[0].Claim.Spec.AccessModes[0] = corev1.ReadOnlyMany },
		"the pods are stopped now": func(o *decide.Observation) { o.Record.Phase = v1alpha1.MoveQuiesce },
	} {
		o := pinned(v1alpha1.MovePreCopy)
		tune(&o)
		step := decide.Next(o)
		assert.NotEqual(t, decide.DropMover, step.Verb, name)
		assert.False(t, step.Verb == decide.Save && step.Record.Claims[0].Yields > 0, name)
	}
	early := pinned(v1alpha1.MoveProvision)
	early.Claims[0].Target.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID, Labels: map[string]string{keys.MoveOf: string(moveUID)}}}
	assert.Equal(t, 1, decide.Next(early).Record.Claims[0].Yields, "before the first pass it makes way too")
}
