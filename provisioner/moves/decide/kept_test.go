package decide_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
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

const later = "later"

// keptBy is the backing claim of a copy that bears the mark of a move.
func keptBy(move string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "kept", Labels: map[string]string{keys.MoveOf: move}}}
}

func TestAKeptCopyIsTakenOnlyOnceItIsHandedOver(t *testing.T) {
	takes := func(change func(o *steps.Observation)) steps.Observation {
		o := in(v1alpha1.MoveProvision)
		o.Record.Claims[0].Target.Ref.UID = ""
		o.Record.Claims[0].Kept = &record.Kept{By: keeperUID, Name: "there", UID: "kept"}
		o.Earlier = &record.Record{UID: keeperUID, Name: "there", Phase: v1alpha1.MoveRetain, Claims: []record.Claim{{UID: "c1"}}}
		o.Claims[0].Target = steps.Side{Backing: keptBy(keeperUID)}
		change(&o)
		return o
	}
	waits := decide.Next(takes(func(*steps.Observation) {}))
	require.Equal(t, "Idle", waits.Verb())
	assert.Contains(t, waits.Say, "until VolumeMove there hands over")
	handed := func(o *steps.Observation) { o.Earlier.HandedTo = moveUID }
	for says, snapshot := range map[string]*record.Snapshot{
		"(no snapshot of it could be taken: VolumeMove there took none)": nil,
		"(no snapshot of it could be taken: its driver cannot)":          {Keeps: true, Gone: true, Why: "its driver cannot"},
		"(as it was it is in VolumeSnapshot n/s in cluster west until this move is committed)": {Keeps: true, Copy: record.Copy{
			Ref: backing.Ref{Cluster: "west", Namespace: "n", Name: "s"}}},
	} {
		o := takes(handed)
		o.Earlier.Claims[0].Snapshot = snapshot
		o.Record = touchEvery(t, decide.Next(o).Saved())
		step := decide.Next(o)
		assert.Equal(t, "TakeKept", step.Verb(), "once it is recorded what is kept")
		assert.Contains(t, step.Say, "is written to, and is no longer one to fall back on "+says)
	}

	taken := decide.Next(takes(func(o *steps.Observation) {
		o.Claims[0].Target.Backing = keptBy(string(moveUID))
		o.Claims[0].Target.Backing.Annotations = map[string]string{keys.Unpublished: "true"}
	}))
	require.Equal(t, "Save", taken.Verb())
	assert.EqualValues(t, "kept", taken.Saved().Claims[0].Target.Ref.UID)

	for name, harm := range map[string]func(o *steps.Observation){
		"it is gone":                   func(o *steps.Observation) { o.Claims[0].Target.Backing = nil },
		"another one has its name":     func(o *steps.Observation) { o.Claims[0].Target.Backing.UID = "other" },
		"it is being deleted":          func(o *steps.Observation) { o.Claims[0].Target.Backing.DeletionTimestamp = &metav1.Time{Time: o.Now} },
		"another move has its mark on": func(o *steps.Observation) { o.Claims[0].Target.Backing = keptBy("third") },
		"the earlier move removes it":  func(o *steps.Observation) { o.Earlier.Phase = v1alpha1.MoveFinalize },
		"the earlier move is over":     func(o *steps.Observation) { o.Earlier = nil },
	} {
		step := decide.Next(takes(func(o *steps.Observation) { handed(o); harm(o) }))
		assert.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase, name)
	}

	// Who goes back before it took the copy leaves it to who keeps it.
	back := takes(func(o *steps.Observation) {
		o.Record.Phase, o.Record.Freed = v1alpha1.MoveRollBack, true
		o.Record.Claims[0].Target.Policy = corev1.PersistentVolumeReclaimDelete
		o.Claims[0].Target.Real = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain}}
	})
	assert.Equal(t, "Save", decide.Next(back).Verb())
	back.Claims[0].Target.Backing = keptBy("")
	assert.Equal(t, "Save", decide.Next(back).Verb(), "nor does it change the volume of one that lost its mark")
	back.Claims[0].Target.Backing = keptBy(string(moveUID))
	assert.Equal(t, "Restore", decide.Next(back).Verb(), "one that was taken is removed as any target")
}

