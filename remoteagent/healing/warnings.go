package healing

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// Metrics count the steps of healing.
type Metrics struct {
	steps  *prometheus.CounterVec
	healed prometheus.Counter
	// unhealed is set by warnings.
	unhealed *prometheus.GaugeVec
}

// NewMetrics returns metrics that are registered.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	factory := promauto.With(registerer)
	return &Metrics{
		steps: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_remote_agent_healing_steps_total",
			Help: "Steps towards claims in the place of such as somebody deleted, by step and result.",
		}, []string{"step", "result"}),
		unhealed: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lodestone_remote_agent_claims_unhealed",
			Help: "Claims of home clusters that somebody deleted here and that are not made anew, by the reason of the event that says why.",
		}, []string{"reason"}),
		healed: factory.NewCounter(prometheus.CounterOpts{
			Name: "lodestone_remote_agent_claims_healed_total",
			Help: "Claims of home clusters that somebody deleted here and that were made anew with their volumes.",
		}),
	}
}

func (m *Metrics) step(cure policy.Cure, err error) {
	result := "done"
	if err != nil {
		result = "error"
	}
	m.steps.WithLabelValues(string(cure), result).Inc()
}

// repeatAfter is when an unchanged warning is recorded again: API servers keep events for an hour.
const repeatAfter = time.Hour

// warnings has the last warning on each volume whose claim is not created again. It is safe for
// concurrent use.
type warnings struct {
	last *controller.LastMessage[string, policy.Refusal]
	// count is the number of volumes that have a warning now, by reason.
	count *prometheus.GaugeVec
}

func newWarnings(count *prometheus.GaugeVec) *warnings {
	return &warnings{last: controller.NewLastMessage[string, policy.Refusal](repeatAfter), count: count}
}

// isNew records the warning on a volume, and reports whether an event is due: it differs from the
// last one, or the last one is older than repeatAfter.
func (w *warnings) isNew(volume string, what policy.Refusal, now time.Time) bool {
	before, news := w.last.Due(volume, what, now)
	if !news {
		return false
	}
	w.uncount(before)
	w.count.WithLabelValues(what.Reason).Inc()
	return true
}

// clear records that a volume has no problem.
func (w *warnings) clear(volume string) {
	before, _ := w.last.Forget(volume)
	w.uncount(before)
}

func (w *warnings) uncount(before policy.Refusal) {
	if before != (policy.Refusal{}) {
		w.count.WithLabelValues(before.Reason).Dec()
	}
}
