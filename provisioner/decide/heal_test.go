package decide_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// real gives the home cluster the real volume, bound to the claim with a UID.
func real(claim types.UID, alter ...func(*corev1.PersistentVolume)) change {
	return func(o *decide.Observation) {
		o.Real = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real-home"}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
		o.Real.Spec.ClaimRef = &corev1.ObjectReference{UID: claim}
		o.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		for _, a := range alter {
			a(o.Real)
		}
	}
}

func reclaimed(v *corev1.PersistentVolume) {
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
}
func going(v *corev1.PersistentVolume)   { v.DeletionTimestamp = ptr.To(metav1.NewTime(now)) }
func healing(v *corev1.PersistentVolume) { v.Annotations[keys.Healing] = "Delete" }
func another(b *decide.Backing)          { b.Claim.UID = "b-new" }
func leaving(o *decide.Observation)      { o.StorageLeaving = true }

func TestNextForATwinThatSomebodyDeleted(t *testing.T) {
	const home = keys.Home
	full := func(b *decide.Backing) { pvcBound(b); published(b) }
	for name, test := range map[string]struct {
		given []change
		cure  decide.Cure // empty: no step of healing
		tell  string
	}{
		"it is recorded": {given: []change{volume(home), have(home, full, terminating), real("b-home", reclaimed)}, cure: decide.Begin, tell: "BackingHealing"},
		"… but not when nobody claims it any more": {given: []change{volume(home, released, keepIt), have(home, full, terminating), real("b-home")}, tell: "BackingDeleted"},
		"… nor when its data is to be deleted":     {given: []change{volume(home, released), have(home, full, terminating), noClaim}},
		"… nor when its namespace goes":            {given: []change{volume(home), have(home, full, terminating), leaving}, tell: "BackingDeleted"},
		"… nor when the real volume goes too": {given: []change{volume(home), have(home, full, terminating, func(b *decide.Backing) {
			b.Volume.DeletionTimestamp = ptr.To(metav1.NewTime(now))
		})}, tell: "BackingDeleted"},
		"… nor in a remote cluster, whose agent does it":            {given: []change{volume("west"), have("west", full, terminating)}, tell: "BackingDeleted"},
		"the real volume is made to stay":                           {given: []change{volume(home, healing), have(home, full, terminating), real("b-home", reclaimed)}, cure: decide.Retain},
		"… also when the twin went by force":                        {given: []change{volume(home, healing), real("b-home", reclaimed)}, cure: decide.Retain},
		"then the twin is let go":                                   {given: []change{volume(home, healing), have(home, full, terminating), real("b-home")}, cure: decide.LetGo},
		"… and waited for":                                          {given: []change{volume(home, healing), have(home, full, terminating, unprotected), real("b-home")}},
		"… and told of when it takes long":                          {given: []change{volume(home, healing), have(home, full, terminating, unprotected, old), real("b-home")}, tell: "WaitingForBacking"},
		"then the real volume is freed":                             {given: []change{volume(home, healing), real("b-home")}, cure: decide.Free},
		"then a twin is made":                                       {given: []change{volume(home, healing), real("")}, cure: decide.Rebuild},
		"… not while the old one is still seen":                     {given: []change{volume(home, healing), have(home, full, terminating, unprotected), real("")}},
		"then it is waited for":                                     {given: []change{volume(home, healing), have(home, published, another), real("")}},
		"then the virtual volume names it":                          {given: []change{volume(home, healing), have(home, full, another), real("b-new")}, cure: decide.Adopt},
		"… even if somebody has deleted that one too":               {given: []change{volume(home, healing), have(home, full, another, terminating), real("b-new")}, cure: decide.Adopt},
		"then the real volume gets its policy back":                 {given: []change{volume(home, healing), have(home, full), real("b-home")}, cure: decide.Restore},
		"… not before it is bound":                                  {given: []change{volume(home, healing), have(home, full), real("b-home", func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeAvailable })}},
		"then the record goes":                                      {given: []change{volume(home, healing), have(home, full), real("b-home", reclaimed)}, cure: decide.End},
		"a claim that is deleted meanwhile waits for the end":       {given: []change{volume(home, healing, released), real(""), noClaim}, cure: decide.Rebuild},
		"… but not if there is nothing to heal with":                {given: []change{volume(home, healing, released), have(home, full, terminating), noClaim}},
		"a real volume that is gone is told of":                     {given: []change{volume(home, healing)}, tell: "BackingMissing"},
		"a real volume that goes is told of":                        {given: []change{volume(home, healing), have(home, full, terminating), real("b-home", going)}, tell: "BackingMissing"},
		"a real volume that another claim has is told of":           {given: []change{volume(home, healing), real("other")}, tell: "BackingMissing"},
		"a volume whose data is elsewhere is not healed here":       {given: []change{volume("west", healing), have("west", full), real("b-west")}},
		"a twin without the name of its real volume gets that note": {given: []change{volume(home, nameless), have(home, full, terminating)}},
	} {
		t.Run(name, func(t *testing.T) {
			step := decide.Next(observe(test.given...))
			assert.Equal(t, test.cure, step.Cure)
			assert.Equal(t, test.cure != "", step.Verb == decide.Heal)
			tell := ""
			if step.Tell != nil {
				tell = step.Tell.Reason
			}
			assert.Equal(t, test.tell, tell)
		})
	}
	step := decide.Next(observe(volume(home, nameless), have(home, full, terminating)))
	assert.Equal(t, decide.Update, step.Verb, "which real volume it is must be known first")
	step = decide.Next(observe(volume(home, healing, released), have(home, full, terminating), noClaim))
	assert.Equal(t, decide.Release, step.Verb)
}
