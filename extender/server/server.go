// Package server answers kube-scheduler's extender calls over HTTP and tells
// probes and Prometheus how the program is.
package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/extender/explain"
	"github.com/lodestone-storage/lodestone/extender/metrics"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/extender/wire"
)

// Server answers filter, prioritize and preempt. All its methods are safe for concurrent
// use; a request takes no lock and asks no other program.
type Server struct {
	View    *snapshot.Snapshot
	Metrics *metrics.Metrics
	// Journal keeps what was decided, for /explain.
	Journal *explain.Journal
	Now     func() time.Time
	// Missing returns what must still be read before requests can be answered.
	Missing func() []string
	// Stalest returns the kind of object whose changes have not arrived for longest,
	// and for how long; 0 while all arrive. Nil stands for that.
	Stalest func() (kind string, age time.Duration)
	// MaxStaleness is for how long that may be so while the program is ready.
	// Requests are answered however long it lasts.
	MaxStaleness time.Duration
	// Stopping says that the program is about to end.
	Stopping func() bool
	// Patience is how long a request waits for a claim or a node that
	// kube-scheduler has seen and View has not.
	Patience time.Duration

	gate    gate
	buffers sync.Pool
}

// answer appends the answer to a request with this body to buffer. An error is
// one sentence about what is wrong with the request.
type answer func(ctx context.Context, buffer, body []byte) ([]byte, error)

// decoded returns an answer to what decode makes of a body.
func decoded[R any](decode func([]byte) (R, error), decide func(context.Context, []byte, R) []byte) answer {
	return func(ctx context.Context, buffer, body []byte) ([]byte, error) {
		request, err := decode(body)
		if err != nil {
			return buffer, err
		}
		return decide(ctx, buffer, request), nil
	}
}

// Handler returns the handler of the verbs.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /filter", s.verb(filterVerb, decoded(wire.Decode, s.filter)))
	mux.Handle("POST /prioritize", s.verb(prioritizeVerb, decoded(wire.Decode, s.prioritize)))
	mux.Handle("POST /preempt", s.verb(preemptVerb, decoded(wire.DecodePreempt, s.preempt)))
	return mux
}

func (s *Server) verb(name string, answer answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := s.Now()
		buffers := s.takeBuffers()
		defer s.giveBuffers(buffers)
		code := s.respond(w, r, buffers, answer)
		header := w.Header()
		header.Set("Content-Type", "application/json")
		// Without its length the answer would go out in chunks, and
		// kube-scheduler would need a new connection for each call.
		header.Set("Content-Length", strconv.Itoa(len(buffers.answer)))
		if s.Stopping() {
			// The next call on this connection would find nobody.
			header.Set("Connection", "close")
		}
		w.WriteHeader(code)
		if _, err := w.Write(buffers.answer); err != nil {
			klog.FromContext(r.Context()).V(4).Info("The caller did not wait for the answer", "verb", name, "err", err)
		}
		s.Metrics.Request(name, code, s.Now().Sub(started))
	})
}

// respond fills buffers.answer and returns the status code.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, buffers *buffers, answer answer) (code int) {
	logger := klog.FromContext(r.Context())
	fail := func(code int, err error) int {
		logger.V(2).Info("Refused a request", "path", r.URL.Path, "code", code, "err", err)
		buffers.answer = wire.AppendError(buffers.answer[:0], err.Error())
		return code
	}
	defer func() {
		if problem := recover(); problem != nil {
			s.Metrics.Panic()
			logger.Error(fmt.Errorf("panic: %v", problem), "Failed to answer a request", "path", r.URL.Path, "stack", string(debug.Stack()))
			code = fail(http.StatusInternalServerError, errors.New("the extender failed on this request: its log says where"))
		}
	}()
	if missing := s.Missing(); len(missing) > 0 {
		return fail(http.StatusServiceUnavailable, notReady(missing))
	}
	if r.ContentLength > maxBody {
		return fail(http.StatusRequestEntityTooLarge, errTooLarge)
	}
	if !s.gate.enter(r.ContentLength) {
		return fail(http.StatusServiceUnavailable, errors.New("too many large requests at once: try again, and set nodeCacheCapable: true in the scheduler's configuration"))
	}
	defer s.gate.leave(r.ContentLength)
	if _, err := buffers.body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return fail(http.StatusRequestEntityTooLarge, errTooLarge)
		}
		return fail(http.StatusBadRequest, fmt.Errorf("the request did not arrive whole: send it again: %w", err))
	}
	answered, err := answer(r.Context(), buffers.answer, buffers.body.Bytes())
	if err != nil {
		return fail(http.StatusBadRequest, err)
	}
	buffers.answer = answered
	return http.StatusOK
}

var errTooLarge = fmt.Errorf("the request is larger than %d MiB: set nodeCacheCapable: true in the scheduler's configuration, so that it sends node names instead of whole nodes", maxBody>>20)

// buffers are reused from request to request.
type buffers struct {
	body   bytes.Buffer
	answer []byte
}

// maxKept bounds what an idle buffer holds on to.
const maxKept = 1 << 20

func (s *Server) takeBuffers() *buffers {
	if b, ok := s.buffers.Get().(*buffers); ok {
		return b
	}
	return &buffers{}
}

func (s *Server) giveBuffers(b *buffers) {
	if b.body.Cap() > maxKept || cap(b.answer) > maxKept {
		return
	}
	b.body.Reset()
	b.answer = b.answer[:0]
	s.buffers.Put(b)
}
