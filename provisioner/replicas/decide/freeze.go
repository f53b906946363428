package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has how an application is frozen while the snapshot of a point is taken. The record says before the first pod is frozen that
// it may be, and only that every pod was thawed ends that:
//
//	Freeze ──▶ Cut, until the snapshot is taken ──▶ Thaw ──▶ Cut, as for any point
//	   └───────────────────┴── whatever fails ────────▶ Thaw ──▶ Clean
//
// The process that freezes is the one that sees the snapshot taken: what happened while no process looked is not known, so whoever comes
// after it thaws, and the point fails.

// Hold is what this process knows of the freeze of the point that is being made.
type Hold string

// What is known of a freeze.
const (
	// Unknown: another process may have frozen.
	Unknown Hold = ""
	// Fresh: this process began the point, and has frozen nothing yet.
	Fresh Hold = "Fresh"
	// Holds: this process froze all pods.
	Holds Hold = "Holds"
	// Unsaved: this process could not write down that pods are to be thawed, and some may still be frozen; Thawed: it thawed all since.
	Unsaved Hold = "Unsaved"
	Thawed  Hold = "Thawed"
)

// User is a pod that may write to a claim.
type User struct {
	Name string
	UID  types.UID
	// State tells it from what it is after one of its containers has restarted.
	State string
	// Ended says that it writes nothing any more.
	Ended bool
}

// Outcome is what became of a command in a pod.
type Outcome struct {
	// Ended says that its end was seen, and Refused that it was not let begin; neither: it may still be running.
	Ended, Refused bool
	// Why says why it failed; empty: it ended with exit code 0.
	Why string
}

// Freeze freezes all pods of the point, and writes AfterFreeze of that.
type Freeze struct{}

// Thaw thaws the pods of the point that are not thawed, and writes AfterThaw of that.
type Thaw struct{}

const (
	// frozenSoon is how often is looked while an application stands still.
	frozenSoon = 100 * time.Millisecond
	// settles is when it is looked once more, after the snapshot was taken, whether a pod has changed before: a kubelet says that a
	// container has restarted some time after it has.
	settles = 5 * time.Second
	// firstThaw is the pause after a thaw that failed; it doubles with each in a row, up to lastThaw.
	firstThaw = time.Second
	lastThaw  = time.Minute
)

// thawsAgain are the pauses after which a pod is thawed again whose freeze may still have been running when it was thawed.
var thawsAgain = []time.Duration{10 * time.Second, time.Minute}

// sayUnsaved says why a point fails of which the record could not be written in time.
const sayUnsaved = "the record could not be written while the application was frozen, so that was thawed: see whether home's API server " +
	"takes writes"

// freeze is the step by which the application is frozen. What is there to freeze was found out when the point began.
func freeze(o Observation) Step {
	switch f := o.Record.Point.Freeze; {
	case o.Hold == Thawed || o.Hold == Unsaved:
		return giveUp(o, sayUnsaved)
	case o.Hold != Fresh:
		return giveUp(o, "the provisioner restarted while the application was being frozen")
	case o.Now.Sub(f.Since) > f.Limit:
		return giveUp(o, fmt.Sprintf("the application was not frozen within %s: see whether the API server answers", f.Limit))
	}
	return Step{Action: Freeze{}}
}

// AfterFreeze is the record after a command was called in each pod of the point, to freeze it.
func AfterFreeze(r *record.Record, now time.Time, outcomes []Outcome) Step {
	next, why := r.Clone(), ""
	for i, outcome := range outcomes {
		pod := &next.Point.Freeze.Pods[i]
		pod.Ended, pod.Refused = outcome.Ended, outcome.Refused
		if outcome.Why != "" && why == "" {
			why = fmt.Sprintf("pod %s could not be frozen: %s", pod.Name, outcome.Why)
		}
	}
	if why == "" && now.Sub(next.Point.Freeze.Since) > next.Point.Freeze.Limit {
		why = fmt.Sprintf("the application was not frozen within %s: raise spec.hooks.timeout", next.Point.Freeze.Limit)
	}
	if why != "" {
		return giveUp(Observation{Now: now, Record: next}, why)
	}
	return Step{Action: Save{next.Enter(record.Cut, now)}}
}

