package flow

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// troubles counts the virtual volumes with which something is wrong now.
type troubles struct {
	gauge *prometheus.GaugeVec

	mu   sync.Mutex
	kept map[types.UID]trouble
}

type trouble struct{ cluster, reason string }

func newTroubles() *troubles {
	return &troubles{kept: map[types.UID]trouble{}, gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lodestone_provisioner_volumes_in_trouble",
		Help: "Virtual volumes with which something is wrong now, by the cluster of their data and reason.",
	}, []string{"cluster", "reason"})}
}

// trouble notes what is wrong with the volume of a claim; an empty reason or no
// volume means that nothing is.
func (m *Metrics) trouble(claim types.UID, volume *corev1.PersistentVolume, reason string) {
	now := trouble{reason: reason}
	if volume == nil {
		now.reason = ""
	} else if ref, err := backing.RefOf(volume); err == nil {
		now.cluster = ref.Cluster
	}
	t := m.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	before, had := t.kept[claim]
	if had && before == now || !had && now.reason == "" {
		return
	}
	if had {
		t.gauge.WithLabelValues(before.cluster, before.reason).Dec()
		delete(t.kept, claim)
	}
	if now.reason != "" {
		t.kept[claim] = now
		t.gauge.WithLabelValues(now.cluster, now.reason).Inc()
	}
}
