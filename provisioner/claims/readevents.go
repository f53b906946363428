package claims

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

const (
	// readEventsTimeout limits one read of a backing claim's events: it matters little, and
	// other requests may wait for the same cluster.
	readEventsTimeout = 5 * time.Second
	// readEventsSoon is when the events of a claim that still waits are read again; the
	// interval doubles each time, up to readEventsSeldom.
	readEventsSoon, readEventsSeldom = 20 * time.Second, 5 * time.Minute
	// readEventsRate is for how many claims per second events are read in each cluster,
	// readEventsBurst how many at once. API servers have no index of events: each such
	// request reads all of them, and there are most when many claims wait.
	readEventsRate, readEventsBurst = 1, 5
	// maxEvents limits how many warnings about one claim are read.
	maxEvents = 100
	// maxWarning limits the texts kept of an event, in bytes.
	maxWarning = 1024
)

// eventReads limits the rate of event reads, for each cluster separately.
type eventReads struct {
	mu    sync.Mutex
	paces map[string]flowcontrol.PassiveRateLimiter
}

// allowed says whether events may be read in a cluster now.
func (a *eventReads) allowed(cluster string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	pace, ok := a.paces[cluster]
	if !ok {
		pace = flowcontrol.NewTokenBucketPassiveRateLimiter(readEventsRate, readEventsBurst)
		a.paces[cluster] = pace
	}
	return pace.TryAccept()
}

// readEvents reads the last warning about a waiting backing claim. A failed read is no
// failure of the step, since the claim waits for something else; nor is a read that the
// rate limit postpones.
func (f *Controller) readEvents(ctx context.Context, o steps.Observation, a steps.ReadEvents) outcome {
	cluster, claim := a.Backing.Cluster, a.Backing.Claim
	if !f.eventReads.allowed(cluster) {
		f.memory.postponeEvents(o.UID, claim.UID, time.Now())
		return outcome{again: true}
	}
	last, err := f.lastWarning(ctx, cluster, claim)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("What is said of the backing claim is not known", "cluster", cluster, "err", err)
	}
	f.memory.setLastWarning(o.UID, claim.UID, last, time.Now())
	return outcome{again: true}
}

func (f *Controller) lastWarning(ctx context.Context, cluster string, claim *corev1.PersistentVolumeClaim) (*corev1.Event, error) {
	client, err := f.client(cluster)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readEventsTimeout)
	defer cancel()
	events, err := client.CoreV1().Events(claim.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(claim.UID), "type": corev1.EventTypeWarning}.String(), Limit: maxEvents,
	})
	if err != nil {
		return nil, fmt.Errorf("read the events of claim %s/%s in %s: %w", claim.Namespace, claim.Name, cluster, err)
	}
	return latest(events.Items, claim.UID), nil
}

// latest returns the last warning about an object, nil for none. It checks each event,
// since an API server may return others than were asked for.
func latest(events []corev1.Event, about types.UID) *corev1.Event {
	var last *corev1.Event
	for i := range events {
		e := &events[i]
		if e.InvolvedObject.UID == about && e.Type == corev1.EventTypeWarning && (last == nil || !when(e).Before(when(last))) {
			last = e
		}
	}
	return last
}

// when returns the last time that an event happened.
func when(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

// lastWarning is the last warning event of a claim's backing claim, and when events are
// read again.
type lastWarning struct {
	steps.LastWarning
	pause time.Duration
}

// warningOf returns the last warning about a backing claim, for changing.
func (r *remembered) warningOf(b types.UID) *lastWarning {
	if r.lastWarning == nil || r.lastWarning.Backing != b {
		return &lastWarning{LastWarning: steps.LastWarning{Backing: b}, pause: readEventsSoon / 2}
	}
	last := *r.lastWarning
	return &last
}

// setLastWarning records the last warning about a backing claim; with a nil event the
// previous one stays.
func (m *memory) setLastWarning(claim, b types.UID, event *corev1.Event, now time.Time) {
	m.update(claim, func(r *remembered) {
		last := r.warningOf(b)
		if event != nil {
			// Clone the strings, or the whole event would stay in memory.
			last.Reason, last.Message = strings.Clone(sentence.Cut(event.Reason, maxWarning)), strings.Clone(sentence.Cut(event.Message, maxWarning))
		}
		last.pause = min(2*last.pause, readEventsSeldom)
		last.Again = now.Add(last.pause)
		r.lastWarning = last
	})
}

// postponeEvents delays the next read of a backing claim's events, with jitter so that not
// all claims are read at the same time.
func (m *memory) postponeEvents(claim, b types.UID, now time.Time) {
	m.update(claim, func(r *remembered) {
		last := r.warningOf(b)
		last.Again = now.Add(wait.Jitter(readEventsSoon/2, 1))
		r.lastWarning = last
	})
}
