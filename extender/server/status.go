package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Status returns the handler of /healthz, /readyz, /metrics and /explain. Ready
// means that everything has been read, that no kind of object has been out of sight
// for longer than MaxStaleness, and that the program is not about to end.
func (s *Server) Status() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeLine(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.ready(); err != nil {
			writeLine(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		writeLine(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /explain", s.explain)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics.Registry(), promhttp.HandlerOpts{}))
	return mux
}

func (s *Server) ready() error {
	if s.Stopping() {
		return errors.New("not ready: the program is stopping")
	}
	if missing := s.Missing(); len(missing) > 0 {
		return notReady(missing)
	}
	return s.tooStale()
}

func notReady(missing []string) error {
	return fmt.Errorf("not ready: still reading %s from the API server; if this lasts, the log says why", strings.Join(missing, ", "))
}

func writeLine(w http.ResponseWriter, code int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	// A probe that hung up needs no answer.
	_, _ = w.Write([]byte(line + "\n"))
}
