package decide

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func has(finalizers []string) bool { return slices.Contains(finalizers, keys.MoveFinalizer) }

// prepare holds the claims, and has the real volumes at home outlive whatever happens.
func prepare(o Observation) Step {
	for i, claim := range o.Claims {
		if !has(claim.Claim.Finalizers) {
			return Step{Verb: HoldClaim, Claim: i}
		}
	}
	for i, claim := range o.Claims {
		if o.Record.Claims[i].Source.Policy == "" || claim.Source.Real == nil {
			continue
		}
		if claim.Source.Real.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
			return Step{Verb: Keep, Claim: i}
		}
	}
	return enter(o, v1alpha1.MoveProvision)
}

// provision makes the target and the movers, and has them look at both volumes.
func provision(o Observation) Step {
	if !o.Failing.IsZero() && o.Now.Sub(o.Failing) > startTimeout {
		return back(o, o.FailingWhy+"; nothing was stopped for the move: mend that and move again", record.NotStarted)
	}
	if why := o.Unusable[record.Target]; why != "" {
		return wait(soon, why)
	}
	for i, claim := range o.Claims {
		if step, ok := target(o, i, claim); ok {
			return step
		}
	}
	if step, ok := movers(o); ok {
		if step.Verb == Idle && o.Now.Sub(o.Record.Began[v1alpha1.MoveProvision]) > startTimeout {
			return back(o, step.Say+"; nothing was stopped for the move: mend that and move again", record.NotStarted)
		}
		return step
	}
	for i, claim := range o.Record.Claims {
		if !claim.Prepared && !claim.Offline {
			return prepared(o, i)
		}
	}
	return enter(o, v1alpha1.MovePreCopy)
}

// target is the next step towards the backing claim at the target; false where that is
// there and recorded.
func target(o Observation, i int, claim Claim) (Step, bool) {
	ref, b := o.Record.Claims[i].Target.Ref, claim.Target.Backing
	switch {
	case b == nil && ref.UID == "":
		return Step{Verb: MakeTarget, Claim: i}, true
	case b == nil || ref.UID != "" && b.UID != ref.UID || b.DeletionTimestamp != nil:
		return back(o, fmt.Sprintf("somebody deleted real claim %s at the target: move again", ref.Key()), record.TargetChanged), true
	case b.Labels[keys.MoveOf] != string(o.Record.UID):
		return back(o, fmt.Sprintf("a claim %s is at the target already and is not this move's: remove or rename it there, and move again", ref.Key()), record.TargetChanged), true
	case ref.UID == "":
		return change(o, i, func(c *record.Claim) { c.Target.Ref.UID = b.UID }), true
	}
	return Step{}, false
}

// movers is the next step towards movers that run; false where all do that should by now.
func movers(o Observation) (Step, bool) {
	for _, end := range record.Ends {
		if why := o.Unusable[end]; why != "" {
			return wait(soon, why), true
		}
	}
	waiting := ""
	for i, claim := range o.Claims {
		from := Reads(o, i)
		for _, end := range []record.End{from, record.Target} {
			if end == "" {
				continue
			}
			m := claim.side(end).Mover
			if end == record.Source {
				if step, ok := yielded(o, i); ok {
					return step, true
				}
			}
			node, near, unplaced := besides(o, i, end)
			switch {
			case !m.Exists && unplaced != "":
				waiting = cmp.Or(waiting, unplaced)
			case !m.Exists:
				return Step{Verb: EnsureMover, Claim: i, End: end, Node: node, Near: near}, true
			case m.Ended && !m.Leaving:
				return Step{Verb: DropMover, Claim: i, End: end}, true
			case m.Unstarted && !m.Leaving:
				return Step{Verb: StartMover, Claim: i, End: end}, true
			case m.Keyless && !m.Leaving:
				return Step{Verb: GiveKeys, Claim: i, End: end}, true
			case !m.Running:
				waiting = fmt.Sprintf("waiting until the mover of claim %s runs at the %s", o.Record.Claims[i].Name, end)
				if m.Problem != "" {
					waiting += ": " + m.Problem
				}
			}
		}
		if from == "" {
			continue
		}
		if waiting == "" && claim.Copy == nil {
			waiting = fmt.Sprintf("waiting until the mover of claim %s at the %s answers: %s", o.Record.Claims[i].Name, from, claim.CopyError)
		}
		if waiting == "" && !claim.Copy.Connected {
			waiting = fmt.Sprintf("waiting until the movers of claim %s reach each other: %s", o.Record.Claims[i].Name, claim.Copy.ConnectionError)
		}
	}
	return wait(soon, waiting), waiting != ""
}

// prepared is the next step towards knowing that a copy is possible.
func prepared(o Observation, i int) Step {
	name := o.Record.Claims[i].Name
	task, step, ok := run(o, i, movecontrol.Task{ID: "prepare", Kind: movecontrol.Prepare})
	if !ok {
		return step
	}
	switch why := unkept(name, task.Prepared); {
	case why == "":
	case o.Record.Claims[i].Offline:
		return back(o, why+"; pods that use it stood still meanwhile, and go on at the source", record.NotKept)
	default:
		return back(o, why+"; nothing was stopped", record.NotKept)
	}
	return change(o, i, func(c *record.Claim) { c.Prepared, c.Expect = true, task.Prepared.Source })
}

// unkept says why a copy of a claim would not be whole, as a mover found out; empty if it
// would be.
func unkept(name string, p *movecontrol.Prepared) string {
	switch {
	case p == nil:
		return "the mover of claim " + name + " looked at the volume and says nothing of it: use movers of the provisioner's version"
	case len(p.Source) > longest:
		// It becomes part of the record.
		return fmt.Sprintf("the mover of claim %s says more of what its source is than movers do (%d bytes): use movers of the provisioner's version, and see who runs its cluster", name, len(p.Source))
	case len(p.Refusals) == 0:
		return ""
	}
	why := fmt.Sprintf("claim %s cannot be moved there whole: %s", name, p.Refusals[0])
	if more := len(p.Refusals) - 1; more > 0 {
		why += fmt.Sprintf(" (more reasons: %d)", more)
	}
	return why + ": mend that or choose another class or place, and move again"
}

func (c Claim) side(end record.End) Side {
	switch end {
	case record.Source:
		return c.Source
	case record.Snapped:
		return c.Snapshot.Side
	default: // record.Target
		return c.Target
	}
}
