package moves

import (
	"strings"
	"testing"

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
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
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

	require.Error(t, c.copier.Start(t.Context(), c.moverOf(r, 0, record.Target)), "there is none")
	require.NoError(t, c.ensureMover(t.Context(), r, steps.EnsureMover{End: record.Target, Near: "node-1"}))
	pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []corev1.PodSchedulingGate{{Name: keys.MovingGate}}, pod.Spec.SchedulingGates, "a pod that is made late starts nothing")
	affinity := pod.Spec.Affinity.NodeAffinity
	assert.Empty(t, affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields)
	assert.Equal(t, []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: movers.OnNode("node-1")}},
		affinity.PreferredDuringSchedulingIgnoredDuringExecution)
	m, err := c.moverAt(t.Context(), c.sites.Home(), r, 0, record.Target)
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
	require.NoError(t, c.copier.Start(t.Context(), c.moverOf(r, 0, record.Target)))
	secret, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID}}, secret.OwnerReferences)
	assert.Equal(t, []byte("key"), secret.Data["tls.key"])
	m, err = c.moverAt(t.Context(), c.sites.Home(), r, 0, record.Target)
	require.NoError(t, err)
	pod, err = pods.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.True(t, m.Exists && !m.Unstarted)
	assert.Empty(t, pod.Spec.SchedulingGates)

	// A late request to delete the earlier Secret takes effect now.
	require.NoError(t, secrets.Delete(t.Context(), name, metav1.DeleteOptions{}))
	for range 2 {
		require.NoError(t, c.copier.GiveKeys(t.Context(), c.moverOf(r, 0, record.Target)))
		again, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, secret.OwnerReferences, again.OwnerReferences)
		assert.Equal(t, secret.Data, again.Data)
	}
}

func TestWhatIsSeenOfAMoverSaysFromItsEventsWhyItDoesNotRun(t *testing.T) {
	r := recordIn(v1alpha1.MoveProvision)
	ref, name := r.Claims[0].Source.Ref, r.MoverName(0, record.Source)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: name, UID: "p1"},
		Spec: corev1.PodSpec{NodeName: "home-1"}}
	c := New(Config{Client: fake.NewClientset(pod, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: "e"}, InvolvedObject: corev1.ObjectReference{Name: name, UID: "p1"},
		Type: corev1.EventTypeWarning, Reason: "FailedAttachVolume", Message: "the volume is attached to home-2",
	})})
	m, err := c.moverAt(t.Context(), c.sites.Home(), r, 0, record.Source)
	require.NoError(t, err)
	assert.True(t, m.Exists && !m.Running)
	assert.Equal(t, "it starts on node home-1: FailedAttachVolume: the volume is attached to home-2", m.Problem)
}

func TestAMoverThatItsNodeEvictedSaysSoBeforeItIsMadeAnew(t *testing.T) {
	r := recordIn(v1alpha1.MovePreCopy)
	evicted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Claims[0].Source.Ref.Namespace, Name: r.MoverName(0, record.Source)},
		Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: ephemeral-storage.",
			ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}}},
		}}
	recorder := events.NewFakeRecorder(10)
	c := New(Config{Recorder: recorder, Client: fake.NewClientset(evicted)})
	m, err := c.moverAt(t.Context(), c.sites.Home(), r, 0, record.Source)
	require.NoError(t, err)
	assert.True(t, m.Ended)
	problem := m.Problem
	assert.Equal(t, "its node n1 ended it (Evicted): The node was low on resource: ephemeral-storage.", problem)

	o := steps.Observation{
		Move: &v1alpha1.VolumeMove{}, Record: recordIn("PreCopy"),
		Claims: []steps.Claim{{Target: steps.Side{Mover: movers.State{Exists: true, Ended: true, Problem: problem}}}},
	}
	c.reportMoverEnded(o, 0, record.Source)
	assert.Empty(t, recorder.Events, "that one is told to end")
	c.reportMoverEnded(o, 0, record.Target)
	require.Len(t, recorder.Events, 1)
	assert.Equal(t, "Warning MoverEnded the mover of claim data at the target has ended, "+problem, <-recorder.Events)
}

