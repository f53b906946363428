package flow

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

func TestVolumesInTroubleAreCountedOnceAndNoLongerThanTheyAre(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	require.NoError(t, err)
	count := func() map[string]float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		counted := map[string]float64{}
		for _, family := range families {
			if family.GetName() != "lodestone_provisioner_volumes_in_trouble" {
				continue
			}
			for _, metric := range family.GetMetric() {
				counted[metric.GetLabel()[0].GetValue()+" "+metric.GetLabel()[1].GetValue()] = metric.GetGauge().GetValue()
			}
		}
		return counted
	}
	west := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Backing: "west/shop/data/b1"}}}
	m.trouble("u1", west, "")
	assert.Empty(t, count())
	m.trouble("u1", west, "BackingLost")
	m.trouble("u1", west, "BackingLost")
	m.trouble("u2", west, "BackingLost")
	assert.Equal(t, map[string]float64{"west BackingLost": 2}, count())
	m.trouble("u1", west, "BackingMissing")
	assert.Equal(t, map[string]float64{"west BackingLost": 1, "west BackingMissing": 1}, count())
	m.trouble("u1", nil, "BackingMissing")
	m.trouble("u2", west, "")
	assert.Equal(t, map[string]float64{"west BackingLost": 0, "west BackingMissing": 0}, count())
}

func TestWhatIsLeftBehindIsCountedWhileItIsThere(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	west := &decide.Backing{Cluster: "west"}
	count := func() float64 { return testutil.ToFloat64(m.leftovers.gauge.WithLabelValues("west")) }
	assert.False(t, m.left("u1", nil))
	assert.True(t, m.left("u1", west), "it is told of once")
	assert.False(t, m.left("u1", west))
	assert.True(t, m.left("u2", west))
	assert.InDelta(t, 2, count(), 0)
	assert.False(t, m.left("u1", nil))
	assert.InDelta(t, 1, count(), 0)
}