func TestWhoKeepsACopyHandsItOverAndDoesNotTouchItAnyMore(t *testing.T) {
	keeps := func(taker, handed types.UID, mark string) steps.Observation {
		o := in(v1alpha1.MoveRetain)
		o.Record.Claims[0].Source.Ref.UID, o.Record.HandedTo, o.Taker = "kept", handed, taker
		o.Claims[0].Source.Backing = keptBy(mark)
		o.Move.Spec.Action = v1alpha1.ActionFinalize
		return o
	}
	own := string(moveUID)
	assert.Equal(t, v1alpha1.MoveFinalize, decide.Next(keeps("", "", own)).Saved().Phase, "nobody takes it")
	hands := keeps(later, "", own)
	hands.Claims[0].FallBack = &record.Snapshot{Keeps: true, Gone: true, Why: "its driver cannot"}
	hands.Claims[0].Source.Mover = movers.State{Exists: true}
	assert.Equal(t, "DropMover", decide.Next(hands).Verb(), "two movers never have it")
	hands.Claims[0].Source.Mover = movers.State{}
	hands.Record = touchEvery(t, decide.Next(hands).Saved())
	require.Equal(t, "its driver cannot", hands.Record.Claims[0].Snapshot.Why)
	assert.EqualValues(t, later, decide.Next(hands).Saved().HandedTo, "first that is written down")
	assert.Equal(t, "Idle", decide.Next(keeps(later, later, own)).Verb(), "then nothing is done with it")
	for _, mark := range []string{later, ""} {
		for _, taker := range []types.UID{later, ""} {
			assert.Equal(t, v1alpha1.MoveDone, decide.Next(keeps(taker, later, mark)).Saved().Phase,
				"it was taken, and may be in use (mark %q, taker %q)", mark, taker)
		}
	}
	assert.Empty(t, decide.Next(keeps("", later, own)).Saved().HandedTo, "who was to take it went back before")
	away := keeps(later, later, later)
	away.Source.Unusable, away.Move.Spec.Action = "west is away", v1alpha1.ActionMove
	assert.Equal(t, "Idle", decide.Next(away).Verb())
	away.Move.Spec.Action = v1alpha1.ActionGiveUp
	away.Record = decide.Next(away).Saved()
	require.Equal(t, []record.End{record.Source}, away.Record.GivenUp)
	assert.Equal(t, v1alpha1.MoveDone, decide.Next(away).Saved().Phase)
	// The record may be from a backup.
	restored := keeps("", "", "")
	restored.Record.Claims[0].Generation = 1
	restored.Claims[0].Source.Backing.Annotations = map[string]string{keys.Generation: "2"}
	assert.Equal(t, v1alpha1.MoveDone, decide.Next(restored).Saved().Phase, "what was taken, and is in use, is not touched")
	restored.Record.Phase = v1alpha1.MoveFinalize
	restored.Claims[0].Target.Backing = &corev1.PersistentVolumeClaim{}
	restored.Claims[0].Target.Real = &corev1.PersistentVolume{}
	assert.Equal(t, v1alpha1.MoveDone, decide.Next(restored).Saved().Phase)
	late := keeps("", "", later)
	assert.NotEqual(t, "Shelve", decide.Next(late).Verb(), "a request to take it that was late stands")
}

// TestARestoredHomeRemovesNoCopyThatMayBeTheNewest is about a home that was restored to before a move had gone back into a kept copy.
// That copy is home's own, so home knows it as it was before; the other one says that a move has replaced it.
func TestARestoredHomeRemovesNoCopyThatMayBeTheNewest(t *testing.T) {
	replaced := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID,
		Labels: map[string]string{keys.MoveOf: later}, Annotations: map[string]string{keys.ReplacedBy: "2"}}}
	real := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real-1"}}
	keeps := in(v1alpha1.MoveFinalize)
	keeps.Record.Claims[0].Generation, keeps.Claims[0].Volume = 1, virtual(0, record.Target)
	keeps.Record.Claims[0].Source.Ref.UID = "kept"
	keeps.Claims[0].Source.Backing = keptBy(string(moveUID))
	keeps.Claims[0].Target = steps.Side{Backing: replaced, Real: real}
	step := decide.Next(keeps)
	assert.Equal(t, "Idle", step.Verb())
	assert.Contains(t, step.Say, "the copy at the source is not removed: a later move has replaced real claim n/target-0")
	assert.Equal(t, steps.Replaced, step.Need)
	chosen := keeps
	chosen.Claims = slices.Clone(keeps.Claims)
	chosen.Claims[0].Volume = virtual(0, record.Target)
	chosen.Claims[0].Volume.Annotations[keys.Backing] = backing.Ref{Cluster: keys.Home, Namespace: "n", Name: "kept", UID: "kept"}.String()
	assert.Equal(t, v1alpha1.MoveDone, decide.Next(chosen).Saved().Phase, "somebody chose the copy at the source, which is in use now")
	keeps.Claims[0].Source.Backing = nil
	assert.Equal(t, v1alpha1.MoveDone, decide.Next(keeps).Saved().Phase, "somebody saw to it")

	back := in(v1alpha1.MovePreCopy)
	source := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Source, 0).UID,
		Labels: map[string]string{keys.MoveOf: string(moveUID)}}}
	back.Claims[0].Source.Backing, back.Claims[0].Target.Real = source, real
	back.Record = decide.Next(back).Saved()
	require.True(t, back.Record.StaysLocked)
	back.Record.Freed = true
	step = decide.Next(back)
	require.Equal(t, "Publish", step.Verb(), "it shows as the newer one")
	assert.Equal(t, record.Target, step.Subject().End)
	back.Claims[0].Target.Backing.Labels = nil
	assert.Equal(t, v1alpha1.MoveFailed, decide.Next(back).Saved().Phase)

	stale := in(v1alpha1.MovePreCopy)
	stale.Record.Claims[0].Generation = 1
	stale.Claims[0].Source.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Source, 0).UID,
		Annotations: map[string]string{keys.Generation: "2"}}}
	step = decide.Next(stale)
	require.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase, "what this move makes would count as older than its source")
	assert.False(t, step.Saved().StaysLocked, "its source is the newest")
}
