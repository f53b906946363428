package decide_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// real adds the real volume at home, bound to the claim with this UID.
func real(claim types.UID, alter ...func(*corev1.PersistentVolume)) change {
	return func(o *steps.Observation) {
		o.Real = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real-home"},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
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
func another(b *steps.Backing)           { b.Claim.UID = "b-new" }
func leaving(o *steps.Observation)       { o.StorageLeaving = true }

func TestNextForATwinThatSomebodyDeleted(t *testing.T) {
	const home = keys.Home
	full := func(b *steps.Backing) { pvcBound(b); published(b) }
	for name, test := range map[string]struct {
		given []change
		cure  steps.Cure // empty: no step of healing
		tell  string
	}{
		"it is recorded": {given: []change{volume(home), have(home, full, terminating), real("b-home", reclaimed)}, cure: steps.Begin,
			tell: "BackingHealing"},
		"… but not when nobody claims it any more": {given: []change{volume(home, released, keepIt), have(home, full, terminating),
			real("b-home")}, tell: "BackingDeleted"},
		"… nor when its data is to be deleted": {given: []change{volume(home, released), have(home, full, terminating), noClaim}},
		"… nor when its namespace goes":        {given: []change{volume(home), have(home, full, terminating), leaving}, tell: "BackingDeleted"},
		"… nor when the real volume goes too": {given: []change{volume(home), have(home, full, terminating, func(b *steps.Backing) {
			b.Volume.DeletionTimestamp = ptr.To(metav1.NewTime(now))
		})}, tell: "BackingDeleted"},
		"… nor in a remote cluster, whose agent does it": {given: []change{volume("west"), have("west", full, terminating)},
			tell: "BackingDeleted"},
		"the real volume is made to stay": {given: []change{volume(home, healing), have(home, full, terminating),
			real("b-home", reclaimed)}, cure: steps.Retain},
		"… also when the twin went by force": {given: []change{volume(home, healing), real("b-home", reclaimed)},
			cure: steps.Retain},
		"then the twin is let go": {given: []change{volume(home, healing), have(home, full, terminating),
			real("b-home")}, cure: steps.LetGo},
		"… and waited for": {given: []change{volume(home, healing),
			have(home, full, terminating, unprotected), real("b-home")}},
		"… and told of when it takes long": {given: []change{volume(home, healing),
			have(home, full, terminating, unprotected, old), real("b-home")}, tell: "WaitingForBacking"},
		"then the real volume is freed": {given: []change{volume(home, healing), real("b-home")}, cure: steps.Free},
		"then a twin is made":           {given: []change{volume(home, healing), real("")}, cure: steps.Rebuild},
		"… not while the old one is still seen": {given: []change{volume(home, healing),
			have(home, full, terminating, unprotected), real("")}},
		"then it is waited for": {given: []change{volume(home, healing), have(home, published, another),
			real("")}},
		"then the virtual volume names it": {given: []change{volume(home, healing), have(home, full, another),
			real("b-new")}, cure: steps.Adopt},
		"… even if somebody has deleted that one too": {given: []change{volume(home, healing),
			have(home, full, another, terminating), real("b-new")}, cure: steps.Adopt},
		"then the real volume gets its policy back": {given: []change{volume(home, healing), have(home, full), real("b-home")},
			cure: steps.Restore},
		"… not before it is bound": {given: []change{volume(home, healing), have(home, full),
			real("b-home", func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeAvailable })}},
		"then the record goes": {given: []change{volume(home, healing), have(home, full),
			real("b-home", reclaimed)}, cure: steps.End},
		"a claim that is deleted meanwhile waits for the end": {given: []change{volume(home, healing, released), real(""), noClaim},
			cure: steps.Rebuild},
		"… but not if there is nothing to heal with": {given: []change{volume(home, healing, released),
			have(home, full, terminating), noClaim}},
		"a real volume that is gone is told of": {given: []change{volume(home, healing)}, tell: "BackingMissing"},
		"a real volume that goes is told of": {given: []change{volume(home, healing), have(home, full, terminating),
			real("b-home", going)}, tell: "BackingMissing"},
		"a real volume that another claim has is told of": {given: []change{volume(home, healing), real("other")},
			tell: "BackingMissing"},
		"a volume whose data is elsewhere is not healed here": {given: []change{volume("west", healing), have("west", full),
			real("b-west")}},
		"a twin without the name of its real volume gets that note": {given: []change{volume(home, nameless), have(home, full, terminating)}},
	} {
		t.Run(name, func(t *testing.T) {
			step := decide.Next(observe(test.given...))
			assert.Equal(t, test.cure, as[steps.HealBacking](step).Cure)
			assert.Equal(t, test.cure != "", step.Verb() == "Heal")
			tell := ""
			if step.Tell != nil {
				tell = step.Tell.Reason
			}
			assert.Equal(t, test.tell, tell)
		})
	}
	step := decide.Next(observe(volume(home, nameless), have(home, full, terminating)))
	assert.Equal(t, "Update", step.Verb(), "which real volume it is must be known first")
	step = decide.Next(observe(volume(home, healing, released), have(home, full, terminating), noClaim))
	assert.Equal(t, "Release", step.Verb())
}

// mending: the remote agent recreates the claim of the real volume.
func mending(v *corev1.PersistentVolume) { v.Labels = map[string]string{keys.Healing: "home"} }

// phase puts the real volume into a phase, since tomorrow by that cluster's clock.
func phase(p corev1.PersistentVolumePhase) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Status.Phase, v.Status.LastPhaseTransitionTime = p, ptr.To(metav1.NewTime(now.Add(24*time.Hour)))
	}
}