// cutFrozen takes the snapshot while the application is frozen, and has it thawed once that is taken.
func cutFrozen(o Observation) Step {
	p := o.Record.Point
	switch late := o.Now.Sub(p.Freeze.Since); {
	case o.Hold == Thawed || o.Hold == Unsaved:
		return giveUp(o, sayUnsaved)
	case o.Hold != Holds:
		return giveUp(o, "the provisioner restarted while the application was frozen")
	case late > p.Freeze.Limit:
		return giveUp(o, fmt.Sprintf("the snapshot was not taken within %s, and the application may be frozen no longer: raise "+
			"spec.hooks.timeout, or see why the snapshot takes so long", p.Freeze.Limit))
	case o.Source.Unusable != "":
		return giveUp(o, o.Source.Unusable)
	}
	for i := range o.Record.Len() {
		if origin, source := o.Claims[i].Origin, p.At(i).Source; origin == nil || origin.UID != source.UID {
			return giveUp(o, fmt.Sprintf("real claim %s is gone, or another", source.Key()))
		}
	}
	s := o.Claims[0].Snapshot
	if p.Group != nil {
		s = o.Group.Snapshot
	}
	switch {
	case s.Wrong:
		return giveUp(o, s.Problem)
	case s.Leaving:
		return giveUp(o, "somebody deleted the snapshot")
	case !s.Exists:
		return Step{Action: TakeSnapshot{}}
	case !s.Taken:
		return Step{Say: "waiting until the snapshot is taken, while the application is frozen" + sentence.Prefixed(": ", s.Problem),
			After: frozenSoon}
	}
	if why := changed(o); why != "" {
		return giveUp(o, why)
	}
	next := o.Record.Enter(record.Thaw, o.Now)
	next.Point.Freeze.Taken, next.Point.Freeze.Snapshot = o.Now, s.UID
	return Step{Action: Save{next}}
}

// isFrozenOne says whether a snapshot is the one that was taken while the application was frozen, if there was to be one: no other is
// taken later in its place.
func isFrozenOne(p *record.Point, s Snapshot) bool {
	return p.Freeze == nil || s.Exists && s.UID == p.Freeze.Snapshot
}

// changed says which pod is not as it was when it was frozen, or was not frozen at all; empty: all are.
func changed(o Observation) string {
	pods, seen := o.Record.Point.Freeze.Pods, 0
	for _, user := range o.Users {
		i := slices.IndexFunc(pods, func(pod record.FrozenPod) bool { return pod.UID == user.UID })
		switch {
		case i < 0 && user.Ended:
			// It may have ended long ago, or have begun since: it is known of neither, but it was there.
			if !slices.Contains(o.Record.Point.Freeze.Rested, user.UID) {
				return fmt.Sprintf("pod %s ran while the snapshot was taken, and was not frozen", user.Name)
			}
		case i < 0:
			return fmt.Sprintf("pod %s started while the snapshot was taken, and was not frozen", user.Name)
		case user.Ended || user.State != pods[i].State:
			return fmt.Sprintf("pod %s ended, or one of its containers restarted, while the snapshot was taken", user.Name)
		default:
			seen++
		}
	}
	if seen < len(pods) {
		return "a pod ended while the snapshot was taken, which was frozen: " + pods[slices.IndexFunc(pods, func(pod record.FrozenPod) bool {
			return !slices.ContainsFunc(o.Users, func(user User) bool { return user.UID == pod.UID })
		})].Name
	}
	return ""
}

