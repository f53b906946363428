package pods

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// unsure remembers for which ShadowPods a request to make the pod may still take
// effect. It is safe for concurrent use.
type unsure struct {
	settle time.Duration

	mu    sync.Mutex
	begun time.Time
	until map[types.NamespacedName]time.Time
}

func newUnsure(settle time.Duration) *unsure {
	return &unsure{settle: settle, until: map[types.NamespacedName]time.Time{}}
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
	until := u.begun.Add(u.settle)
	if own := u.until[key]; own.After(until) {
		until = own
	}
	left := time.Until(until)
	return left <= 0, left
}