// lately makes the awaited state begin a second ago, by this clock.
func lately(o *steps.Observation) { o.WaitsSince = now.Add(-time.Second) }

func otherVolume(b *steps.Backing) {
	b.Volume.Name, b.Claim.Spec.VolumeName = "real-other", "real-other"
}

// sameName binds a claim to a volume of another cluster with the same name as west's.
func sameName(b *steps.Backing) {
	b.Volume.Name, b.Claim.Spec.VolumeName = "real-west", "real-west"
}

// asking makes a claim request its volume by name.
func asking(b *steps.Backing) { b.Claim.Spec.VolumeName = "real-" + b.Cluster }

func elsewhere(b *steps.Backing) { b.Claim.Name = "other" }

func TestNextForAShadowThatIsMadeAnew(t *testing.T) {
	const idle = "Idle"
	full := func(b *steps.Backing) { pvcBound(b); published(b) }
	served := mapped(steps.Mapped{Given: true})
	check(t, map[string]row{
		"one that somebody deleted is the agent's to mend": {given: []change{volume("west"), have("west", full, terminating), served, lately},
			verb: idle, tell: "BackingHealing", after: true},
		"… if it does not, that is told": {given: []change{volume("west"), have("west", full, terminating), served},
			verb: idle, tell: "BackingDeleted"},
		"… or an administrator's, where there is none": {given: []change{volume("west"), have("west", full, terminating)}, verb: idle,
			tell: "BackingDeleted"},
		"one without a volume cannot be mended": {given: []change{volume("west"), have("west", published, terminating), served},
			verb: idle, tell: "BackingDeleted"},
		"while it is gone it is waited for": {given: []change{volume("west"), real("b-west", mending), served}, verb: idle,
			tell: "BackingHealing", after: true},
		"… also once the claim is deleted": {given: []change{volume("west", released), real("b-west", mending), noClaim},
			verb: idle, tell: "BackingHealing", after: true},
		"… and when the new one is there already": {given: []change{volume("west"), have("west", full, another),
			real("b-new", mending, phase(corev1.VolumeBound)), lately}, verb: idle, tell: "BackingHealing", after: true},
		"for a second, too": {given: []change{volume("west"),
			real("b-west", mending, phase(corev1.VolumeReleased)), lately, served}, verb: idle, tell: "BackingHealing", after: true},
		"one that is gone for a minute is told of": {given: []change{volume("west"),
			real("b-west", mending, phase(corev1.VolumeReleased)), served}, verb: idle, tell: "BackingDeleted"},
		"… and for ten": {given: []change{volume("west"),
			real("b-west", mending, phase(corev1.VolumeReleased)), served}, verb: idle, tell: "BackingDeleted"},
		"… also once the claim is deleted, told": {given: []change{volume("west", released),
			real("b-west", mending, phase(corev1.VolumeReleased)), noClaim}, verb: idle, tell: "BackingDeleted"},
		"… also if a new one waits for its volume": {given: []change{volume("west"), have("west", published, another),
			real("b-west", mending, phase(corev1.VolumeReleased))}, verb: idle, tell: "BackingDeleted"},
		"… also if the agent never ends": {given: []change{volume("west"), have("west", full, another),
			real("b-new", mending, phase(corev1.VolumeBound))}, verb: idle, tell: "BackingDeleted"},
		"… also if the agent does not let it go": {given: []change{volume("west"), have("west", full, terminating),
			real("b-west", mending), served}, verb: idle, tell: "BackingDeleted"},
		"but pods that use the old one are waited for": {given: []change{volume("west"), have("west", full, terminating, unprotected),
			real("b-west", mending, phase(corev1.VolumeBound)), served}, verb: idle, tell: "BackingHealing", after: true},
		"then the virtual volume names it": {given: []change{volume("west"), have("west", full, another), real("b-new")},
			verb: "Heal", cluster: keys.Home, tell: "BackingHealed"},
		"… also before it is deleted with its data": {given: []change{volume("west", released), have("west", full, another),
			real("b-new"), noClaim}, verb: "Heal", cluster: keys.Home, tell: "BackingHealed"},
		"… and if its volume was never seen before": {given: []change{volume("west", nameless), have("west", full, another)},
			verb: "Heal", cluster: keys.Home, tell: "BackingHealed"},
		"but not one that holds another volume": {given: []change{volume("west"), have("west", full, another, otherVolume)},
			verb: idle, tell: "BackingMissing"},
		"nor one whose volume is not seen": {given: []change{volume("west"), have("west", published, another, volumeUnseen)},
			verb: idle, tell: "BackingMissing"},
		"nor one that is not bound": {given: []change{volume("west"), have("west", published, another)}, verb: idle,
			tell: "BackingMissing"},
		"also one that says that it was never published": {given: []change{volume("west"), have("west", pvcBound, another)}, verb: "Heal",
			cluster: keys.Home, tell: "BackingHealed"},
		"… and is deleted with its data": {given: []change{volume("west", released), have("west", pvcBound, another),
			noClaim}, verb: "Heal", cluster: keys.Home, tell: "BackingHealed"},
		"… and if a pod used it": {given: []change{volume("west", nameless),
			have("west", pvcBound, another, chosenThere)}, verb: "Heal", cluster: keys.Home, tell: "BackingHealed"},
		"… which is not removed before it is bound": {given: []change{volume("west"), have("west", asking, another)}, verb: idle,
			tell: "BackingMissing"},
		"… nor while nothing protects it": {given: []change{volume("west"), have("west", pvcBound, another, unprotected)},
			verb: idle, tell: "BackingMissing"},
		"… nor at home": {given: []change{volume(keys.Home), have(keys.Home, pvcBound, another)}, verb: idle, tell: "BackingMissing"},
		"but one that holds another volume is removed": {given: []change{volume("west"), have("west", pvcBound, another, otherVolume)},
			verb: "Remove", cluster: "west"},
		"… also one that has a volume of that name elsewhere": {given: []change{volume("west"), have("west", pvcBound, published),
			have("east", pvcBound, sameName)}, verb: "Remove", cluster: "east"},
		"… and one that nobody used": {given: []change{volume("west", nameless), have("west", pvcBound, another)},
			verb: "Remove", cluster: "west"},
		"nor one that nothing protects": {given: []change{volume("west"), have("west", full, another, unprotected)}, verb: idle,
			tell: "BackingMissing"},
		"nor one of another name": {given: []change{volume("west"), have("west", full, another, elsewhere)}, verb: idle,
			tell: "BackingMissing"},
		"nor one in another cluster": {given: []change{volume("west"), have("east", full, another)}, verb: idle,
			tell: "BackingMissing"},
		"nothing is believed of a cluster that is away": {given: []change{volume("west"), have("west", full, another), unreachable("west", 0)},
			verb: idle},
	})
	step := decide.Next(observe(volume("west"), have("west", full, another)))
	assert.Equal(t, steps.Adopt, as[steps.HealBacking](step).Cure)
	assert.Equal(t, types.UID("b-new"), backingOf(step).Claim.UID)
	assert.Equal(t, backing.Ref{Cluster: "west", Namespace: "shop", Name: "data", UID: "b-west"}, refOfStep(step))
	step = decide.Next(observe(volume("west", func(v *corev1.PersistentVolume) { v.Annotations[keys.Backing] = "west/shop/data/b-new" }),
		have("west", pvcBound, another)))
	assert.Equal(t, "Mark", step.Verb(), "afterwards it says that it is published")
	gone := decide.Next(observe(volume("west"), real("b-west", mending, phase(corev1.VolumeReleased))))
	assert.Equal(t, "BackingDeleted", gone.Trouble)
	assert.True(t, gone.Tell.Warning)
	assert.Contains(t, gone.Tell.Text, "see the events NotHealed and NameTaken of the claim and of volume real-home there")
	soon := decide.Next(observe(volume("west"), real("b-west", mending, phase(corev1.VolumeReleased)), lately))
	assert.Empty(t, soon.Trouble)
	told := decide.Next(observe(volume("west"), have("west", full, terminating))).Tell.Text
	assert.Contains(t, told, "let an administrator there make it anew, as docs/lifecycle.md says")
}

