// Package restic copies contents of files through an object store, or through a claim that both
// movers mount: the sender's restic saves files in a repository of this move alone (Store.Save),
// and the receiver's fetches them from there (Store.Fetch). Read store.go first; claim.go is about
// repositories in claims, output.go reads restic's messages, idle.go stops a restic that does
// nothing. Metadata that restic does not keep is corrected by rsync afterwards, and the scans of
// both volumes verify the result: nothing depends on restic but the transport of contents.
package restic

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lodestone-storage/lodestone/mover/sandbox"
)

const (
	// defaultMaxIdle is how long restic may do nothing before it is stopped. Its own retries come
	// earlier: it pauses for up to 90 s, gives up a dial after 30 s and a request without progress
	// after 2 minutes (stuckTimeout), each with a message.
	defaultMaxIdle = 3 * time.Minute
	// checkInterval is how often restic's activity is checked.
	checkInterval = 5 * time.Second
	// idleBytes and idleCPU are more than restic transfers and computes in defaultMaxIdle while it
	// only waits, since its runtime wakes for timers: with a store that did not answer it moved 1.3
	// KB, in addition to its progress messages, and computed 0.1 s, in 192 s. They are less than it
	// does at the lowest limit of bandwidth, 1 KiB a second.
	idleBytes = 64 << 10
	idleCPU   = time.Second
)

// stuckTimeout is the time after which restic drops a request without progress and repeats it; its
// own default is 5 minutes.
const stuckTimeout = 2 * time.Minute

// waitUntilIdle returns an error once restic has done nothing for as long as s.maxIdle allows; nil
// if ctx ends before, or if the kernel does not report what the process does.
func (s *Store) waitUntilIdle(ctx context.Context, pid int, output *outputCounts) error {
	limit, every := defaultMaxIdle, checkInterval
	if s.maxIdle > 0 {
		limit, every = s.maxIdle, s.maxIdle/10
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var timer idleTimer
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		// Of its messages to the mover only new content counts as activity.
		written, news := output.bytes.Load(), output.news.Load()
		used, err := sandbox.UsageOf(pid)
		if err != nil {
			return nil // It has ended, or its activity is unknown.
		}
		used.Bytes -= written
		now := time.Now()
		if timer.update(activity{used, news}, now.Sub(last), every) >= limit {
			return &Error{Sentence: fmt.Sprintf("restic did nothing for %s and was stopped: it is run again by itself; if this comes again, see "+
				"whether the repository and the volume still answer on the node of this mover", limit)}
		}
		last = now
	}
}

// activity is what restic has done since its start: the resources that it used, and how many of its
// messages were news.
type activity struct {
	sandbox.Usage
	news int64
}

// idleTimer measures how long restic has done nothing.
type idleTimer struct {
	last activity
	idle time.Duration
}

// update compares restic's activity with that of the last call and returns how long it has been
// idle. If calls are further apart than usual, the node may have been paused, and restic with it:
// such an interval counts as at most two usual ones.
func (t *idleTimer) update(now activity, passed, usual time.Duration) time.Duration {
	if now.news != t.last.news || now.Bytes-t.last.Bytes >= idleBytes || now.CPU-t.last.CPU >= idleCPU {
		t.last, t.idle = now, 0
		return 0
	}
	t.idle += min(passed, 2*usual)
	return t.idle
}

// outputCounts counts restic's output: all bytes, and the messages that were news.
type outputCounts struct{ bytes, news atomic.Int64 }
