package healing

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// tellAgain is when what has not changed is told again: API servers keep events
// for an hour.
const tellAgain = time.Hour

// told is what was told last of each volume whose claim is not made anew. Its
// methods may be called at once.
type told struct {
	mu   sync.Mutex
	last map[string]tale
	// count says of how many volumes something is told now, by reason.
	count *prometheus.GaugeVec
}

type tale struct {
	what policy.Refusal
	at   time.Time
}

func newTold(count *prometheus.GaugeVec) *told { return &told{last: map[string]tale{}, count: count} }

// news notes what there is to tell of a volume, and reports whether to tell it: it
// was not the last, or that is long ago.
func (t *told) news(volume string, what policy.Refusal, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, known := t.last[volume]
	if known && before.what == what && now.Sub(before.at) < tellAgain {
		return false
	}
	if known {
		t.count.WithLabelValues(before.what.Reason).Dec()
	}
	t.count.WithLabelValues(what.Reason).Inc()
	t.last[volume] = tale{what, now}
	return true
}

// forget notes that there is nothing to tell of a volume.
func (t *told) forget(volume string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, known := t.last[volume]; known {
		t.count.WithLabelValues(before.what.Reason).Dec()
		delete(t.last, volume)
	}
}
