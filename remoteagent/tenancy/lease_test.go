package tenancy

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/podlease"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// asking is the Lease of a home cluster with a mark, which asks for a lease of two minutes.
func asking(t *testing.T, mark string) *coordinationv1.Lease {
	t.Helper()
	text, err := podlease.Ask{Request: 1, Seconds: 120}.Encode()
	require.NoError(t, err)
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: policy.TenantNamespace("h1"), Name: keys.HeartbeatLease,
		Annotations: map[string]string{keys.HomeEpoch: mark, keys.PodLease: text}}}
}

func TestALeaseHasLapsedOnlyOnceTheAPIServerShowsNoHeartbeatEither(t *testing.T) {
	now := time.Unix(1000, 0)
	heartbeats := NewHeartbeats(40 * time.Second)
	heartbeats.now = func() time.Time { return now }
	client := fake.NewClientset(asking(t, "m2"))
	var failure error
	client.PrependReactor("get", "leases", func(kubetesting.Action) (bool, runtime.Object, error) { return failure != nil, nil, failure })
	var changes []podlease.State
	leases := NewLeases(client, heartbeats, nil)
	leases.Subscribe(func(id string) {
		_, state := leases.State(id)
		changes = append(changes, state)
	})
	heartbeats.Observe("h1", asking(t, "m1"))
	heartbeats.Observe("h1", asking(t, "m2"))
	leases.look(t.Context(), "h1")
	ask, state := leases.State("h1")
	assert.Equal(t, podlease.Ask{Request: 1, Seconds: 120}, ask)
	assert.Equal(t, podlease.Held, state)

	// The watch stands still, and home is heard.
	now = now.Add(time.Minute)
	_, err := client.CoordinationV1().Leases(policy.TenantNamespace("h1")).Update(t.Context(), asking(t, "m3"), metav1.UpdateOptions{})
	require.NoError(t, err)
	_, state = leases.State("h1")
	assert.Equal(t, podlease.Listening, state, "it may have lapsed")
	leases.look(t.Context(), "h1")
	_, state = leases.State("h1")
	assert.Equal(t, podlease.Held, state)

	// Who cannot ask ends nothing.
	now, failure = now.Add(time.Minute), errors.New("not now")
	leases.look(t.Context(), "h1")
	_, state = leases.State("h1")
	assert.Equal(t, podlease.Listening, state)
	failure = nil
	leases.look(t.Context(), "h1")
	_, state = leases.State("h1")
	assert.Equal(t, podlease.Lapsed, state)

	heartbeats.Observe("h1", asking(t, "m4"))
	_, state = leases.State("h1")
	assert.Equal(t, podlease.Held, state, "a heartbeat counts at once")
	leases.look(t.Context(), "h1")
	assert.Equal(t, []podlease.State{podlease.Held, podlease.Lapsed, podlease.Held}, changes)
	leases.Forget("h1")
	_, state = leases.State("h1")
	assert.Equal(t, podlease.None, state)
}

func TestAWatchThatHasStoodStillDoesNotMakeALeaseLonger(t *testing.T) {
	now := time.Unix(1000, 0)
	heartbeats := NewHeartbeats(40 * time.Second)
	heartbeats.now = func() time.Time { return now }
	at := func(mark, version string) *coordinationv1.Lease {
		lease := asking(t, mark)
		lease.ResourceVersion = version
		return lease
	}
	client, reads := fake.NewClientset(), 0
	var there *coordinationv1.Lease
	client.PrependReactor("get", "leases", func(kubetesting.Action) (bool, runtime.Object, error) { reads++; return true, there, nil })
	leases := NewLeases(client, heartbeats, nil)
	state := func() podlease.State {
		leases.look(t.Context(), "h1")
		_, state := leases.State("h1")
		return state
	}
	there = at("m2", "20")
	heartbeats.Observe("h1", at("m1", "9"))
	heartbeats.Observe("h1", there)
	assert.Equal(t, podlease.Held, state())
	// The watch stands still, and home sends its last heartbeat.
	now, there = now.Add(20*time.Second), at("m5", "100")
	before := reads
	assert.Equal(t, podlease.Held, state())
	assert.Equal(t, before+1, reads, "that is read")
	now = now.Add(59 * time.Second)
	assert.Equal(t, podlease.Held, state())
	// Then it tells of all of them.
	for _, missed := range []*coordinationv1.Lease{at("m3", "30"), at("m4", "40"), there} {
		heartbeats.Observe("h1", missed)
	}
	now = now.Add(time.Second)
	assert.Equal(t, podlease.Lapsed, state(), "what is older than what was read is no heartbeat")
	// The cluster is restored from a backup: what is read counts, whatever its version.
	there = at("m6", "50")
	now = now.Add(readEvery)
	assert.Equal(t, podlease.Held, state())
	heartbeats.Observe("h1", at("m7", "60"))
	now = now.Add(59 * time.Second)
	there = at("m7", "60")
	assert.Equal(t, podlease.Held, state())
}

func TestWhatIsPromisedIsShownWithWhatHasBecomeOfIt(t *testing.T) {
	home := &remotev1alpha1.HomeCluster{}
	ask := podlease.Ask{Request: 2, Seconds: 120}
	shown := func() metav1.ConditionStatus {
		condition := meta.FindStatusCondition(home.Status.Conditions, remotev1alpha1.PodLease)
		if condition == nil {
			return ""
		}
		return condition.Status
	}
	assert.False(t, promise(home, podlease.Ask{}, podlease.None))
	for _, step := range []struct {
		state   podlease.State
		changes bool
		want    metav1.ConditionStatus
	}{
		{podlease.Listening, true, metav1.ConditionUnknown},
		{podlease.Held, true, metav1.ConditionTrue},
		{podlease.Held, false, metav1.ConditionTrue},
		{podlease.Lapsed, true, metav1.ConditionFalse},
		// Another process knows no more than the one before it.
		{podlease.Listening, false, metav1.ConditionFalse},
		{podlease.Held, true, metav1.ConditionTrue},
	} {
		assert.Equal(t, step.changes, promise(home, ask, step.state))
		assert.Equal(t, step.want, shown())
		assert.Equal(t, &remotev1alpha1.PodLeasePromise{Request: 2, Seconds: 120}, home.Status.PodLease)
	}
	assert.True(t, promise(home, podlease.Ask{}, podlease.None), "home asks for nothing any more")
	assert.Empty(t, shown())
	assert.Nil(t, home.Status.PodLease)
	assert.False(t, promise(home, podlease.Ask{}, podlease.None))
}
