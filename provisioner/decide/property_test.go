package decide_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// TestNextNeverHarms takes many random observations, also such as should not
// occur, and checks what must hold for every step.
func TestNextNeverHarms(t *testing.T) {
	const observations = 80_000
	taken, cures := map[decide.Verb]int{}, map[decide.Cure]int{}
	for seed := range uint64(observations) {
		o := random(rand.New(rand.NewPCG(seed, 1)))
		step := decide.Next(o)
		taken[step.Verb]++
		cures[step.Cure]++
		if broken := harm(o, step); broken != "" {
			require.Fail(t, broken, "seed %d: step %+v\nclaim %+v\nvolume %+v\nbackings %+v", seed, step, o.Claim, o.Volume, o.Backings)
		}
	}
	for _, verb := range []decide.Verb{decide.Idle, decide.Record, decide.Create, decide.Publish, decide.Mark, decide.Remove,
		decide.Reschedule, decide.Wake, decide.Release, decide.Confirm, decide.Finish, decide.Update, decide.Expand, decide.Reflect,
		decide.Fix, decide.Modify, decide.Carry, decide.Ask, decide.Heal, decide.Stage, decide.Unstage, decide.Locate} {
		require.Greater(t, taken[verb], 50, "too few random observations lead to %s to say anything", verb)
	}
	for _, cure := range []decide.Cure{decide.Begin, decide.Retain, decide.LetGo, decide.Free, decide.Rebuild, decide.Adopt, decide.Restore, decide.End} {
		require.Greater(t, cures[cure], 20, "too few random observations lead to %s to say anything", cure)
	}
}

