package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// The clock was a day ahead when the record was written, was set since, and another provisioner goes on.

func TestAPointThatAClockAheadBeganIsGivenUpOnceItStandsStill(t *testing.T) {
	o := copies(nil)
	o.Record.Point.Since, o.Record.Point.Cut = noon.Add(24*time.Hour), noon.Add(24*time.Hour)
	o.Reached, o.Claims[0].Copy.Connected = noon, false
	o.Now = noon.Add(9 * time.Minute)
	assert.Nil(t, decide.Next(o).Action)
	o.Now = noon.Add(11 * time.Minute)
	save, gives := decide.Next(o).Action.(decide.Save)
	require.True(t, gives, "it does not stand until the clock is there")
	assert.Contains(t, save.Record.Point.Why, "stood still")
}

func TestAnApplicationThatAClockAheadFrozeIsThawedAtOnce(t *testing.T) {
	o := held(func(o *decide.Observation) {
		o.Record.Point.Stage, o.Record.Point.Why = record.Thaw, "it failed"
		o.Record.Point.Freeze.Pods[0].Next, o.Record.Point.Freeze.Pods[0].Failures = noon.Add(24*time.Hour), 1
	})
	assert.Equal(t, decide.Thaw{}, decide.Next(o).Action)
	assert.True(t, decide.MustThaw(o.Record.Point.Freeze.Pods[0], o.Now))

	// Nobody knows how long ago its snapshot was taken.
	o = held(func(o *decide.Observation) {
		o.Record.Point.Stage, o.Record.Point.Freeze.Taken = record.Thaw, noon.Add(24*time.Hour)
		o.Record.Point.Freeze.Pods[0].Thawed = true
	})
	save, gives := decide.Next(o).Action.(decide.Save)
	require.True(t, gives, "it does not wait until the clock is there")
	assert.Contains(t, save.Record.Point.Why, "clock")
}

func TestAFailoverThatAClockAheadBeganEndsNoLaterPoint(t *testing.T) {
	o := copies(nil)
	o.FailedOver = noon.Add(24 * time.Hour)
	o.Record.Point.FailedOver = o.FailedOver
	assert.IsType(t, decide.Start{}, decide.Next(o).Action, "the point began after it")
	o.Record.Point.FailedOver = time.Time{}
	save, gives := decide.Next(o).Action.(decide.Save)
	require.True(t, gives, "it began before")
	assert.Contains(t, save.Record.Point.Why, "failover")

	// The clock was ahead when the point began, and is not now.
	o.FailedOver, o.Record.Point.Cut = noon.Add(time.Minute), noon.Add(24*time.Hour)
	save, gives = decide.Next(o).Action.(decide.Save)
	require.True(t, gives)
	assert.Contains(t, save.Record.Point.Why, "failover")
}

func TestAFailoverThatAClockAheadBeganHidesNoLaterOne(t *testing.T) {
	o := copies(nil)
	o.Record.Point.FailedOver, o.FailedOver = noon.Add(24*time.Hour), noon
	save, gives := decide.Next(o).Action.(decide.Save)
	require.True(t, gives, "what it copies is of before that")
	assert.Contains(t, save.Record.Point.Why, "failover")
	o.FailedOver = time.Time{}
	assert.IsType(t, decide.Start{}, decide.Next(o).Action, "the one before is over")

	o = observation(1)
	o.Record.FailedOver, o.FailedOver, o.At = noon.Add(24*time.Hour), noon, o.Record.Head.Cluster
	save, counts := decide.Next(o).Action.(decide.Save)
	require.True(t, counts)
	assert.EqualValues(t, 2, save.Record.Epoch)
}

func TestAClockThatWasSetBackWhileAPointWasMadePutsTheNextOneOffNoLonger(t *testing.T) {
	o := observation(1)
	o.Record.Sealed[0].Took = -31 * 24 * time.Hour
	assert.Equal(t, noon.Add(10*time.Minute), decide.Due(o))
}
