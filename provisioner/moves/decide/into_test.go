package decide_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

const (
	keeperUID = "m0"
	// asKept is what is in the copies that a keeper keeps: the application has written since.
	asKept = -3
)

// keeper is a committed move that has brought the claims of a world from the target to the source of the world's own move, and
// keeps the copies there. The world's move goes back into them.
type keeper struct {
	world  *world
	move   *v1alpha1.VolumeMove
	record *record.Record
	kept   []*kept
}

// kept is what a keeper has at a copy.
type kept struct {
	mover movers.State
	snap  snap
	// impossible: no snapshot can be taken of it.
	impossible bool
	// late is what the copy had on when a request to take it was sent that is still under way; empty: there is none.
	late string
}

func newKeeper(w *world, keep time.Duration) *keeper {
	k := &keeper{world: w, move: &v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "first", UID: keeperUID},
		Spec: v1alpha1.VolumeMoveSpec{Action: v1alpha1.ActionMove, KeepSourceFor: &metav1.Duration{Duration: keep}}}}
	k.record = &record.Record{UID: keeperUID, Namespace: "shop", Name: "first", Phase: v1alpha1.MoveRetain, Freed: true,
		Began: map[v1alpha1.MovePhase]time.Time{v1alpha1.MoveCommit: w.now, v1alpha1.MoveRetain: w.now}}
	for i, c := range w.claims {
		k.record.Claims = append(k.record.Claims, record.Claim{Name: c.claim.Name, UID: c.claim.UID, Volume: virtual(i, record.Target),
			New: virtual(i, record.Source), Generation: 1, Target: record.Copy{Ref: ref(record.Source, i)},
			Source: record.Copy{Ref: ref(record.Target, i), Policy: corev1.PersistentVolumeReclaimDelete}})
		d := c.at[record.Target]
		d.backing, d.content = copyOf(i), asKept
		d.backing.Labels = map[string]string{keys.MoveOf: keeperUID}
		d.backing.Annotations = map[string]string{keys.ReplacedBy: "1"}
		d.real = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain}}
		c.at[record.Source].real.Name = "real"
		k.record.Claims[i].New.Annotations[keys.BackingVolume] = "real"
		k.kept = append(k.kept, &kept{mover: movers.State{Exists: w.r.IntN(4) == 0}, impossible: w.r.IntN(3) == 0})
	}
	w.keeper = k
	return k
}

// inspected is what an inspection writes of a claim that goes back into its copy.
func (k *keeper) inspected(known *record.Claim) {
	known.Kept = &record.Kept{By: keeperUID, Name: "first", UID: types.UID(known.Target.Ref.Name)}
	known.Generation, known.Target.Policy = 2, corev1.PersistentVolumeReclaimDelete
}

// copyAt is the backing claim of a copy, nil if it is gone.
func (k *keeper) copyAt(i int) *corev1.PersistentVolumeClaim {
	return k.world.claims[i].at[record.Target].backing
}

// marks are what a copy has on, as its resource version would say whether that has changed.
func (k *keeper) marks(i int) string {
	b := k.copyAt(i)
	if b == nil {
		return ""
	}
	return fmt.Sprint(b.UID, b.Labels, b.Annotations)
}

// isTaken says whether a copy is that of the world's own move.
func (k *keeper) isTaken(i int) bool {
	b := k.copyAt(i)
	return b != nil && b.Labels[keys.MoveOf] != keeperUID
}

// isWhole says whether a copy is as the keeper has kept it.
func (k *keeper) isWhole(i int) bool {
	b := k.copyAt(i)
	return b != nil && b.Labels[keys.MoveOf] == keeperUID && k.world.claims[i].at[record.Target].content == asKept
}

// isLate says whether a copy was taken by a request that came when the world's own move had gone back. Nothing was written to it, and a
// sweep removes it.
func (k *keeper) isLate(i int) bool {
	b := k.copyAt(i)
	return b != nil && b.Labels[keys.MoveOf] == string(moveUID) && k.world.claims[i].at[record.Target].content == asKept
}

// take is a request of the world's own move to make a copy its target, which may be late.
func (k *keeper) take(i int) {
	w := k.world
	w.must(k.record.HandedTo == moveUID && k.isWhole(i), "a copy is taken that was not handed over")
	w.must(!k.kept[i].mover.Exists, "a copy is taken that a mover of another move reads")
	plan := k.record.Claims[i].Snapshot
	w.must(plan != nil && plan.Keeps && (plan.Gone || k.kept[i].snap.ready), "a copy is taken of which a snapshot could be")
	if k.kept[i].late = k.marks(i); w.calm || w.r.IntN(10) > 0 {
		k.arrives(i)
	}
}

