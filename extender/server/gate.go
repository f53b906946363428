package server

import "sync/atomic"

const (
	// maxBody bounds one request. 5,000 node names need 0.1 MB; whole Nodes need
	// about 14 KB each.
	maxBody = 64 << 20
	// maxInFlight bounds what all requests take together, and with it the memory
	// that callers can make this program use.
	maxInFlight = 2 * maxBody
	// oddWeight is how many times its size a body can take while encoding/json
	// decodes it.
	oddWeight = 16
	// itemWeight is what a node or a volume takes besides what was sent of it: a
	// node mostly for the sentence that refuses it, a volume for the name of its
	// claim.
	itemWeight = 256
)

// gate admits requests by the memory that they take.
type gate struct {
	bytes atomic.Int64
}

// hold is what one request takes of a gate.
type hold struct {
	gate  *gate
	bytes int64
}

// more asks for more memory. If it is not there, nothing changes.
func (h *hold) more(bytes int64) bool {
	if h.gate.bytes.Add(bytes) > maxInFlight {
		h.gate.bytes.Add(-bytes)
		return false
	}
	h.bytes += bytes
	return true
}

// less gives some of it back.
func (h *hold) less(bytes int64) {
	h.gate.bytes.Add(-bytes)
	h.bytes -= bytes
}

// release gives everything back.
func (h *hold) release() {
	h.less(h.bytes)
}
