package decide_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

const keeper, later = "keeper", "later"

// keptBy is the backing claim of a copy that bears the mark of a move.
func keptBy(move string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "kept", Labels: map[string]string{keys.MoveOf: move}}}
}

func TestAKeptCopyIsTakenOnlyOnceItIsHandedOver(t *testing.T) {
	takes := func(change func(o *steps.Observation)) steps.Observation {
		o := in(v1alpha1.MoveProvision)
		o.Record.Claims[0].Target.Ref.UID = ""
		o.Record.Claims[0].Kept = &record.Kept{By: keeper, Name: "there", UID: "kept"}
		o.Claims[0].Target = steps.Side{Backing: keptBy(keeper)}
		change(&o)
		return o
	}
	waits := decide.Next(takes(func(*steps.Observation) {}))
	require.Equal(t, "Idle", waits.Verb())
	assert.Contains(t, waits.Say, "until VolumeMove there hands over")
	handed := func(o *steps.Observation) { o.Handed = true }
	step := decide.Next(takes(handed))
	assert.Equal(t, "TakeKept", step.Verb())
	assert.Contains(t, step.Say, "no longer one to fall back on")

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
	assert.EqualValues(t, later, decide.Next(keeps(later, "", own)).Saved().HandedTo, "first that is written down")
	assert.Equal(t, "Idle", decide.Next(keeps(later, later, own)).Verb(), "then nothing is done with it")
	for _, mark := range []string{later, ""} {
		for _, taker := range []types.UID{later, ""} {
			assert.Equal(t, v1alpha1.MoveDone, decide.Next(keeps(taker, later, mark)).Saved().Phase,
				"it was taken, and may be in use (mark %q, taker %q)", mark, taker)
		}
	}
	assert.Empty(t, decide.Next(keeps("", later, own)).Saved().HandedTo, "who was to take it went back before")
	away := keeps(later, later, later)
	away.Source.Unusable = "west is away"
	assert.Equal(t, "Idle", decide.Next(away).Verb())
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
