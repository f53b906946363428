package decide

import (
	"fmt"
	"slices"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// forsaken is the step that gives up an end which is gone for good: what the move left
// there stays. False while it can be used, and while nobody has said that it is gone.
//
// At the target nothing can be mounted before Commit, and after it nothing of the source
// is needed. Before Commit the whole data is at the source: what was copied of it is all
// there is if that is gone, so it goes only when nobody wants the claims either.
func forsaken(o Observation, end record.End) (Step, bool) {
	r := o.Record
	if o.Unusable[end] == "" || end == record.Source && r.Phase == v1alpha1.MoveRollBack && !unwantedData(o) {
		return Step{}, false
	}
	asked := o.Move != nil && o.Move.Spec.Action == v1alpha1.ActionGiveUp
	if !asked && !o.Gone[end] && !(declaredLost(o) && cluster(o, end) == cluster(o, record.Source)) {
		return Step{}, false
	}
	next := r.Clone()
	next.GivenUp = append(slices.Clone(r.GivenUp), end)
	return Step{Verb: Save, Record: next, Say: next.Left()}, true
}

// stranded is the step of a move in Commit whose target is not there. Until a virtual
// volume names that, the fence holds: nobody can have used the target, both copies are
// the same, and so the move can go back if the target is given up. After that it cannot:
// a pod may have passed the gate early and written there.
func stranded(o Observation, need Need, why string) Step {
	if slices.ContainsFunc(o.Claims, func(c Claim) bool { return c.Volume != nil }) {
		return needs(need, soon, why+"; claims have their volumes there already, and pods may have used them; the copy at the source is whole, so ask for help before anything is removed")
	}
	switch name := cluster(o, record.Target); {
	case o.Move != nil && o.Move.Spec.Action == v1alpha1.ActionGiveUp:
		return back(o, "the move was given up before anybody used the target", record.GivenUp)
	case o.Gone[record.Target]:
		return back(o, fmt.Sprintf("cluster %s was removed before anybody used the target", name), record.GivenUp)
	default:
		return needs(need, soon, fmt.Sprintf("%s; if it is gone for ever, kubectl lodestone move give-up %s has the pods go on at the source", why, o.Record.Name))
	}
}

// unwantedData says whether each claim was deleted or its volume declared lost.
func unwantedData(o Observation) bool {
	return !slices.ContainsFunc(o.Claims, func(c Claim) bool { return c.Claim != nil && !lostForGood(c) })
}

func cluster(o Observation, end record.End) string { return o.Record.Claims[0].At(end).Ref.Cluster }

// declaredLost says whether somebody has said of a claim that its data is lost with its
// cluster.
func declaredLost(o Observation) bool { return slices.ContainsFunc(o.Claims, lostForGood) }

// lostForGood also counts a claim of which nothing is left: without its cluster a volume goes
// only once it was declared lost.
func lostForGood(c Claim) bool {
	return c.Claim == nil && c.Volume == nil || c.Volume != nil && c.Volume.Annotations[keys.Lost] != ""
}

// whereTheyAre says of a move that goes back what became of the claims.
func whereTheyAre(o Observation) string {
	if why := o.Unusable[record.Source]; why != "" {
		return "the claims have their volumes at the source again, and no pod can use them: " + why
	}
	return "the claims are in use at the source"
}

// stuck says why what a move left at an end cannot be removed, and what to do if it never
// can.
func stuck(o Observation, end record.End) string {
	name := cluster(o, end)
	advice := fmt.Sprintf("%s; if cluster %s is gone for ever, kubectl lodestone move give-up %s ends the move", o.Unusable[end], name, o.Record.Name)
	switch {
	case o.Record.Phase != v1alpha1.MoveRollBack:
		return "the copy at the " + string(end) + " cannot be removed yet: " + advice
	case end == record.Target:
		return whereTheyAre(o) + "; what the move left at the target cannot be removed yet: " + advice
	}
	return fmt.Sprintf("%s; what was copied is not the whole data and is kept meanwhile; if cluster %s is gone for ever, the data is lost with it: "+
		"kubectl lodestone lose pvc says so for each claim and ends the move", whereTheyAre(o), name)
}
