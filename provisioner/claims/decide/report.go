package decide

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// WaitsFor names what a claim waits for in a remote cluster, empty for nothing. The caller
// measures by its own clock for how long it stays the same: another cluster's clock may be
// wrong, by mistake or on purpose.
func WaitsFor(o steps.Observation) string {
	if o.Volume == nil {
		for _, b := range o.Backings {
			if b.Cluster != keys.Home && b.Claim.Status.Phase != corev1.ClaimBound {
				return "bound " + string(b.Claim.UID)
			}
		}
		return ""
	}
	ref, err := backing.RefOf(o.Volume)
	if err != nil || ref.Cluster == keys.Home {
		return ""
	}
	b, state := o.BackingIn(ref.Cluster), ""
	if o.Real != nil && o.Real.Labels[keys.Healing] != "" {
		state = "healed " + string(o.Real.Status.Phase)
	}
	switch {
	case b == nil:
	case b.Claim.DeletionTimestamp != nil:
		state += " deleted " + string(b.Claim.UID)
	case state != "":
		state += " " + string(b.Claim.UID)
	}
	return state
}

func awaitBound(o steps.Observation, b steps.Backing, to route.Route) steps.Step {
	step := steps.Step{After: steps.Slow}
	text := fmt.Sprintf("waiting for real claim %s/%s of storage class %q in %s to be bound", b.Claim.Namespace, b.Claim.Name, to.Class.Name,
		steps.Where(to.Cluster))
	if said := quotedWarning(o, b); said != "" {
		step.Tell = steps.Warn("WaitingForBacking", text+": "+said)
	} else {
		step.Tell = steps.Note("WaitingForBacking", text+": see its events there")
		if since := madeAt(o, b); o.Now.Sub(since) < steps.Slow {
			step.Tell = nil
		}
	}
	if waited := o.Now.Sub(madeAt(o, b)); waited < steps.Overdue {
		step.After = steps.Sooner(step.After, steps.Overdue-waited+time.Millisecond)
	} else {
		// No volume exists yet that could have a problem, but to the user it is the same.
		step.Trouble, step.TroubleIn, step.Shows = backingPending, b.Cluster, step.Tell.Text
	}
	return readEventsWhenDue(o, b, madeAt(o, b), step)
}

// madeAt is since when a waiting backing claim exists.
func madeAt(o steps.Observation, b steps.Backing) time.Time {
	if b.Cluster != keys.Home {
		return o.WaitsSince
	}
	return b.Claim.CreationTimestamp.Time
}

// pending is the step for a volume that was published before its real volume was created.
func pending(o steps.Observation, ref backing.Ref, b steps.Backing) steps.Step {
	waited := o.Now.Sub(o.Volume.CreationTimestamp.Time)
	step := steps.Step{}
	switch said := quotedWarning(o, b); {
	case said != "":
		step.Trouble = backingPending
		step.Tell = steps.Warn(backingPending, fmt.Sprintf("real claim %s in %s is not bound yet: %s", ref.Key(), steps.Where(b.Cluster), said))
	case waited < steps.Overdue:
		step.After = steps.Overdue - waited + time.Millisecond
	default:
		where := "if its pod is there already, see the claim's events there"
		if b.Cluster == keys.Home {
			where = "see its events"
		}
		step.Trouble = backingPending
		step.Tell = steps.Note(backingPending, fmt.Sprintf("real claim %s in %s is not bound yet: %s", ref.Key(), steps.Where(b.Cluster), where))
	}
	return readEventsWhenDue(o, b, o.Volume.CreationTimestamp.Time, steps.ShownAsTold(step))
}

const (
	// readEventsAfter is how long a backing claim must wait before its events are read.
	readEventsAfter = 10 * time.Second
	// maxQuoted limits, in bytes, what is quoted of an event.
	maxQuoted = 512
)

// readEventsWhenDue turns the step of a claim that has waited for its backing claim since
// some time into ReadEvents, if that is due; otherwise it sets the step's After to when it
// will be.
func readEventsWhenDue(o steps.Observation, b steps.Backing, since time.Time, step steps.Step) steps.Step {
	if b.Claim.Status.Phase == corev1.ClaimBound {
		// Only its volume is missing from the cache.
		return step
	}
	left := readEventsAfter - o.Now.Sub(since)
	if said := warningOf(o, b.Claim); said != nil {
		left = said.Again.Sub(o.Now)
	}
	if left <= 0 {
		return steps.Step{Action: steps.ReadEvents{Backing: b}, Trouble: step.Trouble, TroubleIn: step.TroubleIn, Shows: step.Shows,
			Tell: step.Tell}
	}
	if step.After == 0 || left < step.After {
		step.After = left + time.Millisecond
	}
	return step
}

