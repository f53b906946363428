package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/metrics"
)

func TestJudged(t *testing.T) {
	for name, test := range map[string]struct {
		nodes   int
		refused map[filter.Reason]int
		want    metrics.Outcome
	}{
		"no node is refused":                       {nodes: 3, want: metrics.Passed},
		"there was no node to judge":               {want: metrics.Passed},
		"some are refused":                         {nodes: 3, refused: map[filter.Reason]int{filter.DataElsewhere: 2}, want: metrics.Restricted},
		"all are refused, for one reason":          {nodes: 2, refused: map[filter.Reason]int{filter.DataElsewhere: 2}, want: metrics.Refused},
		"all are refused, for more than one":       {nodes: 3, refused: map[filter.Reason]int{filter.DataElsewhere: 2, filter.ClusterNotReady: 1}, want: metrics.Refused},
		"some are refused, for more than a reason": {nodes: 9, refused: map[filter.Reason]int{filter.DataElsewhere: 2, filter.ClusterNotReady: 1}, want: metrics.Restricted},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, metrics.Judged(test.nodes, test.refused))
		})
	}
}

func TestCountsAreByTheirLabels(t *testing.T) {
	m := metrics.New()
	m.Request(metrics.Filter, 200, time.Millisecond)
	m.Request(metrics.Filter, 200, time.Millisecond)
	m.Request(metrics.Preempt, 503, time.Millisecond)
	m.Decided(metrics.Filter, metrics.Refused)
	m.Decided(metrics.Prioritize, metrics.Scored)
	for _, reason := range filter.Reasons() {
		m.Refused(reason, 2)
		m.Spared(reason, 3)
	}
	require.NoError(t, testutil.GatherAndCompare(m.Registry(), strings.NewReader(`
# HELP lodestone_extender_decisions_total Decisions on pods by verb and outcome: all nodes were left as they came (passed), some (restricted) or all (refused) were refused, or some were preferred (scored).
# TYPE lodestone_extender_decisions_total counter
lodestone_extender_decisions_total{outcome="passed",verb="filter"} 0
lodestone_extender_decisions_total{outcome="passed",verb="preempt"} 0
lodestone_extender_decisions_total{outcome="passed",verb="prioritize"} 0
lodestone_extender_decisions_total{outcome="refused",verb="filter"} 1
lodestone_extender_decisions_total{outcome="refused",verb="preempt"} 0
lodestone_extender_decisions_total{outcome="restricted",verb="filter"} 0
lodestone_extender_decisions_total{outcome="restricted",verb="preempt"} 0
lodestone_extender_decisions_total{outcome="scored",verb="prioritize"} 1
# HELP lodestone_extender_requests_total Answered requests of kube-scheduler by verb and HTTP status code.
# TYPE lodestone_extender_requests_total counter
lodestone_extender_requests_total{code="200",verb="filter"} 2
lodestone_extender_requests_total{code="200",verb="preempt"} 0
lodestone_extender_requests_total{code="200",verb="prioritize"} 0
lodestone_extender_requests_total{code="503",verb="preempt"} 1
`), "lodestone_extender_decisions_total", "lodestone_extender_requests_total"))
	families, err := m.Registry().Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			switch family.GetName() {
			case "lodestone_extender_refused_nodes_total":
				assert.InDelta(t, 2, metric.GetCounter().GetValue(), 0, metric)
			case "lodestone_extender_spared_nodes_total":
				assert.InDelta(t, 3, metric.GetCounter().GetValue(), 0, metric)
			}
		}
	}
}
