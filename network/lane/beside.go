package lane

import (
	"sync/atomic"
)

// beside is what the gateways at both ends say of the WireGuard between them, on their connections of TLS: it has no words itself.
type beside struct {
	// hears: something comes from there by WireGuard.
	hears atomic.Bool
	// heardBy is when the other side said last that it hears this one, in nanoseconds of start; 0: it said that it does not.
	heardBy atomic.Int64
}

func (b *beside) said(hears bool) {
	if hears {
		b.heardBy.Store(now())
	} else {
		b.heardBy.Store(0)
	}
}

// heard says that the other side has said of late that it hears this one.
func (b *beside) heard() bool {
	at := b.heardBy.Load()
	return at != 0 && now()-at < int64(lost*every)
}
