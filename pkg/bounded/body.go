package bounded

import (
	"context"
	"io"
	"time"
)

// body is the rest of an answer: read through a bound, closed as it is.
type body struct {
	io.Reader
	io.Closer
}

// limited ends with ErrTooLarge where more is left of reader than may be read.
type limited struct {
	reader io.Reader
	left   int64
	// read, if not nil, is told how much was read.
	read func(n int)
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
	if l.read != nil {
		l.read(n)
	}
	return n, err
}

// paced reads no faster than a rate, in bytes a second, once a burst is used up.
type paced struct {
	ctx         context.Context
	reader      io.Reader
	burst, rate float64
	// used is what of the burst is used up at the time at.
	used float64
	at   time.Time
	now  func() time.Time
	wait func(ctx context.Context, d time.Duration) error
}

func newPaced(ctx context.Context, reader io.Reader, burst, rate int) *paced {
	return &paced{ctx: ctx, reader: reader, burst: float64(burst), rate: float64(rate), at: time.Now(), now: time.Now, wait: wait}
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	now := p.now()
	p.used = max(0, p.used-now.Sub(p.at).Seconds()*p.rate)
	p.at = now
	if over := p.used - p.burst; over > 0 {
		if err := p.wait(p.ctx, time.Duration(over/p.rate*float64(time.Second))); err != nil {
			return 0, err
		}
	}
	n, err := p.reader.Read(b)
	p.used += float64(n)
	return n, err
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
