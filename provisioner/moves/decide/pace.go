package decide

import (
	"time"

	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

const (
	// rare is the interval between steps while an event ends the wait: it matters only if one
	// is missed.
	rare = 10 * time.Minute
	// stillAfter is for how long a move may wait for the same thing before it is observed
	// seldom, and stillStopped that if pods cannot use the claims meanwhile: a stop that has
	// lasted long is hardly longer by a second. Each observation is load for API servers, and
	// events end most waits.
	stillAfter   = 10 * time.Second
	stillStopped = time.Minute
)

// Pace is the time until the next observation after a step without an action. Since is since when
// the move has waited for the same thing, zero if it does not.
func Pace(o steps.Observation, step steps.Step, since time.Time) time.Duration {
	if since.IsZero() || step.After == 0 {
		return step.After
	}
	if o.Advanced.After(since) {
		since = o.Advanced
	}
	still, stopped := o.Now.Sub(since), o.Record != nil && !o.Record.Down.IsZero() && o.Record.Up.IsZero()
	switch {
	case stopped && still > stillStopped:
		return max(step.After, steps.Soon)
	case !stopped && still > stillAfter:
		return max(step.After, steps.Seldom)
	}
	return step.After
}
