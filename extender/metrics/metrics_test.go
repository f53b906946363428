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
		"no node is refused":              {nodes: 3, want: metrics.Passed},
		"there was no node to judge":      {want: metrics.Passed},
		"some are refused":                {nodes: 3, refused: map[filter.Reason]int{filter.DataElsewhere: 2}, want: metrics.Restricted},
		"all are refused, for one reason": {nodes: 2, refused: map[filter.Reason]int{filter.DataElsewhere: 2}, want: metrics.Refused},
		"all are refused, for more than one": {nodes: 3, refused: map[filter.Reason]int{filter.DataElsewhere: 2, filter.ClusterNotReady: 1},
			want: metrics.Refused},
		"some are refused, for more than a reason": {nodes: 9, refused: map[filter.Reason]int{filter.DataElsewhere: 2, filter.ClusterNotReady: 1},
			want: metrics.Restricted},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, metrics.Judged(test.nodes, test.refused))
		})
	}
}

func TestKindsAreExposed(t *testing.T) {
	m := metrics.New()
	watched, lost := true, false
	m.Watch(metrics.Kind{
		Name: "nodes", Entries: func() int { return 3 }, LastChange: func() time.Time { return time.UnixMilli(1500) },
		Connected: func() bool { return watched }, Age: func() time.Duration { return 0 }, Restarts: func() int64 { return 4 },
	})
	m.Watch(metrics.Kind{
		Name: "namespaces", Entries: func() int { return 0 }, LastChange: func() time.Time { return time.Time{} },
		Connected: func() bool { return lost }, Age: func() time.Duration { return 90 * time.Second }, Restarts: func() int64 { return 0 },
	})
	require.NoError(t, testutil.GatherAndCompare(m.Registry(), strings.NewReader(`
# HELP lodestone_extender_cached_objects Entries that decisions are made from, by kind.
# TYPE lodestone_extender_cached_objects gauge
lodestone_extender_cached_objects{kind="namespaces"} 0
lodestone_extender_cached_objects{kind="nodes"} 3
# HELP lodestone_extender_last_change_timestamp_seconds When the last change of this kind arrived, in seconds since 1970; 0 before the first.
# TYPE lodestone_extender_last_change_timestamp_seconds gauge
lodestone_extender_last_change_timestamp_seconds{kind="namespaces"} 0
lodestone_extender_last_change_timestamp_seconds{kind="nodes"} 1.5
# HELP lodestone_extender_snapshot_age_seconds For how long changes of this kind have not arrived; 0 while they arrive.
# TYPE lodestone_extender_snapshot_age_seconds gauge
lodestone_extender_snapshot_age_seconds{kind="namespaces"} 90
lodestone_extender_snapshot_age_seconds{kind="nodes"} 0
# HELP lodestone_extender_watch_connected Whether changes of this kind arrive (1) or not (0).
# TYPE lodestone_extender_watch_connected gauge
lodestone_extender_watch_connected{kind="namespaces"} 0
lodestone_extender_watch_connected{kind="nodes"} 1
# HELP lodestone_extender_watch_restarts_total Watches of this kind that were opened after the first. API servers end each after some minutes.
# TYPE lodestone_extender_watch_restarts_total counter
lodestone_extender_watch_restarts_total{kind="namespaces"} 0
lodestone_extender_watch_restarts_total{kind="nodes"} 4
`), "lodestone_extender_cached_objects", "lodestone_extender_last_change_timestamp_seconds",
		"lodestone_extender_snapshot_age_seconds", "lodestone_extender_watch_connected", "lodestone_extender_watch_restarts_total"))
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
