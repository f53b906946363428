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

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// mending: the remote agent makes the claim of the real volume anew.
func mending(v *corev1.PersistentVolume) { v.Labels = map[string]string{keys.Healing: "home"} }

// phase has the real volume be in a phase, since tomorrow by the clock there.
func phase(p corev1.PersistentVolumePhase) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Status.Phase, v.Status.LastPhaseTransitionTime = p, ptr.To(metav1.NewTime(now.Add(24*time.Hour)))
	}
}

// lately has what is waited for be so only since a second, by the clock here.
func lately(o *decide.Observation) { o.WaitsSince = now.Add(-time.Second) }

func otherVolume(b *decide.Backing) {
	b.Volume.Name, b.Claim.Spec.VolumeName = "real-other", "real-other"
}

// sameName has a claim hold a volume of another cluster that is called as west's.
func sameName(b *decide.Backing) {
	b.Volume.Name, b.Claim.Spec.VolumeName = "real-west", "real-west"
}

// asking has a claim ask for its volume by name.
func asking(b *decide.Backing) { b.Claim.Spec.VolumeName = "real-" + b.Cluster }

func elsewhere(b *decide.Backing) { b.Claim.Name = "other" }

func TestNextForAShadowThatIsMadeAnew(t *testing.T) {
	const idle = decide.Idle
	full := func(b *decide.Backing) { pvcBound(b); published(b) }
	served := mapped(decide.Mapped{Given: true})
	check(t, map[string]row{
		"one that somebody deleted is the agent's to mend":    {given: []change{volume("west"), have("west", full, terminating), served, lately}, verb: idle, tell: "BackingHealing", after: true},
		"… if it does not, that is told":                      {given: []change{volume("west"), have("west", full, terminating), served}, verb: idle, tell: "BackingDeleted"},
		"… or an administrator's, where there is none":        {given: []change{volume("west"), have("west", full, terminating)}, verb: idle, tell: "BackingDeleted"},
		"one without a volume cannot be mended":               {given: []change{volume("west"), have("west", published, terminating), served}, verb: idle, tell: "BackingDeleted"},
		"while it is gone it is waited for":                   {given: []change{volume("west"), real("b-west", mending), served}, verb: idle, tell: "BackingHealing", after: true},
		"… also once the claim is deleted":                    {given: []change{volume("west", released), real("b-west", mending), noClaim}, verb: idle, tell: "BackingHealing", after: true},
		"… and when the new one is there already":             {given: []change{volume("west"), have("west", full, another), real("b-new", mending, phase(corev1.VolumeBound)), lately}, verb: idle, tell: "BackingHealing", after: true},
		"for a second, too":                                   {given: []change{volume("west"), real("b-west", mending, phase(corev1.VolumeReleased)), lately, served}, verb: idle, tell: "BackingHealing", after: true},
		"one that is gone for a minute is told of":            {given: []change{volume("west"), real("b-west", mending, phase(corev1.VolumeReleased)), served}, verb: idle, tell: "BackingDeleted"},
		"… and for ten":                                       {given: []change{volume("west"), real("b-west", mending, phase(corev1.VolumeReleased)), served}, verb: idle, tell: "BackingDeleted"},
		"… also once the claim is deleted, told":              {given: []change{volume("west", released), real("b-west", mending, phase(corev1.VolumeReleased)), noClaim}, verb: idle, tell: "BackingDeleted"},
		"… also if a new one waits for its volume":            {given: []change{volume("west"), have("west", published, another), real("b-west", mending, phase(corev1.VolumeReleased))}, verb: idle, tell: "BackingDeleted"},
		"… also if the agent never ends":                      {given: []change{volume("west"), have("west", full, another), real("b-new", mending, phase(corev1.VolumeBound))}, verb: idle, tell: "BackingDeleted"},
		"… also if the agent does not let it go":              {given: []change{volume("west"), have("west", full, terminating), real("b-west", mending), served}, verb: idle, tell: "BackingDeleted"},
		"but pods that use the old one are waited for":        {given: []change{volume("west"), have("west", full, terminating, unprotected), real("b-west", mending, phase(corev1.VolumeBound)), served}, verb: idle, tell: "BackingHealing", after: true},
		"then the virtual volume names it":                    {given: []change{volume("west"), have("west", full, another), real("b-new")}, verb: decide.Heal, cluster: keys.Home, tell: "BackingHealed"},
		"… also before it is deleted with its data":           {given: []change{volume("west", released), have("west", full, another), real("b-new"), noClaim}, verb: decide.Heal, cluster: keys.Home, tell: "BackingHealed"},
		"… and if its volume was never seen before":           {given: []change{volume("west", nameless), have("west", full, another)}, verb: decide.Heal, cluster: keys.Home, tell: "BackingHealed"},
		"but not one that holds another volume":               {given: []change{volume("west"), have("west", full, another, otherVolume)}, verb: idle, tell: "BackingMissing"},
		"nor one whose volume is not seen":                    {given: []change{volume("west"), have("west", published, another, volumeUnseen)}, verb: idle, tell: "BackingMissing"},
		"nor one that is not bound":                           {given: []change{volume("west"), have("west", published, another)}, verb: idle, tell: "BackingMissing"},
		"also one that says that it was never published":      {given: []change{volume("west"), have("west", pvcBound, another)}, verb: decide.Heal, cluster: keys.Home, tell: "BackingHealed"},
		"… and is deleted with its data":                      {given: []change{volume("west", released), have("west", pvcBound, another), noClaim}, verb: decide.Heal, cluster: keys.Home, tell: "BackingHealed"},
		"… and if a pod used it":                              {given: []change{volume("west", nameless), have("west", pvcBound, another, chosenThere)}, verb: decide.Heal, cluster: keys.Home, tell: "BackingHealed"},
		"… which is not removed before it is bound":           {given: []change{volume("west"), have("west", asking, another)}, verb: idle, tell: "BackingMissing"},
		"… nor while nothing protects it":                     {given: []change{volume("west"), have("west", pvcBound, another, unprotected)}, verb: idle, tell: "BackingMissing"},
		"… nor at home":                                       {given: []change{volume(keys.Home), have(keys.Home, pvcBound, another)}, verb: idle, tell: "BackingMissing"},
		"but one that holds another volume is removed":        {given: []change{volume("west"), have("west", pvcBound, another, otherVolume)}, verb: decide.Remove, cluster: "west"},
		"… also one that has a volume of that name elsewhere": {given: []change{volume("west"), have("west", pvcBound, published), have("east", pvcBound, sameName)}, verb: decide.Remove, cluster: "east"},
		"… and one that nobody used":                          {given: []change{volume("west", nameless), have("west", pvcBound, another)}, verb: decide.Remove, cluster: "west"},
		"nor one that nothing protects":                       {given: []change{volume("west"), have("west", full, another, unprotected)}, verb: idle, tell: "BackingMissing"},
		"nor one of another name":                             {given: []change{volume("west"), have("west", full, another, elsewhere)}, verb: idle, tell: "BackingMissing"},
		"nor one in another cluster":                          {given: []change{volume("west"), have("east", full, another)}, verb: idle, tell: "BackingMissing"},
		"nothing is believed of a cluster that is away":       {given: []change{volume("west"), have("west", full, another), unreachable("west", 0)}, verb: idle},
	})
	step := decide.Next(observe(volume("west"), have("west", full, another)))
	assert.Equal(t, decide.Adopt, step.Cure)
	assert.Equal(t, types.UID("b-new"), step.Backing.Claim.UID)
	assert.Equal(t, backing.Ref{Cluster: "west", Namespace: "shop", Name: "data", UID: "b-west"}, step.Ref)
	step = decide.Next(observe(volume("west", func(v *corev1.PersistentVolume) { v.Annotations[keys.Backing] = "west/shop/data/b-new" }), have("west", pvcBound, another)))
	assert.Equal(t, decide.Mark, step.Verb, "afterwards it says that it is published")
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
		return func(o *decide.Observation) {
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
	full, served := func(b *decide.Backing) { pvcBound(b); published(b) }, mapped(decide.Mapped{Given: true})
	for name, given := range map[string][]change{
		"a shadow that waits":           {on("west-1"), parameter(keys.RemoteClass, "now"), have("west", of("now"))},
		"one that somebody deleted":     {volume("west"), have("west", full, terminating), served},
		"one that is made anew":         {volume("west"), real("b-west", mending, phase(corev1.VolumeReleased)), served},
		"one that is there twice":       {volume("west"), have("west", full, another), real("b-new", mending, phase(corev1.VolumeBound))},
		"one that the agent has to end": {volume("west"), have("west", full, terminating), real("b-west", mending), served},
	} {
		for _, when := range []change{lately, func(*decide.Observation) {}} {
			right := decide.Next(observe(append(slices.Clone(given), skewed(0), when)...))
			for _, by := range []time.Duration{-24 * time.Hour, -time.Hour, time.Hour, 10 * 365 * 24 * time.Hour} {
				assert.Equal(t, right.Tell, decide.Next(observe(append(slices.Clone(given), skewed(by), when)...)).Tell, "%s, %v", name, by)
			}
		}
	}
}
