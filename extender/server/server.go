// Package server answers kube-scheduler's extender calls over HTTP and tells
// probes and Prometheus how the program is.
package server

import (
	"errors"
	"fmt"
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

// Server answers filter, prioritize and preempt. All its methods are safe for
// concurrent use; a request takes no lock and asks no other program.
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
	// Patience is how long a request waits for a claim, volume, storage class or node
	// that kube-scheduler has seen and View has not.
	Patience time.Duration

	// paused is when a request last waited for a second look, in nanoseconds.
	paused  atomic.Int64
	gate    gate
	buffers sync.Pool
}

// Handler returns the handler of the verbs.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /filter", s.verb(filterVerb, decoded(wire.Scan, wire.Decode, s.filter)))
	mux.Handle("POST /prioritize", s.verb(prioritizeVerb, decoded(wire.Scan, wire.Decode, s.prioritize)))
	mux.Handle("POST /preempt", s.verb(preemptVerb, decoded(wire.ScanPreempt, wire.DecodePreempt, s.preempt)))
	return mux
}

func (s *Server) verb(name string, answer answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := s.Now()
		buffers := s.takeBuffers()
		defer s.giveBuffers(buffers)
		// What the answer takes is held until it is written.
		memory := &hold{gate: &s.gate}
		defer memory.release()
		code := s.respond(w, r, buffers, memory, answer)
		header := w.Header()
		header["Content-Type"] = typeJSON
		// Without its length the answer would go out in chunks, and
		// kube-scheduler would need a new connection for each call.
		header["Content-Length"] = []string{strconv.Itoa(len(buffers.answer))}
		if s.Stopping() {
			// The next call on this connection would find nobody.
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
func (s *Server) respond(w http.ResponseWriter, r *http.Request, buffers *buffers, memory *hold, answer answer) (code int) {
	defer func() {
		if problem := recover(); problem != nil {
			s.Metrics.Panic()
			klog.FromContext(r.Context()).Error(fmt.Errorf("panic: %v", problem), "Failed to answer a request", "path", r.URL.Path, "stack", string(debug.Stack()))
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
