package remote

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// epochWorld is a home cluster, and a remote one without the agent.
type epochWorld struct {
	*testing.T
	home, west *fake.Clientset
	remote     *v1alpha1.RemoteCluster
	events     *record.FakeRecorder
}

func newEpochWorld(t *testing.T) *epochWorld {
	t.Helper()
	return &epochWorld{T: t, home: fake.NewClientset(), west: fake.NewClientset(kubeSystem("west-uid")), events: record.NewFakeRecorder(10),
		remote: &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "r1"}}}
}

func kubeSystem(uid types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}
}

// process returns what a provisioner of that home knows of west when it has just started.
func (w *epochWorld) process() *Cluster {
	objects := cache.NewSharedIndexInformer(nil, &v1alpha1.RemoteCluster{}, 0, nil)
	require.NoError(w, objects.GetStore().Add(w.remote))
	return &Cluster{id: "west", gate: clients.NewGate(), connection: &connection{homeID: "h1", marks: w.west},
		clusters: &Clusters{home: w.home, namespace: "system", homeID: "h1", interval: time.Millisecond, objects: objects, recorder: w.events}}
}

func (w *epochWorld) keep(c *Cluster) epochState {
	time.Sleep(c.clusters.interval)
	state, _ := c.keepEpoch(w.Context(), w.remote, finding{clusterUID: "west-uid"})
	return state
}

// until keeps the mark until it is in some state.
func (w *epochWorld) until(c *Cluster, reason string) epochState {
	w.Helper()
	var state epochState
	require.Eventually(w, func() bool {
		state = w.keep(c)
		return state.reason == reason
	}, time.Minute, time.Millisecond, "%+v", state)
	return state
}

func (w *epochWorld) mark() homeepoch.Mark {
	lease, err := w.west.CoordinationV1().Leases(keys.VolumesNamespace).Get(w.Context(), "home-h1", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return homeepoch.Mark{}
	}
	require.NoError(w, err)
	return homeepoch.ParseMark(lease.Annotations[keys.HomeEpoch])
}

// rewind has west show an earlier mark, as a restore from a backup does.
func (w *epochWorld) rewind(to homeepoch.Mark) {
	w.change(func(lease *coordinationv1.Lease) {
		text, err := to.Encode()
		require.NoError(w, err)
		lease.Annotations[keys.HomeEpoch] = text
	})
}

func (w *epochWorld) change(how func(*coordinationv1.Lease)) {
	leases := w.west.CoordinationV1().Leases(keys.VolumesNamespace)
	lease, err := leases.Get(w.Context(), "home-h1", metav1.GetOptions{})
	require.NoError(w, err)
	how(lease)
	_, err = leases.Update(w.Context(), lease, metav1.UpdateOptions{})
	require.NoError(w, err)
}

func (w *epochWorld) recorded() *homeepoch.Record {
	secret, err := w.home.CoreV1().Secrets("system").Get(w.Context(), "home-epoch-west", metav1.GetOptions{})
	require.NoError(w, err)
	found, err := homeepoch.ParseRecord(secret.Data[homeepoch.SecretKey])
	require.NoError(w, err)
	return found
}

// clone returns a home with what this one has recorded.
func (w *epochWorld) clone() *epochWorld {
	secret, err := w.home.CoreV1().Secrets("system").Get(w.Context(), "home-epoch-west", metav1.GetOptions{})
	require.NoError(w, err)
	return &epochWorld{T: w.T, home: fake.NewClientset(secret.DeepCopy()), west: w.west, remote: w.remote.DeepCopy(),
		events: record.NewFakeRecorder(10)}
}

func TestAHomeRenewsItsMarkAndRecordsItFirst(t *testing.T) {
	w := newEpochWorld(t)
	var recorded, written homeepoch.Mark
	w.west.PrependReactor("*", "leases", func(action kubetesting.Action) (bool, runtime.Object, error) {
		var lease *coordinationv1.Lease
		switch action := action.(type) {
		case kubetesting.UpdateActionImpl:
			lease = action.Object.(*coordinationv1.Lease)
		case kubetesting.CreateActionImpl:
			lease = action.Object.(*coordinationv1.Lease)
		default:
			return false, nil, nil
		}
		recorded, written = w.recorded().Next, homeepoch.ParseMark(lease.Annotations[keys.HomeEpoch])
		return false, nil, nil
	})
	c := w.process()
	assert.False(t, c.gate.Open())
	var before homeepoch.Mark
	for range 3 {
		state := w.keep(c)
		assert.True(t, state.acts)
		assert.Equal(t, metav1.ConditionTrue, state.status)
		assert.True(t, c.gate.Open())
		assert.Equal(t, recorded, written)
		assert.Equal(t, written, w.mark())
		assert.NotEqual(t, before, written)
		before = written
	}
}

