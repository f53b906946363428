package decide

import (
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// StandIn is what is seen of the stand-in of a snapshot for the twin of a claim; see
// package volumesnapshot. Both are nil where there is none.
type StandIn struct {
	Object  *volumesnapshot.Snapshot
	Content *volumesnapshot.Content
}

// outdated says whether a stand-in names other data than the snapshot does now, as
// when that was created anew.
func outdated(o Observation) bool {
	return o.StandIn.Content != nil && o.Source != nil && o.Source.Snapshot != nil && o.Source.Snapshot.Content != nil &&
		!volumesnapshot.StandsFor(o.StandIn.Content, o.Source.Snapshot.Content)
}

// stage is the step that a twin needs before it can be made from a snapshot; false
// if it needs none.
func stage(o Observation, to route.Route) (Step, bool) {
	if to.Cluster != keys.Home || !to.FromSnapshot || complete(find(o, keys.Home)) {
		return Step{}, false
	}
	in := o.StandIn
	switch {
	case in.Object != nil && in.Object.DeletionTimestamp != nil || in.Content != nil && in.Content.DeletionTimestamp != nil:
		return Step{Verb: Idle, After: slow}, true
	case outdated(o):
		return Step{Verb: Unstage, Cluster: keys.Home, StandIn: in}, true
	case in.Object == nil || in.Content == nil:
		return Step{Verb: Stage, Cluster: keys.Home, StandIn: in, Route: to}, true
	case !volumesnapshot.BelongTo(in.Object, in.Content) || !ptr.Deref(in.Object.Status.ReadyToUse, false):
		step := Step{Verb: Idle, After: slow}
		if o.Now.Sub(in.Object.CreationTimestamp.Time) >= slow {
			step.Tell = note(snapshotNotReady, fmt.Sprintf(
				"waiting until VolumeSnapshot %s/%s, which stands in for %q, is ready: see its events%s", in.Object.Namespace, in.Object.Name, route.SnapshotOf(o.Claim), because(in.Object.Status.Error)))
		}
		return step, true
	}
	return Step{}, false
}

// tidy replaces a step that does nothing by the removal of a stand-in that nobody
// needs any more: its twin has its data, or will never be.
func tidy(o Observation, step Step) Step {
	in := o.StandIn
	there := in.Object != nil && in.Object.DeletionTimestamp == nil || in.Object == nil && in.Content != nil && in.Content.DeletionTimestamp == nil
	if step.Verb != Idle || !there || standInNeeded(o) {
		return step
	}
	step.Verb, step.Cluster, step.StandIn = Unstage, keys.Home, in
	return step
}

func standInNeeded(o Observation) bool {
	twin := find(o, keys.Home)
	switch {
	case complete(twin):
		return false
	case twin != nil && twin.Claim.DeletionTimestamp == nil:
		return true
	}
	return o.Volume == nil && !o.HandedOut && o.Claim != nil && o.Claim.DeletionTimestamp == nil && o.Claim.Spec.VolumeName == "" &&
		o.Source != nil && o.Source.Snapshot != nil && o.Node != nil && locality.OfNode(o.Node.Labels) == keys.Home
}

// located is the step that says on a claim in which cluster it can be made from its
// snapshot, so that its pods go there; Idle if that is said.
func located(o Observation) Step {
	if o.Source == nil || o.Source.Snapshot == nil {
		return Step{Verb: Idle}
	}
	step := Step{Verb: Idle}
	origin, obstacle := originOf(o.Claim, o.Source.Snapshot)
	switch {
	case obstacle == nil:
		step.Located = origin.Cluster
	case obstacle.Tell == nil:
		return step
	default:
		step.Tell = obstacle.Tell
	}
	if o.Claim.Annotations[keys.SourceCluster] != step.Located {
		step.Verb, step.Cluster = Locate, keys.Home
	}
	return step
}
