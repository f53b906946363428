package decide_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// Else a class that binds with the first pod might make the two volumes for two nodes, and
// the pod could run on neither.
func TestClaimsOfOnePodGetTheirVolumesForOneNode(t *testing.T) {
	two := func(pods ...decide.Pod) decide.Observation {
		o := in(v1alpha1.MoveProvision)
		second := o.Record.Claims[0]
		second.Name, second.UID = "more", "c2"
		second.Source.Ref, second.Target.Ref = ref(record.Source, 1), ref(record.Target, 1)
		o.Record.Claims = append(o.Record.Claims, second)
		o.Claims = append(o.Claims, o.Claims[0])
		for i := range o.Claims {
			o.Claims[i].Source.Mover = decide.Mover{Exists: true, Running: true, Node: "home-1"}
			o.Claims[i].Target.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, i).UID, Labels: map[string]string{keys.MoveOf: string(moveUID)}}}
		}
		o.Claims[0].Target.Mover = decide.Mover{Exists: true}
		o.Pods = pods
		return o
	}
	both := decide.Pod{Name: "app", Bound: true, Owned: true, Claims: []int{0, 1}}

	o := two(both)
	o.Record.Began[v1alpha1.MoveProvision] = o.Now
	step := decide.Next(o)
	assert.Equal(t, decide.Idle, step.Verb)
	assert.Contains(t, step.Say, "waiting until the mover of claim data runs at the target")
	o.Claims[0].Target.Mover.Running = true
	assert.Equal(t, decide.Idle, decide.Next(o).Verb, "its node is not known yet")

	o.Claims[0].Target.Mover.Node = "west-2"
	step = decide.Next(o)
	assert.Equal(t, decide.EnsureMover, step.Verb)
	assert.Equal(t, 1, step.Claim)
	assert.Equal(t, "west-2", step.Node)

	for name, pods := range map[string][]decide.Pod{
		"two pods":                   {{Name: "app-0", Claims: []int{0}}, {Name: "app-1", Claims: []int{1}}},
		"a pod that uses one of two": {{Name: "app", Claims: []int{1}}},
	} {
		step := decide.Next(two(pods...))
		assert.Equal(t, decide.EnsureMover, step.Verb, name)
		assert.Equal(t, 1, step.Claim, name)
		assert.Empty(t, step.Node, name)
	}

	for name, pods := range map[string][]decide.Pod{
		"no pod":               nil,
		"a pod that has ended": {{Name: "app", Finished: true, Claims: []int{0, 1}}},
	} {
		o := two(pods...)
		o.Record.Began[v1alpha1.MoveProvision] = o.Now
		o.Claims[0].Target.Mover.Running = true
		assert.Equal(t, decide.Idle, decide.Next(o).Verb, name)
		o.Claims[0].Target.Mover.Node = "west-2"
		step := decide.Next(o)
		assert.Equal(t, decide.EnsureMover, step.Verb, name)
		assert.Equal(t, 1, step.Claim, name)
		assert.Empty(t, step.Node, name)
		assert.Equal(t, "west-2", step.Near, name)
	}

	o = two(both)
	for i := range o.Record.Claims {
		o.Record.Claims[i].Target.Node = "home-2"
	}
	step = decide.Next(o)
	assert.Equal(t, decide.EnsureMover, step.Verb, "its user has named the node")
	assert.Empty(t, step.Node)
}