func TestTheNextLeaderGoesOn(t *testing.T) {
	w := newEpochWorld(t)
	c := w.process()
	w.until(c, "InForce")
	assert.Equal(t, "Watching", w.keep(w.process()).reason, "the one before was killed")
	next := w.process()
	w.until(next, "InForce")

	ended := endedCluster{cluster: next, connection: next.connection, found: finding{clusterUID: "west-uid"}}
	require.NoError(t, ended.release(t.Context()))
	assert.False(t, next.gate.Open())
	assert.True(t, w.mark().Released)
	assert.Equal(t, "InForce", w.keep(w.process()).reason, "the one before ended in good order")
}

func TestALostAnswerIsNoDoubt(t *testing.T) {
	for name, arrived := range map[string]bool{"the write arrived": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			w := newEpochWorld(t)
			c := w.process()
			w.until(c, "InForce")
			lose := true
			w.west.PrependReactor("update", "leases", func(action kubetesting.Action) (bool, runtime.Object, error) {
				if !lose {
					return false, nil, nil
				}
				lose = false
				if arrived {
					update := action.(kubetesting.UpdateAction)
					require.NoError(t, w.west.Tracker().Update(action.GetResource(), update.GetObject(), action.GetNamespace()))
				}
				return true, nil, errors.New("no answer")
			})
			assert.True(t, w.keep(c).acts, "its last renewal is still valid")
			require.False(t, lose)
			for range 3 {
				assert.Equal(t, "InForce", w.keep(c).reason)
			}
		})
	}
}

func TestARemoteClusterThatGoesBackIsLeftAlone(t *testing.T) {
	for name, test := range map[string]struct{ renewals int }{
		"one renewal after the backup":   {renewals: 1},
		"two renewals after the backup":  {renewals: 2},
		"many renewals after the backup": {renewals: 9},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEpochWorld(t)
			c := w.process()
			w.until(c, "InForce")
			w.keep(c)
			backup := w.mark()
			for range test.renewals {
				assert.True(t, w.keep(c).acts)
			}
			w.rewind(backup)
			assert.Equal(t, homeepoch.RemoteBehind, w.keep(c).reason)
			assert.False(t, c.gate.Open())
			assert.Equal(t, backup, w.mark(), "nothing is written there")
			assert.Equal(t, homeepoch.RemoteBehind, w.keep(w.process()).reason, "a new process knows, too")
		})
	}
}

func TestNobodyTakesOverWhileVirtualNodesOfAnotherCopySendHeartbeats(t *testing.T) {
	w := newEpochWorld(t)
	c := w.process()
	assert.EqualValues(t, 1, w.until(c, "InForce").epoch)
	backup := w.mark()
	w.keep(c)
	w.keep(c)
	w.rewind(backup)
	w.until(c, homeepoch.RemoteBehind)
	doubt := w.recorded().Doubt
	w.remote.Annotations = map[string]string{keys.ConfirmedHome: doubt.ID}
	waited := 3 * homeepoch.Validity(c.clusters.interval)
	c.epoch.seen, c.epoch.quiet = c.epoch.seen.Add(-waited), c.epoch.quiet.Add(-waited)
	w.change(func(lease *coordinationv1.Lease) { lease.Spec.RenewTime = ptr.To(metav1.NowMicro()) })
	assert.Equal(t, homeepoch.RemoteBehind, w.keep(c).reason)
	again := w.recorded().Doubt
	require.NotNil(t, again)
	assert.NotEqual(t, doubt.ID, again.ID, "what was confirmed is void")
	assert.Equal(t, backup, w.mark())

	w.remote.Annotations[keys.ConfirmedHome] = again.ID
	c.epoch.quiet = c.epoch.quiet.Add(-waited)
	w.keep(c)
	assert.EqualValues(t, 2, w.mark().Epoch, "there was no heartbeat any more")
	c.epoch.seen = c.epoch.seen.Add(-waited)
	c.verdict = verdict{checked: true, epoch: w.until(c, "InForce")}
	access, why := c.Access()
	assert.Empty(t, why)
	assert.EqualValues(t, 2, access.HomeEpoch, "whoever goes on knows that west was restored")
}

