package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/swap/plan"
)

// swapOf is the swap of a claim's volume, as far as it belongs to the phase of the move.
func swapOf(o steps.Observation, i int) plan.Swap {
	r := o.Record
	return plan.Swap{
		Claim: r.Claims[i].Name, Placeholder: record.SecretName(r.UID), Part: string(r.Phase), Began: r.Began[r.Phase], Now: o.Now,
	}
}

func seenOf(o steps.Observation, i int) plan.Seen {
	return plan.Seen{Claim: o.Claims[i].Claim, Volume: o.Claims[i].Volume}
}

// releaseVolumes is the step by which the claims get rid of their volumes; false if they have none.
func releaseVolumes(o steps.Observation) (steps.Step, bool) {
	release := func(i int) plan.Step { return plan.Release(swapOf(o, i), seenOf(o, i), o.Record.Claims[i].Volume) }
	for i := range o.Claims {
		if release(i).Replaced {
			return steps.GoBack(o, fmt.Sprintf("somebody replaced volume %s: see who did, and move again", o.Record.Claims[i].Volume.Name),
				record.VolumeReplaced), true
		}
	}
	if step, ok := swapAll(o, release, nil); ok {
		return step, true
	}
	return swapAll(o, func(i int) plan.Step { return plan.Unbind(swapOf(o, i), seenOf(o, i)) }, nil)
}

// bindClaims is the step to bind the claims to the given volumes; false if all are bound.
func bindClaims(o steps.Observation, volume func(record.Claim) *corev1.PersistentVolume) (steps.Step, bool) {
	makes := func(i int) plan.Step { return plan.Make(swapOf(o, i), seenOf(o, i), volume(o.Record.Claims[i])) }
	if step, ok := swapAll(o, makes, volume); ok {
		return step, true
	}
	return swapAll(o, func(i int) plan.Step { return plan.Bind(swapOf(o, i), seenOf(o, i)) }, volume)
}

// makeVolumes make the given volumes, where claims have none.
func makeVolumes(o steps.Observation, volume func(record.Claim) *corev1.PersistentVolume) (actions []steps.Action) {
	for i, claim := range o.Claims {
		if claim.Volume == nil {
			actions = append(actions, steps.MakeVolume{Claim: i, Volume: volume(o.Record.Claims[i])})
		}
	}
	return actions
}

// swapAll is the step with what next says for all claims at once; false if all are done. Volume is the one that a claim is to have.
func swapAll(o steps.Observation, next func(i int) plan.Step, volume func(record.Claim) *corev1.PersistentVolume) (steps.Step, bool) {
	var actions []steps.Action
	waiting, waits := steps.Step{}, false
	for i := range o.Claims {
		switch step := next(i); step.Action {
		case plan.Delete:
			actions = append(actions, steps.DeleteVolume{Claim: i})
		case plan.Free:
			actions = append(actions, steps.FreeVolume{Claim: i})
		case plan.Create:
			actions = append(actions, steps.MakeVolume{Claim: i, Volume: volume(o.Record.Claims[i])})
		case plan.Touch, plan.TouchUnbound:
			actions = append(actions, steps.Touch{Claim: i, Text: step.Text, Unbind: step.Action == plan.TouchUnbound})
		case plan.Nothing:
			switch {
			case step.Replaced:
				waiting, waits = steps.WaitForHelp(steps.Replaced, steps.Seldom, fmt.Sprintf("volume %s is not what this move made of it: see who "+
					"replaced it, and delete that one", o.Record.Claims[i].Volume.Name)), true
			case step.Wait != "":
				waiting, waits = steps.Wait(steps.Often, step.Wait), true
			}
		}
	}
	if step, ok := steps.AllAtOnce(actions); ok {
		return step, true
	}
	return waiting, waits
}
