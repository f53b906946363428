package moves

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// Metrics tell how moves are: counts of what happened, and how those are that are not
// over, as of a scrape. No label is a name that anybody chose. It is safe for concurrent
// use.
type Metrics struct {
	ended *prometheus.CounterVec
	back  *prometheus.CounterVec
	pause *prometheus.HistogramVec
	sent  *prometheus.CounterVec

	mu    sync.Mutex
	moves map[types.UID]*watched
}

// watched is a move that is not over.
type watched struct {
	phase v1alpha1.MovePhase
	// further is when it got further last, down since when pods stand still for it; zero
	// while they do not.
	further, down time.Time
	need          decide.Need
	overdue       bool
	// sent is how much has travelled of each claim.
	sent []int64
}

// Results of a pause.
const (
	wentOn   = "target"
	wentBack = "source"
)

// NewMetrics returns metrics that are registered with registerer.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := newMetrics()
	for _, c := range []prometheus.Collector{m.ended, m.back, m.pause, m.sent, m} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func newMetrics() *Metrics {
	m := &Metrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_provisioner_moves_ended_total",
			Help: "Moves that are over, by their last phase.",
		}, []string{"phase"}),
		back: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_provisioner_moves_rolled_back_total",
			Help: "Moves that began to go back, or were refused before anything was changed, by cause.",
		}, []string{"cause"}),
		pause: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lodestone_provisioner_move_pause_seconds",
			Help:    "How long pods could not use the claims of a move, by where they went on.",
			Buckets: []float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 14400},
		}, []string{"at"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_provisioner_move_sent_bytes_total",
			Help: "Bytes that travelled between movers, by the way that they took.",
		}, []string{"transport"}),
		moves: map[types.UID]*watched{},
	}
	// An increase is only seen of what was there before.
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
	return m
}

// wrote counts what a record that was written says and the one before it did not; before
// is nil for the first of a move.
func (m *Metrics) wrote(before, after *record.Record) {
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

// see notes how a move is that was looked at, and for which a step was taken.
func (m *Metrics) see(move types.UID, o decide.Observation, step decide.Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := o.Record
	if r == nil || r.Over() {
		delete(m.moves, move)
		return
	}
	w := m.moves[move]
	if w == nil || len(w.sent) != len(r.Claims) {
		w = &watched{sent: make([]int64, len(r.Claims))}
		for i := range r.Claims {
			// What travelled for another life of the provisioner was counted there.
			w.sent[i] = sentOf(o, i)
		}
		m.moves[move] = w
	}
	w.phase, w.further, w.down = r.Phase, r.Began[r.Phase], time.Time{}
	if copying(r.Phase) && o.Advanced.After(w.further) {
		w.further = o.Advanced
	}
	if r.Up.IsZero() {
		w.down = r.Down
	}
	w.need, w.overdue = step.Need, decide.Overdue(o)
	for i := range o.Claims {
		sent, way := sentOf(o, i), o.Claims[i].Way.Transport
		if more := sent - w.sent[i]; more > 0 && way != "" {
			m.sent.WithLabelValues(string(way)).Add(float64(more))
			w.sent[i] = sent
		}
	}
}

// copying says whether movers work in a phase.
func copying(phase v1alpha1.MovePhase) bool {
	return phase == v1alpha1.MoveProvision || phase == v1alpha1.MovePreCopy || phase == v1alpha1.MoveFinalSync || phase == v1alpha1.MoveVerifying
}

// sentOf is how many bytes of a claim have travelled from mover to mover, as far as is
// known now, and storedOf how many through a repository.
func sentOf(o decide.Observation, i int) int64 {
	return o.Record.Claims[i].Sent + uncounted(o, i).BytesSent
}

func storedOf(o decide.Observation, i int) int64 {
	return o.Record.Claims[i].Stored + uncounted(o, i).BytesStored
}

// uncounted is the progress of a task that the record does not have yet.
func uncounted(o decide.Observation, i int) movecontrol.Progress {
	if i >= len(o.Claims) || o.Claims[i].Copy == nil || o.Claims[i].Copy.Task == nil || o.Claims[i].Copy.Task.ID == o.Record.Claims[i].Counted {
		return movecontrol.Progress{}
	}
	return o.Claims[i].Copy.Task.Progress
}
