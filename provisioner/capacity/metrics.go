package capacity

import "github.com/prometheus/client_golang/prometheus"

// Metrics count what is written for kube-scheduler.
type Metrics struct {
	writes *prometheus.CounterVec
}

// NewMetrics returns metrics that are registered with registerer.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{writes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lodestone_provisioner_capacity_writes_total",
		Help: "Writes of what kube-scheduler is told of the room of virtual classes, by verb and result.",
	}, []string{"verb", "result"})}
	return m, registerer.Register(m.writes)
}

func (m *Metrics) wrote(verb string, err error) {
	result := "done"
	if err != nil {
		result = "error"
	}
	m.writes.WithLabelValues(verb, result).Inc()
}
