package mirror

import (
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// What remote clusters say of a content is written at home so often in a row, and after
// that once in reportPause. Taking a snapshot takes few writes; a cluster that says
// something new at every moment gets no more.
const (
	reportsInARow = 10
	reportPause   = 15 * time.Second
)

// reports bounds how often the status of each content is written. Its zero value is ready;
// it is safe for concurrent use.
type reports struct {
	mu sync.Mutex
	of map[string]flowcontrol.RateLimiter
}

// may says whether the status of a content may be written now, and counts that.
func (r *reports) may(content string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit, ok := r.of[content]
	if !ok {
		limit = flowcontrol.NewTokenBucketRateLimiter(float32(1/reportPause.Seconds()), reportsInARow)
		if r.of == nil {
			r.of = map[string]flowcontrol.RateLimiter{}
		}
		r.of[content] = limit
	}
	return limit.TryAccept()
}

// forget is for a content that is gone.
func (r *reports) forget(content string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, content)
}
