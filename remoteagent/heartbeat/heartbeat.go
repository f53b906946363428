// Package heartbeat tells by their Leases which home clusters are connected. It
// compares no clocks: a Lease counts from when this program saw it change.
package heartbeat

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// Tracker remembers when each home cluster was last heard. It is safe for
// concurrent use.
type Tracker struct {
	away  time.Duration
	now   func() time.Time
	start time.Time

	mu    sync.Mutex
	homes map[string]beat
}

type beat struct {
	said  string    // what the Lease said last
	heard time.Time // when it was seen to change; zero: never
}

// New returns a Tracker that calls a home cluster away that was not heard for
// a time. It begins to listen now.
func New(away time.Duration) *Tracker {
	return &Tracker{away: away, now: time.Now, start: time.Now(), homes: map[string]beat{}}
}

// Observe takes note of the Lease of a home cluster. It reports whether the home
// cluster was just heard.
func (t *Tracker) Observe(home string, lease *coordinationv1.Lease) bool {
	said := ""
	if lease.Spec.RenewTime != nil {
		said = lease.Spec.RenewTime.UTC().String()
	}
	if lease.Spec.HolderIdentity != nil {
		said += " " + *lease.Spec.HolderIdentity
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last, known := t.homes[home]
	switch {
	case !known:
		// It may be old.
		t.homes[home] = beat{said: said}
		return false
	case last.said == said, said == "":
		// One without a word is one that the agent has just made.
		return false
	}
	t.homes[home] = beat{said: said, heard: t.now()}
	return true
}

// Forget drops what is known of a home cluster that is no longer served.
func (t *Tracker) Forget(home string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.homes, home)
}

// Presence tells whether a home cluster is connected, and after what time that
// changes if nothing more is heard; 0: never.
func (t *Tracker) Presence(home string) (policy.Presence, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if heard := t.homes[home].heard; !heard.IsZero() {
		if left := heard.Add(t.away).Sub(now); left > 0 {
			return policy.Connected, left
		}
		return policy.Away, 0
	}
	if left := t.start.Add(t.away).Sub(now); left > 0 {
		return policy.Unknown, left
	}
	return policy.Away, 0
}
