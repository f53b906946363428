package clusters

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var expiry = prometheus.NewDesc("lodestone_provisioner_credentials_expiry_seconds",
	"Seconds until the token or certificate for a remote cluster ends; negative after its end, absent without one.", []string{"cluster"}, nil)

// Describe implements prometheus.Collector.
func (r *Registry) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- expiry }

// Collect implements prometheus.Collector.
func (r *Registry) Collect(metrics chan<- prometheus.Metric) {
	for _, id := range r.IDs() {
		c := r.Get(id)
		if c == nil {
			continue
		}
		c.mu.Lock()
		until := c.until
		c.mu.Unlock()
		if !until.IsZero() {
			metrics <- prometheus.MustNewConstMetric(expiry, prometheus.GaugeValue, time.Until(until).Seconds(), id)
		}
	}
}