func TestTheMoverAtASnapshotHasNothingButItsClaim(t *testing.T) {
	c := New(Config{Place: backing.Place{HomeID: "h1"}})
	r := &record.Record{UID: "m1", Phase: v1alpha1.MovePreCopy, Claims: []record.Claim{{
		Source: record.Copy{Ref: backing.Ref{Name: "data"}}, Target: record.Copy{Ref: backing.Ref{Name: "to"}},
		Snapshot: &record.Snapshot{Copy: record.Copy{Ref: backing.Ref{Name: "move-m1-0-snapshot"}}},
	}}}
	volume := func(end record.End) (claim, secret string, args []string) {
		spec := movers.PodSpec(c.moverOf(r, 0, end), "")
		return spec.Volumes[0].PersistentVolumeClaim.ClaimName, spec.Volumes[1].Secret.SecretName,
			append(spec.Containers[0].Command, spec.Containers[0].Args...)
	}
	claim, secret, args := volume(record.Snapped)
	assert.Equal(t, []string{"move-m1-0-snapshot", "move-m1-0-snapshot"}, []string{claim, secret})
	assert.Subset(t, args, []string{"send", "--snapshot"})
	claim, secret, args = volume(record.Source)
	assert.Equal(t, []string{"data", "move-m1-0-source"}, []string{claim, secret})
	assert.Contains(t, args, "send")
	assert.NotContains(t, args, "--snapshot")
	_, _, args = volume(record.Target)
	assert.NotContains(t, args, "--no-snapshot", "it is to take the copy of a snapshot first")
	r.Phase = v1alpha1.MoveFinalSync
	_, _, args = volume(record.Target)
	assert.Subset(t, args, []string{"receive", "--no-snapshot"})
	r.Claims[0].Store = &record.Store{}
	assert.Greater(t, movers.GracePeriod(c.moverOf(r, 0, record.Snapped), 5), int64(5), "it removes what it has in an object store")
	assert.Equal(t, map[string]string{keys.MoveOf: "m1", keys.HomeID: "h1"}, c.snapshotLabels(r))
}

func TestAMoverWithAnObjectStoreHasTimeToEmptyIt(t *testing.T) {
	c := New(Config{Image: "mover:1"})
	r := recordIn("PreCopy")
	without := movers.PodSpec(c.moverOf(r, 0, record.Source), "")
	r.Claims[0].Store = &record.Store{Cluster: "west", Ticket: moverapi.Ticket{Password: "word"}}
	with := movers.PodSpec(c.moverOf(r, 0, record.Source), "")
	assert.Greater(t, *with.TerminationGracePeriodSeconds, *without.TerminationGracePeriodSeconds)
	assert.Equal(t, without.TerminationGracePeriodSeconds, movers.PodSpec(c.moverOf(r, 0, record.Target), "").TerminationGracePeriodSeconds,
		"pods wait for its end")
	assert.Positive(t, with.Containers[0].Resources.Requests.Memory().Cmp(*without.Containers[0].Resources.Requests.Memory()))

	// The credentials of the store are kept only as long as movers may need them.
	assert.Equal(t, "word", r.Enter(v1alpha1.MoveRollBack, r.Began["PreCopy"]).Claims[0].Store.Ticket.Password)
	over := r.Enter(v1alpha1.MoveAborted, r.Began["PreCopy"])
	assert.Equal(t, &record.Store{Cluster: "west"}, over.Claims[0].Store)
	assert.Equal(t, "word", r.Claims[0].Store.Ticket.Password)
}

