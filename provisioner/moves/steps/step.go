// Package steps has what the decision about a move is made from and what comes out of it: the
// Observation of a move, the Step to take next with its Action, and the words in which decisions
// write steps (Wait, GoBack, Enter, ChangeClaim, AllAtOnce). Package decide chooses the step, package
// moves observes and takes it. The package is pure: no client, no clock. Start with observation.go,
// then action.go has all that a move can do.
package steps

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// Step is the next action of a move, with what to report about it.
type Step struct {
	// Action is what to do; nil means to wait.
	Action Action
	// Also has further actions that depend neither on Action nor on each other: other
	// claims, pods and movers need not wait for the next observation.
	Also []Action
	// Say is one sentence on what the step does or waits for.
	Say string
	// After is the time until the next observation after a step without an action; Need who
	// may have to act before waiting helps, empty for nobody.
	After time.Duration
	Need  Need
}

// Verb names the action of a step: "Idle" if it has none.
func (s Step) Verb() string {
	if s.Action == nil {
		return "Idle"
	}
	verb, _ := s.Action.is()
	return verb
}

// Subject is what the action of a step changes; empty if it has none.
func (s Step) Subject() Subject {
	if s.Action == nil {
		return Subject{}
	}
	_, subject := s.Action.is()
	return subject
}

// Saved is the record that a step writes; nil if it writes none.
func (s Step) Saved() *record.Record {
	save, _ := s.Action.(Save)
	return save.Record
}

// Each returns a step for each action.
func (s Step) Each() []Step {
	steps := []Step{{Action: s.Action, Say: s.Say}}
	for _, action := range s.Also {
		steps = append(steps, Step{Action: action})
	}
	return steps
}

// Need names something that a move waits for and that may need a person.
type Need string

// The needs.
const (
	// ClusterAway: a cluster does not answer; it can be given up if it is gone for good.
	ClusterAway Need = "ClusterAway"
	// NodeAway: a node does not answer, on which a pod may still write.
	NodeAway Need = "NodeAway"
	// CopyGone: the copy at the target is missing. Replaced: somebody created another
	// virtual volume.
	CopyGone Need = "CopyGone"
	Replaced Need = "VolumeReplaced"
)

// Needs are all needs.
var Needs = []Need{ClusterAway, NodeAway, CopyGone, Replaced}

// Intervals between observations: Often while pods cannot use the claims, Soon while a mover works,
// Seldom while only time must pass.
const (
	Often  = 100 * time.Millisecond
	Soon   = time.Second
	Seldom = 5 * time.Second
)

// GoBack is the step that begins the rollback.
func GoBack(o Observation, why string, cause record.Cause) Step {
	next := o.Record.Enter(v1alpha1.MoveRollBack, o.Now)
	// The text may come from a remote cluster, and a record that is too large could not be
	// written.
	next.Why, next.Refused, next.Cause = Brief(why), !cause.IsWished(), cause
	if o.Record.WasCommitted() {
		for i := range next.Claims {
			next.Claims[i].Volume = afterCommit(&next.Claims[i])
		}
	} else {
		// Pods would write to old data.
		next.StaysLocked = next.Adopts || WhyInUseSince(o) != ""
	}
	return Step{Action: Save{Record: next}, Say: next.Why}
}

// afterCommit returns the virtual volume at the source of a move that goes back after Commit: nobody has used the copy at
// the target, which may come back, so it is not newer.
func afterCommit(c *record.Claim) *corev1.PersistentVolume {
	if c.Generation == 0 {
		return c.Volume
	}
	volume := c.Volume.DeepCopy()
	volume.Annotations[keys.Generation] = strconv.FormatInt(backing.NextGeneration(c.Generation), 10)
	return volume
}

// LongestText is the maximum size of a text in a record, in bytes.
const LongestText = 4 << 10

// Brief shortens a text to LongestText.
func Brief(text string) string { return sentence.Short(text, LongestText) }

// Enter is the step that enters a phase.
func Enter(o Observation, phase v1alpha1.MovePhase) Step {
	return Step{Action: Save{Record: o.Record.Enter(phase, o.Now)}}
}

// ChangeClaim returns the step that records a change of one claim.
func ChangeClaim(o Observation, i int, change func(*record.Claim)) Step {
	next := o.Record.Clone()
	change(&next.Claims[i])
	return Step{Action: Save{Record: next}}
}

// AllAtOnce is the step with all of some independent actions; false if there are none.
func AllAtOnce(actions []Action) (Step, bool) {
	if len(actions) == 0 {
		return Step{}, false
	}
	return Step{Action: actions[0], Also: actions[1:]}, true
}

// Wait is the step that waits for what say tells, and observes again after some time.
func Wait(after time.Duration, say string) Step { return Step{Say: say, After: after} }

// WaitForHelp is Wait for something that may never come without somebody's help.
func WaitForHelp(need Need, after time.Duration, say string) Step {
	return Step{Say: say, After: after, Need: need}
}

// LookOften repeats a step at the shortest interval: pods wait.
func LookOften(step Step) Step {
	if step.Action == nil && step.After > Often {
		step.After = Often
	}
	return step
}

// LookOftenAtFirst is LookOften while the stop is short: a stop that has lasted long is
// hardly longer by a second, and each observation is load for the API servers.
func LookOftenAtFirst(o Observation, step Step) Step {
	if o.Now.Sub(o.Record.Down) > time.Minute {
		return step
	}
	return LookOften(step)
}
