package decide_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// TestNextNeverHarms takes many random observations, also such as should not
// occur, and checks what must hold for every step.
func TestNextNeverHarms(t *testing.T) {
	const observations = 60_000
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
		decide.Reschedule, decide.Wake, decide.Release, decide.Confirm, decide.Finish, decide.Update, decide.Heal} {
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
	if step.Cluster != "" && step.Cluster != keys.Home && !o.Cluster(step.Cluster).Usable {
		return "a request to a cluster that cannot be used"
	}
	switch step.Verb {
	case decide.Idle, decide.Update:
	case decide.Heal:
		return harmHealing(o, step)
	case decide.Wake:
		if bound := o.Claim != nil && o.Volume != nil && o.Claim.Spec.VolumeName == o.Volume.Name; !wanted && !bound {
			return "a write of a claim that wants no volume and is bound to none"
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
		case o.HandedOut && o.Volume == nil:
			return "a backing claim removed while its volume is being created"
		case o.Volume != nil && refUID(o) == string(step.Backing.Claim.UID):
			return "the backing claim of a volume removed"
		}
	case decide.Reschedule:
		if !wanted || len(o.Backings) > 0 {
			return "a claim rescheduled that still has a backing claim"
		}
	case decide.Release, decide.Confirm, decide.Finish:
		switch {
		case o.Volume == nil || o.Volume.Status.Phase != corev1.VolumeReleased ||
			o.Volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
			return "data deleted of a volume that is in use or to be kept"
		case step.Verb == decide.Finish && !o.Gone:
			return "a volume let go before what is behind it"
		case step.Verb == decide.Release && (o.Attached != "" || refUID(o) != string(step.Backing.Claim.UID)):
			return "data deleted that is in use, or of another claim"
		}
	}
	return ""
}

func refUID(o decide.Observation) string {
	ref, err := backing.RefOf(o.Volume)
	if err != nil {
		return ""
	}
	return string(ref.UID)
}

// random returns an observation in which anything may have happened.
func random(r *rand.Rand) decide.Observation {
	chance := func(percent int) bool { return r.IntN(100) < percent }
	pick := func(names ...string) string { return names[r.IntN(len(names))] }
	place := func() string { return pick(keys.Home, "west", "east") }
	var changes []change
	maybe := func(percent int, c change) {
		if chance(percent) {
			changes = append(changes, c)
		}
	}
	maybe(70, on(pick("node-1", "node-2", "west-1")))
	maybe(3, func(o *decide.Observation) { o.Node = nil })
	maybe(40, annotated(keys.Routed, pick("west", "east", "gone")))
	maybe(5, annotated(keys.Class, "gold"))
	maybe(10, without(keys.StorageProvisioner))
	maybe(15, annotated(keys.Refused, encode(refusedBy(place(), "", time.Duration(r.IntN(3)-1)*time.Minute))))
	maybe(20, parameter(pick(keys.LocalClass, keys.RemoteClass), pick("now", "wait", "none")))
	maybe(10, parameter(keys.Clusters, pick("home", "west", "home,west")))
	maybe(2, parameter("tier", "gold"))
	maybe(30, retain)
	maybe(10, unsent)
	maybe(10, deletedClaim)
	maybe(5, boundTo("other"))
	maybe(5, handedOut)
	maybe(10, func(o *decide.Observation) { o.Gone = true })
	maybe(5, func(o *decide.Observation) { o.Changed = "cluster west" })
	maybe(5, func(o *decide.Observation) { o.Namespace = nil })
	maybe(5, func(o *decide.Observation) { o.Attached = "node-1" })
	for _, id := range []string{"west", "east"} {
		maybe(20, unreachable(id, time.Duration(r.IntN(60))*time.Second))
		maybe(10, unseen(id))
		maybe(5, unknown(id))
		maybe(5, cluster(id, func(c *decide.Cluster) { c.Leaving = true }))
	}
	for range r.IntN(3) {
		maybe(50, sibling(chance(70)))
	}
	places := []string{keys.Home, "west", "east"}
	if chance(15) {
		// What is deleted at home is rare otherwise.
		places = places[1:]
		changes = append(changes, have(keys.Home, pvcBound, published, terminating), volume(keys.Home))
		maybe(20, func(o *decide.Observation) { unprotected(&o.Backings[0]) })
		maybe(10, func(o *decide.Observation) {
			o.Backings[0].Volume.DeletionTimestamp = o.Backings[0].Claim.DeletionTimestamp
		})
		maybe(30, func(o *decide.Observation) { another(&o.Backings[0]) })
		maybe(30, func(o *decide.Observation) { o.Backings[0].Claim.DeletionTimestamp = nil })
		maybe(50, func(o *decide.Observation) { healing(o.Volume) })
		maybe(20, func(o *decide.Observation) { released(o.Volume) })
	}
	for _, id := range places {
		if chance(35) {
			changes = append(changes, have(id, randomBacking(r)...))
		}
	}
	maybe(50, real(types.UID(pick("b-home", "b-new", "", "other")), randomReal(r)...))
	maybe(5, leaving)
	if len(places) == 3 && chance(40) {
		changes = append(changes, volume(place(), randomVolume(r)...))
	}
	// Last, for it leaves nothing to alter.
	maybe(15, noClaim)
	return observe(changes...)
}

func randomBacking(r *rand.Rand) []func(*decide.Backing) {
	var chosen []func(*decide.Backing)
	for _, alter := range []func(*decide.Backing){pvcBound, published, lost, terminating, unprotected, old, dropped, volumeUnseen, another} {
		if r.IntN(100) < 25 {
			chosen = append(chosen, alter)
		}
	}
	return chosen
}

func randomVolume(r *rand.Rand) []func(*corev1.PersistentVolume) {
	var chosen []func(*corev1.PersistentVolume)
	for _, alter := range []func(*corev1.PersistentVolume){released, keepIt, nameless, small, healing} {
		if r.IntN(100) < 40 {
			chosen = append(chosen, alter)
		}
	}
	return chosen
}

func randomReal(r *rand.Rand) []func(*corev1.PersistentVolume) {
	var chosen []func(*corev1.PersistentVolume)
	for _, alter := range []func(*corev1.PersistentVolume){reclaimed, going} {
		if r.IntN(100) < 30 {
			chosen = append(chosen, alter)
		}
	}
	return chosen
}
