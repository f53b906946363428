package snapshot

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func namespace(name, offload string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{keys.Offload: offload}}}
}

// newStore returns a store that has entries of open namespaces alone.
func newStore(at time.Time) (*store[*corev1.Namespace, *Namespace], *Snapshot) {
	view := New()
	open := func(namespace *corev1.Namespace) (*Namespace, bool) {
		entry, _ := FromNamespace(namespace)
		return entry, entry != nil
	}
	return &store[*corev1.Namespace, *Namespace]{table: view.Namespaces, convert: open, now: func() time.Time { return at }}, view
}

func TestStoreFollowsChanges(t *testing.T) {
	at := time.Unix(1000, 0)
	s, view := newStore(at)
	has := func(name string) bool { _, ok := view.Namespaces.Get(name); return ok }
	assert.True(t, s.lastChange().IsZero())

	require.NoError(t, s.Add(namespace("a", keys.OffloadEnabled)))
	require.NoError(t, s.Add(namespace("b", "")))
	assert.True(t, has("a"))
	assert.False(t, has("b"), "an object without entry is left out")
	assert.Equal(t, at, s.lastChange())
	assert.False(t, s.synced.Load(), "single changes are not the whole list")

	require.NoError(t, s.Update(namespace("a", "")))
	assert.False(t, has("a"), "an object that loses its entry is taken out")

	require.NoError(t, s.Update(namespace("b", keys.OffloadEnabled)))
	require.NoError(t, s.Delete(namespace("b", keys.OffloadEnabled)))
	assert.False(t, has("b"))

	require.NoError(t, s.Add(namespace("c", keys.OffloadEnabled)))
	require.NoError(t, s.Delete(cache.DeletedFinalStateUnknown{Key: "c"}))
	assert.False(t, has("c"))
}

func TestStoreReplacesAll(t *testing.T) {
	s, view := newStore(time.Unix(1000, 0))
	require.NoError(t, s.Add(namespace("gone", keys.OffloadEnabled)))
	converted, err := s.Transformer()(namespace("streamed", keys.OffloadEnabled))
	require.NoError(t, err)
	again, err := s.Transformer()(converted)
	require.NoError(t, err)
	assert.Equal(t, converted, again, "converting twice changes nothing")

	require.NoError(t, s.Replace([]any{namespace("listed", keys.OffloadEnabled), converted, namespace("home", "")}, "1"))
	assert.True(t, s.synced.Load())
	assert.Equal(t, 2, view.Namespaces.Len())
	for _, name := range []string{"listed", "streamed"} {
		_, ok := view.Namespaces.Get(name)
		assert.True(t, ok, name)
	}
}

func TestStoreRefusesOtherTypes(t *testing.T) {
	s, _ := newStore(time.Unix(1000, 0))
	require.ErrorContains(t, s.Add(&corev1.Node{}), "unexpected type *v1.Node")
	require.ErrorContains(t, s.Replace([]any{42}, ""), "unexpected type int")
	assert.False(t, s.synced.Load())
}

// soon bounds waits that end in milliseconds unless something is broken.
const soon = 30 * time.Second

// life is a watchState with a clock that the test sets.
type life struct {
	watchState
	now  time.Time
	open *watch.FakeWatcher
}

