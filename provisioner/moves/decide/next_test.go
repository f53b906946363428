package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// earlier is a committed move of a world's claims: it has brought them to the source of the world's own move, and keeps
// the copies that they had before.
type earlier struct {
	world  *world
	move   *v1alpha1.VolumeMove
	record *record.Record
	kept   []*corev1.PersistentVolumeClaim
}

// newEarlier is such a move whose pods run at its target, and whose claims may be moved again.
func newEarlier(w *world, keep time.Duration) *earlier {
	a := &earlier{world: w, move: &v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "first", UID: "m0"},
		Spec: v1alpha1.VolumeMoveSpec{Action: v1alpha1.ActionMove, KeepSourceFor: &metav1.Duration{Duration: keep}}}}
	a.record = &record.Record{UID: "m0", Namespace: "shop", Name: "first", Phase: v1alpha1.MoveRetain, Freed: true,
		Began: map[v1alpha1.MovePhase]time.Time{v1alpha1.MoveRetain: w.now}}
	for i, c := range w.claims {
		before := backing.Ref{Cluster: "west", Namespace: "n", Name: "kept-" + c.claim.Name, UID: "kept-" + c.claim.UID}
		a.record.Claims = append(a.record.Claims, record.Claim{Name: c.claim.Name, UID: c.claim.UID, Volume: virtual(i, record.Source),
			New: virtual(i, record.Source), Generation: 1, Source: record.Copy{Ref: before}, Target: record.Copy{Ref: ref(record.Source, i)}})
		a.kept = append(a.kept, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: before.Name, UID: before.UID,
			Labels: map[string]string{keys.MoveOf: "m0"}}})
	}
	return a
}

func (a *earlier) observe() steps.Observation {
	w := a.world
	o := steps.Observation{Now: w.now, Settling: 10 * time.Second, Move: a.move, Record: a.record}
	if next := w.decoded(); next != nil && next.Holds() {
		o.Next = next.Name
	}
	if w.down[record.Source] {
		o.Target.Unusable = "it does not answer"
	}
	for i, c := range w.claims {
		seen := steps.Claim{Target: w.side(c, record.Source), Source: steps.Side{Backing: a.kept[i]}}
		// The movers there are those of the world's own move.
		seen.Target.Mover = movers.State{}
		if c.claim != nil {
			seen.Claim = c.claim.DeepCopy()
		}
		if c.volume != nil {
			seen.Volume = c.volume.DeepCopy()
		}
		if seen.Now.Ref = ref(record.Target, i); w.down[record.Target] {
			seen.Now.Unusable = "it does not answer"
		} else {
			seen.Now.Side = w.side(c, record.Target)
		}
		o.Claims = append(o.Claims, seen)
	}
	for _, p := range w.pods {
		o.Pods = append(o.Pods, p.Pod)
	}
	return o
}

// turn takes the next step of the earlier move, which may touch nothing but the copies that it keeps.
func (a *earlier) turn() {
	w := a.world
	if w.decoded() == nil {
		return // without a next move its copies may go
	}
	for _, one := range decide.Next(a.observe()).Each() {
		switch action := one.Action.(type) {
		case nil:
		case steps.Save:
			a.record = action.Record
		case steps.DropBacking:
			w.must(!w.decoded().Holds(), "a copy of the earlier move is removed before the next one is over or committed")
			a.kept[action.Claim] = nil
		default:
			w.must(false, "an earlier move does %s to what another one moves", one.Verb())
		}
	}
}

// copies returns how many copies the earlier move keeps.
func (a *earlier) copies() (n int) {
	for _, b := range a.kept {
		if b != nil {
			n++
		}
	}
	return n
}

// TestAnEarlierCopyIsKeptUntilTheNextMoveIsCommitted runs a move, with all that may happen to it, beside an earlier one of the
// same claims that still keeps its copies.
func TestAnEarlierCopyIsKeptUntilTheNextMoveIsCommitted(t *testing.T) {
	ends := map[v1alpha1.MovePhase]int{}
	for seed := range uint64(150) {
		w := newWorld(t, seed, 1+int(seed%2))
		keep := time.Duration(0) // its time is over
		if seed%4 > 1 {
			keep = 1000 * time.Hour
		}
		a := newEarlier(w, keep)
		end := w.walk(a.turn)
		if t.Failed() {
			return
		}
		ends[end]++
		clear(w.down)
		w.calm = true
		for range 300 {
			w.live()
			a.turn()
		}
		if end != v1alpha1.MoveDone && keep > 0 {
			require.Equal(t, len(w.claims), a.copies(), "seed %d: the next move came to nothing (%s), and the copy is still wanted", seed, end)
			continue
		}
		require.True(t, a.record.Over(), "seed %d: the earlier move does not end: %+v", seed, decide.Next(a.observe()))
		require.Zero(t, a.copies(), "seed %d", seed)
		require.Equal(t, end == v1alpha1.MoveDone, a.record.MovedOn, "seed %d: it says why", seed)
	}
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveDone, v1alpha1.MoveAborted, v1alpha1.MoveFailed} {
		require.Greater(t, ends[phase], 5, "too few moves end as %s to say anything: %v", phase, ends)
	}
}

