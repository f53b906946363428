// Package server answers kube-scheduler's extender calls over HTTP (Server.Handler), and the
// requests of probes, Prometheus and users (Server.Status). Read server.go first: it reads a
// request and limits its memory; verbs.go has filter, prioritize and preempt, status.go the other
// endpoints.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/extender/explain"
	"github.com/lodestone-storage/lodestone/extender/metrics"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/extender/wire"
)

// Server answers filter, prioritize and preempt. All its methods are safe for concurrent use; a
// request takes no lock and sends no request to another program.
type Server struct {
	View    *snapshot.Snapshot
	Metrics *metrics.Metrics
	// Journal stores the decisions for /explain.
	Journal *explain.Journal
	Now     func() time.Time
	// Missing returns the kinds of objects that must still be listed before requests can be
	// answered.
	Missing func() []string
	// Stalest returns the kind of object whose changes have not arrived for the longest time, and
	// that time; 0 while all arrive. Nil means that all arrive.
	Stalest func() (kind string, age time.Duration)
	// MaxStaleness is how long that time may be before the program is not ready. Requests are
	// answered nevertheless.
	MaxStaleness time.Duration
	// Stopping reports whether the program is about to end.
	Stopping func() bool
	// Patience is how long a request waits for a claim, volume, storage class or node that
	// kube-scheduler has seen and View does not have yet.
	Patience time.Duration

	// lastSecondLook is when a request last waited for a second look, in nanoseconds.
	lastSecondLook atomic.Int64
	gate           gate
	buffers        sync.Pool
}

// Handler returns the handler of the verbs.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /filter", s.verb(filterVerb, decoded(wire.Scan, wire.Decode, s.filter)))
	mux.Handle("POST /prioritize", s.verb(prioritizeVerb, decoded(wire.Scan, wire.Decode, s.prioritize)))
	mux.Handle("POST /preempt", s.verb(preemptVerb, decoded(wire.ScanPreempt, wire.DecodePreempt, s.preempt)))
	return mux
}

func (s *Server) stalest() (kind string, age time.Duration) {
	if s.Stalest == nil {
		return "", 0
	}
	return s.Stalest()
}

func (s *Server) verb(name string, answer answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := s.Now()
		buffers := s.takeBuffers()
		defer s.giveBuffers(buffers)
		// The memory of the answer is reserved until it is written.
		memory := &reservation{gate: &s.gate}
		defer memory.release()
		code := s.respond(w, r, buffers, memory, answer)
		header := w.Header()
		header["Content-Type"] = typeJSON
		// Without a length the answer would be sent in chunks, and kube-scheduler would need a new
		// connection for each call.
		header["Content-Length"] = []string{strconv.Itoa(len(buffers.answer))}
		if s.Stopping() {
			// Nobody would answer the next call on this connection.
			header["Connection"] = []string{"close"}
		}
		w.WriteHeader(code)
		if _, err := w.Write(buffers.answer); err != nil {
			klog.FromContext(r.Context()).V(4).Info("The caller did not wait for the answer", "verb", name, "err", err)
		}
		s.Metrics.Request(name, code, s.Now().Sub(started))
	})
}

var typeJSON = []string{"application/json"}

// respond fills buffers.answer and returns the status code.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, buffers *buffers, memory *reservation, answer answer) (code int) {
	defer func() {
		if problem := recover(); problem != nil {
			s.Metrics.Panic()
			klog.FromContext(r.Context()).Error(fmt.Errorf("panic: %v", problem), "Failed to answer a request", "path", r.URL.Path, "stack",
				string(debug.Stack()))
			code = buffers.fail(r, errors.New("the extender failed on this request: its log says where"), http.StatusInternalServerError)
		}
	}()
	if missing := s.Missing(); len(missing) > 0 {
		return buffers.fail(r, notReady(missing), http.StatusServiceUnavailable)
	}
	if err := buffers.readBody(w, r, memory); err != nil {
		return buffers.fail(r, err, http.StatusBadRequest)
	}
	if err := answer(r.Context(), memory, buffers); err != nil {
		return buffers.fail(r, err, http.StatusBadRequest)
	}
	return http.StatusOK
}

// answer makes buffers.answer from buffers.body. An error is one sentence on what is wrong with the
// request.
type answer func(ctx context.Context, memory *reservation, buffers *buffers) error

// sized is what all requests have in common: how many items they are about.
type sized interface {
	Candidates() []string
	Items() int
}

// decoded returns the answer to a decoded body. It decodes with scan or, if that returns false,
// with decode, which accepts any JSON but needs much more memory.
func decoded[R sized](scan func([]byte, []string) (R, bool), decode func([]byte) (R, error),
	decide func(context.Context, []byte, R) []byte) answer {
	return func(ctx context.Context, memory *reservation, buffers *buffers) error {
		request, ok := scan(buffers.body, buffers.names)
		if !ok {
			// Remove names that scan has read before it failed.
			clear(buffers.names[:cap(buffers.names)])
			if !memory.grow(oddWeight * int64(len(buffers.body))) {
				return errTooOdd
			}
			var err error
			if request, err = decode(buffers.body); err != nil {
				return err
			}
		}
		buffers.names = request.Candidates()
		if !memory.grow(int64(len(buffers.body)) + itemWeight*int64(request.Items())) {
			return errTooMany
		}
		buffers.answer = decide(ctx, buffers.answer, request)
		return nil
	}
}

