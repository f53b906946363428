package moves

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	events "k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/site"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

func TestKeysBelongToTheMoverThatTheyAreFor(t *testing.T) {
	const storage = "lodestone-storage"
	client := fake.NewClientset()
	c := New(Config{Client: client, Place: backing.Place{HomeID: "h1", StorageNamespace: storage}})
	r := &record.Record{UID: "m1", Namespace: "shop", Phase: v1alpha1.MoveProvision, Claims: []record.Claim{{
		Name: "data", Keys: map[moverapi.Role]moverapi.Files{moverapi.Receiver: {"tls.key": []byte("key")}},
		Target: record.Copy{Ref: backing.Ref{Cluster: keys.Home, Namespace: storage, Name: "copy"}},
	}}}
	name := r.MoverName(0, record.Target)
	pods, secrets := client.CoreV1().Pods(storage), client.CoreV1().Secrets(storage)

	require.Error(t, c.startMover(t.Context(), r, 0, record.Target), "there is none")
	require.NoError(t, c.ensureMover(t.Context(), r, steps.EnsureMover{End: record.Target, Near: "node-1"}))
	pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []corev1.PodSchedulingGate{{Name: keys.MovingGate}}, pod.Spec.SchedulingGates, "a pod that is made late starts nothing")
	affinity := pod.Spec.Affinity.NodeAffinity
	assert.Empty(t, affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields)
	assert.Equal(t, []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: onNode("node-1")}},
		affinity.PreferredDuringSchedulingIgnoredDuringExecution)
	m, _, err := c.moverAt(t.Context(), c.sites.Home(), r, 0, record.Target)
	require.NoError(t, err)
	assert.True(t, m.Exists && m.Unstarted)
	pod.UID = "p2"
	pod, err = pods.Update(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)

	// A Secret that a late request created for an earlier mover would be collected although
	// this mover uses it.
	earlier := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: "p1"}}}}
	_, err = secrets.Create(t.Context(), earlier, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.startMover(t.Context(), r, 0, record.Target))
	secret, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID}}, secret.OwnerReferences)
	assert.Equal(t, []byte("key"), secret.Data["tls.key"])
	m, pod, err = c.moverAt(t.Context(), c.sites.Home(), r, 0, record.Target)
	require.NoError(t, err)
	assert.True(t, m.Exists && !m.Unstarted)
	assert.Empty(t, pod.Spec.SchedulingGates)

	// A late request to delete the earlier Secret takes effect now.
	require.NoError(t, secrets.Delete(t.Context(), name, metav1.DeleteOptions{}))
	for range 2 {
		require.NoError(t, c.recreateKeySecret(t.Context(), r, 0, record.Target))
		again, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, secret.OwnerReferences, again.OwnerReferences)
		assert.Equal(t, secret.Data, again.Data)
	}
}

func TestAMoverThatDoesNotComeToRunGetsItsKeysAgainAndAgain(t *testing.T) {
	now := time.Now()
	var all keylessMovers
	mover := steps.Mover{Exists: true, Pod: "p1", Node: "west-1"}
	at := func(after time.Duration, changes ...func(m *steps.Mover)) bool {
		seen := mover
		for _, change := range changes {
			change(&seen)
		}
		o := steps.Observation{Now: now.Add(after), Claims: make([]steps.Claim, 2)}
		o.Claims[1].Snapshot.Mover = seen
		all.note(&o)
		return o.Claims[1].Snapshot.Mover.Keyless
	}
	assert.False(t, at(0))
	assert.False(t, at(keysAfter-time.Second))
	assert.True(t, at(keysAfter))
	assert.False(t, at(keysAfter+time.Second), "it has time to start")
	assert.True(t, at(2*keysAfter))
	assert.False(t, at(time.Hour, func(m *steps.Mover) { m.Running = true }))
	assert.Empty(t, all)
	for _, change := range []func(m *steps.Mover){
		func(m *steps.Mover) { m.Unstarted = true }, func(m *steps.Mover) { m.Leaving = true },
		func(m *steps.Mover) { m.Ended = true }, func(m *steps.Mover) { m.Node = "" },
	} {
		assert.False(t, at(time.Hour))
		assert.False(t, at(3*time.Hour, change))
	}
	assert.False(t, at(4*time.Hour))
	assert.False(t, at(6*time.Hour, func(m *steps.Mover) { m.Pod = "p2" }), "another pod")
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

	assert.Equal(t, "the disk is away", plain(warned.Message))
	assert.Less(t, len(plain(strings.Repeat("é", 2*longest))), longest+8)
}

func TestAMoverThatItsNodeEvictedSaysSoBeforeItIsMadeAnew(t *testing.T) {
	evicted := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: ephemeral-storage.",
		ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}}},
	}}
	problem := problemOf(evicted)
	assert.Equal(t, "its node n1 ended it (Evicted): The node was low on resource: ephemeral-storage.", problem)

	recorder := events.NewFakeRecorder(10)
	c := New(Config{Recorder: recorder})
	o := steps.Observation{
		Move: &v1alpha1.VolumeMove{}, Record: recordIn("PreCopy"),
		Claims: []steps.Claim{{Target: steps.Side{Mover: steps.Mover{Exists: true, Ended: true, Problem: problem}}}},
	}
	c.reportMoverEnded(o, 0, record.Source)
	assert.Empty(t, recorder.Events, "that one is told to end")
	c.reportMoverEnded(o, 0, record.Target)
	require.Len(t, recorder.Events, 1)
	assert.Equal(t, "Warning MoverEnded the mover of claim data at the target has ended, "+problem, <-recorder.Events)
}
