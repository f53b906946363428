package pods

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/translate"
)

// What scheduler, kubelet, provisioner and others of a remote cluster say of a pod or a claim is shown on that of home. That
// cluster is not trusted, and home's API server stores each event, so all is bounded:
const (
	// podEvents is how many events of a pod or a claim are written at once, podWarnings how many of these only
	// warnings may take. After that it is one each podEventEvery, as kubelets do it themselves.
	podEvents, podWarnings = 25, 10
	podEventEvery          = time.Minute
	// clusterEvents is how many events of a cluster are written a second, clusterEventsAtOnce how many
	// at once.
	clusterEvents, clusterEventsAtOnce = 20, 100
	// waitingEvents is how many events wait to be written. What does not fit is left out.
	waitingEvents = 1000
	// eventWorkers is how many events are written at a time, eventTries how often one is tried.
	eventWorkers, eventTries = 2, 5
	// podSeenWithin is how long an event waits until the watch of pods shows the one that it is about,
	// podSeenAgain the pause between two looks.
	podSeenWithin, podSeenAgain = 5 * time.Second, 200 * time.Millisecond
)

// remoteEvents are the events of one cluster that wait to be written at home. It is safe for
// concurrent use.
type remoteEvents struct {
	queue *controller.Queue[eventKey]
	pace  *rate.Limiter

	mu      sync.Mutex
	waiting map[eventKey]remoteEvent
}

// eventKey is the namespace and name of an event at home.
type eventKey struct{ namespace, name string }

// remoteEvent is an event as it is to be at home.
type remoteEvent struct {
	event *corev1.Event
	// of is the home pod, there the UID of the remote pod that the event is about. For a claim, of has only the namespace and the name
	// that it has there.
	of    key
	there types.UID
	seen  time.Time
}

func (e remoteEvent) aboutClaim() bool { return e.of.uid == "" }

// mayTell reports whether a limiter lets one more event of the remote cluster be shown, and counts it.
// Those that are no warnings leave some for warnings.
func mayTell(told *rate.Limiter, warning bool, now time.Time) bool {
	return (warning || told.TokensAt(now) >= podWarnings+1) && told.AllowN(now, 1)
}

func newRemoteEvents() *remoteEvents {
	return &remoteEvents{
		queue: controller.NewQueue[eventKey](controller.QueueConfig{Name: "events", FirstRetry: podSeenAgain, LastRetry: maxBackoff,
			Timeout: requestTimeout, Quiet: true}),
		pace: rate.NewLimiter(clusterEvents, clusterEventsAtOnce), waiting: map[eventKey]remoteEvent{},
	}
}

func newEventCounts(factory promauto.Factory) *prometheus.CounterVec {
	return factory.NewCounterVec(prometheus.CounterOpts{
		Name: "lodestone_virtualnode_remote_events_total",
		Help: "Events of remote clusters about pods of virtual nodes and about claims, by cluster and result (shown, left-out or error).",
	}, []string{"cluster", "result"})
}

// replace exchanges an event that waits for a newer state of it; false if it does not wait.
func (e *remoteEvents) replace(k eventKey, newer remoteEvent) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, waits := e.waiting[k]
	if waits {
		e.waiting[k] = newer
	}
	return waits
}

// add has an event written; false if too many wait.
func (e *remoteEvents) add(k eventKey, event remoteEvent) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) >= waitingEvents {
		return false
	}
	e.waiting[k] = event
	e.queue.Add(k)
	return true
}

func (e *remoteEvents) get(k eventKey) (remoteEvent, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	event, ok := e.waiting[k]
	return event, ok
}

// take removes an event that waits, in its newest state. What comes after that counts as another one.
func (e *remoteEvents) take(k eventKey) remoteEvent {
	e.mu.Lock()
	defer e.mu.Unlock()
	event := e.waiting[k]
	delete(e.waiting, k)
	return event
}

// putBack has an event wait again that could not be written, unless a newer state of it waits.
func (e *remoteEvents) putBack(k eventKey, event remoteEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, newer := e.waiting[k]; !newer {
		e.waiting[k] = event
	}
}

// remoteEvent has an event of the remote cluster shown if it is about a pod or a claim of home.
func (r *runner) remoteEvent(there *corev1.Event) {
	now := time.Now()
	var told remoteEvent
	ok := false
	switch there.InvolvedObject.Kind {
	case "Pod":
		told, ok = r.podEvent(there, now)
	case "PersistentVolumeClaim":
		told, ok = r.claimEvent(there, now)
	}
	if !ok {
		return
	}
	k := eventKey{told.event.Namespace, told.event.Name}
	switch {
	case r.events.replace(k, told):
	case !r.mayTell(told, now), !r.events.add(k, told):
		r.count("left-out")
	}
}