// thaw thaws what may be frozen, and goes on with the point once all is.
func thaw(o Observation) Step {
	p, next := o.Record.Point, o.Record.Clone()
	gone := false
	for i := range next.Point.Freeze.Pods {
		pod := &next.Point.Freeze.Pods[i]
		// Another pod of its name may be the one that was frozen, as commands are run by name.
		runs := slices.ContainsFunc(o.Users, func(user User) bool {
			return (user.UID == pod.UID || user.Name == pod.Name) && !user.Ended
		})
		if !pod.Thawed && !runs {
			pod.Thawed, gone = true, true
		}
	}
	left := slices.DeleteFunc(slices.Clone(next.Point.Freeze.Pods), func(pod record.FrozenPod) bool { return pod.Thawed })
	switch {
	case len(left) > 0 && gone:
		return Step{Action: Save{next}}
	case len(left) > 0:
		return thawLeft(o, left)
	case p.Why == "" && Ahead(p.Freeze.Taken, o.Now):
		return giveUp(o, "the clock of the provisioner's node was set back since the snapshot was taken, while the application was frozen")
	case p.Why == "":
		if wait := p.Freeze.Taken.Add(settles).Sub(o.Now); wait > 0 {
			return Step{After: wait}
		}
	}
	next.Point.Freeze.Over = true
	o.Record = next
	if why := changed(o); p.Why == "" && why != "" {
		return giveUp(o, why)
	}
	if p.Why != "" {
		return Step{Action: Save{next.Enter(record.Clean, o.Now)}}
	}
	return Step{Action: Save{next.Enter(record.Cut, o.Now)}}
}

// thawLeft thaws the pods that are left, each at its time.
func thawLeft(o Observation, left []record.FrozenPod) Step {
	pause := slices.MinFunc(left, func(a, b record.FrozenPod) int { return a.Next.Compare(b.Next) }).Next.Sub(o.Now)
	must := slices.ContainsFunc(left, func(pod record.FrozenPod) bool { return MustThaw(pod, o.Now) })
	failing := slices.IndexFunc(left, func(pod record.FrozenPod) bool { return pod.Failures > 0 })
	switch {
	case must:
		return Step{Action: Thaw{}}
	case failing >= 0:
		return Step{Say: sayNotThawed(o.Record.Point.Freeze, left[failing]), Reason: ThawFailed, After: pause}
	}
	return Step{Say: fmt.Sprintf("point %d is given up: %s; the application is thawed once more, for its freeze may still have been running",
		o.Record.Point.Number, o.Record.Point.Why), Reason: PointFailed, After: pause}
}

// MustThaw says whether a pod of the point is to be thawed now. What a clock that was ahead says does not put it off.
func MustThaw(pod record.FrozenPod, now time.Time) bool {
	return !pod.Thawed && (!pod.Next.After(now) || Ahead(pod.Next, now))
}

// AfterThaw is the step after thaw was called in pods, by their UID.
func AfterThaw(r *record.Record, now time.Time, outcomes map[types.UID]Outcome) Step {
	next := r.Clone()
	step := Step{Action: Save{next}}
	for i := range next.Point.Freeze.Pods {
		pod := &next.Point.Freeze.Pods[i]
		outcome, called := outcomes[pod.UID]
		switch {
		case !called || pod.Thawed:
		case pod.Refused:
			// It never froze, and who may not freeze may not thaw.
			pod.Thawed = true
		case outcome.Why != "":
			pod.Problem = sentence.Short(sentence.Plain(outcome.Why, len(outcome.Why)), 1024)
			pod.Next = now.Add(min(firstThaw<<min(pod.Failures, 10), lastThaw))
			pod.Failures++
			step.Say, step.Reason = sayNotThawed(next.Point.Freeze, *pod), ThawFailed
		case pod.Ended || pod.Thaws >= len(thawsAgain):
			pod.Thaws, pod.Thawed, pod.Failures = pod.Thaws+1, true, 0
		default:
			pod.Next = now.Add(thawsAgain[pod.Thaws])
			pod.Thaws, pod.Failures = pod.Thaws+1, 0
		}
	}
	return step
}

// sayNotThawed says that an application may still be frozen.
func sayNotThawed(f *record.Freeze, pod record.FrozenPod) string {
	return fmt.Sprintf("pod %s may still be frozen, for its thaw failed, and is tried again: %s; if that goes on, run it yourself (kubectl "+
		"exec %s -c %s -- %s), or delete the pod", pod.Name, pod.Problem, pod.Name, pod.Container, strings.Join(f.Thaw, " "))
}