func (l *life) asks()  { l.requested(l.now) }
func (l *life) fails() {}
func (l *life) fills() { l.open = watch.NewFake(); l.openedWatch(l.open, true, l.now) }
func (l *life) opens() { l.open = watch.NewFake(); l.openedWatch(l.open, false, l.now) }
func (l *life) reads() { l.replaced(l.now) }
func (l *life) hears() { l.noteEvent(l.now) }
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
		"nothing was ever read":                 {age: 20 * time.Second},
		"a first list still streams in":         {before: []func(*life){(*life).asks, (*life).fills}, age: 20 * time.Second},
		"a streamed list is followed":           {before: streamed},
		"a plain list is followed":              {before: listed},
		"a plain list alone is as old as it is": {before: []func(*life){(*life).asks, (*life).reads}, age: 20 * time.Second},
		"a watch that ended is resumed":         {before: listed, then: []func(*life){(*life).asks, (*life).opens}, restarts: 1},
		"a watch ended and none can be opened": {before: listed, then: []func(*life){(*life).asks, (*life).fails},
			age: 10 * time.Second},
		"trying again does not make it younger": {before: []func(*life){(*life).asks}, then: []func(*life){(*life).asks},
			age: 20 * time.Second},
		"a second list that streams does not count yet": {before: streamed, then: []func(*life){(*life).asks, (*life).fills},
			age: 10 * time.Second, restarts: 1},
		"and does when all has come": {before: streamed, then: []func(*life){(*life).asks, (*life).fills, (*life).reads},
			restarts: 1},
		"a list that was cut short does not count either": {before: streamed, then: []func(*life){(*life).asks, (*life).fills, (*life).asks},
			age: 10 * time.Second, restarts: 1},
		"lists succeed while watches fail": {before: listed, then: []func(*life){(*life).asks, (*life).asks, (*life).reads, (*life).asks},
			age: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			l := &life{now: time.Unix(1000, 0)}
			l.lostSince(l.now)
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
			l.lostSince(l.now)
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
	lost := func(ago time.Duration) *watchState {
		p := &watchState{}
		p.lostSince(now.Add(-ago))
		return p
	}
	watched := &watchState{}
	watched.nowWatched(now.Add(-time.Hour))
	kind, age := Feeds{{Kind: "nodes", state: lost(time.Second)}, {Kind: "namespaces", state: lost(time.Minute)},
		{Kind: "storageclasses", state: watched}}.Stalest(now)
	assert.Equal(t, "namespaces", kind)
	assert.Equal(t, time.Minute, age)
	kind, _ = Feeds{{Kind: "nodes", state: lost(time.Second)},
		{Kind: "csistoragecapacities", optional: true, state: lost(time.Minute)}}.Stalest(now)
	assert.Equal(t, "nodes", kind, "what no decision needs does not count")
	kind, age = Feeds{{Kind: "nodes", state: watched}, {Kind: "namespaces", state: lost(-time.Second)}}.Stalest(now)
	assert.Empty(t, kind, "a clock that was set back is no outage")
	assert.Zero(t, age)
}

func TestReflectorOpensAnInterruptedWatchAgain(t *testing.T) {
	view := New()
	client := fake.NewClientset(namespace("before", keys.OffloadEnabled))
	feed := newFeed("namespaces", client.CoreV1().Namespaces(), client, view.Namespaces, FromNamespace, &corev1.Namespace{})
	assert.False(t, feed.Connected())
	go feed.run(t.Context())
	require.Eventually(t, feed.Connected, soon, time.Millisecond)
	assert.Zero(t, feed.Age(time.Now()))
	assert.Zero(t, feed.Restarts())

	feed.state.interrupt(time.Now().Add(2 * silence))
	require.Eventually(t, func() bool { return feed.Connected() && feed.Restarts() == 1 }, soon, time.Millisecond)
	_, err := client.CoreV1().Namespaces().Create(t.Context(), namespace("after", keys.OffloadEnabled), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, ok := view.Namespaces.Get("after"); return ok }, soon, time.Millisecond)
}

// lines collects what is logged.
type lines struct{ count int }

func (l *lines) Write(p []byte) (int, error) {
	l.count++
	return len(p), nil
}

func TestOutageIsLoggedOnce(t *testing.T) {
	logged := &lines{}
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logged)))
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	o := &outage{kind: "nodes"}
	refused, forbidden := errors.New("connection refused"), errors.New("forbidden")
	for _, step := range []struct {
		what string
		err  error
		want int
	}{
		{what: "all is well", want: 0},
		{what: "it fails", err: refused, want: 1},
		{what: "it fails in the same way", err: &url.Error{Op: "Get", URL: "http://home?timeout=5m", Err: refused}, want: 1},
		{what: "and so does the next attempt", err: &url.Error{Op: "Get", URL: "http://home?timeout=6m", Err: refused}, want: 1},
		{what: "it fails in another way", err: forbidden, want: 2},
		{what: "it is well again", want: 3},
		{what: "it stays well", want: 3},
	} {
		o.note(ctx, step.err)
		assert.Equal(t, step.want, logged.count, step.what)
	}
	stop()
	o.note(ctx, refused)
	assert.Equal(t, 3, logged.count, "a program that stops has no outage")
}

// Most pods of a large cluster may have ended, or wait: those are not even sent.
func TestPodsAreWatchedWhileTheyHoldVolumes(t *testing.T) {
	selector, err := fields.ParseSelector(running(metav1.ListOptions{}).FieldSelector)
	require.NoError(t, err)
	for what, test := range map[string]struct {
		node, phase string
		want        bool
	}{
		"a pod that runs":             {node: "home-1", phase: "Running", want: true},
		"a pod that starts":           {node: "home-1", phase: "Pending", want: true},
		"a pod that nobody hears of":  {node: "home-1", phase: "Unknown", want: true},
		"a pod that waits for a node": {phase: "Pending"},
		"a pod that ended":            {node: "home-1", phase: "Succeeded"},
		"a pod that failed":           {node: "home-1", phase: "Failed"},
	} {
		assert.Equal(t, test.want, selector.Matches(fields.Set{"spec.nodeName": test.node, "status.phase": test.phase}), what)
	}
}