// mayTell reports whether one more event may be shown on the pod or claim that it is about, and counts it.
func (r *runner) mayTell(told remoteEvent, now time.Time) bool {
	warning := told.event.Type == corev1.EventTypeWarning
	if told.aboutClaim() {
		return mayTell(r.claims.of(told.there).told, warning, now)
	}
	return r.states.mayTell(told.of, warning, now)
}

// podEvent returns the event of home for one about a pod; false if none is to be shown.
func (r *runner) podEvent(there *corev1.Event, now time.Time) (remoteEvent, bool) {
	pod := r.homePodAt(there.InvolvedObject.Namespace, there.InvolvedObject.Name)
	if pod == nil {
		return remoteEvent{}, false
	}
	of := r.keyOf(pod)
	if is, known := r.runsAs(of, there.InvolvedObject.UID); known && !is {
		return remoteEvent{}, false
	}
	event, ok := translate.Event(r.session.Cluster, pod, there, metav1.NewTime(now))
	return remoteEvent{event: event, of: of, there: there.InvolvedObject.UID, seen: now}, ok
}

// homeNamespaceAt returns the home namespace that one of the remote cluster is given to; empty for none.
func (r *runner) homeNamespaceAt(namespace string) string {
	request := controller.Get[remotev1alpha1.NamespaceRequest](r.namespaces.requests, r.session.Tenant()+"/"+namespace)
	if request == nil || r.session.Namespace(request.Spec.HomeNamespace) != namespace {
		return ""
	}
	return request.Spec.HomeNamespace
}

// homePodAt returns the home pod that runs, or is to run, under a name of the remote cluster; nil if
// none does.
func (r *runner) homePodAt(namespace, name string) *corev1.Pod {
	home := r.homeNamespaceAt(namespace)
	if home == "" {
		return nil
	}
	pod := controller.Get[corev1.Pod](r.config.Pods, home+"/"+name)
	if pod == nil || pod.Spec.NodeName != r.session.Node {
		return nil
	}
	return pod
}

// runsAs reports whether a pod of the remote cluster, by its UID, runs for a home pod; not known while
// the watch of pods shows none of the name.
func (r *runner) runsAs(k key, there types.UID) (is, known bool) {
	remote := r.namespaces.pod(k)
	if remote == nil {
		return false, false
	}
	return remote.UID == there && remote.Labels[keys.PodUID] == string(k.uid), true
}

// recordEvent writes an event at home.
func (r *runner) recordEvent(ctx context.Context, k eventKey) (time.Duration, error) {
	told, ok := r.events.get(k)
	if !ok {
		return 0, nil
	}
	if !told.aboutClaim() {
		switch is, known := r.runsAs(told.of, told.there); {
		case r.homePod(told.of.uid) == nil, known && !is, !known && time.Since(told.seen) > podSeenWithin:
			r.events.take(k)
			return 0, nil
		case !known:
			return podSeenAgain, nil
		}
	}
	if err := r.events.pace.Wait(ctx); err != nil {
		return podSeenAgain, nil //nolint:nilerr // the time of this call is over, or all ends
	}
	told = r.events.take(k)
	var err error
	if told.aboutClaim() {
		var ours bool
		switch ours, err = r.putClaim(ctx, told); {
		case err == nil && !ours:
			return 0, nil
		case err == nil && !r.claims.mayTellOf(told.event.InvolvedObject.UID, told.event.Type == corev1.EventTypeWarning, time.Now()):
			r.count("left-out")
			return 0, nil
		}
	}
	if err == nil {
		err = r.write(ctx, told.event)
	}
	switch {
	case err == nil:
		r.count("shown")
	case mayPass(err) && r.events.queue.Failures(k) < eventTries:
		r.events.putBack(k, told)
		return 0, err
	default:
		r.count("error")
	}
	return 0, nil
}

// mayPass reports whether a write that failed may succeed later. One into a namespace that is going
// does not.
func mayPass(err error) bool {
	return apierrors.IsTooManyRequests(err) || again(err) && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err)
}

// write creates an event, or counts up the one that is there.
func (r *runner) write(ctx context.Context, event *corev1.Event) error {
	events := r.config.Home.CoreV1().Events(event.Namespace)
	if event.Count > 1 {
		if err := r.countUp(ctx, event); !apierrors.IsNotFound(err) {
			return err
		}
	}
	_, err := events.Create(ctx, event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return r.countUp(ctx, event)
	}
	if err != nil {
		return fmt.Errorf("create event: %w", err)
	}
	return nil
}

// countUp writes what changes when an event happens again.
func (r *runner) countUp(ctx context.Context, event *corev1.Event) error {
	patch, err := encode(map[string]any{"count": event.Count, "lastTimestamp": event.LastTimestamp, "message": event.Message})
	if err != nil {
		return err
	}
	_, err = r.config.Home.CoreV1().Events(event.Namespace).Patch(ctx, event.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("count up event: %w", err)
	}
	return nil
}

func (r *runner) count(result string) { r.told.WithLabelValues(r.session.Cluster, result).Inc() }
