package healing

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// Metrics counts what is done to heal.
type Metrics struct {
	steps  *prometheus.CounterVec
	healed prometheus.Counter
	// unhealed is counted by told.
	unhealed *prometheus.GaugeVec
}

// NewMetrics returns Metrics that are registered.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_remote_agent_healing_steps_total",
			Help: "Steps towards claims in the place of such as somebody deleted, by step and result.",
		}, []string{"step", "result"}),
		unhealed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lodestone_remote_agent_claims_unhealed",
			Help: "Claims of home clusters that somebody deleted here and that are not made anew, by the reason of the event that says why.",
		}, []string{"reason"}),
		healed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lodestone_remote_agent_claims_healed_total",
			Help: "Claims of home clusters that somebody deleted here and that were made anew with their volumes.",
		}),
	}
	for _, collector := range []prometheus.Collector{m.steps, m.healed, m.unhealed} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("register metric: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) step(cure policy.Cure, err error) {
	result := "done"
	if err != nil {
		result = "error"
	}
	m.steps.WithLabelValues(string(cure), result).Inc()
}
