// Package metrics has the Prometheus metrics of the extender: Metrics counts requests, decisions
// and waits, Watch adds those of a kind of cached objects, Certificates those of TLS.
package metrics

import (
	"net/http"
	"strconv"
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

// Metrics are the counters of one extender. They are safe for concurrent use. Counters that
// requests touch are looked up once, not by labels for each request.
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
		Help: "Decisions on pods by verb and outcome: all nodes were left as they came (passed), some (restricted) or all (refused) were " +
			"refused, or some were preferred (scored).",
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
		Help: "Filter and preempt calls that came before a claim, its volume or class, or a node was known here, by outcome: it became known " +
			"(caught_up), or the decision was made without it (gave_up).",
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

// Registry returns the registry of the metrics.
func (m *Metrics) Registry() *prometheus.Registry {
	return m.registry
}

// Request counts an answered request of one of the verbs.
func (m *Metrics) Request(name string, code int, took time.Duration) {
	verb := m.verbs[name]
	if code == http.StatusOK {
		verb.answered.Inc()
	} else {
		m.requests.WithLabelValues(name, strconv.Itoa(code)).Inc()
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

// Spared counts candidates for preemption that were dropped for a reason, so that no pod was
// evicted there.
func (m *Metrics) Spared(reason filter.Reason, nodes int) {
	m.spared[reason].Add(float64(nodes))
}

// CaughtUp counts a wait in which the awaited object became known.
func (m *Metrics) CaughtUp() {
	m.caughtUp.Inc()
}

// GaveUp counts a wait in which the awaited object did not become known in time.
func (m *Metrics) GaveUp() {
	m.gaveUp.Inc()
}

// Panic counts a request that ended in a programming error.
func (m *Metrics) Panic() {
	m.panics.Inc()
}

// Outcome is the result of one decision on a pod's nodes.
type Outcome uint8

// The outcomes.
const (
	// Passed: no node was refused.
	Passed Outcome = iota
	// Restricted: some nodes were refused.
	Restricted
	// Refused: all nodes were refused.
	Refused
	// Scored: some nodes were preferred.
	Scored
	outcomeCount
)

var outcomes = [outcomeCount]string{Passed: "passed", Restricted: "restricted", Refused: "refused", Scored: "scored"}

// Judged returns the outcome for a number of nodes, with how many of them each reason refused.
func Judged(nodes int, refused map[filter.Reason]int) Outcome {
	all := 0
	for _, count := range refused {
		all += count
	}
	switch all {
	case 0:
		return Passed
	case nodes:
		return Refused
	}
	return Restricted
}

// verb has the metrics of requests of one verb.
type verb struct {
	answered prometheus.Counter
	duration prometheus.Observer
	decided  [outcomeCount]prometheus.Counter
}

func newVerb(name string, requests *prometheus.CounterVec, durations *prometheus.HistogramVec, decisions *prometheus.CounterVec) verb {
	v := verb{answered: requests.WithLabelValues(name, "200"), duration: durations.WithLabelValues(name)}
	possible := []Outcome{Passed, Restricted, Refused}
	if name == Prioritize {
		possible = []Outcome{Passed, Scored}
	}
	for _, outcome := range possible {
		v.decided[outcome] = decisions.WithLabelValues(name, outcomes[outcome])
	}
	return v
}

// Kind describes the cached objects of one kind. Its functions must be safe for concurrent use.
type Kind struct {
	// Name is the plural name of the kind.
	Name string
	// Entries returns how many objects are cached.
	Entries func() int
	// LastChange returns when the last change arrived; zero before the first.
	LastChange func() time.Time
	// Connected reports whether changes arrive.
	Connected func() bool
	// Age returns how old the cached objects may be: 0 while changes arrive.
	Age func() time.Duration
	// Restarts returns how many watches were opened after the first.
	Restarts func() int64
}

// Watch registers the metrics of a kind.
func (m *Metrics) Watch(kind Kind) {
	labels := prometheus.Labels{"kind": kind.Name}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value)
	}
	m.registry.MustRegister(
		gauge("lodestone_extender_cached_objects",
			"Entries that decisions are made from, by kind.",
			func() float64 { return float64(kind.Entries()) }),
		gauge("lodestone_extender_last_change_timestamp_seconds",
			"When the last change of this kind arrived, in seconds since 1970; 0 before the first.",
			func() float64 {
				if at := kind.LastChange(); !at.IsZero() {
					return float64(at.UnixMilli()) / 1000
				}
				return 0
			}),
		gauge("lodestone_extender_watch_connected",
			"Whether changes of this kind arrive (1) or not (0).",
			func() float64 {
				if kind.Connected() {
					return 1
				}
				return 0
			}),
		gauge("lodestone_extender_snapshot_age_seconds",
			"For how long changes of this kind have not arrived; 0 while they arrive.",
			func() float64 { return kind.Age().Seconds() }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "lodestone_extender_watch_restarts_total",
			Help:        "Watches of this kind that were opened after the first. API servers end each after some minutes.",
			ConstLabels: labels,
		}, func() float64 { return float64(kind.Restarts()) }),
	)
}

// Certificates are the metrics of a listener with TLS. They are safe for
// concurrent use.
type Certificates struct {
	expiry       *prometheus.GaugeVec
	reloadErrors prometheus.Counter
	refused      prometheus.Counter
}

// Certificates adds the metrics of TLS to m. It may be called once.
func (m *Metrics) Certificates() *Certificates {
	c := &Certificates{
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lodestone_extender_certificate_expiry_timestamp_seconds",
			Help: "When a certificate expires, in seconds since 1970: that of the extender (server), the last of the authorities of clients " +
				"(client_ca), that of the caller who connected last (client).",
		}, []string{"certificate"}),
		reloadErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lodestone_extender_certificate_reload_errors_total",
			Help: "Changes of the certificate files that cannot be used; the last usable ones stay in use.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lodestone_extender_refused_handshakes_total",
			Help: "Connections that ended before a request because the TLS handshake failed, for instance for want of an accepted " +
				"client certificate.",
		}),
	}
	m.registry.MustRegister(c.expiry, c.reloadErrors, c.refused)
	return c
}

// Expires sets when the certificate of a kind expires.
func (c *Certificates) Expires(kind string, at time.Time) {
	c.expiry.WithLabelValues(kind).Set(float64(at.Unix()))
}

// ReloadFailed counts a change of the files that is not usable.
func (c *Certificates) ReloadFailed() {
	c.reloadErrors.Inc()
}

// HandshakeFailed counts a connection that was refused.
func (c *Certificates) HandshakeFailed() {
	c.refused.Inc()
}
