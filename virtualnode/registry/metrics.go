package registry

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics is what is counted about virtual nodes.
type Metrics struct {
	ready    *prometheus.GaugeVec
	sessions *prometheus.CounterVec
}

// NewMetrics returns metrics that are registered.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lodestone_virtual_node_ready", Help: "1 if the virtual node of a remote cluster takes pods, 0 if not.",
		}, []string{"cluster"}),
		sessions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_virtual_node_sessions_total", Help: "How often work for a remote cluster began: at the start, after an outage and with a new kubeconfig.",
		}, []string{"cluster"}),
	}
	for _, collector := range []prometheus.Collector{m.ready, m.sessions} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("register metrics of virtual nodes: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) show(cluster string, ready bool) {
	value := 0.0
	if ready {
		value = 1
	}
	m.ready.WithLabelValues(cluster).Set(value)
}

func (m *Metrics) began(cluster string) { m.sessions.WithLabelValues(cluster).Inc() }

func (m *Metrics) forget(cluster string) {
	m.ready.DeleteLabelValues(cluster)
	m.sessions.DeleteLabelValues(cluster)
}
