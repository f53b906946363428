package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

func TestPace(t *testing.T) {
	for _, test := range []struct {
		name string
		// waits and advanced are for how long the move has waited for the same thing, and since
		// when a copy got no further; 0: it does not wait, and that is not known.
		waits, advanced time.Duration
		stopped         bool
		after, want     time.Duration
	}{
		{name: "at first a wait is looked at often", waits: time.Second, after: time.Second, want: time.Second},
		{name: "later seldom", waits: time.Minute, after: time.Second, want: 5 * time.Second},
		{name: "a copy that gets further is shown", waits: time.Minute, advanced: 2 * time.Second, after: time.Second, want: time.Second},
		{name: "one that stands still is not", waits: time.Minute, advanced: 30 * time.Second, after: time.Second, want: 5 * time.Second},
		{name: "while pods stand still it is looked at often", waits: 30 * time.Second, stopped: true, after: 100 * time.Millisecond,
			want: 100 * time.Millisecond},
		{name: "but not for ever", waits: 2 * time.Minute, stopped: true, after: 100 * time.Millisecond, want: time.Second},
		{name: "what is waited for longer is not looked at more often", waits: time.Hour, after: time.Hour, want: time.Hour},
		{name: "what only an event ends is left to that", waits: time.Hour, want: 0},
		{name: "without a wait nothing changes", after: time.Second, want: time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := in(v1alpha1.MovePreCopy)
			if test.stopped {
				o.Record.Down = o.Now.Add(-time.Hour)
			}
			var since time.Time
			if test.waits > 0 {
				since = o.Now.Add(-test.waits)
			}
			if test.advanced > 0 {
				o.Advanced = o.Now.Add(-test.advanced)
			}
			assert.Equal(t, test.want, decide.Pace(o, steps.Step{After: test.after}, since))
		})
	}
}
