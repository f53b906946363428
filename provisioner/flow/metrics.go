package flow

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// Metrics count what flow A does.
type Metrics struct {
	steps     *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	publish   *prometheus.HistogramVec
	troubles  *troubles
	leftovers *leftovers
}

// NewMetrics returns metrics that are registered with registerer.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_provisioner_steps_total",
			Help: "Steps taken for virtual claims, by step, cluster and result.",
		}, []string{"step", "cluster", "result"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_provisioner_refusals_total",
			Help: "Virtual claims that a place refused, by cluster and reason.",
		}, []string{"cluster", "reason"}),
		publish: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lodestone_provisioner_publish_seconds",
			Help:    "Time from the selected node being seen to the virtual volume being made, by cluster.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 16),
		}, []string{"cluster"}),
		troubles:  newTroubles(),
		leftovers: newLeftovers(),
	}
	for _, c := range []prometheus.Collector{m.steps, m.refusals, m.publish, m.troubles.gauge, m.leftovers.gauge} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) step(step decide.Step, err error) {
	if step.Verb == decide.Idle {
		return
	}
	result := "done"
	if err != nil {
		result = "error"
	}
	m.steps.WithLabelValues(string(step.Verb), step.Cluster, result).Inc()
}

func (m *Metrics) refused(r *decide.Refusal) {
	m.refusals.WithLabelValues(r.Cluster, r.Reason).Inc()
}

func (m *Metrics) published(cluster string, took time.Duration) {
	m.publish.WithLabelValues(cluster).Observe(took.Seconds())
}
