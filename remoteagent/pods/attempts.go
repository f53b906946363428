package pods

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A refused pod is tried again after a pause, which doubles with each refusal.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// attempts has what this process remembers of its requests to create pods. It is safe for
// concurrent use.
type attempts struct {
	// settle is how long a request whose outcome is unknown may still take effect.
	settle time.Duration

	mu sync.Mutex
	// since is when this process became the leader: others may have sent requests until then.
	since time.Time
	of    map[types.NamespacedName]attempt
}

type attempt struct {
	// own says that this process wrote the phase Creating, so that it knows of every request.
	own bool
	// unknownUntil is the latest time at which the last of its requests can take effect; zero if
	// the outcome is known.
	unknownUntil time.Time
	// pausedUntil is when a refused pod is tried again; nextPause is the pause after that.
	pausedUntil time.Time
	nextPause   time.Duration
}

func newAttempts(settle time.Duration) *attempts {
	return &attempts{settle: settle, of: map[types.NamespacedName]attempt{}}
}

// lead records that other processes may have sent requests until now.
func (a *attempts) lead() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = time.Now()
}

func (a *attempts) change(key types.NamespacedName, change func(*attempt)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.of[key]
	change(&of)
	a.of[key] = of
}

// begin records that this process wrote the phase Creating.
func (a *attempts) begin(key types.NamespacedName) {
	a.change(key, func(of *attempt) { of.own, of.unknownUntil = true, time.Time{} })
}

func (a *attempts) outcomeUnknown(key types.NamespacedName) {
	a.change(key, func(of *attempt) { of.own, of.unknownUntil = true, time.Now().Add(a.settle) })
}

// refused starts a pause that is longer than the last one.
func (a *attempts) refused(key types.NamespacedName) {
	a.change(key, func(of *attempt) {
		pause := max(of.nextPause, firstPause)
		of.pausedUntil, of.nextPause = time.Now().Add(pause), min(2*pause, lastPause)
	})
}

// endPause ends a pause because something has changed; the next pause is still longer than this
// one.
func (a *attempts) endPause(key types.NamespacedName) {
	a.change(key, func(of *attempt) { of.pausedUntil = time.Time{} })
}

// made records that the pod was created: the next pause is the shortest one again.
func (a *attempts) made(key types.NamespacedName) {
	a.change(key, func(of *attempt) { of.pausedUntil, of.nextPause = time.Time{}, 0 })
}

// forget removes what is remembered of a ShadowPod that is deleted.
func (a *attempts) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, key)
}

// paused reports whether a pause is on, and how long it still lasts.
func (a *attempts) paused(key types.NamespacedName) (bool, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := time.Until(a.of[key].pausedUntil)
	return left > 0, left
}

// settled reports whether no request can take effect any more, and otherwise after what time.
func (a *attempts) settled(key types.NamespacedName) (bool, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.of[key]
	until := of.unknownUntil
	if !of.own {
		until = a.since.Add(a.settle)
	}
	left := time.Until(until)
	return left <= 0, left
}
