package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lodestone-storage/lodestone/extender/filter"
)

// Outcome is what became of a pod's nodes in one decision.
type Outcome uint8

// The outcomes.
const (
	// Passed: all nodes were left as they came.
	Passed Outcome = iota
	// Restricted: some nodes were refused.
	Restricted
	// Refused: all nodes were refused.
	Refused
	// Scored: some nodes were preferred.
	Scored
	outcomeCount
)

var outcomes = [outcomeCount]string{Passed: "passed", Restricted: "restricted", Refused: "refused", Scored: "scored"}

// Judged returns the outcome of judging so many nodes, with how many of them each
// reason refused.
func Judged(nodes int, refused map[filter.Reason]int) Outcome {
	all := 0
	for _, count := range refused {
		all += count
	}
	switch all {
	case 0:
		return Passed
	case nodes:
		return Refused
	}
	return Restricted
}

// verb is what requests of one verb touch.
type verb struct {
	answered prometheus.Counter
	duration prometheus.Observer
	decided  [outcomeCount]prometheus.Counter
}

func newVerb(name string, requests *prometheus.CounterVec, durations *prometheus.HistogramVec, decisions *prometheus.CounterVec) verb {
	v := verb{answered: requests.WithLabelValues(name, "200"), duration: durations.WithLabelValues(name)}
	possible := []Outcome{Passed, Restricted, Refused}
	if name == Prioritize {
		possible = []Outcome{Passed, Scored}
	}
	for _, outcome := range possible {
		v.decided[outcome] = decisions.WithLabelValues(name, outcomes[outcome])
	}
	return v
}

func (m *Metrics) failed(name string, code int) {
	m.requests.WithLabelValues(name, strconv.Itoa(code)).Inc()
}
