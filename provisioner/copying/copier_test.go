package copying

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

func TestAMoverThatDoesNotComeToRunGetsItsKeysAgainAndAgain(t *testing.T) {
	now := time.Now()
	var all Keyless
	mover := movers.State{Exists: true, Pod: "p1", Node: "west-1"}
	at := func(after time.Duration, changes ...func(m *movers.State)) bool {
		seen := mover
		for _, change := range changes {
			change(&seen)
		}
		all.Note(now.Add(after), &movers.State{}, &seen)
		return seen.Keyless
	}
	assert.False(t, at(0))
	assert.False(t, at(keysAfter-time.Second))
	assert.True(t, at(keysAfter))
	assert.False(t, at(keysAfter+time.Second), "it has time to start")
	assert.True(t, at(2*keysAfter))
	assert.False(t, at(time.Hour, func(m *movers.State) { m.Running = true }))
	assert.Empty(t, all)
	for _, change := range []func(m *movers.State){
		func(m *movers.State) { m.Unstarted = true }, func(m *movers.State) { m.Leaving = true },
		func(m *movers.State) { m.Ended = true }, func(m *movers.State) { m.Node = "" },
	} {
		assert.False(t, at(time.Hour))
		assert.False(t, at(3*time.Hour, change))
	}
	assert.False(t, at(4*time.Hour))
	assert.False(t, at(6*time.Hour, func(m *movers.State) { m.Pod = "p2" }), "another pod")
}

func TestAMoverThatDoesNotRunHasAReason(t *testing.T) {
	ref := backing.Ref{Cluster: "west", Namespace: "shop", Name: "data"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "move-1-0-target"}}
	warned := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"}, InvolvedObject: corev1.ObjectReference{Name: pod.Name},
		Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: "the disk\nis away",
	}
	at := site.Site{Access: remote.Access{Client: fake.NewClientset(warned)}}
	assert.Contains(t, whyNotRunning(t.Context(), at, ref, nil), "has not made its pod yet")
	assert.Contains(t, whyNotRunning(t.Context(), at, ref, pod), "it has no node yet: FailedMount: the disk")
	pod.Spec.NodeName = "west-1"
	assert.Contains(t, whyNotRunning(t.Context(), at, ref, pod), "it starts on node west-1: FailedMount")
	pod.CreationTimestamp = metav1.Time{Time: time.Now().Add(time.Hour)}
	assert.Contains(t, whyNotRunning(t.Context(), at, ref, pod), "FailedMount", "the clock of its cluster is ahead")
	pod.UID, warned.InvolvedObject.UID = "p2", "p1"
	at.Client = fake.NewClientset(warned)
	assert.NotContains(t, whyNotRunning(t.Context(), at, ref, pod), "FailedMount", "that was the mover before")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}},
	}
	assert.Contains(t, problemOf(pod), "ended with code 3")
}
