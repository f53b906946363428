package server

import "sync/atomic"

const (
	// maxBody bounds one request. 5,000 node names need 0.1 MB; whole Nodes need
	// about 14 KB each.
	maxBody = 64 << 20
	// maxInFlight bounds the bodies of all requests together, and with them the
	// memory that callers can make this program use.
	maxInFlight = 2 * maxBody
)

// gate admits requests by the size of their bodies.
type gate struct {
	bytes atomic.Int64
}

// enter says whether a body of that size is admitted; then leave must follow. A
// negative size is unknown and counts as the largest.
func (g *gate) enter(size int64) bool {
	if g.bytes.Add(charge(size)) > maxInFlight {
		g.leave(size)
		return false
	}
	return true
}

func (g *gate) leave(size int64) {
	g.bytes.Add(-charge(size))
}

func charge(size int64) int64 {
	if size < 0 || size > maxBody {
		return maxBody
	}
	return size
}