func (k *keeper) arrives(i int) {
	if k.kept[i].late != k.marks(i) {
		return // its resource version is another one
	}
	k.kept[i].late = ""
	b := k.copyAt(i)
	b.Labels[keys.MoveOf] = string(moveUID)
	b.Annotations[keys.Unpublished], b.Annotations[keys.Generation] = "true", "2"
}

// taker is the world's own move while it may take the copies.
func (k *keeper) taker() types.UID {
	if r := k.world.decoded(); r != nil && !r.Over() && r.Phase != v1alpha1.MoveRollBack {
		return r.UID
	}
	return ""
}

func (k *keeper) observe() steps.Observation {
	w := k.world
	o := steps.Observation{Now: w.now, Settling: 10 * time.Second, Move: k.move, Record: k.record, Taker: k.taker()}
	if next := w.decoded(); next != nil && next.Holds() {
		o.Next = next.Name
	}
	if w.down[record.Source] {
		o.Target.Unusable = "it does not answer"
	}
	if w.down[record.Target] {
		o.Source.Unusable = "it does not answer"
	}
	if k.record.GaveUp(record.Source) {
		o.Source.Unusable = "it was given up"
	}
	for i, c := range w.claims {
		seen := steps.Claim{Target: w.side(c, record.Source), Source: w.side(c, record.Target)}
		// The movers there are those of the world's own move.
		seen.Target.Mover, seen.Source.Mover = movers.State{}, movers.State{}
		if o.Source.Unusable == "" {
			seen.Source.Mover = k.kept[i].mover
			k.seeSnapshot(o, i, &seen)
		}
		seen.Claim, seen.Volume = c.claim.DeepCopy(), nil
		if c.volume != nil {
			seen.Volume = c.volume.DeepCopy()
		}
		o.Claims = append(o.Claims, seen)
	}
	for _, p := range w.pods {
		o.Pods = append(o.Pods, p.Pod)
	}
	return o
}

func (k *keeper) seeSnapshot(o steps.Observation, i int, seen *steps.Claim) {
	plan, here := k.record.Claims[i].Snapshot, k.kept[i]
	if plan == nil && o.Taker != "" && k.record.HandedTo == "" {
		name := k.record.MoverName(i, record.Snapped)
		seen.FallBack = &record.Snapshot{Copy: record.Copy{Ref: backing.Ref{Cluster: "west", Namespace: "n", Name: name}}, Keeps: true}
		if here.impossible {
			seen.FallBack.Gone, seen.FallBack.Why = true, "no driver takes any"
		}
	}
	if !plan.MayExist() {
		return
	}
	s := here.snap
	seen.Snapshot = steps.Snapshot{Exists: s.exists, Leaving: s.leaving, Ready: s.ready, Refused: s.refused, Untouched: s.stuck && i > 0}
	if s.refused || s.stuck {
		seen.Snapshot.Problem = "the pool is full"
	}
}

// turn takes the next step of the keeper, and lets the other programs act.
func (k *keeper) turn() {
	w := k.world
	chance := func(percent int) bool { return w.r.IntN(100) < percent }
	for i, here := range k.kept {
		if here.mover.Leaving && chance(40) {
			here.mover = movers.State{}
		}
		if here.late != "" && chance(10) {
			k.arrives(i)
		}
		s := &here.snap
		if !w.calm {
			s.stuck = s.stuck || !s.ready && chance(2)
			s.refused = s.refused || !s.exists && chance(1)
		}
		s.ready = s.exists && !s.leaving && (s.ready || !s.stuck && chance(30))
		if s.stuck && s.exists && chance(20) && len(w.forced.running) == 0 {
			w.now = w.now.Add(3 * time.Minute)
		}
		if s.leaving && chance(40) {
			*s = snap{stuck: s.stuck, refused: s.refused}
		}
	}
	if k.record.Over() {
		return
	}
	for _, one := range decide.Next(k.observe()).Each() {
		if w.calm || !chance(15) { // some requests are lost
			k.apply(one)
		}
	}
}

