package lane

import (
	"time"

	"golang.org/x/time/rate"
)

const (
	// leastBurst lets a few packets of the largest size pass at once, whatever the rate. outBurst and inBurst are the times whose
	// bytes may: what comes in is not kept waiting but lost, and TCP finds its rate only if it loses little at once.
	leastBurst = 4 * packetLimit
	outBurst   = 100 * time.Millisecond
	inBurst    = 1500 * time.Millisecond
	// late is how long a packet may wait for its turn. A longer queue would only make all packets late.
	late = 50 * time.Millisecond
)

// limit bounds how many bytes a second go one way. It is safe for concurrent use.
type limit struct {
	bucket *rate.Limiter
	burst  time.Duration
}

func newLimit(burst time.Duration) limit { return limit{rate.NewLimiter(rate.Inf, leastBurst), burst} }

// set sets the rate in bytes a second; 0: none.
func (l limit) set(bytesPerSecond int64) {
	if bytesPerSecond <= 0 {
		l.bucket.SetLimit(rate.Inf)
		return
	}
	l.bucket.SetBurst(max(leastBurst, int(float64(bytesPerSecond)*l.burst.Seconds())))
	l.bucket.SetLimit(rate.Limit(bytesPerSecond))
}

// on says whether there is a limit.
func (l limit) on() bool { return l.bucket.Limit() != rate.Inf }

// wait waits for the turn of n bytes; false: that would be late, and they are to be dropped.
func (l limit) wait(n int) bool {
	turn := l.bucket.ReserveN(time.Now(), n)
	delay := turn.Delay()
	if delay > late {
		turn.Cancel()
		return false
	}
	time.Sleep(delay)
	return true
}

// now says whether it is the turn of n bytes; false: they are to be dropped.
func (l limit) now(n int) bool { return l.bucket.AllowN(time.Now(), n) }
