package pods

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// unsure remembers for which ShadowPods of phase Creating a request to make the
// pod may still take effect. It is safe for concurrent use.
type unsure struct {
	settle time.Duration

	mu    sync.Mutex
	begun time.Time
	// until is when the last request of this process has taken effect at the
	// latest; zero if its outcome is known. Without an entry the phase was written
	// by a former leader.
	until map[types.NamespacedName]time.Time
}

func newUnsure(settle time.Duration) *unsure {
	return &unsure{settle: settle, until: map[types.NamespacedName]time.Time{}}
}

// own says that this process began with the phase Creating, so that it knows of
// every request.
func (u *unsure) own(key types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.until[key] = time.Time{}
}

// begin says that other processes may have made requests until now.
func (u *unsure) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.begun = time.Now()
}

// note says that the outcome of a request is unknown.
func (u *unsure) note(key types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.until[key] = time.Now().Add(u.settle)
}

func (u *unsure) forget(key types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.until, key)
}

// settled reports whether no request can take effect any more, and otherwise
// after what time.
func (u *unsure) settled(key types.NamespacedName) (bool, time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	until, own := u.until[key]
	if !own {
		until = u.begun.Add(u.settle)
	}
	left := time.Until(until)
	return left <= 0, left
}
