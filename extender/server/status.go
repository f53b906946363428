package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Status returns the handler of /healthz, /readyz, /readyz/serving, /metrics and
// /explain. Serving means that everything has been read and that the program is not
// about to end. Ready means besides that no kind of object has been out of sight for
// longer than MaxStaleness. That mostly happens to all replicas at once, and old
// knowledge is better than none: so callers are directed by /readyz/serving, and
// /readyz is for people and monitors.
func (s *Server) Status() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeLine(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", answerProbe(s.ready))
	mux.HandleFunc("GET /readyz/serving", answerProbe(s.serving))
	mux.HandleFunc("GET /explain", s.explain)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics.Registry(), promhttp.HandlerOpts{}))
	return mux
}

func (s *Server) ready() error {
	if err := s.serving(); err != nil {
		return err
	}
	return s.tooStale()
}

func (s *Server) serving() error {
	if s.Stopping() {
		return errors.New("not ready: the program is stopping")
	}
	if missing := s.Missing(); len(missing) > 0 {
		return notReady(missing)
	}
	return nil
}

func answerProbe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			writeLine(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		writeLine(w, http.StatusOK, "ok")
	}
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
