package pods

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	clientwatch "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"
)

// aboutPods selects the events that are about pods.
var aboutPods = fields.OneTermEqualSelector("involvedObject.kind", "Pod").String()

// watchEventsAgain is the pause before events are watched anew whose watch could not go on.
const watchEventsAgain = 5 * time.Second

// watchEvents calls tell for each event about a pod of a namespace that is recorded or counted up from
// now on, until ctx ends. A watch that breaks off goes on where it was; if the API server cannot do
// that any more, what happened in between is left out. Nothing is kept: a namespace may have any number
// of events.
func watchEvents(ctx context.Context, events source[*corev1.EventList], again retry, tell func(*corev1.Event)) {
	for ctx.Err() == nil {
		if err := followEvents(ctx, events, again, tell); err != nil {
			klog.FromContext(ctx).V(2).Info("Events are watched anew", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchEventsAgain):
		}
	}
}

// followEvents is watchEvents until the watch cannot go on.
func followEvents(ctx context.Context, events source[*corev1.EventList], again retry, tell func(*corev1.Event)) error {
	var now string
	err := again.until(ctx, func(ctx context.Context) error {
		// Where the events of the namespace are at. None of them is wanted.
		list, err := events.List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			now = list.ResourceVersion
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list events: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := clientwatch.NewRetryWatcherWithContext(ctx, now, &eventWatcher{source: events, again: again, end: cancel})
	if err != nil {
		return fmt.Errorf("watch events: %w", err)
	}
	defer stream.Stop()
	for change := range stream.ResultChan() {
		switch change.Type {
		case watch.Added, watch.Modified:
			if event, ok := change.Object.(*corev1.Event); ok {
				tell(event)
			}
		case watch.Error:
			return fmt.Errorf("watch events: %w", apierrors.FromObject(change.Object))
		}
	}
	return nil
}

// eventWatcher begins the watches of a RetryWatcher.
type eventWatcher struct {
	source source[*corev1.EventList]
	again  retry
	// end ends the RetryWatcher: it would repeat a request that cannot succeed.
	end func()
	// refused says that it was logged that home may not watch events.
	refused bool
}

// WatchWithContext implements cache.WatcherWithContext. It repeats a request that fails, with growing
// pauses.
func (w *eventWatcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (stream watch.Interface, err error) {
	options.FieldSelector = aboutPods
	err = w.again.until(ctx, func(ctx context.Context) error {
		stream, err = w.source.Watch(ctx, options)
		if apierrors.IsForbidden(err) && !w.refused {
			w.refused = true
			klog.FromContext(ctx).Info("Events of pods do not come home from this cluster, since home may not watch events there: have its "+
				"owner apply the manifests of the remote agent again, of the version of home", "err", err)
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
