package replicas

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// seen is what was observed of a replica whose newest version is that old.
func seen(age time.Duration) decide.Observation {
	now := time.Now()
	return decide.Observation{Now: now,
		Replica: &v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{UID: "r1", Generation: 3},
			Spec: v1alpha1.VolumeReplicaSpec{RPO: &metav1.Duration{Duration: time.Hour}}},
		Record: &record.Record{UID: "r1", Epoch: 1, Part: record.Part{Head: backing.Ref{Cluster: "west"}, Class: "fast"},
			Sealed: []record.Version{
				{Content: record.Content{Name: "v1"}, Cut: now.Add(-5 * time.Hour), Going: true},
				{Content: record.Content{Name: "v2"}, Cut: now.Add(-4 * time.Hour)},
				{Content: record.Content{Name: "v3", Sent: 7, Root: "abc"}, Cut: now.Add(-age)}}},
	}
}

func TestTheStatusSaysHowOldTheNewestVersionIsAndWhatKeepsTheNext(t *testing.T) {
	for name, row := range map[string]struct {
		age             time.Duration
		step            decide.Step
		tune            func(*decide.Observation)
		healthy, within metav1.ConditionStatus
		reason, says    string
		changesByItself bool
		versions        int
	}{
		"all is well": {age: time.Minute, healthy: metav1.ConditionTrue, within: metav1.ConditionTrue, reason: decide.Sealed,
			changesByItself: true, versions: 2},
		"it is late": {age: 2 * time.Hour, healthy: metav1.ConditionTrue, within: metav1.ConditionFalse, reason: decide.Sealed, versions: 2},
		"something is in the way": {age: time.Minute, step: decide.Step{Reason: decide.NoSnapshots, Say: "no snapshot can be taken"},
			healthy: metav1.ConditionFalse, within: metav1.ConditionTrue, reason: decide.NoSnapshots, says: "no snapshot can be taken",
			changesByItself: true, versions: 2},
		"points fail": {age: time.Minute, tune: func(o *decide.Observation) { o.Record.Failures, o.Record.Why = 2, "no room" },
			healthy: metav1.ConditionFalse, within: metav1.ConditionTrue, reason: decide.PointFailed, says: "the last 2 points failed: no room",
			changesByItself: true, versions: 2},
		"a clock was ahead": {age: -time.Hour, healthy: metav1.ConditionTrue, within: metav1.ConditionUnknown, reason: decide.Sealed,
			versions: 2},
		"nothing is sealed": {tune: func(o *decide.Observation) { o.Record.Sealed = nil }, healthy: metav1.ConditionFalse,
			within: metav1.ConditionUnknown, reason: decide.Seeding},
		"it has not begun": {tune: func(o *decide.Observation) { o.Record = nil },
			step: decide.Step{Reason: decide.ClaimGone, Say: "there is no claim"}, healthy: metav1.ConditionFalse,
			within: metav1.ConditionUnknown, reason: decide.ClaimGone, says: "there is no claim"},
	} {
		t.Run(name, func(t *testing.T) {
			o := seen(row.age)
			if row.tune != nil {
				row.tune(&o)
			}
			status, late := statusOf(o, row.step)
			healthy := meta.FindStatusCondition(status.Conditions, v1alpha1.ReplicaHealthy)
			require.NotNil(t, healthy)
			assert.Equal(t, row.healthy, healthy.Status)
			assert.Equal(t, row.reason, healthy.Reason)
			assert.Contains(t, healthy.Message, row.says)
			assert.EqualValues(t, 3, healthy.ObservedGeneration)
			assert.Equal(t, row.within, meta.FindStatusCondition(status.Conditions, v1alpha1.ReplicaWithinRPO).Status)
			assert.Equal(t, row.changesByItself, late > 0)
			if row.versions > 0 {
				standby := status.Standbys[0]
				require.Len(t, standby.Versions, row.versions, "one that goes is not there")
				assert.Equal(t, "v3", standby.Versions[0].Name, "the newest is the first")
				assert.EqualValues(t, 7, standby.Sent)
				assert.WithinDuration(t, o.Now.Add(-row.age), standby.Sealed.Time, time.Second)
			}
		})
	}
}

