package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// world is what Kubernetes makes of the steps: the little of it that matters here.
type world struct {
	h    policy.Healing
	uids int
	// inUse: a pod uses the claim.
	inUse bool
	lost  string
}

// react is what the controllers of Kubernetes do by themselves.
func (w *world) react() {
	v, c := w.h.Volume, w.h.Claim
	if c != nil && c.DeletionTimestamp != nil && !slices.Contains(c.Finalizers, keys.BackingFinalizer) && !w.inUse {
		w.h.Claim, c = nil, nil
	}
	if w.h.Namespace != nil && w.h.Namespace.DeletionTimestamp != nil {
		w.inUse = false // its pods are deleted
		switch {
		case c == nil:
			w.h.Namespace = nil
		case c.DeletionTimestamp == nil:
			c.DeletionTimestamp = when
		}
	}
	holds := c != nil && c.UID == v.Spec.ClaimRef.UID && c.Spec.VolumeName == v.Name
	switch {
	case !holds:
		v.Status.Phase = corev1.VolumeReleased
		if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			w.lost = "the real volume was deleted with its data"
		}
	default:
		v.Status.Phase = corev1.VolumeBound
		c.Status.Phase = corev1.ClaimBound
	}
}

// take takes a step of the agent.
func (w *world) take(cure policy.Cure) {
	v, c := w.h.Volume, w.h.Claim
	switch cure {
	case policy.Begin:
		recorded(&w.h)
	case policy.Insist:
		retained(&w.h)
	case policy.LetGo:
		c.Finalizers = nil
	case policy.Rebuild:
		if c != nil {
			w.lost = "a second claim of one name"
		}
		w.uids++
		w.h.Claim = w.h.Record.Shadow(v)
		w.h.Claim.UID, w.h.Claim.Status.Phase = types.UID(fmt.Sprint("new-", w.uids)), corev1.ClaimPending
	case policy.Give:
		if w.h.Refusal != nil || w.h.Namespace == nil || w.h.Namespace.Labels[keys.HomeID] != "h1" {
			w.lost = "a volume given to somebody else"
		}
		v.Spec.ClaimRef.UID = c.UID
	case policy.Protect:
		c.Finalizers = append(c.Finalizers, keys.BackingFinalizer)
	case policy.Touch:
		delete(c.Annotations, keys.Healing)
	case policy.End, policy.Undo:
		if c == nil || c.UID != v.Spec.ClaimRef.UID || !slices.Contains(c.Finalizers, keys.BackingFinalizer) {
			w.lost = "a volume that nothing holds may be deleted"
		}
		v.Spec.PersistentVolumeReclaimPolicy, w.h.Record = w.h.Record.ReclaimPolicy, nil
	default:
	}
}

// disturb is what people do.
func (w *world) disturb(r *rand.Rand) {
	switch r.IntN(11) {
	case 0:
		if w.h.Claim != nil && w.h.Claim.DeletionTimestamp == nil {
			w.h.Claim.DeletionTimestamp = when
		}
	case 1:
		if w.h.Namespace != nil && r.IntN(3) == 0 {
			w.h.Namespace.DeletionTimestamp = when
		}
	case 2:
		w.inUse = w.h.Claim != nil && w.h.Claim.DeletionTimestamp == nil
	case 3:
		w.inUse = false
	case 4:
		w.h.Refusal = nil
		if r.IntN(2) == 0 {
			unwanted(&w.h)
		}
	case 5:
		if w.h.Namespace == nil {
			w.h.Namespace = healing().Namespace
			if r.IntN(3) == 0 {
				w.h.Namespace.Labels = nil // somebody else's
			}
		}
	case 6:
		if w.h.Claim == nil && w.h.Namespace != nil && w.h.Namespace.DeletionTimestamp == nil && r.IntN(4) == 0 {
			w.h.Claim = &corev1.PersistentVolumeClaim{}
			w.h.Claim.UID = "stranger"
		}
	case 7:
		if w.h.Claim != nil && w.h.Claim.UID == "stranger" {
			w.h.Claim = nil
		}
	case 8:
		if w.h.Record != nil && w.h.Claim != nil {
			w.h.Claim.Finalizers = nil
		}
	case 9:
		// Somebody who knows what the shadow was like makes one.
		if w.h.Record != nil && w.h.Claim == nil && w.h.Namespace != nil && w.h.Namespace.DeletionTimestamp == nil {
			w.uids++
			w.h.Claim = w.h.Record.Shadow(w.h.Volume)
			w.h.Claim.UID, w.h.Claim.Status.Phase = types.UID(fmt.Sprint("forged-", w.uids)), corev1.ClaimPending
			w.h.Claim.Annotations, w.h.Claim.Finalizers = nil, nil
		}
	case 10:
		w.notOurs()
	}
}

// notOurs has a namespace that was not made for home go with all that is in it.
func (w *world) notOurs() {
	if w.h.Namespace != nil && w.h.Namespace.Labels == nil {
		w.h.Namespace, w.h.Claim, w.inUse = nil, nil, false
	}
}

// TestHealNeverLosesAVolume walks at random: steps of the agent, of which any may
// be its last for a while, among what Kubernetes and people do. Then people stop.
func TestHealNeverLosesAVolume(t *testing.T) {
	cures := map[policy.Cure]int{}
	for seed := range uint64(6_000) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := &world{h: healing()}
		step := func() {
			cure := policy.Heal(w.h).Cure
			cures[cure]++
			w.take(cure)
		}
		for range 5 + r.IntN(40) {
			[]func(){step, step, w.react, w.react, func() { w.disturb(r) }}[r.IntN(5)]()
			require.Empty(t, w.lost, "seed %d: %+v", seed, w.h)
		}
		w.h.Refusal, w.inUse = nil, false
		w.notOurs()
		if w.h.Claim != nil && w.h.Claim.UID == "stranger" {
			w.h.Claim = nil
		}
		for range 40 {
			step()
			w.react()
			if w.h.Namespace == nil {
				w.h.Namespace = healing().Namespace
			}
			require.Empty(t, w.lost, "seed %d: %+v", seed, w.h)
		}
		require.Nil(t, w.h.Record, "seed %d: healed in the end", seed)
		require.Equal(t, corev1.PersistentVolumeReclaimDelete, w.h.Volume.Spec.PersistentVolumeReclaimPolicy, "seed %d", seed)
		require.NotNil(t, w.h.Claim, "seed %d", seed)
		require.Nil(t, w.h.Claim.DeletionTimestamp, "seed %d", seed)
		require.Equal(t, w.h.Claim.UID, w.h.Volume.Spec.ClaimRef.UID, "seed %d", seed)
		require.Equal(t, []string{keys.BackingFinalizer}, w.h.Claim.Finalizers, "seed %d", seed)
	}
	for _, cure := range []policy.Cure{policy.Rest, policy.Abide, policy.Begin, policy.LetGo, policy.Rebuild, policy.Give, policy.Protect, policy.Touch, policy.End, policy.Undo} {
		require.Greater(t, cures[cure], 20, "too few walks lead to %s to say anything", cure)
	}
}
