package feed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// soon bounds waits that end in milliseconds unless something is broken.
const soon = 30 * time.Second

// life is a pulse with a clock that the test turns.
type life struct {
	pulse
	now  time.Time
	open *watch.FakeWatcher
}

func (l *life) asks()  { l.asking(l.now) }
func (l *life) fails() {}
func (l *life) fills() { l.open = watch.NewFake(); l.opening(l.open, true, l.now) }
func (l *life) opens() { l.open = watch.NewFake(); l.opening(l.open, false, l.now) }
func (l *life) reads() { l.replaced(l.now) }
func (l *life) hears() { l.hear(l.now) }
func (l *life) looks() { l.interrupt(l.now) }

func TestPulse(t *testing.T) {
	streamed := []func(*life){(*life).asks, (*life).fills, (*life).reads}
	listed := []func(*life){(*life).asks, (*life).reads, (*life).asks, (*life).opens}
	for name, test := range map[string]struct {
		before []func(*life)
		// then follows ten seconds later.
		then []func(*life)
		// The rest is judged another ten seconds later.
		age      time.Duration
		restarts int64
	}{
		"nothing was ever read":                           {age: 20 * time.Second},
		"a first list still streams in":                   {before: []func(*life){(*life).asks, (*life).fills}, age: 20 * time.Second},
		"a streamed list is followed":                     {before: streamed},
		"a plain list is followed":                        {before: listed},
		"a plain list alone is as old as it is":           {before: []func(*life){(*life).asks, (*life).reads}, age: 20 * time.Second},
		"a watch that ended is resumed":                   {before: listed, then: []func(*life){(*life).asks, (*life).opens}, restarts: 1},
		"a watch ended and none can be opened":            {before: listed, then: []func(*life){(*life).asks, (*life).fails}, age: 10 * time.Second},
		"trying again does not make it younger":           {before: []func(*life){(*life).asks}, then: []func(*life){(*life).asks}, age: 20 * time.Second},
		"a second list that streams does not count yet":   {before: streamed, then: []func(*life){(*life).asks, (*life).fills}, age: 10 * time.Second, restarts: 1},
		"and does when all has come":                      {before: streamed, then: []func(*life){(*life).asks, (*life).fills, (*life).reads}, restarts: 1},
		"a list that was cut short does not count either": {before: streamed, then: []func(*life){(*life).asks, (*life).fills, (*life).asks}, age: 10 * time.Second, restarts: 1},
		"lists succeed while watches fail":                {before: listed, then: []func(*life){(*life).asks, (*life).asks, (*life).reads, (*life).asks}, age: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			l := &life{now: time.Unix(1000, 0)}
			l.lose(l.now)
			for _, step := range test.before {
				step(l)
			}
			l.now = l.now.Add(10 * time.Second)
			for _, step := range test.then {
				step(l)
			}
			l.now = l.now.Add(10 * time.Second)
			assert.Equal(t, test.age, l.age(l.now))
			assert.Equal(t, test.age == 0, l.connected())
			assert.Equal(t, test.restarts, l.restarts())
		})
	}
}

func TestSilentWatchIsInterrupted(t *testing.T) {
	for name, test := range map[string]struct {
		open        func(*life)
		hears       bool
		interrupted bool
		age         time.Duration
	}{
		"nothing has come for too long":             {open: (*life).opens, interrupted: true, age: silence + time.Second},
		"a bookmark has come":                       {open: (*life).opens, hears: true},
		"a first list may take as long as it takes": {open: (*life).fills, age: silence + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			l := &life{now: time.Unix(1000, 0)}
			l.lose(l.now)
			l.asks()
			test.open(l)
			if test.hears {
				l.now = l.now.Add(time.Minute)
				l.hears()
				l.now = l.now.Add(-time.Minute)
			}
			l.now = l.now.Add(silence)
			l.looks()
			assert.False(t, l.open.IsStopped(), "so long a silence is no proof yet")
			l.now = l.now.Add(time.Second)
			l.looks()
			l.looks()
			assert.Equal(t, test.interrupted, l.open.IsStopped())
			assert.Equal(t, test.age, l.age(l.now))
		})
	}
}

func TestStalestIsTheKindThatIsOutOfSightForLongest(t *testing.T) {
	now := time.Unix(1000, 0)
	lost := func(ago time.Duration) *pulse {
		p := &pulse{}
		p.lose(now.Add(-ago))
		return p
	}
	watched := &pulse{}
	watched.follow(now.Add(-time.Hour))
	kind, age := Feeds{{Kind: "nodes", pulse: lost(time.Second)}, {Kind: "namespaces", pulse: lost(time.Minute)}, {Kind: "storageclasses", pulse: watched}}.Stalest(now)
	assert.Equal(t, "namespaces", kind)
	assert.Equal(t, time.Minute, age)
	kind, _ = Feeds{{Kind: "nodes", pulse: lost(time.Second)}, {Kind: "csistoragecapacities", optional: true, pulse: lost(time.Minute)}}.Stalest(now)
	assert.Equal(t, "nodes", kind, "what no decision needs does not count")
	kind, age = Feeds{{Kind: "nodes", pulse: watched}, {Kind: "namespaces", pulse: lost(-time.Second)}}.Stalest(now)
	assert.Empty(t, kind, "a clock that was set back is no outage")
	assert.Zero(t, age)
}

func TestReflectorOpensAnInterruptedWatchAgain(t *testing.T) {
	view := snapshot.New()
	client := fake.NewClientset(namespace("before", keys.OffloadEnabled))
	feed := newFeed("namespaces", client.CoreV1().Namespaces(), client, view.Namespaces, snapshot.FromNamespace, &corev1.Namespace{})
	assert.False(t, feed.Connected())
	go feed.run(t.Context())
	require.Eventually(t, feed.Connected, soon, time.Millisecond)
	assert.Zero(t, feed.Age(time.Now()))
	assert.Zero(t, feed.Restarts())

	feed.pulse.interrupt(time.Now().Add(2 * silence))
	require.Eventually(t, func() bool { return feed.Connected() && feed.Restarts() == 1 }, soon, time.Millisecond)
	_, err := client.CoreV1().Namespaces().Create(t.Context(), namespace("after", keys.OffloadEnabled), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, ok := view.Namespaces.Get("after"); return ok }, soon, time.Millisecond)
}
