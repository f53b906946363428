package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Certificates are the metrics of a listener with TLS. They are safe for
// concurrent use.
type Certificates struct {
	expiry       *prometheus.GaugeVec
	reloadErrors prometheus.Counter
	refused      prometheus.Counter
}

// Certificates adds the metrics of TLS to m. It may be called once.
func (m *Metrics) Certificates() *Certificates {
	c := &Certificates{
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lodestone_extender_certificate_expiry_timestamp_seconds",
			Help: "When a certificate expires, in seconds since 1970: that of the extender (server), the last of the authorities of clients (client_ca), that of the caller who connected last (client).",
		}, []string{"certificate"}),
		reloadErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lodestone_extender_certificate_reload_errors_total",
			Help: "Changes of the certificate files that cannot be used; the last usable ones stay in use.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lodestone_extender_refused_handshakes_total",
			Help: "Connections that ended before a request because the TLS handshake failed, for instance for want of an accepted client certificate.",
		}),
	}
	m.registry.MustRegister(c.expiry, c.reloadErrors, c.refused)
	return c
}

// Expires notes when the certificate of a kind expires.
func (c *Certificates) Expires(kind string, at time.Time) {
	c.expiry.WithLabelValues(kind).Set(float64(at.Unix()))
}

// ReloadFailed counts a change of the files that cannot be used.
func (c *Certificates) ReloadFailed() {
	c.reloadErrors.Inc()
}

// HandshakeFailed counts a connection that was refused.
func (c *Certificates) HandshakeFailed() {
	c.refused.Inc()
}