const (
	// firstRead is the first size of the buffer for a body; step is the factor by which a full
	// buffer grows. So a client that announces a large body must send some of it before there is
	// memory for the rest.
	firstRead = 64 << 10
	step      = 16
	// maxKept limits the size of an idle buffer that is kept.
	maxKept = 1 << 20
)

// buffers are reused from one request to the next.
type buffers struct {
	body   []byte
	names  []string
	answer []byte
}

func (s *Server) takeBuffers() *buffers {
	if b, ok := s.buffers.Get().(*buffers); ok {
		return b
	}
	return &buffers{}
}

func (s *Server) giveBuffers(b *buffers) {
	if cap(b.body) > maxKept || cap(b.answer) > maxKept || cap(b.names) > maxKept/32 {
		return
	}
	// The names are substrings of a text that would stay in memory with them.
	clear(b.names)
	b.body, b.names, b.answer = b.body[:0], b.names[:0], b.answer[:0]
	s.buffers.Put(b)
}

// problem is an error with its own status code. It is one sentence for the caller.
type problem struct {
	code     int
	sentence string
}

func (p *problem) Error() string { return p.sentence }

var (
	errTooLarge = &problem{http.StatusRequestEntityTooLarge, fmt.Sprintf(
		"the request is larger than %d MiB: set nodeCacheCapable: true in the scheduler's configuration, so that it sends node names instead "+
			"of whole nodes", maxBody>>20)}
	errTooMany = &problem{http.StatusServiceUnavailable,
		"too many large requests at once: try again, and set nodeCacheCapable: true in the scheduler's configuration"}
	errTooOdd = &problem{http.StatusServiceUnavailable,
		"the request is not written as kube-scheduler does, and there is no memory to look closer: send what kube-scheduler sends, or try again"}
)

// fail writes err as the answer and returns the status code: that of err if it is a problem, else
// code.
func (b *buffers) fail(r *http.Request, err error, code int) int {
	if special := (*problem)(nil); errors.As(err, &special) {
		code = special.code
	}
	klog.FromContext(r.Context()).V(2).Info("Refused a request", "path", r.URL.Path, "code", code, "err", err)
	b.answer = wire.AppendError(b.answer[:0], err.Error())
	return code
}

// readBody reads the whole body of a request.
func (b *buffers) readBody(w http.ResponseWriter, r *http.Request, memory *reservation) error {
	// An unknown length, which is -1, counts as the largest one.
	size := int64(maxBody)
	if r.ContentLength >= 0 {
		size = r.ContentLength
	}
	if size > maxBody {
		return errTooLarge
	}
	if !memory.grow(size) {
		return errTooMany
	}
	body := http.MaxBytesReader(w, r.Body, size)
	for {
		if len(b.body) == cap(b.body) {
			// One byte more than the announced length is read, to check that there is none.
			larger := make([]byte, len(b.body), min(max(firstRead, step*len(b.body)), int(size)+1))
			copy(larger, b.body)
			b.body = larger
		}
		n, err := body.Read(b.body[len(b.body):cap(b.body)])
		b.body = b.body[:len(b.body)+n]
		tooLarge := (*http.MaxBytesError)(nil)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			memory.shrink(size - int64(len(b.body)))
			return nil
		case errors.As(err, &tooLarge):
			return errTooLarge
		default:
			return fmt.Errorf("the request did not arrive whole: send it again: %w", err)
		}
	}
}

const (
	// maxBody limits the body of one request. 5,000 node names need 0.1 MB; whole Nodes about 14 KB
	// each.
	maxBody = 64 << 20
	// maxInFlight limits the memory of all requests together, and so what callers can make this
	// program use.
	maxInFlight = 2 * maxBody
	// oddWeight is the ratio of memory to size of a body while encoding/json decodes it.
	oddWeight = 16
	// itemWeight is the memory of a node or a volume in addition to what was sent of it: for a node
	// mostly the sentence that refuses it, for a volume the name of its claim.
	itemWeight = 256
)

// gate admits requests as long as their memory is within the limit.
type gate struct {
	bytes atomic.Int64
}

// reservation is the memory of one request in a gate.
type reservation struct {
	gate  *gate
	bytes int64
}

// grow reserves more memory. If there is not enough, nothing changes.
func (r *reservation) grow(bytes int64) bool {
	if r.gate.bytes.Add(bytes) > maxInFlight {
		r.gate.bytes.Add(-bytes)
		return false
	}
	r.bytes += bytes
	return true
}

// shrink releases a part of the reservation.
func (r *reservation) shrink(bytes int64) {
	r.gate.bytes.Add(-bytes)
	r.bytes -= bytes
}

func (r *reservation) release() {
	r.shrink(r.bytes)
}
