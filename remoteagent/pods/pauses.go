package pods

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A refused pod is tried again after a pause, which doubles each time.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// pauses remembers which pods were refused lately. It is safe for concurrent use.
type pauses struct {
	mu   sync.Mutex
	keys map[types.NamespacedName]pause
}

type pause struct {
	until time.Time
	next  time.Duration
}

func newPauses() *pauses { return &pauses{keys: map[types.NamespacedName]pause{}} }

// begin begins a pause that is longer than the last one.
func (p *pauses) begin(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	length := max(p.keys[key].next, firstPause)
	p.keys[key] = pause{until: time.Now().Add(length), next: min(2*length, lastPause)}
}

// end ends a pause, since something has changed; the next one is longer still.
func (p *pauses) end(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now, ok := p.keys[key]; ok {
		p.keys[key] = pause{next: now.next}
	}
}

func (p *pauses) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.keys, key)
}

// left reports whether there is a pause, and how long it lasts.
func (p *pauses) left(key types.NamespacedName) (bool, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := time.Until(p.keys[key].until)
	return left > 0, left
}