func warningOf(o steps.Observation, b *corev1.PersistentVolumeClaim) *steps.LastWarning {
	if o.LastWarning == nil || o.LastWarning.Backing != b.UID {
		return nil
	}
	return o.LastWarning
}

// quotedWarning quotes the last warning about a backing claim; empty for none.
func quotedWarning(o steps.Observation, b steps.Backing) string {
	said := warningOf(o, b.Claim)
	if said == nil || said.Reason == "" && said.Message == "" {
		return ""
	}
	reason := "an event there"
	if sentence.IsReason(said.Reason) {
		reason = said.Reason
	}
	message := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return ' '
		}
		return r
	}, said.Message)
	// Quote it, so that nothing in it ends the quotation or is invisible.
	return fmt.Sprintf("%s says %s", reason, strconv.Quote(sentence.Cut(message, maxQuoted)))
}

// A problem with a volume is a condition of its claim, of type keys.VolumeTrouble. Each
// write is an event for everything that watches claims, and many volumes get problems at
// the same time, so the condition is written only for a change that lasts:
//
//   - A claim without a problem has no such condition and costs nothing.
//   - A problem is written after showAfter and removed after hideAfter. One that goes
//     away sooner, such as a node that is recreated, is never written. hideAfter is
//     longer than a restarted process needs to find a problem again.
//   - Another message for the same reason is written after rewriteAfter: it may quote
//     other programs, whose text may change each time.
//   - A text of a remote cluster counts against the budget that its claim has for
//     reflected status, so that the cluster cannot cause more writes than that.
//
// Package claims limits how many claims are written per second.
const (
	showAfter    = 10 * time.Second
	hideAfter    = 30 * time.Second
	rewriteAfter = steps.TroubleAgain
)

// PendingCondition names the pending change of the claim's condition, empty for none; the
// caller measures for how long it stays the same and passes that to ShowWhenLasting. known
// is false if that cannot be decided now.
func PendingCondition(o steps.Observation, step steps.Step) (wish string, known bool) {
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
	_, reads := step.Action.(steps.ReadEvents)
	switch {
	case o.Moving, step.Action != nil && !reads, claim.Spec.VolumeName != volume, want == "" && step.Unknown:
		// Other steps come first; then this is decided again.
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
	case have.Message != shownText(step):
		return "words " + want, true
	}
	return "", true
}

// ShowWhenLasting turns an idle step into the one that writes the condition, if that is
// due; otherwise it sets the step's After to when it will be. since is when the change
// named by PendingCondition began to be pending.
func ShowWhenLasting(o steps.Observation, step steps.Step, since time.Time) steps.Step {
	wish, known := PendingCondition(o, step)
	if !known || wish == "" || step.Action != nil {
		return step
	}
	have, wait := shown(o.Claim), showAfter-o.Now.Sub(since)
	switch {
	case wish == "none":
		wait = hideAfter - o.Now.Sub(since)
	case strings.HasPrefix(wish, "words "):
		wait = rewriteAfter - o.Now.Sub(have.LastProbeTime.Time)
	}
	if wait = max(wait, o.QuietUntil.Sub(o.Now)); wait > 0 {
		step.After = steps.Sooner(step.After, wait+time.Millisecond)
		return step
	}
	if wish == "none" {
		step.Action = steps.ShowTrouble{}
		return step
	}
	at := metav1.NewTime(o.Now)
	condition := &corev1.PersistentVolumeClaimCondition{
		Type: keys.VolumeTrouble, Status: corev1.ConditionTrue, Reason: step.Trouble, Message: shownText(step),
		LastProbeTime: at, LastTransitionTime: at,
	}
	if have != nil && have.Status == corev1.ConditionTrue {
		condition.LastTransitionTime = have.LastTransitionTime
	}
	step.Action = steps.ShowTrouble{Condition: condition}
	return step
}

func shownText(step steps.Step) string { return sentence.Cut(step.Shows, maxMessage) }

// shown returns the condition of a claim, nil if it has none.
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

// tellAgain repeats the event of a trouble.
func tellAgain(step steps.Step) steps.Step {
	if step.Action == nil && step.Trouble != "" && step.Tell != nil && step.After == 0 {
		step.After = steps.TroubleAgain
	}
	return step
}
