package tenancy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

func TestAHomeClusterIsConnectedFromWhenItsLeaseIsSeenToChange(t *testing.T) {
	now := time.Unix(1000, 0)
	tracker := NewHeartbeats(40 * time.Second)
	tracker.start, tracker.now = now, func() time.Time { return now }
	lease := func(renewed int64) *coordinationv1.Lease {
		at := metav1.NewMicroTime(time.Unix(renewed, 0))
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
	}
	expect := func(want policy.Presence, again time.Duration) {
		t.Helper()
		presence, after := tracker.Presence("h1")
		assert.Equal(t, want, presence)
		assert.Equal(t, again, after)
	}
	expect(policy.Unknown, 40*time.Second)
	// The time in the Lease, which home wrote, does not count: clocks differ.
	assert.False(t, tracker.Observe("h1", lease(999999)))
	expect(policy.Unknown, 40*time.Second)
	now = now.Add(10 * time.Second)
	assert.True(t, tracker.Observe("h1", lease(5)))
	expect(policy.Connected, 40*time.Second)
	now = now.Add(30 * time.Second)
	assert.False(t, tracker.Observe("h1", lease(5)), "the same again")
	expect(policy.Connected, 10*time.Second)
	now = now.Add(10 * time.Second)
	expect(policy.Away, 0)
	assert.False(t, tracker.Observe("h1", &coordinationv1.Lease{}), "made anew by the agent")
	expect(policy.Away, 0)
	assert.True(t, tracker.Observe("h1", lease(6)))
	expect(policy.Connected, 40*time.Second)
	tracker.Forget("h1")
	expect(policy.Away, 0)
}

func TestASilentHomeClusterIsAwayOnlyAfterListeningForLongEnough(t *testing.T) {
	now := time.Unix(1000, 0)
	tracker := NewHeartbeats(40 * time.Second)
	tracker.start, tracker.now = now, func() time.Time { return now }
	now = now.Add(39 * time.Second)
	presence, _ := tracker.Presence("h1")
	assert.Equal(t, policy.Unknown, presence)
	now = now.Add(time.Second)
	presence, _ = tracker.Presence("h1")
	assert.Equal(t, policy.Away, presence)
}
