// Package metrics holds what the extender tells Prometheus about itself.
package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lodestone-storage/lodestone/extender/filter"
)

// Outcomes of a wait.
const (
	caughtUp = "caught_up"
	gaveUp   = "gave_up"
)

// Metrics are the counters of one extender. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	spared   *prometheus.CounterVec
	panics   prometheus.Counter
	waits    *prometheus.CounterVec
}

// New returns metrics in a registry of their own.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_extender_requests_total",
			Help: "Answered requests of kube-scheduler by verb and HTTP status code.",
		}, []string{"verb", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lodestone_extender_request_duration_seconds",
			Help:    "Time from the request's header to its answer, by verb.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 2, 17),
		}, []string{"verb"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_extender_refused_nodes_total",
			Help: "Nodes that filter refused, by reason.",
		}, []string{"reason"}),
		spared: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_extender_spared_nodes_total",
			Help: "Nodes that preempt saved from an eviction in vain, by the reason for which filter would refuse them.",
		}, []string{"reason"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lodestone_extender_panics_total",
			Help: "Requests that ended in a programming error; the log has the stack.",
		}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_extender_waits_total",
			Help: "Filter and preempt calls that came before a claim or node was known here, by outcome: it became known (caught_up), or the decision was made without it (gave_up).",
		}, []string{"outcome"}),
	}
	for _, outcome := range []string{caughtUp, gaveUp} {
		m.waits.WithLabelValues(outcome)
	}
	for _, reason := range filter.Reasons() {
		m.refused.WithLabelValues(reason.String())
		m.spared.WithLabelValues(reason.String())
	}
	m.registry.MustRegister(m.requests, m.duration, m.refused, m.spared, m.panics, m.waits,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Registry returns where the metrics are gathered.
func (m *Metrics) Registry() *prometheus.Registry {
	return m.registry
}

// Request counts an answered request.
func (m *Metrics) Request(verb string, code int, took time.Duration) {
	m.requests.WithLabelValues(verb, strconv.Itoa(code)).Inc()
	m.duration.WithLabelValues(verb).Observe(took.Seconds())
}

// Refused counts nodes that filter refused for a reason.
func (m *Metrics) Refused(reason filter.Reason, nodes int) {
	m.refused.WithLabelValues(reason.String()).Add(float64(nodes))
}

// Spared counts candidates for preemption that were dropped for a reason.
func (m *Metrics) Spared(reason filter.Reason, nodes int) {
	m.spared.WithLabelValues(reason.String()).Add(float64(nodes))
}

// CaughtUp counts a wait for a claim or node that became known.
func (m *Metrics) CaughtUp() {
	m.waits.WithLabelValues(caughtUp).Inc()
}

// GaveUp counts a wait for a claim or node that did not become known in time.
func (m *Metrics) GaveUp() {
	m.waits.WithLabelValues(gaveUp).Inc()
}

// Panic counts a request that ended in a programming error.
func (m *Metrics) Panic() {
	m.panics.Inc()
}

// Watch exposes a kind of cached object: how many entries there are, and when
// the last change arrived.
func (m *Metrics) Watch(kind string, entries func() int, changed func() time.Time) {
	labels := prometheus.Labels{"kind": kind}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "lodestone_extender_cached_objects",
			Help:        "Entries that decisions are made from, by kind.",
			ConstLabels: labels,
		}, func() float64 { return float64(entries()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "lodestone_extender_last_change_timestamp_seconds",
			Help:        "When the last change of this kind arrived, in seconds since 1970; 0 before the first.",
			ConstLabels: labels,
		}, func() float64 {
			if at := changed(); !at.IsZero() {
				return float64(at.UnixMilli()) / 1000
			}
			return 0
		}),
	)
}
