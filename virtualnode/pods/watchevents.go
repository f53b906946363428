package pods

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clientwatch "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"
)

const (
	// eventBackoff is the longest pause before a request for events is tried again. Home may have no
	// right to watch them, in any number of namespaces.
	eventBackoff = time.Minute
	// watchEventsAgain is the shortest time between two attempts to watch the events of a namespace.
	watchEventsAgain = 5 * time.Second
	// firstEvents is how many of the events of a new namespace are read that are there already.
	firstEvents = 250
)

// eventStream is what is said in one namespace of a remote cluster.
type eventStream struct {
	source source[*corev1.EventList]
	again  retry
	// fresh: the namespace was just given to home, so that what is said there already is news, too: the
	// first pod may have been made before the watch could begin.
	fresh bool
	tell  func(*corev1.Event)
	// refused is called when home may not watch events.
	refused func(context.Context, error)
}

// follow calls tell for each event that is recorded or counted up from now on, until ctx
// ends. A watch that breaks off goes on where it was; if the API server cannot do that any more, what
// happened in between is left out. Nothing is kept: a namespace may have any number of events.
func (s *eventStream) follow(ctx context.Context) {
	for ctx.Err() == nil {
		begun := time.Now()
		if err := s.watch(ctx); err != nil {
			klog.FromContext(ctx).V(2).Info("Events are watched anew", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchEventsAgain - time.Since(begun)):
		}
	}
}

// watch is follow until the watch cannot go on.
func (s *eventStream) watch(ctx context.Context) error {
	now, err := s.begin(ctx)
	if err != nil {
		return fmt.Errorf("list events: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := clientwatch.NewRetryWatcherWithContext(ctx, now, &eventWatcher{eventStream: s, end: cancel})
	if err != nil {
		return fmt.Errorf("watch events: %w", err)
	}
	defer stream.Stop()
	for change := range stream.ResultChan() {
		switch change.Type {
		case watch.Added, watch.Modified:
			if event, ok := change.Object.(*corev1.Event); ok {
				s.tell(event)
			}
		case watch.Deleted, watch.Bookmark:
		case watch.Error:
			return fmt.Errorf("watch events: %w", apierrors.FromObject(change.Object))
		}
	}
	return nil
}

// begin returns where the events of the namespace are at. Those that are there already are wanted only
// if the namespace is fresh.
func (s *eventStream) begin(ctx context.Context) (now string, err error) {
	options := metav1.ListOptions{Limit: 1}
	if s.fresh {
		options.Limit = firstEvents
	}
	var list *corev1.EventList
	err = s.again.until(ctx, func(ctx context.Context) error {
		list, err = s.source.List(ctx, options)
		return err
	})
	if err != nil {
		return "", err
	}
	if s.fresh {
		for i := range list.Items[:min(len(list.Items), firstEvents)] {
			s.tell(&list.Items[i])
		}
		s.fresh = false
	}
	return list.ResourceVersion, nil
}

// eventWatcher begins the watches of a RetryWatcher.
type eventWatcher struct {
	*eventStream
	// end ends the RetryWatcher: it would repeat a request that cannot succeed.
	end func()
}

// WatchWithContext implements cache.WatcherWithContext. It repeats a request that fails, with growing
// pauses.
func (w *eventWatcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (stream watch.Interface, err error) {
	err = w.again.until(ctx, func(ctx context.Context) error {
		stream, err = w.source.Watch(ctx, options)
		if apierrors.IsForbidden(err) {
			w.refused(ctx, err)
		}
		return err
	})
	if err != nil {
		w.end()
		// The one error that a RetryWatcher does not log: it may be that the work ends.
		return nil, io.EOF
	}
	return stream, nil
}
