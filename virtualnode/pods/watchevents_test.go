package pods

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// eventSource plays the events of a namespace in an API server.
type eventSource struct {
	mu sync.Mutex
	// now is where its events are at.
	now string
	// refusals are the errors of the next requests to watch.
	refusals []error
	// from is where each watch began, streams are the watches.
	from    []string
	streams []*watch.FakeWatcher
	// lists are the requests to list.
	lists []metav1.ListOptions
}

func (s *eventSource) List(_ context.Context, options metav1.ListOptions) (*corev1.EventList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, options)
	return &corev1.EventList{ListMeta: metav1.ListMeta{ResourceVersion: s.now}, Items: []corev1.Event{*numbered("old", "1")}}, nil
}

func (s *eventSource) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if options.FieldSelector != "" {
		return nil, errors.New("it leaves events out: " + options.FieldSelector)
	}
	if len(s.refusals) > 0 {
		err := s.refusals[0]
		s.refusals = s.refusals[1:]
		return nil, err
	}
	stream := watch.NewFakeWithChanSize(10, false)
	s.from, s.streams = append(s.from, options.ResourceVersion), append(s.streams, stream)
	return stream, nil
}

// last returns the watch that was begun last.
func (s *eventSource) last() *watch.FakeWatcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[len(s.streams)-1]
}

func numbered(name, version string) *corev1.Event {
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

func TestEventsAreWatchedFromNowOn(t *testing.T) {
	gone := apierrors.NewResourceExpired("too old")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no"))
	for name, test := range map[string]struct {
		happens func(s *eventSource)
		told    []string
		from    []string
	}{
		"what was there before is left out": {happens: func(s *eventSource) { s.last().Add(numbered("a", "11")) },
			told: []string{"a"}, from: []string{"10"}},
		"what is counted up is told, what is removed is not": {happens: func(s *eventSource) {
			s.last().Modify(numbered("a", "11"))
			s.last().Delete(numbered("b", "12"))
		}, told: []string{"a"}, from: []string{"10"}},
		"a watch that is lost goes on where it was": {happens: func(s *eventSource) {
			s.last().Add(numbered("a", "11"))
			s.wait()
			s.last().Stop()
			s.wait()
			s.last().Add(numbered("b", "12"))
		}, told: []string{"a", "b"}, from: []string{"10", "11"}},
		"one that cannot go on begins anew, from then on": {happens: func(s *eventSource) {
			s.last().Add(numbered("a", "11"))
			s.wait()
			s.now = "500"
			s.last().Error(&gone.ErrStatus)
			s.wait()
			s.last().Add(numbered("b", "501"))
		}, told: []string{"a", "b"}, from: []string{"10", "500"}},
		"the same, if that is said at once": {happens: func(s *eventSource) {
			s.now, s.refusals = "500", []error{gone}
			s.last().Stop()
			s.wait()
			s.last().Add(numbered("b", "501"))
		}, told: []string{"b"}, from: []string{"10", "500"}},
		"home may not watch until somebody gives it the right": {happens: func(s *eventSource) {
			s.refusals = []error{forbidden, forbidden, forbidden}
			s.last().Stop()
			s.wait()
			s.last().Add(numbered("a", "11"))
		}, told: []string{"a"}, from: []string{"10", "10"}},
		"an answer that is no event": {happens: func(s *eventSource) {
			s.last().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "11"}})
			s.last().Add(numbered("a", "12"))
		}, told: []string{"a"}, from: []string{"10"}},
		"an event without a version": {happens: func(s *eventSource) {
			s.last().Add(numbered("a", ""))
			s.wait()
			s.last().Add(numbered("b", "12"))
		}, told: []string{"b"}, from: []string{"10", "10"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &eventSource{now: "10"}
				told, _ := s.play(t, false, func() { test.happens(s) })
				assert.Equal(t, test.told, told)
				assert.Equal(t, test.from, s.from)
				for _, options := range s.lists {
					require.EqualValues(t, 1, options.Limit, "events are not read to be kept")
				}
			})
		})
	}
}

func TestWhatWasSaidInANewNamespaceBeforeItWasWatchedIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &eventSource{now: "10"}
		told, _ := s.play(t, true, func() {
			s.last().Add(numbered("a", "11"))
			s.wait()
			s.now = "500"
			s.last().Error(&apierrors.NewResourceExpired("too old").ErrStatus)
			s.wait()
			s.last().Add(numbered("b", "501"))
		})
		assert.Equal(t, []string{"old", "a", "b"}, told)
		assert.Equal(t, []metav1.ListOptions{{Limit: firstEvents}, {Limit: 1}}, s.lists)
	})
}

func TestARefusedWatchIsAskedForSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &eventSource{now: "10"}
		for range 1000 {
			s.refusals = append(s.refusals, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no")))
		}
		_, refused := s.play(t, false, func() { time.Sleep(time.Hour) })
		assert.Less(t, refused, 150)
		assert.Greater(t, refused, 50)
	})
}

// play follows the events while something happens, and returns which were told and how often it was
// said that home may not watch them.
func (s *eventSource) play(t *testing.T, fresh bool, happens func()) (told []string, refused int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	stream := &eventStream{source: s, again: retry{&retrySignal{}, eventBackoff}, fresh: fresh,
		tell: func(e *corev1.Event) { told = append(told, e.Name) }, refused: func(context.Context, error) { refused++ }}
	go func() { defer close(done); stream.follow(ctx) }()
	s.wait()
	happens()
	s.wait()
	cancel()
	<-done
	return told, refused
}

// wait waits until all is done that comes of what has happened.
func (s *eventSource) wait() {
	time.Sleep(3 * time.Minute)
	synctest.Wait()
}
