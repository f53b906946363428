package moves

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// Metrics count what has happened to moves, and report at each scrape the state of
// unfinished ones. No label has a user-chosen name. It is safe for concurrent use.
type Metrics struct {
	ended *prometheus.CounterVec
	back  *prometheus.CounterVec
	pause *prometheus.HistogramVec
	sent  *prometheus.CounterVec

	mu    sync.Mutex
	moves map[types.UID]*moveGauge
	// waiting is how many moves wait for their turn.
	waiting int
}

// moveGauge is the state of an unfinished move.
type moveGauge struct {
	phase v1alpha1.MovePhase
	// further is when it last made progress; down is since when pods are stopped for it,
	// zero if they are not.
	further, down time.Time
	need          steps.Need
	overdue       bool
	// sent is how many bytes of each claim have been sent.
	sent []int64
}

// Results of a stop of pods.
const (
	wentOn   = "target"
	wentBack = "source"
)

// NewMetrics returns metrics that are registered with registerer, unless that is nil.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	factory := promauto.With(registerer)
	m := &Metrics{
		ended: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_provisioner_moves_ended_total",
			Help: "Moves that are over, by their last phase.",
		}, []string{"phase"}),
		back: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_provisioner_moves_rolled_back_total",
			Help: "Moves that began to go back, or were refused before anything was changed, by cause.",
		}, []string{"cause"}),
		pause: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lodestone_provisioner_move_pause_seconds",
			Help:    "How long pods could not use the claims of a move, by where they went on.",
			Buckets: []float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 14400},
		}, []string{"at"}),
		sent: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_provisioner_move_sent_bytes_total",
			Help: "Bytes that travelled between movers, by the way that they took.",
		}, []string{"transport"}),
		moves: map[types.UID]*moveGauge{},
	}
	// Create all series now: an increase is visible only if the series existed before.
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveDone, v1alpha1.MoveAborted, v1alpha1.MoveFailed, v1alpha1.MoveChecked} {
		m.ended.WithLabelValues(string(phase))
	}
	for _, cause := range record.Causes {
		m.back.WithLabelValues(string(cause))
	}
	for _, at := range []string{wentOn, wentBack} {
		m.pause.WithLabelValues(at)
	}
	for _, transport := range []v1alpha1.MoveTransport{v1alpha1.TransportDirect, v1alpha1.TransportSpliced} {
		m.sent.WithLabelValues(string(transport))
	}
	if registerer != nil {
		registerer.MustRegister(m)
	}
	return m
}

// recordWritten counts what a new record has that the previous one had not; before is nil
// for the first record of a move.
func (m *Metrics) recordWritten(before, after *record.Record) {
	if before == nil {
		before = &record.Record{}
	}
	if after.Over() && !before.Over() {
		m.ended.WithLabelValues(string(after.Phase)).Inc()
	}
	if after.Cause != "" && before.Cause == "" {
		m.back.WithLabelValues(string(after.Cause)).Inc()
	}
	if before.Up.IsZero() && !after.Up.IsZero() {
		at := wentOn
		if after.Phase == v1alpha1.MoveRollBack {
			at = wentBack
		}
		m.pause.WithLabelValues(at).Observe(after.Up.Sub(after.Down).Seconds())
	}
}

// setWaiting records how many moves wait for their turn.
func (m *Metrics) setWaiting(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = n
}

// observe records the state of a move after an observation and a step.
func (m *Metrics) observe(move types.UID, o steps.Observation, step steps.Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := o.Record
	if r == nil || r.Over() {
		delete(m.moves, move)
		return
	}
	w := m.moves[move]
	if w == nil || len(w.sent) != len(r.Claims) {
		w = &moveGauge{sent: make([]int64, len(r.Claims))}
		for i := range r.Claims {
			// Bytes sent before a restart were counted then.
			w.sent[i] = sentOf(o, i)
		}
		m.moves[move] = w
	}
	w.phase, w.further, w.down = r.Phase, r.Began[r.Phase], time.Time{}
	if moversWork(r.Phase) && o.Advanced.After(w.further) {
		w.further = o.Advanced
	}
	if r.Up.IsZero() {
		w.down = r.Down
	}
	w.need, w.overdue = step.Need, decide.Overdue(o)
	for i := range o.Claims {
		sent, way := sentOf(o, i), o.Claims[i].Connection.Transport
		if more := sent - w.sent[i]; more > 0 && way != "" {
			m.sent.WithLabelValues(string(way)).Add(float64(more))
			w.sent[i] = sent
		}
	}
}

