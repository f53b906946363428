package restic

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lodestone-storage/lodestone/mover/process"
)

const (
	// longestSilence is how long restic may do nothing before it is stopped. What it does by
	// itself about a store that does not answer comes sooner: it pauses for up to 90 s before
	// it tries again and gives up a dial after 30 s, and a request that stands still after 2
	// minutes (stuckTimeout), each with words.
	longestSilence = 3 * time.Minute
	// lookEvery is how often it is looked at.
	lookEvery = 5 * time.Second
	// idleBytes and idleCPU are more than restic moves and computes in longestSilence while
	// it only waits, since its runtime wakes for timers: one whose store did not answer was seen
	// to move 1.3 KB, besides what it wrote of how far it is, and to compute 0.1 s, in 192 s.
	// They are less than it does at the lowest limit of bandwidth, 1 KiB a second.
	idleBytes = 64 << 10
	idleCPU   = time.Second
)

// stuckTimeout is after how long restic drops a request in which nothing moves, and makes
// it again; it would wait for 5 minutes by itself.
const stuckTimeout = 2 * time.Minute

// deeds are what restic has done so far: what it used, and how often it had news.
type deeds struct {
	process.Usage
	news int64
}

// silence is how long restic has done nothing.
type silence struct {
	since deeds
	quiet time.Duration
}

// see takes what restic has done by now, after some time, and returns how long it has done
// nothing. When nobody could look for longer than usual, restic may have stood still, too,
// as all of a node does that is paused: that counts no more than two looks.
func (s *silence) see(now deeds, passed, usual time.Duration) time.Duration {
	if now.news != s.since.news || now.Moved-s.since.Moved >= idleBytes || now.CPU-s.since.CPU >= idleCPU {
		s.since, s.quiet = now, 0
		return 0
	}
	s.quiet += min(passed, 2*usual)
	return s.quiet
}

// ears count what restic says: all of it, and what was not known before.
type ears struct{ bytes, news atomic.Int64 }

// watch returns an error once restic has done nothing for longer than s.patience allows;
// nil when ctx ends before, or where nobody can see what it does.
func (s *Store) watch(ctx context.Context, pid int, heard *ears) error {
	limit, every := longestSilence, lookEvery
	if s.patience > 0 {
		limit, every = s.patience, s.patience/10
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var still silence
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		// What it said to the mover counts by its news alone.
		said, news := heard.bytes.Load(), heard.news.Load()
		used, err := process.UsageOf(pid)
		if err != nil {
			return nil // It has ended, or nobody can say that it does nothing.
		}
		used.Moved -= said
		now := time.Now()
		if still.see(deeds{used, news}, now.Sub(last), every) >= limit {
			return &Error{Sentence: fmt.Sprintf("restic did nothing for %s and was stopped: it is run again by itself; if this comes again, see whether the repository and the volume still answer on the node of this mover", limit)}
		}
		last = now
	}
}
