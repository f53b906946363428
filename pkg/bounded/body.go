package bounded

import (
	"context"
	"io"
	"sync"
	"time"
)

// body is the rest of an answer: read through a bound, closed as it is.
type body struct {
	io.Reader
	io.Closer
}

// closing calls a function once when it is closed.
type closing struct {
	io.Closer
	once sync.Once
	then func()
}

// Close implements io.Closer.
func (c *closing) Close() error {
	c.once.Do(c.then)
	return c.Closer.Close()
}

// limited ends with ErrTooLarge where more is left of reader than may be read.
type limited struct {
	reader io.Reader
	left   int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		// It may just be at its end.
		var one [1]byte
		if n, err := l.reader.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, ErrTooLarge
	}
	if int64(len(p)) > l.left {
		p = p[:l.left]
	}
	n, err := l.reader.Read(p)
	l.left -= int64(n)
	return n, err
}

// pace lets read no faster than a rate, in bytes a second, once a burst is used up.
// It is safe for concurrent use.
type pace struct {
	burst, rate float64
	now         func() time.Time
	wait        func(ctx context.Context, d time.Duration) error

	mu sync.Mutex
	// used is what of the burst is used up at the time at.
	used float64
	at   time.Time
}

func newPace(burst, rate int) *pace {
	return &pace{burst: float64(burst), rate: float64(rate), at: time.Now(), now: time.Now, wait: wait}
}

// await waits until more may be read.
func (p *pace) await(ctx context.Context) error {
	p.mu.Lock()
	p.pass()
	over := p.used - p.burst
	p.mu.Unlock()
	if over <= 0 {
		return nil
	}
	return p.wait(ctx, time.Duration(over/p.rate*float64(time.Second)))
}

// spend says that n bytes were read.
func (p *pace) spend(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass()
	p.used += float64(n)
}

// pass lets time pass. The lock is held.
func (p *pace) pass() {
	now := p.now()
	p.used = max(0, p.used-now.Sub(p.at).Seconds()*p.rate)
	p.at = now
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
