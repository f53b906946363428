package decide

import (
	"fmt"
	"slices"

	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// recordUsers is the step that records which pods use the claims, on which nodes, with
// which SELinux level, and how long they may take to end; false if that is recorded.
func recordUsers(o steps.Observation) (steps.Step, bool) {
	next := o.Record.Clone()
	next.Known = proof.Next(o.Record.Known, o.Now, o.Seen, o.Source.Unusable != "")
	if len(next.Pods) > proof.MostPods {
		return steps.GoBack(o, fmt.Sprintf("more than %d pods use the volumes, or did so a moment ago: scale their owners down, and move again",
			proof.MostPods), record.PodsInTheWay), true
	}
	known := noteLevels(o, next)
	if f := next.Failover; f != nil && f.Lease && f.Grace < graceOf(o) {
		f.Grace, known = graceOf(o), false
	}
	if known && proof.Equal(next.Known, o.Record.Known) {
		return steps.Step{}, false
	}
	return steps.Step{Action: steps.Save{Record: next}}, true
}

// noteLevels adds the SELinux levels of pods to a record, for movers that are created when
// the pods are gone; known says that the record has them already.
func noteLevels(o steps.Observation, next *record.Record) (known bool) {
	known = true
	for i, claim := range o.Claims {
		if has := &next.Claims[i].Level; len(claim.Levels) > 0 && !slices.Contains(claim.Levels, *has) {
			// Pods with different levels take the volume from one another.
			*has, known = slices.Min(claim.Levels), false
		}
	}
	return known
}

// awaitWriters waits while it is not proven that nobody writes who has used the claims; false if it is.
func awaitWriters(o steps.Observation) (steps.Step, bool) {
	known, seen := withoutVouched(o)
	why, nodeAway := proof.WhyNot(known, o.Now, seen, o.Source.Unusable != "")
	switch {
	case why == "":
		return steps.Step{}, false
	case nodeAway:
		return steps.WaitForHelp(steps.NodeAway, steps.Soon, why), true
	}
	return steps.Wait(steps.Soon, why), true
}

// awaitGoneWriters is awaitWriters for a move that has not stopped any pod yet: it waits only if
// pods that are gone may still write.
func awaitGoneWriters(o steps.Observation) (steps.Step, bool) {
	known, seen := withoutVouched(o)
	if len(proof.GoneWriters(known, o.Now, seen, o.Source.Unusable != "")) == 0 {
		return steps.Step{}, false
	}
	return awaitWriters(o)
}
