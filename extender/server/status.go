package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
)

// Status returns the handler of /healthz, /readyz, /readyz/serving, /metrics and /explain.
// /readyz/serving succeeds when all objects have been listed and the program is not about to end.
// /readyz also requires that changes of every kind of object arrive, or have stopped for less than
// MaxStaleness. Changes mostly stop for all replicas at once, and old data is better than none: so
// Services use /readyz/serving, and /readyz is for people and monitoring.
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
	// A probe that has hung up needs no answer.
	_, _ = w.Write([]byte(line + "\n"))
}

// tooStale returns which kind of object is too old; nil if none is.
func (s *Server) tooStale() error {
	kind, age := s.stalest()
	if age <= s.MaxStaleness {
		return nil
	}
	return fmt.Errorf("not ready: %s cannot be watched for %s, and calls are answered from what was known before: see that the API server "+
		"is reachable and lets this program's ServiceAccount list and watch them; the log says why",
		kind, age.Truncate(time.Second))
}

// explain answers with the latest decisions on a pod and their reasons.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	namespace, name := r.FormValue("namespace"), r.FormValue("pod")
	if namespace == "" || name == "" {
		writeLine(w, http.StatusBadRequest, "name the pod: /explain?namespace=<namespace>&pod=<name>")
		return
	}
	pod, ok := s.Journal.Get(namespace, name)
	if !ok {
		writeLine(w, http.StatusNotFound, fmt.Sprintf("nothing is known of pod %q: either none of its claims matters here, or this replica was "+
			"not asked about it lately; ask the other replicas, and see kubectl describe pod", namespace+"/"+name))
		return
	}
	body, err := json.MarshalIndent(pod, "", "  ")
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "Failed to explain", "pod", klog.KRef(namespace, name))
		writeLine(w, http.StatusInternalServerError, "the explanation cannot be written: the extender's log says why")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that has hung up needs no answer.
	_, _ = w.Write(append(body, '\n'))
}
