package moves

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	events "k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/site"
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

func TestWhatIsSeenOfAMoverSaysFromItsEventsWhyItDoesNotRun(t *testing.T) {
	r := recordIn(v1alpha1.MoveProvision)
	ref, name := r.Claims[0].Source.Ref, r.MoverName(0, record.Source)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: name, UID: "p1"},
		Spec: corev1.PodSpec{NodeName: "home-1"}}
	c := New(Config{Client: fake.NewClientset(pod, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: "e"}, InvolvedObject: corev1.ObjectReference{Name: name, UID: "p1"},
		Type: corev1.EventTypeWarning, Reason: "FailedAttachVolume", Message: "the volume is attached to home-2",
	})})
	m, _, err := c.moverAt(t.Context(), c.sites.Home(), r, 0, record.Source)
	require.NoError(t, err)
	assert.True(t, m.Exists && !m.Running)
	assert.Equal(t, "it starts on node home-1: FailedAttachVolume: the volume is attached to home-2", m.Problem)
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

func TestAMoverHasWhatItNeedsAndNoMore(t *testing.T) {
	c := New(Config{Image: "mover:1"})
	r := recordIn("PreCopy")
	for _, end := range record.Ends {
		spec := c.moverSpec(r, 0, end, "node-1")
		assert.False(t, *spec.AutomountServiceAccountToken)
		assert.False(t, spec.HostNetwork || spec.HostPID || spec.HostIPC)
		security := spec.Containers[0].SecurityContext
		assert.Equal(t, []corev1.Capability{"ALL"}, security.Capabilities.Drop)
		assert.Equal(t, []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"}, security.Capabilities.Add)
		assert.False(t, *security.AllowPrivilegeEscalation)
		assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type)
		assert.NotEmpty(t, spec.Containers[0].Resources.Limits)
		for _, volume := range spec.Volumes {
			assert.True(t, volume.HostPath == nil && volume.Projected == nil)
		}
		terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		assert.Equal(t, keys.Cluster, terms[0].MatchExpressions[0].Key, "never on a node that stands for another cluster")
		assert.Equal(t, []string{"node-1"}, terms[0].MatchFields[0].Values)
	}
	assert.Equal(t, "pvc-u1", c.moverSpec(r, 0, record.Source, "").Volumes[0].PersistentVolumeClaim.ClaimName)
	assert.Equal(t, "data", c.moverSpec(r, 0, record.Target, "").Volumes[0].PersistentVolumeClaim.ClaimName)
}

func TestAMoverIsBoundOnTheDiskOfItsNodeAndStopsBeforeTheNodeEndsIt(t *testing.T) {
	sized := func(size string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			Spec: corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		}
	}
	for name, row := range map[string]struct {
		volume *corev1.PersistentVolume
		told   int64
		want   int64
	}{
		"a small volume":           {sized("1Gi"), 0, 4<<30 + 64<<20},
		"a large one":              {sized("16Ti"), 0, 4<<30 + 1<<40},
		"one of which is not told": {nil, 0, 4 << 30},
		"as configured":            {sized("16Ti"), 20 << 30, 20 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{Image: "mover:1", Scratch: row.told})
			r := recordIn("PreCopy")
			r.Claims[0].Volume = row.volume
			for _, end := range record.Ends {
				spec := c.moverSpec(r, 0, end, "")
				mover := spec.Containers[0]
				assert.Contains(t, mover.Args, fmt.Sprintf("--scratch-limit=%d", row.want))
				var limit *resource.Quantity
				for _, volume := range spec.Volumes {
					if volume.EmptyDir != nil {
						limit = volume.EmptyDir.SizeLimit
					}
				}
				require.NotNil(t, limit)
				assert.Greater(t, limit.Value(), row.want)
				assert.Greater(t, mover.Resources.Limits.StorageEphemeral().Value(), limit.Value())
				assert.Contains(t, mover.Resources.Requests, corev1.ResourceEphemeralStorage)
				assert.Zero(t, mover.Resources.Requests.StorageEphemeral().Value(), "any node will do")
			}
		})
	}
}

