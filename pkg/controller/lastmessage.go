package controller

import (
	"sync"
	"time"
)

// LastMessage remembers, for each key, the last message that users got, so that a controller does
// not repeat the same event or log line on every sync. It is safe for concurrent use.
type LastMessage[K, V comparable] struct {
	again time.Duration
	mu    sync.Mutex
	last  map[K]message[V]
}

type message[V comparable] struct {
	what V
	when time.Time
}

// NewLastMessage returns an empty LastMessage. A message that has not changed is due again after
// the given time.
func NewLastMessage[K, V comparable](again time.Duration) *LastMessage[K, V] {
	return &LastMessage[K, V]{again: again, last: map[K]message[V]{}}
}

// Due records the message what of a key, and returns true if it is due: it differs from the last
// one, or the last one is older than the time given to NewLastMessage. before is the last message,
// the zero V if there was none.
func (l *LastMessage[K, V]) Due(key K, what V, now time.Time) (before V, news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.last[key]
	if known && last.what == what && now.Sub(last.when) < l.again {
		return last.what, false
	}
	l.last[key] = message[V]{what, now}
	return last.what, true
}

// Forget removes the last message of a key and returns it; false if there was none.
func (l *LastMessage[K, V]) Forget(key K) (V, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.last[key]
	delete(l.last, key)
	return last.what, known
}
