package feed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// silence is how long a watch may bring neither an event nor a bookmark, which an
// API server sends about once a minute. A longer silence is that of a connection
// whose other end is gone without a word, unless a new watch succeeds.
const silence = 150 * time.Second

// pulse tells whether a kind is being watched, and if not since when. A reflector
// tells it what happens, in order; the methods that only read are safe for
// concurrent use and take no lock.
type pulse struct {
	watched atomic.Bool
	// lost is when what is known was last complete, in nanoseconds since 1970. It
	// means nothing while watched.
	lost atomic.Int64
	// heard is when the watch last brought something.
	heard  atomic.Int64
	opened atomic.Int64

	mu sync.Mutex
	// open is the watch that is going on; nil if none is.
	open watch.Interface
	// filling says that open still brings the first objects, which count only when
	// all have come.
	filling bool
}

// asking says that a list or a watch is being requested: a watch that went on until
// now has ended. A connection that is lost in silence is noticed late: where HTTP/2
// is spoken, after 45 s.
func (p *pulse) asking(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = nil
	if p.watched.Load() {
		p.lose(now)
	}
}

// opening says that a watch was opened; filling, that it brings everything anew
// before the changes.
func (p *pulse) opening(w watch.Interface, filling bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open, p.filling = w, filling
	p.opened.Add(1)
	if !filling {
		p.follow(now)
	}
}

// replaced says that everything was read anew.
func (p *pulse) replaced(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open != nil {
		p.filling = false
		p.follow(now)
		return
	}
	p.lose(now)
}

// hear says that the watch brought an event or a bookmark.
func (p *pulse) hear(now time.Time) {
	p.heard.Store(now.UnixNano())
}

// interrupt ends a watch that has been silent for too long, so that a new one is
// opened.
func (p *pulse) interrupt(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	heard := time.Unix(0, p.heard.Load())
	if p.open == nil || p.filling || now.Sub(heard) <= silence {
		return
	}
	p.open.Stop()
	p.open = nil
	p.lose(heard)
}

func (p *pulse) follow(now time.Time) {
	p.hear(now)
	p.watched.Store(true)
}

func (p *pulse) lose(at time.Time) {
	p.lost.Store(at.UnixNano())
	p.watched.Store(false)
}

// connected says whether changes arrive.
func (p *pulse) connected() bool {
	return p.watched.Load()
}

// age returns how old what is known may be: 0 while changes arrive.
func (p *pulse) age(now time.Time) time.Duration {
	if p.watched.Load() {
		return 0
	}
	return max(0, now.Sub(time.Unix(0, p.lost.Load())))
}

// restarts returns how many watches were opened after the first.
func (p *pulse) restarts() int64 {
	return max(0, p.opened.Load()-1)
}

// guard interrupts silent watches until ctx ends.
func (p *pulse) guard(ctx context.Context) {
	ticker := time.NewTicker(silence / 10)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			p.interrupt(now)
		case <-ctx.Done():
			return
		}
	}
}

// Stalest returns the kind that has been out of sight for longest, and for how
// long; 0 while all are watched that decisions need. It takes no lock.
func (f Feeds) Stalest(now time.Time) (kind string, age time.Duration) {
	for _, feed := range f {
		if its := feed.pulse.age(now); its > age && !feed.optional {
			kind, age = feed.Kind, its
		}
	}
	return kind, age
}

// Connected says whether changes of the kind arrive.
func (f Feed) Connected() bool { return f.pulse.connected() }

// Age returns how old what is known of the kind may be: 0 while changes arrive.
func (f Feed) Age(now time.Time) time.Duration { return f.pulse.age(now) }

// Restarts returns how many watches of the kind were opened after the first.
// API servers end each after some minutes.
func (f Feed) Restarts() int64 { return f.pulse.restarts() }
