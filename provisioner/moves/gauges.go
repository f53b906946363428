package moves

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

var (
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
	for _, description := range []*prometheus.Desc{underWay, standing, paused, needing, overdue} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) { m.collect(time.Now(), metrics) }

func (m *Metrics) collect(now time.Time, metrics chan<- prometheus.Metric) {
	count, oldest, needs := map[v1alpha1.MovePhase]int{}, map[v1alpha1.MovePhase]time.Duration{}, map[decide.Need]int{}
	var longest time.Duration
	late := 0
	m.mu.Lock()
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
	for _, phase := range record.Order {
		if (&record.Record{Phase: phase}).Over() {
			continue
		}
		gauge(underWay, float64(count[phase]), string(phase))
		if phase != v1alpha1.MoveRetain {
			// There it is to stand still.
			gauge(standing, oldest[phase].Seconds(), string(phase))
		}
	}
	for _, need := range decide.Needs {
		gauge(needing, float64(needs[need]), string(need))
	}
	gauge(paused, longest.Seconds())
	gauge(overdue, float64(late))
}
