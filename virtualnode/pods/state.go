package pods

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

type shadowPod = remotev1alpha1.ShadowPod

// repeatEvent is how long the same message about a pod is not recorded again.
const repeatEvent = 5 * time.Minute

// podState is what is remembered of one home pod between steps. It may be lost at any moment: it
// only saves requests and events, and has the reason why the pod waits.
type podState struct {
	// home and shadow are the home pod and its ShadowPod as this program last wrote or read them;
	// nil: not lately. Without them, a write would be repeated until the informers show it.
	home     *corev1.Pod
	shadow   *shadowPod
	shadowAt time.Time
	// event is the last event on the home pod, problem says why its last request failed.
	event   string
	eventAt time.Time
	problem string
	// staysHome says which claim of the pod cannot be used in the remote cluster.
	staysHome string
	// told limits the events that come from the remote cluster, nil before the first.
	told *rate.Limiter
}

// A pod with a claim that cannot be used in the remote cluster is replaced once, since another node
// may be chosen for the next one. If that comes here too, the controller gets a pause, which doubles.
const (
	firstPause = 5 * time.Minute
	lastPause  = 6 * time.Hour
)

// replacement is when a pod of a controller was last replaced, and how long the pause after that is.
type replacement struct {
	at    time.Time
	pause time.Duration
}

// states has the podState of each pod of one session. It is safe for concurrent use.
type states struct {
	mu   sync.Mutex
	pods map[key]*podState
	// deleted are the UIDs of ShadowPods whose deletion the watch has just shown: the answer to an
	// earlier request may arrive after that.
	deleted map[types.UID]time.Time
	// replacements has the controllers of which pods were replaced, by their UIDs.
	replacements map[types.UID]replacement
}

func newStates() *states {
	return &states{pods: map[key]*podState{}, deleted: map[types.UID]time.Time{}, replacements: map[types.UID]replacement{}}
}

// setStaysHome remembers which claim of a pod cannot be used in the remote cluster, empty for none.
func (s *states) setStaysHome(k key, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text != "" || s.pods[k] != nil {
		s.of(k).staysHome = text
	}
}

func (s *states) staysHome(k key) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.pods[k]; state != nil {
		return state.staysHome
	}
	return ""
}

// mayReplace reports whether no pod of a controller was replaced so far, or its pause is over.
func (s *states) mayReplace(controller types.UID, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.replacements[controller]
	return !ok || now.Sub(last.at) >= last.pause
}

// replaced remembers that a pod of a controller was replaced, and forgets controllers of which none
// was for long.
func (s *states) replaced(controller types.UID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := firstPause
	if last, ok := s.replacements[controller]; ok {
		pause = min(2*last.pause, lastPause)
	}
	for uid, other := range s.replacements {
		if now.Sub(other.at) > 2*lastPause {
			delete(s.replacements, uid)
		}
	}
	s.replacements[controller] = replacement{at: now, pause: pause}
}

// of returns the state of a pod, a new one if there is none. The caller holds mu.
func (s *states) of(k key) *podState {
	state := s.pods[k]
	if state == nil {
		state = &podState{}
		s.pods[k] = state
	}
	return state
}

// forget removes the state of a pod.
func (s *states) forget(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, k)
}

// wroteHome remembers a home pod as a request has returned it.
func (s *states) wroteHome(k key, pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(k).home = pod
}

// homeDeleted forgets a home pod whose deletion the watch has shown.
func (s *states) homeDeleted(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.pods[k]; state != nil {
		state.home = nil
	}
}

// home returns the newer of a home pod as the informer shows it and as it was last written.
func (s *states) home(k key, seen *corev1.Pod) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.pods[k]
	if state == nil || state.home == nil {
		return seen
	}
	if !newer(state.home, seen) {
		state.home = nil
		return seen
	}
	return state.home
}

// newer reports whether what was written is a newer state of the object than what the informer
// shows.
func newer(written, seen metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(seen.GetResourceVersion(), written.GetResourceVersion())
	return written.GetUID() == seen.GetUID() && err == nil && order < 0
}

// wroteShadow remembers a ShadowPod as a request has returned it.
func (s *states) wroteShadow(k key, shadow *shadowPod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, gone := s.deleted[shadow.UID]; !gone {
		state := s.of(k)
		state.shadow, state.shadowAt = shadow, time.Now()
	}
}

// dropShadow forgets the remembered ShadowPod, because its state is no longer known.
func (s *states) dropShadow(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.pods[k]; state != nil {
		state.shadow = nil
	}
}

// shadowDeleted forgets a ShadowPod whose deletion the watch has shown.
func (s *states) shadowDeleted(k key, shadow types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.pods[k]; state != nil && state.shadow != nil && state.shadow.UID == shadow {
		state.shadow = nil
	}
	for uid, at := range s.deleted {
		if time.Since(at) > 2*requestTimeout {
			delete(s.deleted, uid)
		}
	}
	s.deleted[shadow] = time.Now()
}

// shadow returns the ShadowPod of a home pod: the newer of what the informer shows, nil for none,
// and what was just written.
func (s *states) shadow(k key, seen *shadowPod) *shadowPod {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.pods[k]
	switch {
	case state == nil || state.shadow == nil:
		return seen
	case seen != nil && newer(state.shadow, seen):
		return state.shadow
	case seen == nil && time.Since(state.shadowAt) <= lookAgain:
		return state.shadow
	}
	// The watch shows it, or something newer; or it was created and deleted before the watch could
	// show it, or the watch is late.
	state.shadow = nil
	return seen
}

// newEvent reports whether an event differs from the last one of its pod, or that one is older than
// repeatEvent, and remembers it as the last one.
func (s *states) newEvent(k key, event string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.of(k)
	if state.event == event && now.Sub(state.eventAt) < repeatEvent {
		return false
	}
	state.event, state.eventAt = event, now
	return true
}

// mayTell reports whether one more event of the remote cluster may be shown on a pod, and counts it.
func (s *states) mayTell(k key, warning bool, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.of(k)
	if state.told == nil {
		state.told = rate.NewLimiter(rate.Every(podEventEvery), podEvents)
	}
	return mayTell(state.told, warning, now)
}

// setProblem remembers why the last request for a pod failed, empty for nothing.
func (s *states) setProblem(k key, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if problem != "" || s.pods[k] != nil {
		s.of(k).problem = problem
	}
}

func (s *states) problem(k key) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.pods[k]; state != nil {
		return state.problem
	}
	return ""
}