func TestACommittedMoveLetsGoOfItsClaimsOnceNoPodWaitsForIt(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveRetain, v1alpha1.MoveFinalize} {
		o := in(phase)
		o.Record.Freed, o.Settling = false, 10*time.Second
		o.Record.Began[v1alpha1.MoveRetain] = o.Now.Add(-time.Second)
		o.Claims[0].Source.Mover = movers.State{Exists: true, Leaving: true}
		o.Pods = []steps.Pod{{Name: "db-0", Gated: true}}
		assert.Equal(t, "Ungate", decide.Next(o).Verb())
		o.Pods = nil
		assert.Equal(t, "Idle", decide.Next(o).Verb(), "an API server may not have seen yet that the claims are free")
		o.Record.Began[v1alpha1.MoveRetain] = o.Now.Add(-time.Minute)
		freed := decide.Next(o).Saved()
		require.NotNil(t, freed, "its mover at the source, whose node may be gone, is in nobody's way")
		assert.True(t, freed.Freed)
		assert.False(t, freed.Busy())
		o.Record, o.Pods = freed, []steps.Pod{{Name: "db-0", Gated: true}}
		assert.NotEqual(t, "Ungate", decide.Next(o).Verb(), "the gate may be that of the next move")
	}
}

func TestTheCopyThatIsInUseNowMustBeWholeBeforeAnEarlierOneIsRemoved(t *testing.T) {
	movedOn := func() steps.Observation {
		o := in(v1alpha1.MoveFinalize)
		o.Record.Claims[0].Generation = 1
		o.Claims[0].Volume = virtual(0, record.Target)
		o.Claims[0].Volume.Annotations[keys.Backing] = backing.Ref{Cluster: "east", Namespace: "n", Name: "later", UID: "later"}.String()
		o.Claims[0].Volume.Annotations[keys.BackingVolume] = "real-2"
		o.Claims[0].Source.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Source, 0).UID,
			Labels: map[string]string{keys.MoveOf: string(moveUID)}}}
		o.Claims[0].Now = steps.Elsewhere{Ref: backing.Ref{Cluster: "east", Namespace: "n", Name: "later", UID: "later"}, Side: steps.Side{
			Backing: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "later"}},
			Real:    &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real-2"}},
		}}
		return o
	}
	assert.Equal(t, "DropBacking", decide.Next(movedOn()).Verb(), "the copy at the move's own target may be gone by now")
	for name, row := range map[string]struct {
		harm func(o *steps.Observation)
		says string
	}{
		"its cluster is away":    {func(o *steps.Observation) { o.Claims[0].Now.Unusable = "east is away" }, "east is away"},
		"its real claim is gone": {func(o *steps.Observation) { o.Claims[0].Now.Side = steps.Side{} }, "real claim n/later"},
		"it has another volume":  {func(o *steps.Observation) { o.Claims[0].Now.Real.Name = "empty" }, "has volume empty"},
		"its volume is deleted": {func(o *steps.Observation) {
			o.Claims[0].Now.Real.DeletionTimestamp = &metav1.Time{Time: o.Now}
		}, "is being deleted"},
		"it was never moved on":     {func(o *steps.Observation) { o.Record.Claims[0].Generation = 2 }, "real claim n/target-0"},
		"the volume cannot be read": {func(o *steps.Observation) { o.Claims[0].Volume.Annotations[keys.Backing] = "?" }, "real claim n/target-0"},
	} {
		o := movedOn()
		row.harm(&o)
		step := decide.Next(o)
		assert.Equal(t, "Idle", step.Verb(), name)
		assert.Contains(t, step.Say, row.says, name)
	}
	chosen := movedOn()
	chosen.Claims[0].Volume.Annotations[keys.Backing] = ref(record.Source, 0).String()
	assert.Equal(t, v1alpha1.MoveDone, decide.Next(chosen).Saved().Phase, "somebody chose the copy at the source, which is in use")
}

func TestACopyOfSeveralClaimsIsKeptUntilAllAreMovedOn(t *testing.T) {
	w := newWorld(t, 0, 2)
	a := newEarlier(w, time.Hour)
	w.claims[0].volume = virtual(0, record.Target)
	assert.Contains(t, decide.Next(a.observe()).Say, "the copy at the source is kept until")
	w.claims[1].volume = virtual(1, record.Target)
	assert.True(t, decide.Next(a.observe()).Saved().MovedOn)

	w = newWorld(t, 0, 1)
	a = newEarlier(w, 0)
	o := a.observe()
	o.Next = "second"
	assert.Contains(t, decide.Next(o).Say, "VolumeMove second moves the claims on; the copy at the source is kept")
	assert.False(t, decide.Overdue(o), "that is not late")
	finalize := o
	finalize.Move = a.move.DeepCopy()
	finalize.Move.Spec.Action = v1alpha1.ActionFinalize
	assert.Equal(t, v1alpha1.MoveFinalize, decide.Next(finalize).Saved().Phase, "somebody wants it gone now")
}
