package decide_test

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

func fromSnapshot(o decide.Observation) bool { return o.Source != nil && o.Source.Snapshot != nil }

// harmToSnapshot says what is wrong with a backing claim that is made from a
// snapshot, or published before it has its data; empty if nothing.
func harmToSnapshot(o decide.Observation, step decide.Step) string {
	s, to := o.Source.Snapshot, step.Route
	switch {
	case s.Object == nil || s.Content == nil || s.Content.Spec.Snapshot.UID != s.Object.UID:
		return "a volume from the snapshot of somebody else"
	case !*s.Content.Status.ReadyToUse || s.Object.DeletionTimestamp != nil || s.Content.DeletionTimestamp != nil:
		return "a volume from a snapshot that is not ready, or going"
	case !to.FromSnapshot:
		return "a volume from a claim of the snapshot's name"
	case to.Cluster == keys.Home && (s.Content.Spec.Driver != driver || o.StandIn.Object == nil || !volumesnapshot.StandsFor(o.StandIn.Content, s.Content)):
		return "a twin from other data"
	case to.Cluster == keys.Home:
		return ""
	}
	ref, err := backing.ParseRef(*s.Content.Status.SnapshotHandle)
	if err != nil || s.Content.Spec.Driver != keys.Driver || ref.Cluster != to.Cluster || s.There == nil || s.There.UID != ref.UID || ref.Key() != to.Source {
		return "a shadow from other data"
	}
	return ""
}

// harmToStandIn says what is wrong with a step about a stand-in, or where a snapshot
// is.
func harmToStandIn(o decide.Observation, step decide.Step) string {
	switch {
	case step.Verb == decide.Locate && (o.Volume != nil || o.Claim == nil || o.Claim.Spec.VolumeName != "" || !fromSnapshot(o)):
		return "a claim told where its snapshot is that needs none"
	case step.Verb == decide.Stage && (o.Volume != nil || !fromSnapshot(o) || o.Source.Snapshot.Content.Spec.Driver == keys.Driver):
		return "a stand-in that nobody needs"
	case step.Verb != decide.Unstage:
		return ""
	}
	for _, b := range o.Backings {
		if b.Cluster == keys.Home && b.Claim.DeletionTimestamp == nil && b.Claim.Status.Phase != corev1.ClaimBound {
			return "a stand-in removed that a twin is made from"
		}
	}
	return ""
}
