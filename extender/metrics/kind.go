package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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