func TestAMoverOfABlockVolumeHasTheDevice(t *testing.T) {
	c := New(Config{Image: "mover:1"})
	r := recordIn("PreCopy")
	block := corev1.PersistentVolumeBlock
	r.Claims[0].Volume = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{VolumeMode: &block}}
	for _, end := range record.Ends {
		mover := c.moverSpec(r, 0, end, "").Containers[0]
		assert.Equal(t, []corev1.VolumeDevice{{Name: "volume", DevicePath: "/volume"}}, mover.VolumeDevices)
		assert.Contains(t, mover.Args, "--block")
		for _, mount := range mover.VolumeMounts {
			assert.NotEqual(t, "volume", mount.Name)
		}
	}
}

func TestTheMoverAtASnapshotHasNothingButItsClaim(t *testing.T) {
	c := New(Config{Place: backing.Place{HomeID: "h1"}})
	r := &record.Record{UID: "m1", Phase: v1alpha1.MovePreCopy, Claims: []record.Claim{{
		Source: record.Copy{Ref: backing.Ref{Name: "data"}}, Target: record.Copy{Ref: backing.Ref{Name: "to"}},
		Snapshot: &record.Snapshot{Copy: record.Copy{Ref: backing.Ref{Name: "move-m1-0-snapshot"}}},
	}}}
	volume := func(end record.End) (claim, secret string, args []string) {
		spec := c.moverSpec(r, 0, end, "")
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
	assert.EqualValues(t, repositoryGrace, gracePeriod(r, 0, record.Snapped, 5), "it removes what it has in an object store")
	assert.Equal(t, map[string]string{keys.MoveOf: "m1", keys.HomeID: "h1"}, c.snapshotLabels(r))
}

func TestAMoverWithAnObjectStoreHasTimeToEmptyIt(t *testing.T) {
	c := New(Config{Image: "mover:1"})
	r := recordIn("PreCopy")
	without := c.moverSpec(r, 0, record.Source, "")
	r.Claims[0].Store = &record.Store{Cluster: "west", Ticket: moverapi.Ticket{Password: "word"}}
	with := c.moverSpec(r, 0, record.Source, "")
	assert.Greater(t, *with.TerminationGracePeriodSeconds, *without.TerminationGracePeriodSeconds)
	assert.Equal(t, without.TerminationGracePeriodSeconds, c.moverSpec(r, 0, record.Target, "").TerminationGracePeriodSeconds,
		"pods wait for its end")
	assert.Positive(t, with.Containers[0].Resources.Requests.Memory().Cmp(*without.Containers[0].Resources.Requests.Memory()))

	// The credentials of the store are kept only as long as movers may need them.
	assert.Equal(t, "word", r.Enter(v1alpha1.MoveRollBack, r.Began["PreCopy"]).Claims[0].Store.Ticket.Password)
	over := r.Enter(v1alpha1.MoveAborted, r.Began["PreCopy"])
	assert.Equal(t, &record.Store{Cluster: "west"}, over.Claims[0].Store)
	assert.Equal(t, "word", r.Claims[0].Store.Ticket.Password)
	assert.True(t, isBlock(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{VolumeMode: ptr.To(corev1.PersistentVolumeBlock)}}))
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

	assert.Nil(t, c.moverSpec(r, 0, record.Source, "").SecurityContext.SELinuxOptions, "none is known")
	r.Claims[0].Level, r.Claims[0].Snapshot = "s0:c1,c2", &record.Snapshot{}
	for _, end := range []record.End{record.Source, record.Snapped} {
		assert.Equal(t, &corev1.SELinuxOptions{Level: "s0:c1,c2"}, c.moverSpec(r, 0, end, "").SecurityContext.SELinuxOptions)
	}
	assert.Nil(t, c.moverSpec(r, 0, record.Target, "").SecurityContext.SELinuxOptions)
}

func TestAMoverSeesOfTheClaimWhatItsNamespaceHasThere(t *testing.T) {
	c := New(Config{Image: "mover:1", Place: backing.Place{HomeID: "home-1"}})
	r := recordIn("PreCopy")
	r.Namespace = "shop"
	r.Claims[0].Store = &record.Store{Cluster: "west", Ticket: (&moverapi.Repository{Claim: "moves"}).For(r.KeysOf(0), "word")}
	assert.Equal(t, "claim moves, the repository of cluster west", r.Claims[0].Store.Describe())
	mount := func(end record.End) corev1.VolumeMount {
		spec := c.moverSpec(r, 0, end, "")
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
	assert.Len(t, c.moverSpec(r, 0, record.Source, "").Volumes, 3)
	assert.Equal(t, "the object store of cluster west", r.Claims[0].Store.Describe())
}