func TestTheClockOfAnotherClusterChangesNothing(t *testing.T) {
	skewed := func(by time.Duration) change {
		return func(o *steps.Observation) {
			for i := range o.Backings {
				claim := o.Backings[i].Claim
				claim.CreationTimestamp = metav1.NewTime(now.Add(by))
				if claim.DeletionTimestamp != nil {
					claim.DeletionTimestamp = ptr.To(metav1.NewTime(now.Add(by)))
				}
			}
			if o.Real != nil {
				o.Real.CreationTimestamp, o.Real.Status.LastPhaseTransitionTime = metav1.NewTime(now.Add(by)), ptr.To(metav1.NewTime(now.Add(by)))
			}
		}
	}
	full, served := func(b *steps.Backing) { pvcBound(b); published(b) }, mapped(steps.Mapped{Given: true})
	for name, given := range map[string][]change{
		"a shadow that waits":           {on("west-1"), parameter(keys.RemoteClass, "now"), have("west", of("now"))},
		"one that somebody deleted":     {volume("west"), have("west", full, terminating), served},
		"one that is made anew":         {volume("west"), real("b-west", mending, phase(corev1.VolumeReleased)), served},
		"one that is there twice":       {volume("west"), have("west", full, another), real("b-new", mending, phase(corev1.VolumeBound))},
		"one that the agent has to end": {volume("west"), have("west", full, terminating), real("b-west", mending), served},
	} {
		for _, when := range []change{lately, func(*steps.Observation) {}} {
			right := decide.Next(observe(append(slices.Clone(given), skewed(0), when)...))
			for _, by := range []time.Duration{-24 * time.Hour, -time.Hour, time.Hour, 10 * 365 * 24 * time.Hour} {
				assert.Equal(t, right.Tell, decide.Next(observe(append(slices.Clone(given), skewed(by), when)...)).Tell, "%s, %v", name, by)
			}
		}
	}
}
