package clusters

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

var (
	expiry = prometheus.NewDesc("lodestone_provisioner_credentials_expiry_seconds",
		"Seconds until the token or certificate for a remote cluster ends; negative after its end, absent without one.", []string{"cluster"}, nil)
	ready = prometheus.NewDesc("lodestone_provisioner_remote_cluster_ready",
		"1 if a RemoteCluster is Ready, 0 if not.", []string{"cluster"}, nil)
)

// Describe implements prometheus.Collector.
func (r *Registry) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- expiry
	descriptions <- ready
}

// Collect implements prometheus.Collector.
func (r *Registry) Collect(metrics chan<- prometheus.Metric) {
	for _, remote := range r.all() {
		value := 0.0
		if meta.IsStatusConditionTrue(remote.Status.Conditions, v1alpha1.Ready) {
			value = 1
		}
		metrics <- prometheus.MustNewConstMetric(ready, prometheus.GaugeValue, value, remote.Name)
	}
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