// stating is a pod with a level in its security context; one of its containers uses claim
// data and has another level, unless that is empty.
func stating(pod, container string) *corev1.Pod {
	made := user("shop", "db-0", "data", "home-1")
	made.Spec.Volumes[0].Name = "files"
	options := func(level string) *corev1.SELinuxOptions {
		return &corev1.SELinuxOptions{User: "system_u", Role: "system_r", Type: "spc_t", Level: level}
	}
	made.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: options(pod)}
	made.Spec.Containers = []corev1.Container{
		{Name: "other", SecurityContext: &corev1.SecurityContext{SELinuxOptions: options("s0:c9")}},
		{Name: "db", VolumeMounts: []corev1.VolumeMount{{Name: "files"}},
			SecurityContext: &corev1.SecurityContext{SELinuxOptions: options(container)}},
	}
	return made
}

func TestAMoverAtTheSourceHasTheLevelOfThePodsAndNothingElseOfThem(t *testing.T) {
	r := recordIn(v1alpha1.MovePreCopy)
	r.Namespace = "shop"
	c := New(Config{Client: fake.NewClientset(stating("s0:c1,c2", "")), Records: NewRecords(), Node: func(string) *corev1.Node { return nil }})
	o := steps.Observation{Record: r, Claims: make([]steps.Claim, 1)}
	require.NoError(t, c.observeUsers(t.Context(), &o))
	assert.Equal(t, []string{"s0:c1,c2"}, o.Claims[0].Levels)

	assert.Nil(t, movers.PodSpec(c.moverOf(r, 0, record.Source), "").SecurityContext.SELinuxOptions, "none is known")
	r.Claims[0].Level, r.Claims[0].Snapshot = "s0:c1,c2", &record.Snapshot{}
	for _, end := range []record.End{record.Source, record.Snapped} {
		assert.Equal(t, &corev1.SELinuxOptions{Level: "s0:c1,c2"}, movers.PodSpec(c.moverOf(r, 0, end), "").SecurityContext.SELinuxOptions)
	}
	assert.Nil(t, movers.PodSpec(c.moverOf(r, 0, record.Target), "").SecurityContext.SELinuxOptions)
}

func TestAMoverSeesOfTheClaimWhatItsNamespaceHasThere(t *testing.T) {
	c := New(Config{Image: "mover:1", Place: backing.Place{HomeID: "home-1"}})
	r := recordIn("PreCopy")
	r.Namespace = "shop"
	r.Claims[0].Store = &record.Store{Cluster: "west", Ticket: (&moverapi.Repository{Claim: "moves"}).For(r.KeysOf(0), "word")}
	assert.Equal(t, "claim moves, the repository of cluster west", r.Claims[0].Store.Describe())
	mount := func(end record.End) corev1.VolumeMount {
		spec := movers.PodSpec(c.moverOf(r, 0, end), "")
		last := len(spec.Volumes) - 1
		assert.Equal(t, "moves", spec.Volumes[last].PersistentVolumeClaim.ClaimName)
		assert.False(t, spec.Volumes[last].PersistentVolumeClaim.ReadOnly, "the kubelet makes the directory")
		assert.Contains(t, spec.Containers[0].Args, "--repository=/repository")
		return spec.Containers[0].VolumeMounts[last]
	}
	wanted := corev1.VolumeMount{Name: "repository", MountPath: "/repository", SubPath: "lodestone-moves/home-1/shop"}
	assert.Equal(t, wanted, mount(record.Source))
	wanted.ReadOnly = true
	assert.Equal(t, wanted, mount(record.Target), "at the target it only reads")

	r.Claims[0].Store.Ticket = (&moverapi.Repository{URL: "s3:https://s3/bucket"}).For(r.KeysOf(0), "word")
	assert.Len(t, movers.PodSpec(c.moverOf(r, 0, record.Source), "").Volumes, 3)
	assert.Equal(t, "the object store of cluster west", r.Claims[0].Store.Describe())
}

func TestTextsOfOthersAreOneShortLine(t *testing.T) {
	assert.Equal(t, "the disk is away", plain("the disk\nis away"))
	assert.Less(t, len(plain(strings.Repeat("é", 2*longest))), longest+8)
}
