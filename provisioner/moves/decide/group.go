package decide

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// groupStep is the next step to take one snapshot of all claims that are copied from snapshots, and
// to delete it once nothing is copied from it any more; false if there is nothing to do or to wait
// for. One that cannot be taken is given up, and then each claim gets a snapshot of its own.
func groupStep(o steps.Observation) (steps.Step, bool) {
	switch g := o.Record.Group; {
	case g == nil || g.Gone:
		return steps.Step{}, false
	case g.Since.IsZero():
		if noUsers(o) {
			return steps.Step{}, false
		}
		next := o.Record.Clone()
		next.Group.Since = o.Now
		sinceFor(next, o.Now)
		return steps.Step{Action: steps.Save{Record: next}, Say: fmt.Sprintf(
			"one snapshot, of one moment, is taken of claims %s, which nothing can read beside their pods",
			strings.Join(snappedNames(o), ", "))}, true
	case o.Source.Unusable != "":
		return steps.Wait(steps.Soon, o.Source.Unusable), true
	case g.Over.IsZero() && g.UID == "":
		return takeGroup(o), true
	case g.Over.IsZero():
		if step, ok := unlabel(o); ok {
			return step, true
		}
		for _, claim := range o.Record.Claims {
			if claim.Snapshot != nil && !claim.Snapshot.Gone {
				return steps.Step{}, false
			}
		}
		return changeGroup(o, func(g *record.Group) { g.Over = o.Now }), true
	}
	step, ok := removeGroup(o)
	switch {
	case !ok:
		return changeGroup(o, func(g *record.Group) { g.Gone = true }), true
	case step.Action == nil && o.Now.Sub(o.Record.Group.Over) > removalTimeout:
		return steps.Step{}, false
	}
	return step, true
}

// takeGroup is the next step until it is known which snapshots were taken.
func takeGroup(o steps.Observation) steps.Step {
	g, seen := o.Record.Group, o.Group
	taking := o.Now.Sub(g.Since)
	switch late := taking > snapshotTimeout || seen.Problem != "" && taking > startTimeout; {
	case seen.Refused:
		return giveUpGroup(o, seen.Problem)
	case late:
		return giveUpGroup(o, fmt.Sprintf("it was not taken within %s: %s", taking.Round(time.Second), cmp.Or(seen.Problem, "it was not ready")))
	case seen.Leaving:
		return giveUpGroup(o, "somebody deleted it")
	case !seen.Exists:
		return steps.Step{Action: steps.MakeGroup{}}
	}
	next := o.Record.Clone()
	next.Group.UID = seen.UID
	for i := range next.Claims {
		if next.Claims[i].Snapshot == nil {
			continue
		}
		if next.Claims[i].Snapshot.Taken = seen.Members[i]; seen.Members[i] == "" || !seen.Ready {
			return steps.Wait(steps.Soon, "waiting until the snapshot of claims "+strings.Join(snappedNames(o), ", ")+" is ready"+
				sentence.Prefixed(": ", seen.Problem))
		}
	}
	return steps.Step{Action: steps.Save{Record: next}}
}

// giveUpGroup has each claim get a snapshot of its own.
func giveUpGroup(o steps.Observation, why string) steps.Step {
	next := o.Record.Clone()
	next.Group.Over, next.Group.Why = o.Now, steps.Brief(why)
	sinceFor(next, time.Time{})
	return steps.Step{Action: steps.Save{Record: next}, Say: fmt.Sprintf(
		"the snapshot of claims %s at one moment is given up, and one of each is taken: %s", strings.Join(snappedNames(o), ", "),
		next.Group.Why)}
}

// removeGroup is the step to delete the snapshot of several claims, and what was written for it;
// false once that is done. The snapshots that belong to it go with it.
func removeGroup(o steps.Observation) (steps.Step, bool) {
	if step, ok := unlabel(o); ok {
		return step, true
	}
	name := o.Record.SourceNamespace() + "/" + o.Record.GroupName()
	switch seen := o.Group; {
	case seen.Exists && !seen.Leaving:
		return steps.Step{Action: steps.DropGroup{}}, true
	case seen.Exists:
		return steps.Wait(steps.Soon, fmt.Sprintf("waiting until VolumeGroupSnapshot %s is gone%s", name, sentence.Prefixed(": ",
			seen.Problem))), true
	}
	return steps.Step{}, false
}

// unlabel is the step to take off real claims the label by which the snapshot controller finds them;
// false if none has it.
func unlabel(o steps.Observation) (steps.Step, bool) {
	var actions []steps.Action
	for i, claim := range o.Claims {
		b := claim.Source.Backing
		if b == nil || b.UID != o.Record.Claims[i].Source.Ref.UID {
			continue
		}
		if _, labelled := b.Labels[o.Record.GroupLabel()]; labelled {
			actions = append(actions, steps.Unlabel{Claim: i})
		}
	}
	return steps.AllAtOnce(actions)
}

// sinceFor writes since when the snapshots of claims are taken.
func sinceFor(r *record.Record, since time.Time) {
	for i := range r.Claims {
		if r.Claims[i].Snapshot != nil {
			r.Claims[i].Snapshot.Since = since
		}
	}
}

// snappedNames are the names of the claims that are copied from snapshots.
func snappedNames(o steps.Observation) (names []string) {
	for _, claim := range o.Record.Claims {
		if claim.Snapshot != nil {
			names = append(names, claim.Name)
		}
	}
	return names
}

// changeGroup returns the step that records a change of the snapshot of several claims.
func changeGroup(o steps.Observation, change func(*record.Group)) steps.Step {
	next := o.Record.Clone()
	change(next.Group)
	return steps.Step{Action: steps.Save{Record: next}}
}
