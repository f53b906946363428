package links

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
)

// Metrics say how networks are joined.
type Metrics struct {
	ready, lanes, rate *prometheus.GaugeVec
}

// NewMetrics returns the metrics of a Linker, registered.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lodestone_network_ready",
			Help: "1 if probes show that pods at home and in a remote cluster reach each other through the fabric, 0 if not."},
			[]string{"cluster"}),
		lanes: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lodestone_network_lanes",
			Help: "How many lanes home's gateways have to a remote cluster, by their state: up, down, or unknown where the gateway is silent."},
			[]string{"cluster", "state"}),
		rate: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lodestone_network_bytes_per_second",
			Help: "Bytes of packets a second that lanes carry to a remote cluster (sent) and from it (received), measured every 30 seconds."},
			[]string{"cluster", "direction"}),
	}
	for _, one := range []prometheus.Collector{m.ready, m.lanes, m.rate} {
		if err := registry.Register(one); err != nil {
			return nil, fmt.Errorf("register the metrics of joined networks: %w", err)
		}
	}
	return m, nil
}

// condition takes what is said of the network of a cluster.
func (m *Metrics) condition(cluster string, status metav1.ConditionStatus) {
	value := 0.0
	if status == metav1.ConditionTrue {
		value = 1
	}
	m.ready.WithLabelValues(cluster).Set(value)
}

// measured takes what home's gateways have written.
func (m *Metrics) measured(cluster string, home *networkv1alpha1.NetworkLink, now time.Time) {
	states := map[string]float64{"up": 0, "down": 0, "unknown": 0}
	var sent, received int64
	for _, g := range home.Status.Gateways {
		for _, l := range g.Lanes {
			switch {
			case now.Sub(g.RenewTime.Time) > silent:
				states["unknown"]++
			case l.Up:
				states["up"]++
				sent, received = sent+l.SentBytesPerSecond, received+l.ReceivedBytesPerSecond
			default:
				states["down"]++
			}
		}
	}
	for state, count := range states {
		m.lanes.WithLabelValues(cluster, state).Set(count)
	}
	m.rate.WithLabelValues(cluster, "sent").Set(float64(sent))
	m.rate.WithLabelValues(cluster, "received").Set(float64(received))
}

// forget ends what is said of a cluster.
func (m *Metrics) forget(cluster string) {
	for _, one := range []*prometheus.GaugeVec{m.ready, m.lanes, m.rate} {
		one.DeletePartialMatch(prometheus.Labels{"cluster": cluster})
	}
}
