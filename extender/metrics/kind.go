package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind tells about the cached objects of one kind. Its functions must be safe for
// concurrent use.
type Kind struct {
	// Name is the plural name of the kind.
	Name string
	// Entries returns how many objects are cached.
	Entries func() int
	// LastChange returns when the last change arrived; zero before the first.
	LastChange func() time.Time
	// Connected says whether changes arrive.
	Connected func() bool
	// Age returns how old what is known may be: 0 while changes arrive.
	Age func() time.Duration
	// Restarts returns how many watches were opened after the first.
	Restarts func() int64
}

// Watch exposes a kind.
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
