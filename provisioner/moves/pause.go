package moves

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

const (
	// firstPause is after a step that was taken again, and doubles up to longestPause.
	firstPause   = 10 * time.Millisecond
	longestPause = 5 * time.Second
)

// repeated is the step that was taken last, and how often it was taken again in a row.
type repeated struct {
	step  taking
	again int
}

// taking tells a step from others.
type taking struct {
	verb  decide.Verb
	claim int
	end   record.End
	on    types.UID
	phase v1alpha1.MovePhase
}

// pause returns how long to wait after a step. One that changes nothing, because whoever
// was asked says that it was done and did not do it, is taken ever more seldom.
func (t *repeated) pause(o decide.Observation, step decide.Step) time.Duration {
	now := taking{verb: step.Verb, claim: step.Claim, end: step.End, on: step.Pod.UID}
	if o.Record != nil {
		now.phase = o.Record.Phase
	}
	if now != t.step || step.Verb == decide.Save {
		*t = repeated{step: now}
		return time.Nanosecond
	}
	t.again++
	return min(firstPause<<min(t.again-1, 10), longestPause)
}

// failing is since when every step of a move fails, and why. It is kept in memory only.
type failing struct {
	since time.Time
	why   string
}

// see notes what became of a step.
func (f *failing) see(now time.Time, err error) {
	switch {
	case err == nil:
		*f = failing{}
	case f.since.IsZero():
		*f = failing{since: now, why: err.Error()}
	default:
		f.why = err.Error()
	}
}
