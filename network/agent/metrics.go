package agent

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	laneLabels = []string{"cluster", "gateway"}
	laneUp     = prometheus.NewDesc("lodestone_network_lane_up",
		"Whether packets go through to a gateway of another cluster and back.", laneLabels, nil)
	connections = prometheus.NewDesc("lodestone_network_lane_connections",
		"How many connections to a gateway of another cluster are up.", laneLabels, nil)
	sent = prometheus.NewDesc("lodestone_network_lane_sent_bytes_total",
		"Bytes of packets sent to a gateway of another cluster.", laneLabels, nil)
	received = prometheus.NewDesc("lodestone_network_lane_received_bytes_total",
		"Bytes of packets received from a gateway of another cluster.", laneLabels, nil)
	dropped = prometheus.NewDesc("lodestone_network_lane_dropped_bytes_total",
		"Bytes of packets to and from a gateway of another cluster that were more than the bandwidth limit, or are none that kernels make.",
		laneLabels, nil)
	roundTrip = prometheus.NewDesc("lodestone_network_lane_round_trip_seconds",
		"The shortest smoothed round trip time of connections to a gateway of another cluster.", laneLabels, nil)
)

// Describe and Collect make the agent's lanes metrics.
func (a *agent) Describe(into chan<- *prometheus.Desc) {
	into <- laneUp
	into <- connections
	into <- roundTrip
	into <- sent
	into <- received
	into <- dropped
}

// Collect asks the lanes.
func (a *agent) Collect(into chan<- prometheus.Metric) {
	for cluster, gateways := range a.statuses() {
		for _, g := range gateways {
			up := 0.0
			if g.Up {
				up = 1
			}
			into <- prometheus.MustNewConstMetric(laneUp, prometheus.GaugeValue, up, cluster, g.Peer)
			into <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(g.Connections), cluster, g.Peer)
			into <- prometheus.MustNewConstMetric(sent, prometheus.CounterValue, float64(g.Sent), cluster, g.Peer)
			into <- prometheus.MustNewConstMetric(received, prometheus.CounterValue, float64(g.Received), cluster, g.Peer)
			into <- prometheus.MustNewConstMetric(dropped, prometheus.CounterValue, float64(g.Dropped), cluster, g.Peer)
			if g.RTT > 0 {
				into <- prometheus.MustNewConstMetric(roundTrip, prometheus.GaugeValue, g.RTT.Seconds(), cluster, g.Peer)
			}
		}
	}
}
