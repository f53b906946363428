package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// locks locks the claim, as the controller of claims does when it finds newer data of it.
func (w *world) locks() {
	w.adopts = true
	c := w.claims[0]
	c.claim.Labels[keys.Moving], c.claim.Annotations[keys.Move] = keys.MovingNow, keys.NoMove
	d := c.at[record.Target]
	d.backing, d.content = copyOf(0), 7
	delete(d.backing.Labels, keys.MoveOf)
	delete(d.backing.Annotations, keys.Unpublished)
	d.real = &corev1.PersistentVolume{}
}

// TestAnAdoptionNeverHarms gives a locked claim newer data that exists already, with lost requests, unreachable clusters and users who
// change their mind: no copy is ever removed, pods run on one of them at a time, and a claim that keeps the older one stays locked.
func TestAnAdoptionNeverHarms(t *testing.T) {
	ends := map[v1alpha1.MovePhase]int{}
	for seed := range uint64(300) {
		w := newWorld(t, seed, 1)
		w.claims[0].single, w.claims[0].snap, w.within = false, nil, seed%4 == 3
		w.locks()
		abortAt, turn := w.r.IntN(60), 0
		w.move.Spec.KeepSourceFor = &metav1.Duration{Duration: time.Minute}
		for ended := false; !ended; turn++ {
			require.Less(t, turn, 3000, "seed %d: it does not end: %+v", seed, decide.Next(w.observe()))
			w.live()
			if turn == abortAt && w.move != nil && seed%3 > 0 {
				if seed%3 == 1 {
					w.move.Spec.Action = v1alpha1.ActionAbort
				} else {
					w.move.DeletionTimestamp = &metav1.Time{Time: w.now}
				}
			}
			if turn > 600 {
				w.calm = true
				clear(w.down)
			}
			w.check()
			o := w.observe()
			if ended = o.Record != nil && o.Record.Over() || o.Record == nil && o.Move == nil; ended {
				break
			}
			for _, one := range decide.Next(o).Each() {
				if w.calm || w.r.IntN(100) >= 15 {
					w.apply(one)
				}
				w.check()
			}
		}
		r := w.decoded()
		if r == nil {
			continue // deleted before it began
		}
		ends[r.Phase]++
		c, locked := w.claims[0], w.claims[0].claim.Labels[keys.Moving] != "" && w.claims[0].claim.Annotations[keys.Move] != ""
		require.Empty(t, c.claim.Finalizers, "seed %d: the claim can be deleted", seed)
		if r.Phase == v1alpha1.MoveDone {
			require.Equal(t, record.Target, c.current(0), "seed %d", seed)
			require.False(t, locked, "seed %d: pods wait for ever", seed)
			continue
		}
		require.Equal(t, record.Source, c.current(0), "seed %d", seed)
		require.True(t, locked, "seed %d: pods write to the older data, ended as %s: %s", seed, r.Phase, r.Why)
		for _, p := range w.pods {
			require.False(t, p.Bound && !p.Leaving && p.at == record.Target, "seed %d", seed)
		}
	}
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveDone, v1alpha1.MoveAborted} {
		require.Greater(t, ends[phase], 20, "too few end as %s to say anything: %v", phase, ends)
	}
}

// TestAMoveThatARestoredHomeKnowsLeavesTheClaimLocked is about a backup from while the move was copying.
func TestAMoveThatARestoredHomeKnowsLeavesTheClaimLocked(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce} {
		w := newWorld(t, 3, 1)
		w.calm = true
		w.claims[0].single, w.claims[0].snap = false, nil
		w.turns("the phase of the backup", func(r *record.Record) bool { return r != nil && r.Phase == phase })
		// The target was published since, and used.
		b := w.claims[0].at[record.Target].backing
		delete(b.Labels, keys.MoveOf)
		delete(b.Annotations, keys.Unpublished)
		w.turns("its end", func(r *record.Record) bool { return r != nil && r.Over() })
		c := w.claims[0]
		require.Equal(t, keys.MovingNow, c.claim.Labels[keys.Moving], "restored in %s", phase)
		require.NotEmpty(t, c.claim.Annotations[keys.Move])
		require.Empty(t, c.claim.Finalizers)
		require.NotNil(t, c.at[record.Target].backing, "the newer copy is there")
	}
}
