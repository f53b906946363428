package stream

import (
	"sync"
	"time"
)

// Pacer keeps what is sent below a rate. The zero value sets no bound.
type Pacer struct {
	mutex sync.Mutex
	rate  int64
	free  time.Time
}

// Set sets the rate in bytes a second; 0: no bound.
func (p *Pacer) Set(rate int64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.rate = rate
}

// Wait waits until n more bytes may be sent.
func (p *Pacer) Wait(n int) {
	p.mutex.Lock()
	if p.rate <= 0 {
		p.mutex.Unlock()
		return
	}
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	wait := p.free.Sub(now)
	p.free = p.free.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	p.mutex.Unlock()
	time.Sleep(wait)
}
