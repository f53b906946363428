package moves

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
)

func TestAMoverThatDoesNotComeToRunGetsItsKeysAgainAndAgain(t *testing.T) {
	now := time.Now()
	var all tardy
	mover := decide.Mover{Exists: true, Pod: "p1", Node: "west-1"}
	at := func(after time.Duration, changes ...func(m *decide.Mover)) bool {
		seen := mover
		for _, change := range changes {
			change(&seen)
		}
		o := decide.Observation{Now: now.Add(after), Claims: make([]decide.Claim, 2)}
		o.Claims[1].Snapshot.Mover = seen
		all.see(&o)
		return o.Claims[1].Snapshot.Mover.Keyless
	}
	assert.False(t, at(0))
	assert.False(t, at(keysAfter-time.Second))
	assert.True(t, at(keysAfter))
	assert.False(t, at(keysAfter+time.Second), "it has time to start")
	assert.True(t, at(2*keysAfter))
	assert.False(t, at(time.Hour, func(m *decide.Mover) { m.Running = true }))
	assert.Empty(t, all)
	for _, change := range []func(m *decide.Mover){
		func(m *decide.Mover) { m.Unstarted = true }, func(m *decide.Mover) { m.Leaving = true },
		func(m *decide.Mover) { m.Ended = true }, func(m *decide.Mover) { m.Node = "" },
	} {
		assert.False(t, at(time.Hour))
		assert.False(t, at(3*time.Hour, change))
	}
	assert.False(t, at(4*time.Hour))
	assert.False(t, at(6*time.Hour, func(m *decide.Mover) { m.Pod = "p2" }), "another pod")
}
