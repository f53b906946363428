package replicas

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// Metrics count points, and report at each scrape how old the newest versions are. No label has a user-chosen name. It is safe for
// concurrent use.
type Metrics struct {
	points *prometheus.CounterVec
	sent   prometheus.Counter

	mu       sync.Mutex
	replicas map[types.UID]replicaGauge
}

// replicaGauge is the state of a replica.
type replicaGauge struct {
	state string
	// cut is the moment of its newest version; zero: it has none, or none newer is wanted.
	cut time.Time
	rpo time.Duration
	// suspect says that its condition of that name is true.
	suspect bool
}

// Results of a point, and states of a replica.
const (
	sealed = "sealed"
	failed = "failed"

	healthy   = "healthy"
	unhealthy = "unhealthy"
	paused    = "paused"
)

// NewMetrics returns metrics that are registered with registerer.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		points: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_provisioner_replica_points_total",
			Help: "Points of replicas that are over, by result: sealed or failed.",
		}, []string{"result"}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lodestone_provisioner_replica_sent_bytes_total",
			Help: "Bytes that travelled between movers for sealed versions.",
		}),
		replicas: map[types.UID]replicaGauge{},
	}
	m.points.WithLabelValues(sealed)
	m.points.WithLabelValues(failed)
	for _, c := range []prometheus.Collector{m.points, m.sent, m} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// saved counts what a new record has that the one before had not.
func (m *Metrics) saved(before, after *record.Record) {
	// One that failed, and that the standby's owner keeps, is going: it counts as none. One that can be used again was counted before.
	now := after.Newest()
	if now != nil && !slices.ContainsFunc(before.Sealed, func(v record.Version) bool { return !v.Going && v.Number >= now.Number }) {
		m.points.WithLabelValues(sealed).Inc()
		m.sent.Add(float64(now.AllSent()))
	}
	if after.Failures > before.Failures {
		m.points.WithLabelValues(failed).Inc()
	}
}

// observe notes the state of a replica.
func (m *Metrics) observe(o decide.Observation, status v1alpha1.VolumeReplicaStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := replicaGauge{state: unhealthy, rpo: decide.RPO(o.Replica),
		suspect: meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ReplicaSuspect)}
	switch {
	case o.Replica.Spec.Paused:
		seen.state = paused
	case meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ReplicaHealthy):
		seen.state = healthy
	}
	if o.Record != nil && o.Record.Newest() != nil && !isOver(o, status) {
		seen.cut = o.Record.Newest().Cut
	}
	m.replicas[o.Replica.UID] = seen
}

// isOver says whether no newer version is to be made until somebody does something: how old the newest one is means nothing then.
func isOver(o decide.Observation, status v1alpha1.VolumeReplicaStatus) bool {
	if o.Replica.Spec.Paused || o.Replica.DeletionTimestamp != nil {
		return true
	}
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ReplicaHealthy)
	return condition != nil && (condition.Reason == decide.SameCluster || condition.Reason == decide.ClaimGone)
}

func (m *Metrics) forget(replica types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.replicas, replica)
}

var (
	known = prometheus.NewDesc("lodestone_provisioner_replicas", "VolumeReplicas, by state: healthy, unhealthy or paused.",
		[]string{"state"}, nil)
	lag = prometheus.NewDesc("lodestone_provisioner_replica_lag_ratio", "How old the newest sealed version is, as a part of its RPO, of the "+
		"replica of which that is most; 0 without any. Those that are paused or removed, or of which no newer one can be made, do not "+
		"count.", nil, nil)
	suspects = prometheus.NewDesc("lodestone_provisioner_replicas_suspect", "VolumeReplicas whose condition Suspect is true.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- known
	descriptions <- lag
	descriptions <- suspects
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) { m.collect(time.Now(), metrics) }

func (m *Metrics) collect(now time.Time, metrics chan<- prometheus.Metric) {
	states, most, suspect := map[string]int{}, 0.0, 0
	m.mu.Lock()
	for _, replica := range m.replicas {
		states[replica.state]++
		if replica.suspect {
			suspect++
		}
		if !replica.cut.IsZero() {
			most = max(most, now.Sub(replica.cut).Seconds()/replica.rpo.Seconds())
		}
	}
	m.mu.Unlock()
	gauge := func(description *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, value, labels...)
	}
	for _, state := range []string{healthy, unhealthy, paused} {
		gauge(known, float64(states[state]), state)
	}
	gauge(lag, most)
	gauge(suspects, float64(suspect))
}
