package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// reserved says whether a source may not be read yet because pods may use it: its mover
// starts once nobody has the volume.
func reserved(o Observation, i int) bool {
	return o.Record.Claims[i].Offline && record.Before(o.Record.Phase, v1alpha1.MoveFinalSync)
}

// late says whether a claim waits for nobody to have its volume to be looked at.
func late(claim record.Claim) bool { return claim.Offline && !claim.Prepared }

// unprepared says whether a volume was not looked at yet although pods wait.
func unprepared(o Observation) bool {
	return o.Record.Phase == v1alpha1.MoveFinalSync && slices.ContainsFunc(o.Record.Claims, late)
}

// preparedLate is the step towards knowing that a copy is possible of claims that could
// not be looked at before their pods were stopped; false once it is known of all. All are
// looked at before any is copied: a refusal must not come after hours.
func preparedLate(o Observation) (Step, bool) {
	var waiting *Step
	for i, claim := range o.Record.Claims {
		if !late(claim) {
			continue
		}
		step := prepared(o, i)
		if step.Verb != Idle {
			return step, true
		}
		waiting = &step
	}
	if waiting == nil {
		return Step{}, false
	}
	return *waiting, true
}

// unagreed says why pods may not be stopped: it would be for a whole copy that nobody agreed
// to, since a pod began to use the claim after the move had been judged, or no snapshot of
// it could be copied. Empty if they may.
func unagreed(o Observation) string {
	names, why := whole(o)
	if o.Record.LongStop || len(names) == 0 {
		return ""
	}
	for _, pod := range o.Pods {
		if pod.Bound && !pod.Leaving && !pod.Finished {
			return fmt.Sprintf("pod %s would stand still while all of claim %s is copied, which is ReadWriteOncePod%s: allow that with spec.offline Allow (--offline), or stop the pod, and move again; nothing was stopped",
				pod.Name, strings.Join(names, ", "), after(", and no snapshot of it could be copied: ", why))
		}
	}
	return ""
}

// whole returns the names of the claims that are copied as a whole while pods stand still,
// and why no snapshot was copied of the last of them, as far as known.
func whole(o Observation) (names []string, why string) {
	for _, claim := range o.Record.Claims {
		if !claim.Whole() {
			continue
		}
		names, why = append(names, claim.Name), claim.NoSnapshot
		if claim.Snapshot != nil {
			why = claim.Snapshot.Why
		}
	}
	return names, why
}

// stopFor is what pods are stopped for.
func stopFor(o Observation) string {
	if names, _ := whole(o); len(names) > 0 {
		return "the copy of " + strings.Join(names, ", ") + ", which nothing can read beside a pod"
	}
	return "the last changes"
}
