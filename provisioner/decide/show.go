package decide

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// What is wrong with a volume is a condition of its claim, of type keys.VolumeTrouble.
// Everything that watches claims is told of each write, and many volumes come to harm
// together, so it is written when something has changed, and only once that lasts:
//
//   - A claim without trouble has no such condition: it costs nothing.
//   - A trouble is written after settles, and taken off after relieved. What comes
//     and goes faster, as a node that is made anew, is never written. The second is
//     longer than a program that has just started needs to find a trouble again.
//   - Another sentence for the same reason waits for rewrite: it may quote what
//     others say, and those may say something else each time.
//   - What a remote cluster says comes out of the budget that its claim has for
//     reflections: it can have no more written than that.
//
// How many claims are written in a second is bounded by package flow.
const (
	settles  = 10 * time.Second
	relieved = 30 * time.Second
	rewrite  = troubleAgain
)

// showing has the trouble of a step shown on the claim, in the words of its event.
func showing(step Step) Step {
	if step.Trouble != "" && step.Tell != nil && step.Tell.Reason == step.Trouble {
		step.Shows = step.Tell.Text
	}
	return step
}

// Wished names what is to become of the condition of a claim, empty for nothing: since
// when that is so is for Show. It is false where that is not known now.
func Wished(o Observation, step Step) (wish string, known bool) {
	claim := o.Claim
	if claim == nil || claim.DeletionTimestamp != nil {
		return "", true
	}
	want := ""
	if step.Shows != "" {
		want = step.Trouble
	}
	volume := ""
	if o.Volume != nil {
		volume = o.Volume.Name
	}
	switch {
	case o.Moving, step.Verb != Idle && step.Verb != Ask, claim.Spec.VolumeName != volume, want == "" && step.Unknown:
		// Other steps come first, and soon this one is looked at again.
		return "", false
	}
	have := shown(claim)
	switch {
	case want == "" && have == nil:
		return "", true
	case want == "":
		return "none", true
	case have == nil || have.Reason != want || have.Status != corev1.ConditionTrue:
		return "reason " + want, true
	case have.Message != sentence(step):
		return "words " + want, true
	}
	return "", true
}

// Show turns a step that does nothing into the one that shows what is wrong, when
// it is time for that; otherwise the step ends when it will be. since is since when
// the claim wishes what Wished says.
func Show(o Observation, step Step, since time.Time) Step {
	wish, known := Wished(o, step)
	if !known || wish == "" || step.Verb != Idle {
		return step
	}
	have, wait := shown(o.Claim), settles-o.Now.Sub(since)
	switch {
	case wish == "none":
		wait = relieved - o.Now.Sub(since)
	case strings.HasPrefix(wish, "words "):
		wait = rewrite - o.Now.Sub(have.LastProbeTime.Time)
	}
	if wait = max(wait, o.QuietUntil.Sub(o.Now)); wait > 0 {
		step.After = sooner(step.After, wait+time.Millisecond)
		return step
	}
	step.Verb, step.Cluster = ShowTrouble, keys.Home
	if wish == "none" {
		return step
	}
	at := metav1.NewTime(o.Now)
	step.Condition = &corev1.PersistentVolumeClaimCondition{
		Type: keys.VolumeTrouble, Status: corev1.ConditionTrue, Reason: step.Trouble, Message: sentence(step),
		LastProbeTime: at, LastTransitionTime: at,
	}
	if have != nil && have.Status == corev1.ConditionTrue {
		step.Condition.LastTransitionTime = have.LastTransitionTime
	}
	return step
}

func sentence(step Step) string { return cut(step.Shows, maxMessage) }

// shown returns the condition that a claim has, nil if it has none.
func shown(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimCondition {
	if claim == nil {
		return nil
	}
	for i := range claim.Status.Conditions {
		if claim.Status.Conditions[i].Type == keys.VolumeTrouble {
			return &claim.Status.Conditions[i]
		}
	}
	return nil
}
