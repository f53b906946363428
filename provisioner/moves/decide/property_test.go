package decide_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// TestMovesNeverHarm simulates many moves with lost requests, crashing movers, unreachable
// clusters, corrupt disks, force-deleted pods that run on, and users who change their mind.
// After every action it checks that one complete copy exists and that at most one is in
// use; at the end nothing may be left behind.
func TestMovesNeverHarm(t *testing.T) {
	ends, forced, copied, forgone, together, apart := map[v1alpha1.MovePhase]int{}, 0, 0, 0, 0, 0
	for seed := range uint64(200) {
		w := newWorld(t, seed, 1+int(seed%3))
		w.within, w.open = seed%4 == 3, seed%11 == 5
		ends[w.walk()]++
		forced += w.forced.happens
		for i, known := range w.decoded().Claims {
			if known.Snapshot != nil {
				copied += w.claims[i].snap.copied
				forgone += min(len(known.Snapshot.Why), 1)
			}
		}
		if g := w.decoded().Group; g != nil {
			together += w.group.taken
			apart += min(len(g.Why), 1)
		}
		if t.Failed() {
			return
		}
	}
	require.Greater(t, together, 5, "too few snapshots were taken together to say anything")
	require.Greater(t, apart, 2, "too few of these were given up to say anything")
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
	require.Equal(t, []v1alpha1.MovePhase{v1alpha1.MovePrepare, v1alpha1.MoveProvision, v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce,
		v1alpha1.MoveFence,
		v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying, v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain, v1alpha1.MoveFinalize,
		v1alpha1.MoveDone}, phases)
	require.Equal(t, record.Target, w.claims[0].current(0))
}

// TestWhilePodsStandStillNoStepWaitsLong: a stop is short only if each wait in it looks again at once, and none is for the interval at
// which a mover is asked otherwise, or longer.
func TestWhilePodsStandStillNoStepWaitsLong(t *testing.T) {
	waited := map[v1alpha1.MovePhase]int{}
	for seed := range uint64(60) {
		w := newWorld(t, seed, 1+int(seed%3))
		w.calm, w.within = true, seed%4 == 3
		w.run(func() {
			o := w.observe()
			if r := o.Record; r == nil || r.Down.IsZero() || !r.Up.IsZero() || o.Now.Sub(r.Down) > time.Minute {
				return
			}
			if step := decide.Next(o); step.Action == nil {
				waited[o.Record.Phase]++
				require.LessOrEqual(t, step.After, steps.Often, "in %s: %s", o.Record.Phase, step.Say)
			}
		})
	}
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveQuiesce, v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying, v1alpha1.MoveCommit} {
		require.Positive(t, waited[phase], "nothing was waited for in %s: %v", phase, waited)
	}
}

