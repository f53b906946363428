package pods

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// Metrics count what becomes of pods.
type Metrics struct {
	steps        *prometheus.CounterVec
	lost, remade prometheus.Counter
}

// NewMetrics returns metrics that are registered with registerer.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_remote_agent_steps_total",
			Help: "Steps taken for ShadowPods, by step and result.",
		}, []string{"step", "result"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lodestone_remote_agent_pods_lost_total",
			Help: "Pods that disappeared and were not made again.",
		}),
		remade: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lodestone_remote_agent_pods_remade_total",
			Help: "Pods that disappeared while their home cluster was away and were made again.",
		}),
	}
	for _, c := range []prometheus.Collector{m.steps, m.lost, m.remade} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) step(verb policy.Verb, err error) {
	result := "done"
	if err != nil {
		result = "error"
	}
	m.steps.WithLabelValues(string(verb), result).Inc()
}
