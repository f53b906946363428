package flow

import (
	"context"
	"fmt"
	"slices"
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

	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

const (
	// askTimeout bounds one look at the events of a backing claim: they are worth
	// little, and others may wait for the same cluster.
	askTimeout = 5 * time.Second
	// askSoon is when the events of a claim that still waits are read again; each
	// time twice as late, and at most askSeldom.
	askSoon, askSeldom = 20 * time.Second, 5 * time.Minute
	// askRate is how many claims are asked about in a second, in each cluster, and
	// askBurst how many at once. An API server keeps no index of its events: for each
	// question it reads them all, and there are most of them when many claims wait.
	askRate, askBurst = 1, 5
	// maxEvents bounds how many warnings about one claim are read.
	maxEvents = 100
	// maxSaid bounds, in bytes, what is kept of a text in one.
	maxSaid = 1024
)

// said is what is remembered of the events of a claim's backing claim.
type said struct {
	decide.Said
	pause time.Duration
}

// questions paces the questions for events, in each cluster by itself.
type questions struct {
	mu    sync.Mutex
	paces map[string]flowcontrol.PassiveRateLimiter
}

// may says whether events of a cluster may be read now.
func (a *questions) may(cluster string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	pace, ok := a.paces[cluster]
	if !ok {
		pace = flowcontrol.NewTokenBucketPassiveRateLimiter(askRate, askBurst)
		a.paces[cluster] = pace
	}
	return pace.TryAccept()
}

// ask reads the last warning about a backing claim that waits. That it cannot be
// read is no failure: the claim waits for something else. Nor is it when many claims
// wait and this one's turn has not come.
func (f *Flow) ask(ctx context.Context, o decide.Observation, step decide.Step, result outcome) outcome {
	claim := step.Backing.Claim
	result.again = true
	if !f.questions.may(step.Cluster) {
		f.memory.postpone(o.UID, claim.UID, time.Now())
		return result
	}
	last, err := f.lastWarning(ctx, step.Cluster, claim)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("What is said of the backing claim is not known", "cluster", step.Cluster, "err", err)
	}
	f.memory.hear(o.UID, claim.UID, last, time.Now())
	return result
}

// heard adds what was said of a backing claim that waits, and forgets it when it
// waits no longer.
func (f *Flow) heard(o *decide.Observation) {
	if o.Said = f.memory.saidOf(o.UID); o.Said == nil {
		return
	}
	waits := slices.ContainsFunc(o.Backings, func(b decide.Backing) bool {
		return b.Claim.UID == o.Said.Backing && b.Claim.Status.Phase != corev1.ClaimBound
	})
	if !waits {
		f.memory.unsaid(o.UID)
		o.Said = nil
	}
}

func (f *Flow) lastWarning(ctx context.Context, cluster string, claim *corev1.PersistentVolumeClaim) (*corev1.Event, error) {
	client, err := f.client(cluster)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	events, err := client.CoreV1().Events(claim.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(claim.UID), "type": corev1.EventTypeWarning}.String(), Limit: maxEvents,
	})
	if err != nil {
		return nil, fmt.Errorf("read the events of claim %s/%s in %s: %w", claim.Namespace, claim.Name, cluster, err)
	}
	return latest(events.Items, claim.UID), nil
}

// latest returns the last warning about an object, nil for none. What an API server
// answers is not taken for what was asked of it.
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

// when is the last time that an event happened.
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

// hear keeps what was last said of a backing claim; without an event, what was said
// before.
func (m *memory) hear(claim, b types.UID, event *corev1.Event, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	heard, ok := m.said[claim]
	if !ok || heard.Backing != b {
		heard = said{Said: decide.Said{Backing: b}, pause: askSoon / 2}
	}
	if event != nil {
		heard.Reason, heard.Message = bounded(event.Reason), bounded(event.Message)
	}
	heard.pause = min(2*heard.pause, askSeldom)
	heard.Again = now.Add(heard.pause)
	m.said[claim] = heard
}

// postpone has a claim ask later, and not at the same time as all others.
func (m *memory) postpone(claim, b types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	heard, ok := m.said[claim]
	if !ok || heard.Backing != b {
		heard = said{Said: decide.Said{Backing: b}, pause: askSoon / 2}
	}
	heard.Again = now.Add(wait.Jitter(askSoon/2, 1))
	m.said[claim] = heard
}

// bounded returns a copy of the beginning of a text.
func bounded(s string) string { return strings.Clone(s[:min(len(s), maxSaid)]) }

// saidOf returns what was last said of a claim's backing claim, nil if nobody asked.
func (m *memory) saidOf(claim types.UID) *decide.Said {
	m.mu.Lock()
	defer m.mu.Unlock()
	if heard, ok := m.said[claim]; ok {
		return &heard.Said
	}
	return nil
}

// unsaid forgets what was said of a backing claim that waits no longer.
func (m *memory) unsaid(claim types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.said, claim)
}