func (k *keeper) apply(step steps.Step) {
	w, on := k.world, step.Subject()
	w.must(on.End != record.Source || !w.down[record.Target], "a request to a cluster that does not answer: %s", step.Verb())
	w.log = append(w.log, fmt.Sprintf("keeper: %s %d %s %s", step.Verb(), on.Claim, on.End, step.Say))
	switch a := step.Action.(type) {
	case nil:
	case steps.Save:
		k.record = a.Record
	case steps.DropMover:
		w.must(a.End == record.Source, "a mover of the keeper at its target")
		k.kept[a.Claim].mover.Leaving = true
	case steps.MakeSnapshot:
		w.must(k.isWhole(a.Claim), "a snapshot of a copy that is written to")
		k.kept[a.Claim].snap.exists = !k.kept[a.Claim].snap.refused
	case steps.DropSnapshot:
		k.kept[a.Claim].snap.leaving = true
	case steps.Restore:
		w.must(a.End == record.Source && k.isWhole(a.Claim), "the keeper changes a volume that it does not keep")
		w.claims[a.Claim].at[record.Target].real.Spec.PersistentVolumeReclaimPolicy = k.record.Claims[a.Claim].Source.Policy
	case steps.DropBacking:
		w.must(a.End == record.Source && k.isWhole(a.Claim), "the keeper removes a copy that it does not keep")
		w.must(k.taker() == "" || k.record.HandedTo == "", "the keeper removes a copy that it has handed over")
		d := w.claims[a.Claim].at[record.Target]
		d.backing, d.real, d.content = nil, nil, -1
	default:
		w.must(false, "the keeper does %s", step.Verb())
	}
}

// TestAMoveBackIntoAKeptCopyNeverHarms runs a move into the copies of an earlier one, with all that may happen to both: requests
// that are lost or late, clusters that are away, snapshots that fail, users who change their mind about the one or the other.
func TestAMoveBackIntoAKeptCopyNeverHarms(t *testing.T) {
	ends, snapped, lost, untouched := map[v1alpha1.MovePhase]int{}, 0, 0, 0
	for seed := range uint64(400) {
		w := newWorld(t, seed, 1+int(seed%2))
		keep := time.Duration(0)
		if seed%4 > 0 {
			keep = 1000 * time.Hour
		}
		k := newKeeper(w, keep)
		began, turn := w.r.IntN(20), 0
		wished := began + w.r.IntN(200)
		end := w.walk(func() {
			if k.turn(); turn == wished && seed%8 > 3 {
				switch w.r.IntN(3) {
				case 0:
					k.move.Spec.Action = v1alpha1.ActionFinalize
				case 1:
					k.move.DeletionTimestamp = &metav1.Time{Time: w.now}
				case 2:
					k.move.Spec.Action = v1alpha1.ActionGiveUp
				}
			}
			turn++
		})
		if t.Failed() {
			return
		}
		ends[end]++
		clear(w.down)
		w.calm = true
		wanted := keep > 0 && k.move.Spec.Action == v1alpha1.ActionMove && k.move.DeletionTimestamp == nil
		for range 600 {
			w.live()
			k.turn()
			w.check()
		}
		for i, here := range k.kept {
			plan := k.record.Claims[i].Snapshot
			switch {
			case end == v1alpha1.MoveDone:
				require.True(t, k.record.Over(), "seed %d: the earlier move does not end: %+v", seed, decide.Next(k.observe()))
				require.True(t, !here.snap.exists || k.record.GaveUp(record.Source), "seed %d: a snapshot is left", seed)
			case !wanted || k.record.GaveUp(record.Source):
				require.True(t, k.record.Over(), "seed %d: the earlier move does not end: %+v", seed, decide.Next(k.observe()))
				require.True(t, !here.snap.exists || k.record.GaveUp(record.Source), "seed %d: a snapshot is left", seed)
			case k.isWhole(i):
				untouched++
				require.False(t, k.record.Over(), "seed %d: the copy was not touched, and is still wanted", seed)
				require.False(t, here.snap.exists && k.record.HandedTo == "", "seed %d: a snapshot is left of copies that were not touched", seed)
			case plan.MayExist():
				snapped++
				require.True(t, here.snap.exists && here.snap.ready, "seed %d: the copy was written to, and its snapshot is still wanted", seed)
			default:
				lost++
			}
		}
	}
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveDone, v1alpha1.MoveAborted, v1alpha1.MoveFailed} {
		require.Greater(t, ends[phase], 5, "too few moves end as %s to say anything: %v", phase, ends)
	}
	require.Greater(t, snapped, 5, "too few snapshots are kept to say anything")
	require.Greater(t, lost, 5, "too few copies are written to without a snapshot to say anything")
	require.Greater(t, untouched, 5, "too few copies are left as they were to say anything")
}
