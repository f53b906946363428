package moves

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/transport"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// gauges returns the gauges of moves that are not 0, as name{label}.
func gauges(t *testing.T, m *Metrics, now time.Time) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(at{m, now}))
	families, err := registry.Gather()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()[len("lodestone_provisioner_"):]
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			if value := metric.GetGauge().GetValue(); value != 0 {
				found[name] = value
			}
		}
	}
	return found
}

// at collects the gauges for this time.
type at struct {
	*Metrics
	now time.Time
}

func (a at) Collect(metrics chan<- prometheus.Metric) { a.collect(a.now, metrics) }

func TestMovesThatAreNotOverAreTold(t *testing.T) {
	m, now := NewMetrics(nil), time.Now()
	began := func(phase v1alpha1.MovePhase, ago time.Duration) steps.Observation {
		return steps.Observation{Now: now, Record: &record.Record{Phase: phase, Began: map[v1alpha1.MovePhase]time.Time{phase: now.Add(-ago)}}}
	}
	assert.Empty(t, gauges(t, m, now))

	fence := began(v1alpha1.MoveFence, time.Minute)
	fence.Record.Down = now.Add(-2 * time.Minute)
	m.observe("m1", fence, steps.Step{Need: steps.NodeAway})
	m.observe("m2", began(v1alpha1.MoveFence, 3*time.Minute), steps.Step{})
	copies := began(v1alpha1.MovePreCopy, time.Hour)
	copies.Advanced = now.Add(-time.Second)
	m.observe("m3", copies, steps.Step{})
	kept := began(v1alpha1.MoveRetain, time.Hour)
	kept.Record.Down, kept.Record.Up = now.Add(-90*time.Minute), now.Add(-time.Hour)
	kept.Move = &v1alpha1.VolumeMove{Spec: v1alpha1.VolumeMoveSpec{KeepSourceFor: &metav1.Duration{Duration: 2 * time.Hour}}}
	m.observe("m4", kept, steps.Step{})
	want := map[string]float64{
		"moves Fence": 2, "moves PreCopy": 1, "moves Retain": 1,
		"move_standstill_seconds Fence": 180, "move_standstill_seconds PreCopy": 1,
		"move_paused_seconds": 120, "moves_need_help NodeAway": 1,
	}
	assert.Equal(t, want, gauges(t, m, now))

	kept.Now = now.Add(time.Hour)
	m.observe("m4", kept, steps.Step{})
	assert.InDelta(t, 1, gauges(t, m, now)["move_sources_overdue"], 0)

	// Moves that are finished or deleted are removed.
	for _, move := range []types.UID{"m1", "m2", "m4"} {
		m.observe(move, began(v1alpha1.MoveDone, 0), steps.Step{})
	}
	m.observe("m3", steps.Observation{}, steps.Step{})
	assert.Empty(t, gauges(t, m, now))
}

func TestWhatHappensToMovesIsCounted(t *testing.T) {
	m, now := NewMetrics(nil), time.Now()
	first := &record.Record{Phase: v1alpha1.MovePrepare}
	m.recordWritten(nil, first)
	down := first.Enter(v1alpha1.MoveQuiesce, now)
	down.Down = now
	m.recordWritten(first, down)
	back := down.Enter(v1alpha1.MoveRollBack, now)
	back.Cause = record.Differs
	m.recordWritten(down, back)
	up := back.Clone()
	up.Up = now.Add(3 * time.Second)
	m.recordWritten(back, up)
	assert.Zero(t, testutil.ToFloat64(m.ended.WithLabelValues("Failed")))
	m.recordWritten(up, up.Enter(v1alpha1.MoveFailed, now))
	m.recordWritten(nil, &record.Record{Phase: v1alpha1.MoveFailed, Cause: record.Refused})

	assert.InDelta(t, 2, testutil.ToFloat64(m.ended.WithLabelValues("Failed")), 0)
	assert.InDelta(t, 1, testutil.ToFloat64(m.back.WithLabelValues("Differs")), 0)
	assert.InDelta(t, 1, testutil.ToFloat64(m.back.WithLabelValues("Refused")), 0)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(m.pause))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, metric := range families[0].GetMetric() {
		count := map[string]uint64{wentBack: 1, wentOn: 0}[metric.GetLabel()[0].GetValue()]
		assert.Equal(t, count, metric.GetHistogram().GetSampleCount())
		assert.InDelta(t, 3*float64(count), metric.GetHistogram().GetSampleSum(), 0)
	}
}

func TestBytesThatTravelAreCountedOnce(t *testing.T) {
	m := NewMetrics(nil)
	look := func(known record.Claim, task string, sent int64) int64 {
		o := steps.Observation{Now: time.Now(), Record: &record.Record{Phase: v1alpha1.MovePreCopy, Claims: []record.Claim{known}}}
		o.Claims = []steps.Claim{{Connection: transport.Connection{Transport: v1alpha1.TransportDirect},
			Copy: &moverapi.Status{Task: &moverapi.TaskStatus{
				Task: moverapi.Task{ID: task}, Progress: moverapi.Progress{BytesSent: sent}}}}}
		m.observe("m1", o, steps.Step{})
		return sentOf(o, 0)
	}
	look(record.Claim{Sent: 5}, "pass-2", 100)
	assert.Zero(t, testutil.ToFloat64(m.sent.WithLabelValues("Direct")),
		"what travelled before this provisioner led was counted by another one")
	look(record.Claim{Sent: 5}, "pass-2", 150)
	assert.EqualValues(t, 155, look(record.Claim{Sent: 155, Counted: "pass-2"}, "pass-2", 150), "a pass that is over counts once")
	look(record.Claim{Sent: 155, Counted: "pass-2"}, "pass-3", 10)
	look(record.Claim{Sent: 155, Counted: "pass-2"}, "pass-3", 4)
	assert.InDelta(t, 60, testutil.ToFloat64(m.sent.WithLabelValues("Direct")), 0)
}
