package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// prepare puts our finalizer on the claims, and sets policy Retain on real volumes at home,
// so that they survive whatever happens.
func prepare(o steps.Observation) steps.Step {
	for i, claim := range o.Claims {
		if !slices.Contains(claim.Claim.Finalizers, keys.MoveFinalizer) {
			return steps.Step{Action: steps.HoldClaim{Claim: i}}
		}
	}
	for i, claim := range o.Claims {
		if o.Record.Claims[i].Source.Policy == "" || claim.Source.Real == nil {
			continue
		}
		if claim.Source.Real.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
			return steps.Step{Action: steps.Keep{Claim: i}}
		}
	}
	if o.Record.Adopts {
		return stopForNewer(o)
	}
	return steps.Enter(o, v1alpha1.MoveProvision)
}

// stopForNewer begins to take the volume from the pods of a claim that gets newer data which exists already, once the
// volume for that can be made.
func stopForNewer(o steps.Observation) steps.Step {
	if why := o.Target.Unusable; why != "" {
		return steps.GoBack(o, why, record.TargetChanged)
	}
	for i, claim := range o.Claims {
		if claim.New == nil {
			return steps.GoBack(o, fmt.Sprintf("the newer data of claim %s cannot be used: %s", o.Record.Claims[i].Name, claim.NewError),
				record.TargetChanged)
		}
	}
	return stopPodsFor(o)
}

// stopPodsFor begins to take the volumes from the pods, without a copy before that.
func stopPodsFor(o steps.Observation) steps.Step {
	next := o.Record.Enter(v1alpha1.MoveQuiesce, o.Now)
	next.Down = o.Now
	return steps.Step{Action: steps.Save{Record: next}, Say: "the pods that use the claims are stopped"}
}

// startTimeout is how long a mover may take to run as long as nothing was stopped for it.
const startTimeout = 10 * time.Minute

// provision creates the target and the movers, and makes the movers examine both volumes.
func provision(o steps.Observation) steps.Step {
	if !o.Failing.IsZero() && o.Now.Sub(o.Failing) > startTimeout {
		return steps.GoBack(o, o.FailingWhy+"; nothing was stopped for the move: mend that and move again", record.NotStarted)
	}
	if why := o.Target.Unusable; why != "" {
		return steps.Wait(steps.Soon, why)
	}
	if o.Record.Failover != nil {
		return provisionVersion(o)
	}
	for i, claim := range o.Claims {
		if step, ok := makeTargetClaim(o, i, claim); ok {
			return step
		}
	}
	if step, ok := runMovers(o); ok {
		if step.Action == nil && o.Now.Sub(o.Record.Began[v1alpha1.MoveProvision]) > startTimeout {
			return steps.GoBack(o, step.Say+"; nothing was stopped for the move: mend that and move again", record.NotStarted)
		}
		return step
	}
	for i, claim := range o.Record.Claims {
		if !claim.Prepared && !claim.Offline {
			return prepareClaim(o, i)
		}
	}
	return steps.Enter(o, v1alpha1.MovePreCopy)
}

// makeTargetClaim is the next step to create the backing claim at the target; false if it
// exists and is recorded.
func makeTargetClaim(o steps.Observation, i int, claim steps.Claim) (steps.Step, bool) {
	ref, b := o.Record.Claims[i].Target.Ref, claim.Target.Backing
	if o.Record.Claims[i].Kept != nil {
		return takeKept(o, i, claim)
	}
	if o.Record.TakesSlots() {
		return takeSlot(o, i, claim)
	}
	if step, ok := giveUpBasis(o, i); ok {
		return step, true
	}
	switch {
	case b == nil && ref.UID == "":
		return steps.Step{Action: steps.MakeTarget{Claim: i}}, true
	case ref.UID == "" && b.DeletionTimestamp != nil:
		return steps.GoBack(o, deletedAtTarget(o, i), record.TargetChanged), true
	case ref.UID == "" && !steps.IsOurTarget(o, b):
		return steps.GoBack(o, fmt.Sprintf("a claim %s is at the target already and is not this move's: remove or rename it there, and move "+
			"again", ref.Key()), record.TargetChanged), true
	case ref.UID == "":
		return steps.ChangeClaim(o, i, func(c *record.Claim) {
			if c.Target.Ref.UID = b.UID; isMadeOfBasis(c, b) {
				// Its volume came when it was given up already.
				c.Basis.Why = ""
			}
		}), true
	}
	return steps.Step{}, false
}

func deletedAtTarget(o steps.Observation, i int) string {
	return fmt.Sprintf("somebody deleted real claim %s at the target: move again", o.Record.Claims[i].Target.Ref.Key())
}

