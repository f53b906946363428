package decide_test

import (
	"slices"
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

// TestMovesNeverHarm runs many moves in a world in which requests get lost, movers
// die, clusters go away, disks lie, pods are deleted by force and run on, and users change their mind, and checks at every
// instant that a whole copy exists and that at most one can be in use; at the end
// nothing may be left behind.
func TestMovesNeverHarm(t *testing.T) {
	ends, forced, copied, forgone := map[v1alpha1.MovePhase]int{}, 0, 0, 0
	for seed := range uint64(200) {
		w := newWorld(t, seed, 1+int(seed%3))
		w.within = seed%4 == 3
		ends[w.walk()]++
		forced += w.forced.happens
		for i, known := range w.decoded().Claims {
			if known.Snapshot != nil {
				copied += w.claims[i].snap.copied
				forgone += min(len(known.Snapshot.Why), 1)
			}
		}
		if t.Failed() {
			return
		}
	}
	require.Greater(t, forced, 50, "too few pods were deleted by force to say anything")
	require.Greater(t, copied, 8, "too few snapshots were copied to say anything")
	require.Greater(t, forgone, 5, "too few snapshots were given up to say anything")
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveDone, v1alpha1.MoveAborted, v1alpha1.MoveFailed} {
		require.Greater(t, ends[phase], 5, "too few moves end as %s to say anything: %v", phase, ends)
	}
}

// TestAnAbortInEachPhase aborts, or deletes, a move as soon as it enters a phase.
func TestAnAbortInEachPhase(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MovePrepare, v1alpha1.MoveProvision, v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce,
		v1alpha1.MoveFence, v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying, v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain} {
		for _, deleted := range []bool{false, true} {
			for seed := range uint64(3) {
				w := newWorld(t, seed, 2)
				w.calm, w.within = true, seed == 2
				end := w.run(func() {
					if r := w.decoded(); r != nil && r.Phase == phase && w.move != nil {
						if deleted && w.move.DeletionTimestamp == nil {
							w.move.DeletionTimestamp = &metav1.Time{Time: w.now}
						} else if !deleted {
							w.move.Spec.Action = v1alpha1.ActionAbort
						}
					}
				})
				want := v1alpha1.MoveAborted
				if !record.Before(phase, v1alpha1.MoveCommit) {
					want = v1alpha1.MoveDone
				}
				require.Equal(t, want, end, "aborted in %s (deleted: %v)", phase, deleted)
			}
		}
	}
}

func TestAMoveGoesThroughItsPhases(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.calm = true
	var phases []v1alpha1.MovePhase
	require.Equal(t, v1alpha1.MoveDone, w.run(func() {
		if r := w.decoded(); r != nil && !slices.Contains(phases, r.Phase) {
			phases = append(phases, r.Phase)
		}
	}))
	require.Equal(t, []v1alpha1.MovePhase{v1alpha1.MovePrepare, v1alpha1.MoveProvision, v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce, v1alpha1.MoveFence,
		v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying, v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain, v1alpha1.MoveFinalize, v1alpha1.MoveDone}, phases)
	require.Equal(t, record.Target, w.claims[0].current(0))
}

// walk runs a move with users who change their mind.
func (w *world) walk() v1alpha1.MovePhase {
	abortAt := 20 + w.r.IntN(300)
	turn := 0
	return w.run(func() {
		turn++
		if turn == abortAt && w.move != nil {
			switch w.r.IntN(5) {
			case 0:
				w.move.Spec.Action = v1alpha1.ActionAbort
			case 1:
				w.move.DeletionTimestamp = &metav1.Time{Time: w.now}
			case 2:
				w.move.Spec.Action = v1alpha1.ActionFinalize
			case 3:
				w.move.Spec.Action = v1alpha1.ActionGiveUp
			}
		}
		if turn > 600 {
			w.calm = true
			clear(w.down)
		}
	})
}

// run runs a move to its end, and returns how it ended.
func (w *world) run(meddle func()) v1alpha1.MovePhase {
	w.move.Spec.KeepSourceFor = &metav1.Duration{Duration: time.Minute}
	for range 3000 {
		w.live()
		meddle()
		w.check()
		o := w.observe()
		step := decide.Next(o)
		if o.Record != nil && o.Record.Over() {
			w.settled(o.Record)
			return o.Record.Phase
		}
		for _, one := range append([]decide.Step{step}, step.Also...) {
			if end := one.End; end != "" && w.down[end] {
				w.must(false, "a request to a cluster that does not answer: %s %s", one.Verb, end)
			}
			// Now and then a request does not arrive.
			if w.calm || w.r.IntN(100) >= 15 {
				w.apply(one)
			}
			w.check()
		}
	}
	w.must(false, "the move does not end: %+v", decide.Next(w.observe()))
	return ""
}

// settled checks what is left once a move is over.
func (w *world) settled(r *record.Record) {
	for i, c := range w.claims {
		s, d := c.at[record.Source], c.at[record.Target]
		w.must(len(c.claim.Finalizers)+len(c.claim.Labels)+len(c.claim.Annotations) == 0, "something is left on the claim: %+v", c.claim.ObjectMeta)
		// Of an end that was given up everything stays.
		w.must(c.snap.gone() && !c.at[record.Snapped].mover.Exists && c.at[record.Snapped].backing == nil || r.GaveUp(record.Source), "something of a snapshot is left")
		w.must((!s.mover.Exists || r.GaveUp(record.Source)) && (!d.mover.Exists || r.GaveUp(record.Target)), "a mover is left")
		if r.Phase == v1alpha1.MoveDone {
			w.must(c.current(i) == record.Target && (s.backing == nil || r.GaveUp(record.Source)) && d.backing != nil && len(d.backing.Labels)+len(d.backing.Annotations) == 0, "the target is not what it should be")
			continue
		}
		w.must(c.current(i) == record.Source && (d.backing == nil || r.GaveUp(record.Target)) && len(s.backing.Labels) == 0, "the source is not what it was: %+v", s.backing)
		w.must(s.real.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete, "the policy is not what it was")
		w.must(r.Why != "" && slices.Contains(record.Causes, r.Cause), "nobody says why: %s", r.Cause)
		w.must(r.Cause.Wished() == (r.Phase == v1alpha1.MoveAborted), "%s ends as %s", r.Cause, r.Phase)
	}
	for _, p := range w.pods {
		w.must(!p.Gated || p.Leaving || w.claims[0].claim.Labels[keys.Moving] != "", "a pod waits for ever")
	}
}
