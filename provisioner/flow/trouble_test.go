package flow

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
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
	seen := func(claim types.UID, volume *corev1.PersistentVolume, phase corev1.PersistentVolumeClaimPhase, step decide.Step) {
		o := decide.Observation{UID: claim, Volume: volume}
		if phase != "" {
			o.Backings = []decide.Backing{{Cluster: "west", Claim: &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{UID: "b1"}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}}}
		}
		m.see(o, step)
	}
	lost, missing := decide.Step{Trouble: "BackingLost"}, decide.Step{Trouble: "BackingMissing"}
	seen("u1", west, corev1.ClaimBound, decide.Step{})
	assert.Empty(t, count())
	seen("u1", west, corev1.ClaimLost, lost)
	seen("u1", west, corev1.ClaimLost, lost)
	seen("u2", west, corev1.ClaimLost, lost)
	assert.Equal(t, map[string]float64{"west BackingLost": 2}, count())
	seen("u5", west, corev1.ClaimBound, decide.Step{Trouble: decide.BackingNodeGone})
	assert.Equal(t, []types.UID{"u5"}, m.troubled("west", decide.BackingNodeGone))
	seen("u5", nil, "", decide.Step{})
	assert.Empty(t, m.troubled("west", decide.BackingNodeGone))
	seen("u1", west, "", missing)
	assert.Equal(t, map[string]float64{"west BackingLost": 1, "west BackingMissing": 1, "west BackingNodeGone": 0}, count())
	seen("u1", west, "", decide.Step{Unknown: true})
	assert.Equal(t, map[string]float64{"west BackingLost": 1, "west BackingMissing": 1, "west BackingNodeGone": 0}, count(), "what was known holds while nothing is")

	seen("u3", west, corev1.ClaimBound, decide.Step{})
	seen("u4", west, corev1.ClaimPending, decide.Step{})
	assert.Nil(t, m.Health("west", 5), "one was not seen yet")
	assert.Equal(t, &v1alpha1.VolumeHealth{Bound: 1, Pending: 1, Troubles: []v1alpha1.VolumeTrouble{{Reason: "BackingLost", Volumes: 1}, {Reason: "BackingMissing", Volumes: 1}}}, m.Health("west", 4))
	assert.Equal(t, &v1alpha1.VolumeHealth{}, m.Health("east", 0))

	seen("u1", nil, "", decide.Step{Unknown: true})
	seen("u2", west, corev1.ClaimBound, decide.Step{})
	assert.Equal(t, map[string]float64{"west BackingLost": 0, "west BackingMissing": 0, "west BackingNodeGone": 0}, count())
	assert.Equal(t, &v1alpha1.VolumeHealth{Bound: 2, Pending: 1}, m.Health("west", 3))
}

func TestTheTroubleOfAVolumeThatNobodySeesIsCountedBesideWhatWasKnown(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	west := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Backing: "west/shop/data/b1"}}}
	away := decide.Step{Unknown: true, Trouble: "ClusterNotUsable"}
	m.see(decide.Observation{UID: "u1", Volume: west, Backings: []decide.Backing{{Cluster: "west", Claim: &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{UID: "b1"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}}}}, decide.Step{})
	m.see(decide.Observation{UID: "u1", Volume: west}, away)
	wrong := []v1alpha1.VolumeTrouble{{Reason: "ClusterNotUsable", Volumes: 1}}
	assert.Equal(t, &v1alpha1.VolumeHealth{Bound: 1, Troubles: wrong}, m.Health("west", 1), "it was bound")

	m.see(decide.Observation{UID: "u2", Volume: west}, away)
	assert.Nil(t, m.Health("west", 2), "of one nobody knows")
	m.see(decide.Observation{UID: "u2"}, decide.Step{Trouble: "BackingPending", Backing: decide.Backing{Cluster: "west"}})
	wrong = append([]v1alpha1.VolumeTrouble{{Reason: "BackingPending", Volumes: 1}}, wrong...)
	assert.Equal(t, &v1alpha1.VolumeHealth{Bound: 1, Troubles: wrong}, m.Health("west", 1), "a claim without a volume is not one of its volumes")
}