// whyNotOurTarget says why a move that is not committed may not write at the target: a copy there is gone, or is in use
// already. The latter is so if the record is older than the move, because home was restored from a backup: a pass
// would replace what was written since by what the source had before. Empty if nothing speaks against it, or the target
// cannot be observed; then nothing is written either.
func whyNotOurTarget(o steps.Observation) string {
	if why := steps.WhyInUseSince(o); why != "" {
		return why
	}
	for i, claim := range o.Claims {
		known, b := o.Record.Claims[i], claim.Target.Backing
		observed := o.Target.Unusable == "" && known.Target.Ref.UID != ""
		if observed && (b == nil || b.UID != known.Target.Ref.UID || b.DeletionTimestamp != nil) {
			return deletedAtTarget(o, i)
		}
	}
	return ""
}

// runMovers is the next step to start movers; false if all run that should by now.
func runMovers(o steps.Observation) (steps.Step, bool) {
	for _, end := range record.Ends {
		if why := o.At(end).Unusable; why != "" {
			return steps.Wait(steps.Soon, why), true
		}
	}
	waiting := ""
	for i, claim := range o.Claims {
		from := ReadEnd(o, i)
		for _, end := range []record.End{from, record.Target} {
			if end == "" {
				continue
			}
			if end == record.Source {
				if step, ok := yieldToPods(o, i); ok {
					return step, true
				}
			}
			node, near, unplaced := nodeForMover(o, i, end)
			if unplaced != "" && !claim.At(end).Mover.Exists {
				waiting = cmp.Or(waiting, unplaced)
				continue
			}
			step, acts, why := runMover(o, i, end, node, near)
			if acts {
				return step, true
			}
			// One that waits for nothing special must not hide why another one cannot run.
			waiting = joined(waiting, why)
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
	return steps.Wait(steps.Soon, waiting), waiting != ""
}

// runMover is the next step to start the mover of a claim at an end, on the given node; acts is false if there is none, and waiting
// says then what the mover waits for, empty if it runs.
func runMover(o steps.Observation, i int, end record.End, node, near string) (step steps.Step, acts bool, waiting string) {
	switch m := o.Claims[i].At(end).Mover; {
	case !m.Exists:
		return steps.Step{Action: steps.EnsureMover{Claim: i, End: end, Node: node, Near: near}}, true, ""
	case m.Ended && !m.Leaving:
		return steps.Step{Action: steps.DropMover{Claim: i, End: end}}, true, ""
	case m.Unstarted && !m.Leaving:
		return steps.Step{Action: steps.StartMover{Claim: i, End: end}}, true, ""
	case m.Keyless && !m.Leaving:
		return steps.Step{Action: steps.GiveKeys{Claim: i, End: end}}, true, ""
	case !m.Running:
		return steps.Step{}, false, fmt.Sprintf("waiting until the mover of claim %s runs at the %s%s", o.Record.Claims[i].Name, end,
			sentence.Prefixed(": ", m.Problem))
	}
	return steps.Step{}, false, ""
}

// yieldToPods is the step that deletes a mover at the source which keeps a volume on its
// node while pods that use it are on others; false if it is in nobody's way. It is created
// again on the pods' node. Once pods are stopped for the move none can be in the way.
func yieldToPods(o steps.Observation, i int) (steps.Step, bool) {
	known, seen := o.Record.Claims[i], o.Claims[i]
	if !record.Before(o.Record.Phase, v1alpha1.MoveQuiesce) {
		return steps.Step{}, false
	}
	m := seen.Source.Mover
	if !m.Exists {
		left := known.Yielded.Add(yieldFor(known.Yields)).Sub(o.Now)
		if known.Yields == 0 || left <= 0 {
			return steps.Step{}, false
		}
		return steps.Wait(min(left, steps.Soon), fmt.Sprintf("the mover of claim %s at the source made way for pods on %s, and is made again "+
			"there", known.Name, joinNodes(seen.On))), true
	}
	if m.Node == "" || len(seen.On) == 0 || slices.Contains(seen.On, m.Node) || usableOnSeveralNodes(seen.Claim) {
		return steps.Step{}, false
	}
	say := fmt.Sprintf("the mover of claim %s makes way for pods on %s, since the volume can be used on one node at a time", known.Name,
		joinNodes(seen.On))
	switch {
	case m.Leaving:
		return steps.Wait(steps.Soon, say), true
	case known.YieldedBy == m.Pod:
		return steps.Step{Action: steps.DropMover{Claim: i, End: record.Source}, Say: say}, true
	}
	step := steps.ChangeClaim(o, i, func(c *record.Claim) {
		c.Yields, c.Yielded, c.YieldedBy = c.Yields+1, o.Now, m.Pod
	})
	step.Say = say
	return step, true
}

const (
	// firstYield is for how long a deleted mover is not created again, so that pods get the
	// volume first. It doubles with each time, up to longestYield.
	firstYield   = 5 * time.Second
	longestYield = 2 * time.Minute
)

// yieldFor is for how long a mover stays away after it was deleted that many times.
func yieldFor(times int) time.Duration {
	return min(firstYield<<min(max(times-1, 0), 8), longestYield)
}

func joinNodes(names []string) string {
	if len(names) == 0 {
		return "another node"
	}
	return "node " + strings.Join(names, ", ")
}

// usableOnSeveralNodes says whether several nodes may attach the volume of a claim.
func usableOnSeveralNodes(claim *corev1.PersistentVolumeClaim) bool {
	return claim == nil || slices.ContainsFunc(claim.Spec.AccessModes, func(mode corev1.PersistentVolumeAccessMode) bool {
		return mode == corev1.ReadWriteMany || mode == corev1.ReadOnlyMany
	})
}

// nodeForMover is the node on which the mover of a claim at an end must run, empty for any:
// claims that one pod uses must get target volumes usable on one node, or the pod could run
// on none. For claims that no pod uses now that is not known: near is a preferred node for
// those, used if it has room. why says what is missing while the node is not known yet.
func nodeForMover(o steps.Observation, i int, end record.End) (node, near, why string) {
	if end != record.Target || o.Record.Phase != v1alpha1.MoveProvision || o.Record.Claims[i].Target.Node != "" {
		// An existing volume says itself on which nodes it can be used.
		return "", "", ""
	}
	for j := range i {
		if !sharePod(o, j, i) {
			continue
		}
		if node = o.Claims[j].Target.Mover.Node; node == "" {
			why = fmt.Sprintf("waiting until the mover of claim %s has a node at the target, for that of claim %s, which the same pod uses, must "+
				"run there too", o.Record.Claims[j].Name, o.Record.Claims[i].Name)
		}
		return node, "", why
	}
	for j := range i {
		if isUsed(o, j) || isUsed(o, i) {
			continue
		}
		if near = o.Claims[j].Target.Mover.Node; near == "" {
			why = fmt.Sprintf("waiting until the mover of claim %s has a node at the target, for that of claim %s, which the same pod may use one "+
				"day, is best made there too", o.Record.Claims[j].Name, o.Record.Claims[i].Name)
		}
		return "", near, why
	}
	return "", "", ""
}

// prepareClaim is the next step to find out whether a copy is possible.
func prepareClaim(o steps.Observation, i int) steps.Step {
	name := o.Record.Claims[i].Name
	task, step, ok := runTask(o, i, moverapi.Task{ID: "prepare", Kind: moverapi.Prepare})
	if !ok {
		return step
	}
	switch why := whyNotWhole(name, task.Prepared); {
	case why == "":
	case o.Record.Claims[i].Offline:
		return steps.GoBack(o, why+"; pods that use it stood still meanwhile, and go on at the source", record.NotKept)
	default:
		return steps.GoBack(o, why+"; nothing was stopped", record.NotKept)
	}
	return steps.ChangeClaim(o, i, func(c *record.Claim) { c.Prepared, c.Expect = true, task.Prepared.Source })
}

// whyNotWhole says why a mover found that a copy of a claim would be incomplete; empty if
// it would not.
func whyNotWhole(name string, p *moverapi.Prepared) string {
	switch {
	case p == nil:
		return "the mover of claim " + name + " looked at the volume and says nothing of it: use movers of the provisioner's version"
	case len(p.Source) > steps.LongestText:
		// The text becomes part of the record.
		return fmt.Sprintf("the mover of claim %s says more of what its source is than movers do (%d bytes): use movers of the provisioner's "+
			"version, and see who runs its cluster", name, len(p.Source))
	case len(p.Refusals) == 0:
		return ""
	}
	why := fmt.Sprintf("claim %s cannot be moved there whole: %s", name, p.Refusals[0])
	if more := len(p.Refusals) - 1; more > 0 {
		why += fmt.Sprintf(" (more reasons: %d)", more)
	}
	return why + ": mend that or choose another class or place, and move again"
}

// isUsed says whether a pod uses a claim.
func isUsed(o steps.Observation, i int) bool {
	return slices.ContainsFunc(o.Pods, func(pod steps.Pod) bool { return !pod.Finished && slices.Contains(pod.Claims, i) })
}

// sharePod says whether one pod uses both claims.
func sharePod(o steps.Observation, i, j int) bool {
	return slices.ContainsFunc(o.Pods, func(pod steps.Pod) bool {
		return !pod.Finished && slices.Contains(pod.Claims, i) && slices.Contains(pod.Claims, j)
	})
}

// joined joins two sentences, either of which may be empty. The result is bounded whatever they say.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return steps.Brief(a + "; " + b)
}
