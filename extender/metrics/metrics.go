// Package metrics holds what the extender tells Prometheus about itself.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lodestone-storage/lodestone/extender/filter"
)

// The verbs, as kube-scheduler's configuration names them.
const (
	Filter     = "filter"
	Prioritize = "prioritize"
	Preempt    = "preempt"
)

// Outcomes of a wait.
const (
	caughtUp = "caught_up"
	gaveUp   = "gave_up"
)

// Metrics are the counters of one extender. They are safe for concurrent use, and
// those that requests touch are found without a search by labels.
type Metrics struct {
	registry         *prometheus.Registry
	verbs            map[string]verb
	requests         *prometheus.CounterVec
	refused, spared  []prometheus.Counter
	panics           prometheus.Counter
	caughtUp, gaveUp prometheus.Counter
}

// New returns metrics in a registry of their own.
func New() *Metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lodestone_extender_requests_total",
		Help: "Answered requests of kube-scheduler by verb and HTTP status code.",
	}, []string{"verb", "code"})
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "lodestone_extender_request_duration_seconds",
		Help:    "Time from the request's header to its answer, by verb.",
		Buckets: prometheus.ExponentialBuckets(0.00005, 2, 17),
	}, []string{"verb"})
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lodestone_extender_decisions_total",
		Help: "Decisions on pods by verb and outcome: all nodes were left as they came (passed), some (restricted) or all (refused) were refused, or some were preferred (scored).",
	}, []string{"verb", "outcome"})
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lodestone_extender_refused_nodes_total",
		Help: "Nodes that filter refused, by reason.",
	}, []string{"reason"})
	spared := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lodestone_extender_spared_nodes_total",
		Help: "Nodes that preempt saved from an eviction in vain, by the reason for which filter would refuse them.",
	}, []string{"reason"})
	panics := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lodestone_extender_panics_total",
		Help: "Requests that ended in a programming error; the log has the stack.",
	})
	waits := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lodestone_extender_waits_total",
		Help: "Filter and preempt calls that came before a claim, its volume or class, or a node was known here, by outcome: it became known (caught_up), or the decision was made without it (gave_up).",
	}, []string{"outcome"})

	m := &Metrics{
		registry: prometheus.NewRegistry(),
		verbs:    map[string]verb{},
		requests: requests,
		refused:  byReason(refused),
		spared:   byReason(spared),
		panics:   panics,
		caughtUp: waits.WithLabelValues(caughtUp),
		gaveUp:   waits.WithLabelValues(gaveUp),
	}
	for _, name := range []string{Filter, Prioritize, Preempt} {
		m.verbs[name] = newVerb(name, requests, durations, decisions)
	}
	m.registry.MustRegister(requests, durations, decisions, refused, spared, panics, waits,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// byReason returns the counter of each reason, at the index of the reason.
func byReason(counters *prometheus.CounterVec) []prometheus.Counter {
	reasons := filter.Reasons()
	found := make([]prometheus.Counter, len(reasons)+1)
	for _, reason := range reasons {
		found[reason] = counters.WithLabelValues(reason.String())
	}
	return found
}

// Registry returns where the metrics are gathered.
func (m *Metrics) Registry() *prometheus.Registry {
	return m.registry
}

// Request counts an answered request of one of the verbs.
func (m *Metrics) Request(name string, code int, took time.Duration) {
	verb := m.verbs[name]
	if code == http.StatusOK {
		verb.answered.Inc()
	} else {
		m.failed(name, code)
	}
	verb.duration.Observe(took.Seconds())
}

// Decided counts a decision of one of the verbs.
func (m *Metrics) Decided(name string, outcome Outcome) {
	m.verbs[name].decided[outcome].Inc()
}

// Refused counts nodes that filter refused for a reason.
func (m *Metrics) Refused(reason filter.Reason, nodes int) {
	m.refused[reason].Add(float64(nodes))
}

// Spared counts candidates for preemption that were dropped for a reason.
func (m *Metrics) Spared(reason filter.Reason, nodes int) {
	m.spared[reason].Add(float64(nodes))
}

// CaughtUp counts a wait for something that became known.
func (m *Metrics) CaughtUp() {
	m.caughtUp.Inc()
}

// GaveUp counts a wait for something that did not become known in time.
func (m *Metrics) GaveUp() {
	m.gaveUp.Inc()
}

// Panic counts a request that ended in a programming error.
func (m *Metrics) Panic() {
	m.panics.Inc()
}
