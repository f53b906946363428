package moves

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
)

func TestWhatAMoveWaitsForIsToldOnce(t *testing.T) {
	var w waiting
	now := time.Now()
	waits := decide.Step{Verb: decide.Idle, Say: "x"}
	status := v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MoveProvision, Message: "waiting for x"}
	assert.False(t, w.lasts(now, waits, status))
	assert.False(t, w.lasts(now.Add(patient-time.Second), waits, status))
	assert.True(t, w.lasts(now.Add(patient), waits, status))
	assert.False(t, w.lasts(now.Add(2*patient), waits, status), "it was told")
	status.Message = "waiting for y"
	assert.False(t, w.lasts(now.Add(3*patient), waits, status))
	assert.True(t, w.lasts(now.Add(4*patient), waits, status))
}

func TestAMoverThatDoesNotRunHasAReason(t *testing.T) {
	ref := backing.Ref{Cluster: "west", Namespace: "shop", Name: "data"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "move-1-0-target"}}
	warned := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"}, InvolvedObject: corev1.ObjectReference{Name: pod.Name},
		Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: "the disk\nis away",
	}
	at := site{Access: clusters.Access{Client: fake.NewClientset(warned)}}
	assert.Contains(t, whyNot(t.Context(), at, ref, nil), "has not made its pod yet")
	assert.Contains(t, whyNot(t.Context(), at, ref, pod), "it has no node yet: FailedMount: the disk")
	pod.Spec.NodeName = "west-1"
	assert.Contains(t, whyNot(t.Context(), at, ref, pod), "it starts on node west-1: FailedMount")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}}}
	assert.Contains(t, problemOf(pod), "ended with code 3")

	assert.Equal(t, "the disk is away", sentence(warned.Message))
	assert.Less(t, len(sentence(strings.Repeat("é", 2*longest))), longest+8)
}

func TestOnlyStepsThatFailInARowCount(t *testing.T) {
	var f failing
	began := time.Now()
	f.see(began, errors.New("first"))
	f.see(began.Add(time.Minute), errors.New("second"))
	assert.Equal(t, failing{since: began, why: "second"}, f)
	f.see(began.Add(2*time.Minute), nil)
	assert.Equal(t, failing{}, f)
}