func TestTheStatusNamesTheStandbyAsPrimaryOnceTheClaimIsThere(t *testing.T) {
	o := seen(time.Minute)
	o.Replica.Status.Primary = "east"
	status, _ := statusOf(o, decide.Step{})
	assert.Equal(t, "east", status.Primary)
	o.At = "west"
	status, _ = statusOf(o, decide.Step{})
	assert.Equal(t, "west", status.Primary)
}

func TestTheStatusSaysWhichVersionsStayForTheirDay(t *testing.T) {
	o := seen(time.Minute)
	o.Replica.Spec.Versions = v1alpha1.ReplicaVersions{Keep: 1, Daily: 2}
	o.Record.Sealed[1].Cut = o.Now.Add(-30 * time.Hour)
	status, _ := statusOf(o, decide.Step{})
	require.Len(t, status.Standbys[0].Versions, 2)
	assert.False(t, status.Standbys[0].Versions[0].Daily)
	assert.True(t, status.Standbys[0].Versions[1].Daily)

	o.Record.Slots = true
	status, _ = statusOf(o, decide.Step{})
	assert.False(t, status.Standbys[0].Versions[1].Daily)
	assert.Contains(t, meta.FindStatusCondition(status.Conditions, v1alpha1.ReplicaHealthy).Message,
		"; none stays for its day, as spec.versions.daily asks: that takes a class with snapshots")
}

func TestTheStatusSaysWhyVersionsArePinned(t *testing.T) {
	o := seen(time.Minute)
	status, _ := statusOf(o, decide.Step{})
	assert.Nil(t, meta.FindStatusCondition(status.Conditions, v1alpha1.ReplicaSuspect))
	o.Record.Sealed[2].Number = 3
	o.Record.Pin(&record.Change{Version: "v3", Number: 3, Had: 100, Gone: 70})
	status, _ = statusOf(o, decide.Step{})
	suspect := meta.FindStatusCondition(status.Conditions, v1alpha1.ReplicaSuspect)
	require.NotNil(t, suspect)
	assert.Equal(t, metav1.ConditionTrue, suspect.Status)
	assert.Equal(t, "MuchChanged", suspect.Reason)
	assert.Contains(t, suspect.Message, "point 3 found that 70 B of the 100 B that there were are overwritten or removed at once; the "+
		"versions from before it (1) stay")
	assert.Equal(t, "v3", status.Standbys[0].Suspect)
	assert.Equal(t, []bool{false, true}, []bool{status.Standbys[0].Versions[0].Pinned, status.Standbys[0].Versions[1].Pinned})
	assert.True(t, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ReplicaHealthy), "it goes on")

	o.Replica.Status = status
	o.Record.Unpin()
	status, _ = statusOf(o, decide.Step{})
	assert.Nil(t, meta.FindStatusCondition(status.Conditions, v1alpha1.ReplicaSuspect))
	assert.Empty(t, status.Standbys[0].Suspect)
}

func TestTheStatusSaysWhatAScrubHasFound(t *testing.T) {
	o := seen(time.Minute)
	suspect := func() *metav1.Condition {
		status, _ := statusOf(o, decide.Step{})
		o.Replica.Status = status
		return meta.FindStatusCondition(status.Conditions, v1alpha1.ReplicaSuspect)
	}
	assert.Nil(t, suspect(), "nobody asked for it")
	o.Replica.Spec.ScrubEvery = &metav1.Duration{Duration: time.Hour}
	assert.Equal(t, metav1.ConditionUnknown, suspect().Status)
	o.Record.Scrubbed = o.Now
	assert.Equal(t, metav1.ConditionFalse, suspect().Status)
	assert.WithinDuration(t, o.Now, o.Replica.Status.Standbys[0].Scrubbed.Time, time.Second)
	o.Record.Found = []record.Finding{{Claim: "data", Number: 3, Files: 2, Bytes: 9, First: "x"}}
	assert.Equal(t, metav1.ConditionTrue, suspect().Status)
	assert.Contains(t, suspect().Message, `of claim "data" 2 files (9 B; the first is x) have another content`)
	assert.Contains(t, suspect().Message, "; the next scrub that finds nothing ends this")
	o.Replica.Spec.ScrubEvery = nil
	assert.Nil(t, suspect(), "nobody asks for it any more")
}

