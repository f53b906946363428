package podlease

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func encoded(t *testing.T, a Ask) string {
	t.Helper()
	text, err := a.Encode()
	require.NoError(t, err)
	return text
}

func TestOnlyALeaseWithinBoundsIsAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Ask
	}{
		"a lease":               {`{"request":3,"seconds":120}`, Ask{3, 120}},
		"the shortest":          {`{"request":1,"seconds":60}`, Ask{1, 60}},
		"the longest":           {`{"request":1,"seconds":86400}`, Ask{1, 86400}},
		"nothing":               {"", Ask{}},
		"one that is taken off": {`{"request":4,"seconds":0}`, Ask{}},
		"one that is too short": {`{"request":1,"seconds":59}`, Ask{}},
		"one that is too long":  {`{"request":1,"seconds":86401}`, Ask{}},
		"one before its time":   {`{"request":1,"seconds":-120}`, Ask{}},
		"a number that is large beyond all bounds": {`{"request":1,"seconds":9223372036854775807}`, Ask{}},
		"something else": {"two minutes", Ask{}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, Parse(c.text)) })
	}
}

func TestALeaseIsHeldForHalfOfItsLengthAfterEachHeartbeat(t *testing.T) {
	now := time.Unix(1000, 0)
	ask := encoded(t, Ask{1, 120})
	w := Watch{}
	expect := func(want State) {
		t.Helper()
		assert.Equal(t, want, w.State(now))
	}
	expect(None)
	w = w.See("m1", ask, now)
	expect(Listening)
	now = now.Add(10 * time.Second)
	w = w.See("m1", ask, now)
	expect(Listening)
	w = w.See("m2", ask, now)
	expect(Held)
	now = now.Add(59 * time.Second)
	w = w.See("m2", ask, now)
	expect(Held)
	// Somebody deletes the Lease, and the agent makes it anew.
	w = w.See("", "", now)
	expect(Held)
	now = now.Add(time.Second)
	expect(Lapsed)
	w = w.See("m3", ask, now)
	expect(Held)
	// A longer one, and none, count from the heartbeat that asks for it.
	w = w.See("m4", encoded(t, Ask{2, 600}), now)
	expect(Held)
	w = w.See("m5", encoded(t, Ask{3, 0}), now)
	expect(None)
}

func TestAnAgentThatStartsAnewEndsPodsOfASilentHomeAfterHalfOfTheLease(t *testing.T) {
	now := time.Unix(1000, 0)
	w := Watch{}.See("m7", encoded(t, Ask{1, 60}), now)
	assert.Equal(t, Listening, w.State(now.Add(29*time.Second)))
	assert.Equal(t, Lapsed, w.State(now.Add(30*time.Second)))
}

func TestHomeRemembersWhatIsPromisedAndForgetsWhatMayNotBe(t *testing.T) {
	two, ten := Ask{1, 120}, Ask{2, 600}
	for name, c := range map[string]struct {
		record *Record
		wanted time.Duration
		shown  Ask
		want   *Record
		length time.Duration
	}{
		"nobody wants one":                         {nil, 0, Ask{}, nil, 0},
		"one is asked for":                         {nil, 2 * time.Minute, Ask{}, &Record{Asked: two}, 0},
		"what an earlier home was promised":        {nil, 2 * time.Minute, two, &Record{Asked: Ask{2, 120}}, 0},
		"nothing is promised yet":                  {&Record{Asked: two}, 2 * time.Minute, Ask{}, &Record{Asked: two}, 0},
		"it is promised":                           {&Record{Asked: two}, 2 * time.Minute, two, &Record{two, two}, 2 * time.Minute},
		"it stays promised":                        {&Record{two, two}, 2 * time.Minute, two, &Record{two, two}, 2 * time.Minute},
		"the agent has forgotten":                  {&Record{two, two}, 2 * time.Minute, Ask{}, &Record{Asked: two}, 0},
		"the agent shows something else":           {&Record{two, two}, 2 * time.Minute, Ask{7, 3600}, &Record{Asked: two}, 0},
		"the agent shows what no home asks for":    {nil, 2 * time.Minute, Ask{math.MaxInt64, 120}, &Record{Asked: two}, 0},
		"a longer one is asked for":                {&Record{two, two}, 10 * time.Minute, two, &Record{ten, two}, 10 * time.Minute},
		"it is changed again before that is shown": {&Record{Ask{2, 3600}, two}, time.Minute, two, &Record{Asked: Ask{3, 60}}, 0},
		"… and a moment after":                     {&Record{Asked: Ask{3, 60}}, time.Minute, two, &Record{Asked: Ask{3, 60}}, 0},
		"the longer one is not shown yet":          {&Record{ten, two}, 10 * time.Minute, two, &Record{ten, two}, 10 * time.Minute},
		"the longer one is promised":               {&Record{ten, two}, 10 * time.Minute, ten, &Record{ten, ten}, 10 * time.Minute},
		"a shorter one is not shown yet":           {&Record{Ask{3, 60}, ten}, time.Minute, ten, &Record{Ask{3, 60}, ten}, 10 * time.Minute},
		"a promise of the same length as later":    {&Record{Ask{3, 120}, ten}, 2 * time.Minute, two, &Record{Asked: Ask{3, 120}}, 0},
		"none is wanted any more":                  {&Record{two, two}, 0, two, &Record{Asked: Ask{2, 0}}, 0},
		"none is wanted, and that was sent":        {&Record{Asked: Ask{2, 0}}, 0, two, &Record{Asked: Ask{2, 0}}, 0},
		"one is wanted again":                      {&Record{Asked: Ask{2, 0}}, 2 * time.Minute, two, &Record{Asked: Ask{3, 120}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := Next(c.record, c.wanted, c.shown)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.length, Of(got, 0).Length)
			assert.Equal(t, c.length > 0, got.IsPromised())
		})
	}
}

func TestHomeWaitsForTheLeaseTheGracePeriodAndAMargin(t *testing.T) {
	s := Silence{Length: 2 * time.Minute}
	whole := 2*time.Minute + 30*time.Second + 30*time.Second + 1500*time.Millisecond
	assert.Equal(t, whole, s.Left(30*time.Second))
	s.Quiet = whole - time.Second
	assert.Equal(t, time.Second, s.Left(30*time.Second))
	s.Quiet = whole
	assert.Zero(t, s.Left(30*time.Second))
	s.Quiet = 10 * whole
	assert.Zero(t, s.Left(30*time.Second))
	assert.False(t, Silence{Quiet: time.Hour}.IsPromised())
}
