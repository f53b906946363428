package tenancy

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/podlease"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// Heartbeats decides by their Leases which home clusters are connected. It compares no clocks: what
// counts is when this process saw a Lease change. It is safe for concurrent use.
type Heartbeats struct {
	awayAfter time.Duration
	now       func() time.Time
	start     time.Time

	mu    sync.Mutex
	homes map[string]heartbeat
}

type heartbeat struct {
	content string    // the Lease's last content
	changed time.Time // when it was seen to change; zero: never
	lease   podlease.Watch
	// read is the resourceVersion of the Lease when it was last read from the API server, and readAt when that was.
	read   string
	readAt time.Time
}

// NewHeartbeats returns Heartbeats for which a home cluster is Away once its Lease has not changed
// for a time; before the first change the time counts from now.
func NewHeartbeats(away time.Duration) *Heartbeats {
	return &Heartbeats{awayAfter: away, now: time.Now, start: time.Now(), homes: map[string]heartbeat{}}
}

// Observe records the Lease of a home cluster. It reports whether the home cluster has renewed it
// since the last call.
func (t *Heartbeats) Observe(home string, lease *coordinationv1.Lease) bool {
	return t.observe(home, lease, false)
}

// read is Observe for a Lease that the API server has just answered with.
func (t *Heartbeats) read(home string, lease *coordinationv1.Lease) { t.observe(home, lease, true) }

func (t *Heartbeats) observe(home string, lease *coordinationv1.Lease, read bool) bool {
	content := ""
	if lease.Spec.RenewTime != nil {
		content = lease.Spec.RenewTime.UTC().String()
	}
	if lease.Spec.HolderIdentity != nil {
		content += " " + *lease.Spec.HolderIdentity
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last, known := t.homes[home]
	if read {
		last.read, last.readAt = lease.ResourceVersion, t.now()
	}
	// A watch that has stood still tells of one heartbeat after the other that is older than what was read: none of them is news.
	if order, err := resourceversion.CompareResourceVersion(lease.ResourceVersion, last.read); err != nil || order >= 0 {
		last.lease = last.lease.See(lease.Annotations[keys.HomeEpoch], lease.Annotations[keys.PodLease], t.now())
	}
	defer func() { t.homes[home] = last }()
	switch {
	case !known:
		// This Lease may be an old one.
		last.content = content
		return false
	case last.content == content, content == "":
		// The agent itself has just made an empty Lease.
		return false
	}
	last.content, last.changed = content, t.now()
	return true
}

// Forget removes what is known of a home cluster that is no longer served.
func (t *Heartbeats) Forget(home string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.homes, home)
}

// Presence returns whether a home cluster is connected, and after what time that changes if the
// Lease is not renewed; 0: never.
func (t *Heartbeats) Presence(home string) (policy.Presence, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if changed := t.homes[home].changed; !changed.IsZero() {
		if left := changed.Add(t.awayAfter).Sub(now); left > 0 {
			return policy.Connected, left
		}
		return policy.Away, 0
	}
	if left := t.start.Add(t.awayAfter).Sub(now); left > 0 {
		return policy.Unknown, left
	}
	return policy.Away, 0
}

// lease returns the lease that a home cluster asks for, and whether it is held.
func (t *Heartbeats) lease(home string) lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	watch := t.homes[home].lease
	return lease{watch.Ask, watch.State(t.now())}
}

// sinceRead is how long ago the Lease of a home cluster was read from the API server.
func (t *Heartbeats) sinceRead(home string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now().Sub(t.homes[home].readAt)
}