func TestAPointThatFailedAndIsKeptCountsAsNoVersion(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m, err := NewMetrics(registry)
	require.NoError(t, err)
	points := func() (sealed, failed, sent float64) {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				switch value := metric.GetCounter().GetValue(); {
				case family.GetName() == "lodestone_provisioner_replica_sent_bytes_total":
					sent = value
				case family.GetName() == "lodestone_provisioner_replica_points_total" && metric.GetLabel()[0].GetValue() == "sealed":
					sealed = value
				case family.GetName() == "lodestone_provisioner_replica_points_total":
					failed = value
				}
			}
		}
		return sealed, failed, sent
	}
	version := func(number, sent int64, going bool) record.Version {
		return record.Version{Number: number, Content: record.Content{Sent: sent}, Going: going}
	}
	first, kept := &record.Record{}, &record.Record{Failures: 1, Sealed: []record.Version{version(1, 5, true)}}
	m.saved(first, kept)
	sealed, failed, sent := points()
	assert.Equal(t, []float64{0, 1, 0}, []float64{sealed, failed, sent}, "the first of all points failed, and its snapshot is kept")
	next := kept.Clone()
	next.Sealed = append(next.Sealed, version(2, 7, false))
	m.saved(kept, next)
	last := next.Clone()
	last.Sealed = append(last.Sealed, version(3, 9, true))
	m.saved(next, last)
	sealed, _, sent = points()
	assert.Equal(t, []float64{1, 7}, []float64{sealed, sent})
}

func TestTheReplicaThatIsFurthestBehindIsMeasured(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m, err := NewMetrics(registry)
	require.NoError(t, err)
	measured := func() (lag float64, states map[string]float64) {
		families, err := registry.Gather()
		require.NoError(t, err)
		states = map[string]float64{}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				switch family.GetName() {
				case "lodestone_provisioner_replica_lag_ratio":
					lag = metric.GetGauge().GetValue()
				case "lodestone_provisioner_replicas_suspect":
					states["suspect"] = metric.GetGauge().GetValue()
				case "lodestone_provisioner_replicas":
					states[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
				}
			}
		}
		return lag, states
	}
	in := func(uid types.UID, age time.Duration, paused bool, step decide.Step) {
		o := seen(age)
		o.Replica.UID, o.Replica.Spec.Paused = uid, paused
		status, _ := statusOf(o, step)
		m.observe(o, status)
	}
	in("a", 30*time.Minute, false, decide.Step{})
	in("b", 3*time.Hour, false, decide.Step{Reason: decide.ClusterAway, Say: "it does not answer"})
	in("c", 9*time.Hour, true, decide.Step{Reason: decide.Paused, Say: "paused"})
	shrunk := seen(30 * time.Minute)
	shrunk.Replica.UID = "a"
	shrunk.Record.Pin(&record.Change{})
	suspicious, _ := statusOf(shrunk, decide.Step{})
	m.observe(shrunk, suspicious)
	lag, states := measured()
	assert.InDelta(t, 3, lag, 0.01)
	assert.Equal(t, map[string]float64{"healthy": 1, "unhealthy": 1, "paused": 1, "suspect": 1}, states)
	// No newer version of these is made until somebody does something.
	in("d", 9*time.Hour, false, decide.Step{Reason: decide.SameCluster, Say: "it failed over"})
	in("e", 9*time.Hour, false, decide.Step{Reason: decide.ClaimGone, Say: "it was deleted"})
	in("f", -time.Hour, false, decide.Step{})
	lag, _ = measured()
	assert.InDelta(t, 3, lag, 0.01)
	m.forget("b")
	lag, _ = measured()
	assert.InDelta(t, 0.5, lag, 0.01)
}