// walk runs a move with users who change their mind, and what else happens in each turn.
func (w *world) walk(also ...func()) v1alpha1.MovePhase {
	abortAt := 20 + w.r.IntN(300)
	turn := 0
	return w.run(func() {
		turn++
		for _, happens := range also {
			happens()
		}
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

// run runs a move to its end and returns its last phase.
func (w *world) run(meddle func()) v1alpha1.MovePhase {
	w.move.Spec.KeepSourceFor = &metav1.Duration{Duration: time.Minute}
	for range 3000 {
		w.live()
		meddle()
		w.check()
		o := w.observe()
		if o.Record != nil && o.Record.Over() {
			w.settled(o.Record)
			return o.Record.Phase
		}
		for goesOn := true; goesOn; {
			step := decide.Next(o)
			for _, one := range step.Each() {
				if end := one.Subject().End; end != "" && w.down[end] {
					w.must(false, "a request to a cluster that does not answer: %s %s", one.Verb(), end)
				}
				// Some requests are lost.
				if w.calm || w.r.IntN(100) >= 15 {
					w.apply(one)
				}
				w.check()
			}
			before := o.Record
			o.Record = w.decoded()
			// Others act meanwhile.
			if goesOn = o.Record != before && decide.GoesOn(o, step.Saved()); goesOn && w.r.IntN(2) == 0 {
				chance := func(percent int) bool { return w.r.IntN(100) < percent }
				for i, c := range w.claims {
					w.moverLives(i, c, chance)
				}
				w.podsLive(chance)
				w.check()
			}
		}
	}
	w.must(false, "the move does not end: %+v", decide.Next(w.observe()))
	return ""
}

// settled checks what is left after a move has ended.
func (w *world) settled(r *record.Record) {
	for i, c := range w.claims {
		s, d := c.at[record.Source], c.at[record.Target]
		w.must(len(c.claim.Finalizers)+len(c.claim.Labels)+len(c.claim.Annotations) == 0, "something is left on the claim: %+v",
			c.claim.ObjectMeta)
		// Everything at an end that was given up stays.
		w.must(c.snap.gone() && !c.at[record.Snapped].mover.Exists && c.at[record.Snapped].backing == nil || r.GaveUp(record.Source),
			"something of a snapshot is left")
		_, labelled := labelsOf(s.backing)[r.GroupLabel()]
		w.must((w.group == nil || !w.group.exists) && !labelled || r.GaveUp(record.Source), "something of a snapshot of several claims is left")
		w.must((!s.mover.Exists || r.GaveUp(record.Source)) && (!d.mover.Exists || r.GaveUp(record.Target)), "a mover is left")
		if r.Phase == v1alpha1.MoveDone {
			w.must(c.current(i) == record.Target && (s.backing == nil || r.GaveUp(record.Source)) && d.backing != nil && len(d.backing.Labels)+
				len(marksOf(d.backing)) == 0, "the target is not what it should be")
			w.must(w.keeper == nil || d.real.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete,
				"the policy is not what it was")
			continue
		}
		left := d.backing == nil || w.keeper != nil && (w.keeper.isWhole(i) || w.keeper.isLate(i))
		w.must(c.current(i) == record.Source && (left || r.GaveUp(record.Target)) && len(s.backing.Labels) == 0,
			"the source is not what it was: %+v", s.backing)
		w.must(s.real.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete, "the policy is not what it was")
		w.must(r.Why != "" && slices.Contains(record.Causes, r.Cause), "nobody says why: %s", r.Cause)
		w.must(r.Cause.IsWished() == (r.Phase == v1alpha1.MoveAborted), "%s ends as %s", r.Cause, r.Phase)
	}
	for _, p := range w.pods {
		w.must(!p.Gated || p.Leaving || w.claims[0].claim.Labels[keys.Moving] != "", "a pod waits for ever")
	}
}

// named says whether a virtual volume names the target.
func (w *world) named() bool {
	for i, c := range w.claims {
		if c.current(i) == record.Target {
			return true
		}
	}
	return false
}

// TestATargetThatIsGoneInCommitIsLeftWhileNobodyCanHaveUsedIt removes the target after each
// number of steps of Commit.
func TestATargetThatIsGoneInCommitIsLeftWhileNobodyCanHaveUsedIt(t *testing.T) {
	early, late := 0, 0
	for taken := range 16 {
		for seed := range uint64(6) {
			w := newWorld(t, seed, 2)
			w.within = seed == 5
			w.turns("the phase", at(v1alpha1.MoveCommit))
			for range taken {
				w.live()
				w.apply(decide.Next(w.observe()))
				w.check()
			}
			if w.decoded().Phase != v1alpha1.MoveCommit {
				continue
			}
			w.down[record.Target] = true
			w.down[record.Source] = w.within
			named := w.named()
			for range 5 {
				w.stays("nobody has said that the cluster is gone")
			}
			require.Equal(t, v1alpha1.MoveCommit, w.decoded().Phase)
			require.Equal(t, steps.ClusterAway, decide.Next(w.observe()).Need)
			if seed%2 == 0 {
				w.move.Spec.Action = v1alpha1.ActionGiveUp
			} else {
				w.gone = map[record.End]bool{record.Target: true}
			}
			if named {
				late++
				w.stays("pods may have used the target")
				assert.Contains(t, decide.Next(w.observe()).Say, "ask for help")
				clear(w.down)
				w.move.Spec.KeepSourceFor = &metav1.Duration{}
				w.turns("the end", afterEnd)
				require.Equal(t, v1alpha1.MoveDone, w.decoded().Phase)
				continue
			}
			early++
			w.turns("a claim that is free", func(r *record.Record) bool { return r.Freed })
			w.free(record.Source)
			if w.within {
				// Both the source and the target come back.
				w.stays("the data is in that cluster")
				clear(w.down)
			}
			w.turns("the end", afterEnd)
			require.Equal(t, v1alpha1.MoveAborted, w.decoded().Phase)
			w.turns("a pod at the source", func(*record.Record) bool { return len(w.pods) > 0 && w.pods[0].Bound && w.pods[0].at == record.Source })
			w.settled(w.decoded())
			assert.Equal(t, w.within, w.claims[0].at[record.Target].backing == nil,
				"of a cluster that was given up everything stays, of another nothing")
		}
	}
	require.Greater(t, early, 5)
	require.Greater(t, late, 5)
}

func TestARealClaimThatIsGoneInCommitEndsTheMoveIfItIsGivenUp(t *testing.T) {
	w := newWorld(t, 0, 2)
	w.turns("the phase", at(v1alpha1.MoveCommit))
	gone := w.claims[0].at[record.Target]
	gone.backing, gone.real, gone.content = nil, nil, -1
	w.stays("nobody has given it up")
	step := decide.Next(w.observe())
	assert.Equal(t, steps.CopyGone, step.Need)
	assert.Contains(t, step.Say, "real claim n/target-0 of the target is gone; if it is gone for ever, kubectl lodestone move give-up m -n "+
		"shop ")
	w.move.Spec.Action = v1alpha1.ActionGiveUp
	w.turns("the end", afterEnd)
	w.settled(w.decoded())
	w.free(record.Source)
	assert.Nil(t, w.claims[1].at[record.Target].backing, "the other copy was an ordinary claim already, and goes too")
	assert.Equal(t, corev1.PersistentVolumeReclaimDelete, w.claims[0].at[record.Source].real.Spec.PersistentVolumeReclaimPolicy)

	// A target that is there is not given up.
	w = newWorld(t, 0, 1)
	w.turns("the phase", at(v1alpha1.MoveCommit))
	w.move.Spec.Action = v1alpha1.ActionGiveUp
	w.turns("the end", afterEnd)
	assert.Equal(t, v1alpha1.MoveDone, w.decoded().Phase)
}

// turns runs a world without faults until a condition holds, and returns the move's last
// message.
func (w *world) turns(what string, done func(*record.Record) bool) string {
	w.calm = true
	for range 600 {
		w.live()
		w.check()
		if r := w.decoded(); r != nil && done(r) {
			return decide.Next(w.observe()).Say
		}
		step := decide.Next(w.observe())
		end := step.Subject().End
		w.must(end == "" || !w.down[end], "a request to a cluster that does not answer: %s %s", step.Verb(), end)
		w.apply(step)
		w.check()
	}
	w.must(false, "%s does not come: %+v", what, decide.Next(w.observe()))
	return ""
}

// stays runs a world for a while in which a move must not end.
func (w *world) stays(why string) {
	for range 30 {
		w.live()
		w.apply(decide.Next(w.observe()))
		w.check()
		w.must(!w.decoded().Over(), "%s", why)
	}
}

func at(phase v1alpha1.MovePhase) func(*record.Record) bool {
	return func(r *record.Record) bool { return r.Phase == phase }
}

func afterEnd(r *record.Record) bool { return r.Over() }

var beforeCommit = []v1alpha1.MovePhase{v1alpha1.MovePrepare, v1alpha1.MoveProvision, v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce,
	v1alpha1.MoveFence, v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying}

// free checks that the claims are released and that pods use them.
func (w *world) free(end record.End) {
	r := w.decoded()
	w.must(!r.Holds() && !r.Busy(), "the claims are held in phase %s", r.Phase)
	for i, c := range w.claims {
		w.must(len(c.claim.Finalizers)+len(c.claim.Labels)+len(c.claim.Annotations) == 0, "something is left on the claim: %+v",
			c.claim.ObjectMeta)
		w.must(c.current(i) == end, "the claim has its volume at the %s", c.current(i))
	}
}

func TestATargetThatIsGoneForGoodDoesNotKeepTheClaims(t *testing.T) {
	for _, phase := range beforeCommit {
		for _, ends := range []string{"asked", "removed"} {
			for seed := range uint64(2) {
				w := newWorld(t, seed, 2)
				w.turns("the phase", at(phase))
				w.down[record.Target] = true
				w.move.Spec.Action = v1alpha1.ActionAbort
				w.turns("a claim that is free", func(r *record.Record) bool { return r.Freed })
				w.free(record.Source)
				w.turns("a pod at the source", func(*record.Record) bool { return len(w.pods) > 0 && w.pods[0].Bound && w.pods[0].at == record.Source })
				for _, c := range w.claims {
					w.must(c.at[record.Source].real.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete,
						"the policy is not what it was")
					w.must(!c.at[record.Source].mover.Exists, "a mover is left at the source")
				}
				w.stays("nobody has said that the cluster is gone")
				assert.Contains(t, decide.Next(w.observe()).Say, "kubectl lodestone move give-up")
				assert.Equal(t, steps.ClusterAway, decide.Next(w.observe()).Need)
				if ends == "asked" {
					w.move.Spec.Action = v1alpha1.ActionGiveUp
				} else {
					w.gone = map[record.End]bool{record.Target: true}
				}
				w.turns("the end", afterEnd)
				assert.Equal(t, v1alpha1.MoveAborted, w.decoded().Phase)
				assert.Equal(t, []record.End{record.Target}, w.decoded().GivenUp)
				for _, says := range []string{"cluster west was given up", "real claim n/target-0", "n/move-m1-1-target"} {
					assert.Contains(t, w.decoded().LeftBehind(), says)
				}
			}
		}
	}
}

func TestATargetIsGivenUpInOneStep(t *testing.T) {
	for _, phase := range beforeCommit {
		w := newWorld(t, 0, 1)
		w.turns("the phase", at(phase))
		w.down[record.Target] = true
		w.move.Spec.Action = v1alpha1.ActionGiveUp
		w.turns("the end", afterEnd)
		w.free(record.Source)
		assert.Equal(t, "the move was given up", w.decoded().Why)
	}
	// An end that answers is cleaned up as usual.
	w := newWorld(t, 0, 1)
	w.turns("the phase", at(v1alpha1.MovePreCopy))
	w.move.Spec.Action = v1alpha1.ActionGiveUp
	w.turns("the end", afterEnd)
	assert.Empty(t, w.decoded().GivenUp)
	w.settled(w.decoded())
}

// awayFrom creates a world whose source is in a remote cluster.
func awayFrom(t *testing.T, seed uint64) *world {
	w := newWorld(t, seed, 2)
	w.within = true
	w.turns("a record", func(*record.Record) bool { return true })
	return w
}

func TestASourceThatIsGoneBeforeCommitIsNotPretendedToBeThere(t *testing.T) {
	for _, phase := range beforeCommit {
		w := awayFrom(t, 0)
		w.turns("the phase", at(phase))
		w.down[record.Source] = true
		w.move.Spec.Action = v1alpha1.ActionAbort
		if record.Before(v1alpha1.MoveProvision, phase) {
			require.NotNil(t, w.claims[0].at[record.Target].backing)
		}
		w.turns("a claim that is free", func(r *record.Record) bool { return r.Freed })
		w.free(record.Source)
		w.move.Spec.Action = v1alpha1.ActionGiveUp
		w.gone = map[record.End]bool{record.Source: true}
		w.stays("what was copied is all that there is")
		say := decide.Next(w.observe()).Say
		assert.NotContains(t, say, "in use")
		for _, says := range []string{"no pod can use them", "not the whole data and is kept", "kubectl lodestone lose pvc"} {
			assert.Contains(t, say, says)
		}
		if record.Before(v1alpha1.MoveProvision, phase) {
			assert.NotNil(t, w.claims[0].at[record.Target].backing, "%s", phase)
		}
		w.move.Spec.Action, w.gone = v1alpha1.ActionAbort, nil
		w.claims[0].volume.Annotations[keys.Lost] = "yes"
		w.stays("the data of the other claim may be wanted")
		deleted := w.observe()
		deleted.Claims[1].Claim, deleted.Claims[1].Volume = nil, nil
		assert.Equal(t, "Save", decide.Next(deleted).Verb(), "nothing is left of that claim")
		w.claims[1].volume.Annotations[keys.Lost] = "yes"
		w.turns("the end", afterEnd)
		assert.Equal(t, []record.End{record.Source}, w.decoded().GivenUp)
		assert.NotContains(t, w.decoded().LeftBehind(), "real claim", "the move has left no claim there")
		assert.Nil(t, w.claims[0].at[record.Target].backing)
	}
}

func TestASourceThatIsGoneAfterCommitDoesNotKeepTheMove(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain, v1alpha1.MoveFinalize} {
		for _, ends := range []string{"asked", "removed"} {
			w := awayFrom(t, 0)
			w.move.Spec.KeepSourceFor = &metav1.Duration{}
			w.turns("the phase", at(phase))
			w.down[record.Source] = true
			w.turns("the last phase", at(v1alpha1.MoveFinalize))
			w.stays("nobody has said that the cluster is gone")
			assert.Contains(t, decide.Next(w.observe()).Say, "kubectl lodestone move give-up")
			assert.Equal(t, steps.ClusterAway, decide.Next(w.observe()).Need)
			if ends == "asked" {
				w.move.Spec.Action = v1alpha1.ActionGiveUp
			} else {
				w.gone = map[record.End]bool{record.Source: true}
			}
			w.turns("the end", afterEnd)
			assert.Equal(t, v1alpha1.MoveDone, w.decoded().Phase)
			assert.Contains(t, w.decoded().LeftBehind(), "real claim n/source-0")
			w.free(record.Target)
		}
	}
}

func TestACleanUpTouchesNothingOfTheNextMove(t *testing.T) {
	w := newWorld(t, 0, 1)
	w.turns("the phase", at(v1alpha1.MoveFinalSync))
	w.down[record.Target] = true
	w.move.Spec.Action = v1alpha1.ActionAbort
	w.turns("a claim that is free", func(r *record.Record) bool { return r.Freed })
	o := w.observe()
	o.Claims[0].Claim.Annotations = map[string]string{keys.Move: "another", keys.MoveTouched: "Fence"}
	o.Claims[0].Claim.Labels, o.Claims[0].Claim.Finalizers = map[string]string{keys.Moving: keys.MovingNow}, []string{keys.MoveFinalizer}
	o.Claims[0].Volume = nil
	o.Claims[0].Source.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	o.Pods = []steps.Pod{{Name: "db-0", Gated: true, Owned: true}}
	assert.Equal(t, "Idle", decide.Next(o).Verb())
	o.Source.Unusable, o.Target.Unusable = "", ""
	o.Claims[0].Target = steps.Side{Backing: w.claims[0].at[record.Target].backing}
	assert.Equal(t, "DropBacking", decide.Next(o).Verb())
}

// marksOf are the annotations of a real claim, without its generation.
func marksOf(b *corev1.PersistentVolumeClaim) map[string]string {
	marks := maps.Clone(b.Annotations)
	delete(marks, keys.Generation)
	return marks
}

func labelsOf(b *corev1.PersistentVolumeClaim) map[string]string {
	if b == nil {
		return nil
	}
	return b.Labels
}
