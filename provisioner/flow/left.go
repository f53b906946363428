package flow

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// leftovers counts the backing claims that may hold data and that nothing at home
// stands for any more.
type leftovers struct {
	gauge *prometheus.GaugeVec

	mu   sync.Mutex
	kept map[types.UID]string
}

func newLeftovers() *leftovers {
	return &leftovers{kept: map[types.UID]string{}, gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lodestone_provisioner_backings_left",
		Help: "Backing claims that may hold data and have neither claim nor volume at home, by cluster: kept by policy Retain, or left by a volume that was declared lost.",
	}, []string{"cluster"})}
}

// left notes what is left of a claim, nil for nothing, and says whether that is
// new.
func (m *Metrics) left(claim types.UID, b *decide.Backing) bool {
	l := m.leftovers
	l.mu.Lock()
	defer l.mu.Unlock()
	before, had := l.kept[claim]
	if had && b != nil && before == b.Cluster {
		return false
	}
	if had {
		l.gauge.WithLabelValues(before).Dec()
		delete(l.kept, claim)
	}
	if b == nil {
		return false
	}
	l.kept[claim] = b.Cluster
	l.gauge.WithLabelValues(b.Cluster).Inc()
	return true
}

// tellLeft says once on the RemoteCluster what is left there. Nothing removes it
// but its administrator, and it can be imported again.
func (f *Flow) tellLeft(claim types.UID, b *decide.Backing) {
	if !f.Metrics.left(claim, b) || b.Cluster == keys.Home {
		return
	}
	if remote := f.Clusters.Object(b.Cluster); remote != nil {
		f.Recorder.Event(&corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RemoteCluster", Name: remote.Name, UID: remote.UID}, corev1.EventTypeNormal, "BackingLeft", fmt.Sprintf(
			"real claim %s/%s is there with its data, but no volume at home stands for it: kubectl lodestone import pvc %s --cluster %s gives it a claim again; to be rid of it, take finalizer %s off and then delete it there",
			b.Claim.Namespace, b.Claim.Name, b.Claim.Name, b.Cluster, keys.BackingFinalizer))
	}
}