func TestACloneActsOnlyIfItIsConfirmedAndNobodyRenews(t *testing.T) {
	production := newEpochWorld(t)
	c := production.process()
	production.until(c, "InForce")
	drill := production.clone()
	production.keep(c)
	production.keep(c)
	copied := drill.process()
	state := drill.keep(copied)
	assert.Equal(t, homeepoch.RemoteAhead, state.reason)
	assert.Contains(t, state.message, "kubectl lodestone confirm west")
	assert.Contains(t, <-drill.events.Events, "HomeInDoubt")
	assert.False(t, copied.gate.Open())
	assert.True(t, production.keep(c).acts)

	// Confirmed while production works.
	doubt := drill.recorded().Doubt
	drill.remote.Annotations = map[string]string{keys.ConfirmedHome: doubt.ID}
	assert.Contains(t, drill.until(copied, homeepoch.RemoteAhead).message, "since")
	assert.NotEqual(t, doubt.ID, drill.recorded().Doubt.ID, "what was confirmed is void")
	assert.True(t, production.keep(c).acts)
	assert.False(t, copied.gate.Open())
}

func TestWhereHomeMayKeepNoMarkItActs(t *testing.T) {
	w := newEpochWorld(t)
	forbid := true
	w.west.PrependReactor("*", "leases", func(kubetesting.Action) (bool, runtime.Object, error) {
		if !forbid {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "home-h1", errors.New("no right"))
	})
	c := w.process()
	state := w.keep(c)
	assert.Equal(t, "NotKept", state.reason)
	assert.Equal(t, metav1.ConditionUnknown, state.status)
	assert.True(t, c.gate.Open())
	forbid = false
	assert.Equal(t, "InForce", w.until(c, "InForce").reason)
	w.keep(c)
	// Once there was a mark, a right that is gone is no excuse.
	forbid = true
	c = w.process()
	assert.Equal(t, "NotReadable", w.keep(c).reason)
	assert.False(t, c.gate.Open())
}

func TestAnAnswerAboutAnotherLeaseIsNoMark(t *testing.T) {
	w := newEpochWorld(t)
	w.west.PrependReactor("get", "leases", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{}}, nil
	})
	assert.Equal(t, "NotKept", w.keep(w.process()).reason)
}

func TestAMarkThatIsTakenAwayWithTheRemoteClusterLeavesNoDoubt(t *testing.T) {
	w := newEpochWorld(t)
	c := w.process()
	w.until(c, "InForce")
	require.NoError(t, c.dropEpoch(t.Context()))
	assert.True(t, w.mark().None())
	assert.False(t, c.gate.Open())
	_, record, err := c.clusters.epochRecord(t.Context(), "west")
	require.NoError(t, err)
	assert.Nil(t, record)
	w.remote = &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "r2"}}
	assert.Equal(t, "InForce", w.keep(w.process()).reason)

	// West could not be reached when its RemoteCluster went.
	w.remote = &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "r3"}}
	w.until(w.process(), "InForce")

	// A home cluster in doubt takes nothing away.
	drill := w.clone()
	c = w.process()
	w.until(c, "InForce")
	copied := drill.process()
	drill.until(copied, homeepoch.RemoteAhead)
	before := w.mark()
	require.NoError(t, copied.dropEpoch(context.Background()))
	assert.Equal(t, before, w.mark())
}

func TestAMarkOfAnotherClusterAtTheSameAddressIsNoDoubt(t *testing.T) {
	w := newEpochWorld(t)
	c := w.process()
	for range 2 {
		require.True(t, w.keep(c).acts)
	}
	before := w.recorded()

	west := w.west
	for name, there := range map[string]*corev1.Namespace{"it has no mark": kubeSystem("other-uid"), "it does not say who it is": nil} {
		other := fake.NewClientset()
		if there != nil {
			require.NoError(t, other.Tracker().Add(there))
		}
		c.connection.marks = other
		w.keep(c)
		assert.Nil(t, w.recorded().Doubt, name)
		assert.Equal(t, before.Next, w.recorded().Next, name)
		leases, err := other.CoordinationV1().Leases("").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		assert.Empty(t, leases.Items, name)
	}

	c.connection.marks = west
	assert.Equal(t, "InForce", w.until(c, "InForce").reason)
}