// harm says what is wrong with a step; empty if nothing.
func harm(o decide.Observation, step decide.Step) string {
	wanted := o.Claim != nil && o.Claim.DeletionTimestamp == nil && o.Claim.Spec.VolumeName == "" && o.Volume == nil && !o.HandedOut
	others := 0
	for _, b := range o.Backings {
		if b.Cluster != step.Cluster {
			others++
		}
	}
	if o.Moving && (step.Verb != decide.Idle || step.Tell != nil || step.Left != nil) {
		return "something done about a claim that a move holds"
	}
	if step.Cluster != "" && step.Cluster != keys.Home && !o.Cluster(step.Cluster).Usable {
		return "a request to a cluster that cannot be used"
	}
	if wanted && o.Claim.Annotations[keys.Import] != "" &&
		slices.Contains([]decide.Verb{decide.Record, decide.Create, decide.Publish, decide.Remove, decide.Reschedule}, step.Verb) {
		return "something done about a claim that gets its volume from an import"
	}
	if step.Left != nil && (o.Claim != nil || o.Volume != nil || backing.Unpublished(step.Left.Claim) || step.Verb == decide.Release) {
		return "a backing claim called left behind that is not"
	}
	switch step.Verb {
	case decide.Idle, decide.Update, decide.ShowTrouble:
	case decide.Heal:
		return harmHealing(o, step)
	case decide.Stage, decide.Unstage, decide.Locate:
		return harmToStandIn(o, step)
	case decide.Wake:
		if bound := o.Claim != nil && o.Volume != nil && o.Claim.Spec.VolumeName == o.Volume.Name; !wanted && !bound {
			return "a write of a claim that wants no volume and is bound to none"
		}
	case decide.Modify, decide.Carry:
		switch {
		case o.Volume == nil || o.Claim == nil || o.Claim.Spec.VolumeName != o.Volume.Name || o.Claim.DeletionTimestamp != nil:
			return "a backing claim changed for a claim that is not bound to its volume"
		case refUID(o) != string(step.Backing.Claim.UID):
			return "a backing claim of another volume changed"
		case slices.ContainsFunc(slices.Concat(slices.Collect(maps.Keys(step.Labels)), slices.Collect(maps.Keys(step.Annotations))),
			func(key string) bool { return key != keys.Carried && !virtualclass.Carriable(key) }):
			return "a key changed that is not the user's"
		}
	case decide.Ask:
		switch {
		case step.Backing.Claim.Status.Phase == corev1.ClaimBound:
			return "a question about a claim that does not wait"
		case o.Said != nil && o.Said.Backing == step.Backing.Claim.UID && o.Now.Before(o.Said.Again):
			return "a question that was asked a moment ago"
		}
	case decide.Record:
		if !wanted {
			return "a write of a claim that wants no volume"
		}
	case decide.Create:
		routed := o.Claim.Annotations[keys.Routed]
		hidden := routed != "" && routed != step.Cluster && o.Cluster(routed).Known && !o.Cluster(routed).Seen && !o.Unsent
		switch {
		case !wanted:
			return "a backing claim for a claim that wants no volume"
		case len(o.Backings) > 0:
			return fmt.Sprintf("a second backing claim, beside %d", len(o.Backings))
		case hidden:
			return "a second backing claim, perhaps"
		case step.Cluster != keys.Home && routed != step.Cluster:
			return "a backing claim in a cluster that was not recorded"
		case (o.Source != nil) != (step.Route.Source.Name != ""):
			return "an empty volume for a copy, or the reverse"
		case fromSnapshot(o):
			return harmToSnapshot(o, step)
		case o.Source != nil && (refOf(o.Source.Volume).Key() != step.Route.Source || refOf(o.Source.Volume).Cluster != step.Cluster):
			return "a copy of something else"
		}
	case decide.Publish:
		b := step.Backing
		switch {
		case !wanted:
			return "a second volume"
		case b.Cluster != step.Route.Cluster || !decide.Ready(b, b.Cluster, step.Route.Deferred()):
			return "a volume without a ready backing claim"
		case len(o.Backings) != 1:
			return "a volume with a backing claim to spare"
		case o.Source != nil && backing.Unpublished(b.Claim) && backing.CopyOf(b.Claim) == "":
			return "an empty volume for a copy"
		case fromSnapshot(o) && b.Claim.Status.Phase != corev1.ClaimBound:
			if broken := harmToSnapshot(o, step); broken != "" {
				return broken
			}
		case o.Source != nil && !fromSnapshot(o) && b.Claim.Status.Phase != corev1.ClaimBound && backing.CopyOf(b.Claim) != refOf(o.Source.Volume).Name:
			return "a volume that will never get its data"
		case o.Source != nil && backing.Unpublished(b.Claim) && b.Volume != nil && b.Volume.Spec.CSI == nil:
			return "a volume for a copy from what makes no copies"
		case backing.Attributes(o.Claim) != "" && backing.Unpublished(b.Claim) && backing.Attributes(b.Claim) == "":
			return "a volume without the attributes that were asked for"
		case o.Class.ReclaimPolicy != nil && *o.Class.ReclaimPolicy == corev1.PersistentVolumeReclaimRetain && backing.Unpublished(b.Claim):
			return "a kept volume whose backing claim could be removed"
		}
		for _, s := range o.Siblings {
			if !s.Ready {
				return "a volume although a sibling may have to go elsewhere"
			}
		}
	case decide.Mark:
		if !backing.Unpublished(step.Backing.Claim) {
			return "a mark that is there already"
		}
	case decide.Remove:
		switch {
		case !backing.Unpublished(step.Backing.Claim):
			return "a published backing claim removed"
		case step.Cluster != keys.Home && step.Backing.Claim.Annotations[keys.SelectedNode] != "":
			return "a backing claim removed that a pod uses"
		case o.HandedOut && o.Volume == nil:
			return "a backing claim removed while its volume is being created"
		case o.Volume != nil && refUID(o) == string(step.Backing.Claim.UID):
			return "the backing claim of a volume removed"
		case o.Volume != nil && refOf(o.Volume).Cluster == step.Cluster && o.Volume.Annotations[keys.BackingVolume] != "" &&
			o.Volume.Annotations[keys.BackingVolume] == step.Backing.Claim.Spec.VolumeName:
			return "a claim removed that holds the data of a volume"
		}
	case decide.Reschedule:
		if !wanted || len(o.Backings) > 0 {
			return "a claim rescheduled that still has a backing claim"
		}
	case decide.Expand, decide.Reflect, decide.Fix:
		return harmToSize(o, step)
	case decide.Release, decide.Confirm, decide.Finish:
		switch {
		case o.Volume == nil || o.Volume.Status.Phase != corev1.VolumeReleased ||
			o.Volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
			return "data deleted of a volume that is in use or to be kept"
		case refOf(o.Volume).Cluster != keys.Home && o.Volume.Annotations[keys.Lost] != "":
			if step.Verb != decide.Finish {
				return "something done about data that was declared lost"
			}
		case step.Verb == decide.Finish && !o.Gone:
			return "a volume let go before what is behind it"
		case step.Verb == decide.Release && (o.Attached != "" || refUID(o) != string(step.Backing.Claim.UID)):
			return "data deleted that is in use, or of another claim"
		}
	}
	return ""
}

func refUID(o decide.Observation) string {
	return string(refOf(o.Volume).UID)
}

// refOf is what a volume refers to, nothing if it is unreadable.
func refOf(volume *corev1.PersistentVolume) backing.Ref {
	if volume == nil {
		return backing.Ref{}
	}
	ref, err := backing.RefOf(volume)
	if err != nil {
		return backing.Ref{}
	}
	return ref
}
