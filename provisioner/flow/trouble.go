package flow

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// troubles counts the virtual volumes by how they are.
type troubles struct {
	gauge *prometheus.GaugeVec

	mu     sync.Mutex
	kept   map[types.UID]health
	counts map[health]int
}

// health is how a virtual volume is.
type health struct {
	cluster string
	// phase is that of its backing claim, empty if there is none, unseen if it is not
	// known, or there is no virtual volume yet.
	phase corev1.PersistentVolumeClaimPhase
	// reason is one word for what is wrong with it, empty for nothing.
	reason string
}

// unseen is the phase of a backing claim that was not seen yet.
const unseen corev1.PersistentVolumeClaimPhase = "?"

func newTroubles() *troubles {
	return &troubles{kept: map[types.UID]health{}, counts: map[health]int{}, gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lodestone_provisioner_volumes_in_trouble",
		Help: "Virtual volumes with which something is wrong now, and claims whose volume is long in coming, by the cluster of their data and reason.",
	}, []string{"cluster", "reason"})}
}

// see notes how the volume of a claim is, from what was observed of it and what is
// done about it. Where nothing is known now, what was known holds, but for what is
// wrong by then.
func (m *Metrics) see(o decide.Observation, step decide.Step) {
	if o.Volume != nil && step.Unknown && step.Trouble == "" {
		return
	}
	t := m.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	before, had := t.kept[o.UID]
	now, has := healthOf(o, step)
	switch {
	case o.Volume == nil || !step.Unknown:
	case had:
		now.phase = before.phase
	default:
		now.phase = unseen
	}
	if had == has && before == now {
		return
	}
	if had {
		t.add(before, -1)
		delete(t.kept, o.UID)
	}
	if has {
		t.kept[o.UID] = now
		t.add(now, 1)
	}
}

func healthOf(o decide.Observation, step decide.Step) (now health, has bool) {
	if o.Volume == nil {
		return health{cluster: step.Backing.Cluster, phase: unseen, reason: step.Trouble}, step.Trouble != ""
	}
	ref, err := backing.RefOf(o.Volume)
	if err != nil {
		return health{reason: step.Trouble}, step.Trouble != ""
	}
	now = health{cluster: ref.Cluster, reason: step.Trouble}
	for _, b := range o.Backings {
		if b.Cluster == ref.Cluster && b.Claim.UID == ref.UID {
			now.phase = b.Claim.Status.Phase
		}
	}
	return now, true
}

// add counts a volume more or less. The lock is held.
func (t *troubles) add(h health, n int) {
	if t.counts[h] += n; t.counts[h] == 0 {
		delete(t.counts, h)
	}
	if h.reason != "" {
		t.gauge.WithLabelValues(h.cluster, h.reason).Add(float64(n))
	}
}

// Health returns how the volumes of a cluster are; nil until each of them was seen,
// of which there are so many.
func (m *Metrics) Health(cluster string, volumes int) *v1alpha1.VolumeHealth {
	t := m.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	result, seen, wrong := &v1alpha1.VolumeHealth{}, 0, map[string]int{}
	for h, n := range t.counts {
		if h.cluster != cluster {
			continue
		}
		if h.phase != unseen {
			seen += n
		}
		switch h.phase {
		case corev1.ClaimBound:
			result.Bound += n
		case corev1.ClaimPending:
			result.Pending += n
		default:
			// It has a trouble that says so.
		}
		if h.reason != "" {
			wrong[h.reason] += n
		}
	}
	if seen < volumes {
		return nil
	}
	for reason, n := range wrong {
		result.Troubles = append(result.Troubles, v1alpha1.VolumeTrouble{Reason: reason, Volumes: n})
	}
	slices.SortFunc(result.Troubles, func(a, b v1alpha1.VolumeTrouble) int { return strings.Compare(a.Reason, b.Reason) })
	return result
}

// troubled returns the claims with whose volumes in a cluster something is wrong
// although their backing claims are bound.
func (m *Metrics) troubled(cluster, reason string) []types.UID {
	t := m.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	var claims []types.UID
	if t.counts[health{cluster: cluster, phase: corev1.ClaimBound, reason: reason}] == 0 {
		return nil // As it mostly is.
	}
	for claim, h := range t.kept {
		if h.cluster == cluster && h.reason == reason && h.phase == corev1.ClaimBound {
			claims = append(claims, claim)
		}
	}
	return claims
}