// moversWork says whether movers work in a phase.
func moversWork(phase v1alpha1.MovePhase) bool {
	return phase == v1alpha1.MoveProvision || phase == v1alpha1.MovePreCopy || phase == v1alpha1.MoveFinalSync ||
		phase == v1alpha1.MoveVerifying
}

// sentOf is how many bytes of a claim were sent from mover to mover, as far as known, and
// storedOf how many through a repository.
func sentOf(o steps.Observation, i int) int64 {
	return o.Record.Claims[i].Sent + uncounted(o, i).BytesSent
}

func storedOf(o steps.Observation, i int) int64 {
	return o.Record.Claims[i].Stored + uncounted(o, i).BytesStored
}

// uncounted is the progress of a task whose bytes are not in the record yet.
func uncounted(o steps.Observation, i int) moverapi.Progress {
	if i >= len(o.Claims) || o.Claims[i].Copy == nil || o.Claims[i].Copy.Task == nil ||
		o.Claims[i].Copy.Task.ID == o.Record.Claims[i].Counted {
		return moverapi.Progress{}
	}
	return o.Claims[i].Copy.Task.Progress
}

var (
	queuing = prometheus.NewDesc("lodestone_provisioner_moves_waiting",
		"Moves that have not begun and wait for their turn.", nil, nil)
	underWay = prometheus.NewDesc("lodestone_provisioner_moves",
		"Moves that are not over, by phase.", []string{"phase"}, nil)
	standing = prometheus.NewDesc("lodestone_provisioner_move_standstill_seconds",
		"For how long the move of a phase that stands still longest has got no further; 0 without one.", []string{"phase"}, nil)
	paused = prometheus.NewDesc("lodestone_provisioner_move_paused_seconds",
		"For how long the pods have stood still that have done so longest for a move; 0 without any.", nil, nil)
	needing = prometheus.NewDesc("lodestone_provisioner_moves_need_help",
		"Moves that wait for what may never come unless an administrator sees to it, by reason.", []string{"reason"}, nil)
	overdue = prometheus.NewDesc("lodestone_provisioner_move_sources_overdue",
		"Moves whose copy at the source is there longer than it is wanted.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{queuing, underWay, standing, paused, needing, overdue} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) { m.collect(time.Now(), metrics) }

func (m *Metrics) collect(now time.Time, metrics chan<- prometheus.Metric) {
	count, oldest, needs := map[v1alpha1.MovePhase]int{}, map[v1alpha1.MovePhase]time.Duration{}, map[steps.Need]int{}
	var longest time.Duration
	late := 0
	m.mu.Lock()
	waiting := m.waiting
	for _, w := range m.moves {
		count[w.phase]++
		oldest[w.phase] = max(oldest[w.phase], now.Sub(w.further))
		if !w.down.IsZero() {
			longest = max(longest, now.Sub(w.down))
		}
		if w.need != "" {
			needs[w.need]++
		}
		if w.overdue {
			late++
		}
	}
	m.mu.Unlock()
	gauge := func(description *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, value, labels...)
	}
	gauge(queuing, float64(waiting))
	for _, phase := range record.Order {
		if (&record.Record{Phase: phase}).Over() {
			continue
		}
		gauge(underWay, float64(count[phase]), string(phase))
		if phase != v1alpha1.MoveRetain {
			// In the phase Retain it is normal that a move makes no progress.
			gauge(standing, oldest[phase].Seconds(), string(phase))
		}
	}
	for _, need := range steps.Needs {
		gauge(needing, float64(needs[need]), string(need))
	}
	gauge(paused, longest.Seconds())
	gauge(overdue, float64(late))
}
