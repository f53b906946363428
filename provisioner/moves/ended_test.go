package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	moverecord "github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestAMoverThatItsNodeEvictedSaysSoBeforeItIsMadeAnew(t *testing.T) {
	evicted := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: ephemeral-storage.",
		ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}}},
	}}
	problem := problemOf(evicted)
	assert.Equal(t, "its node n1 ended it (Evicted): The node was low on resource: ephemeral-storage.", problem)

	events := record.NewFakeRecorder(10)
	c := New(Config{Recorder: events})
	o := decide.Observation{
		Move: &v1alpha1.VolumeMove{}, Record: recordIn("PreCopy"),
		Claims: []decide.Claim{{Target: decide.Side{Mover: decide.Mover{Exists: true, Ended: true, Problem: problem}}}},
	}
	c.tellEnded(o, 0, moverecord.Source)
	assert.Empty(t, events.Events, "that one is told to end")
	c.tellEnded(o, 0, moverecord.Target)
	require.Len(t, events.Events, 1)
	assert.Equal(t, "Warning MoverEnded the mover of claim data at the target has ended, "+problem, <-events.Events)
}
