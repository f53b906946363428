package decide_test

import (
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

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
	maybe(3, annotated(keys.Import, "home/real/r1"))
	maybe(10, without(keys.StorageProvisioner))
	maybe(15, annotated(keys.Refused, encode(refusedBy(place(), "", time.Duration(r.IntN(3)-1)*time.Minute))))
	maybe(20, parameter(pick(keys.LocalClass, keys.RemoteClass), pick("now", "wait", "none")))
	maybe(10, parameter(keys.Clusters, pick("home", "west", "home,west")))
	maybe(2, parameter("tier", "gold"))
	maybe(30, retain)
	maybe(10, unsent)
	maybe(10, deletedClaim)
	maybe(5, boundTo("other"))
	maybe(30, copyIn(place(), randomSource(r)...))
	maybe(15, snapIn(place(), randomSnapshot(r)...))
	maybe(15, annotated(keys.SourceCluster, pick(keys.Home, "west")))
	maybe(15, staged(randomStandIn(r)...))
	maybe(30, attributes(pick("gold", "silver")))
	maybe(10, attributed("gold"))
	maybe(15, ungiven(pick("", "gold", "silver")))
	maybe(20, quietly)
	maybe(20, justMissed)
	maybe(20, parameter(keys.Carry, pick("team", "*", "backup/*")))
	maybe(20, annotated(pick("team", "backup/daily"), pick("a", "b")))
	maybe(20, func(o *decide.Observation) { o.Carried = now })
	maybe(40, said(place(), pick("", "ProvisioningFailed"), "no"))
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
	used := ""
	if chance(20) {
		used = place()
		changes = append(changes, randomUse(r, used)...)
	}
	places := []string{keys.Home, "west", "east"}
	if used == "" && chance(15) {
		// What is deleted at home is rare otherwise.
		places = places[1:]
		used = keys.Home
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
		if chance(35) && id != used {
			changes = append(changes, have(id, randomBacking(r)...))
		}
	}
	if chance(40) && used == "" {
		in := place()
		changes = append(changes, volume(in, randomVolume(r)...))
		maybe(60, boundTo("pvc-u1"))
		if chance(30) {
			// As it mostly is.
			changes = append(changes, func(o *decide.Observation) { o.Backings = nil }, have(in, append(randomBacking(r), pvcBound, published)...))
		}
	}
	maybe(50, real(types.UID(pick("b-home", "b-new", "", "other")), randomReal(r)...))
	maybe(5, leaving)
	maybe(3, func(o *decide.Observation) { o.Moving = true })
	// Last, for it leaves nothing to alter.
	maybe(15, noClaim)
	return observe(changes...)
}

func randomBacking(r *rand.Rand) []func(*decide.Backing) {
	var chosen []func(*decide.Backing)
	for _, alter := range []func(*decide.Backing){pvcBound, published, lost, terminating, unprotected, old, dropped, volumeUnseen, another,
		nodesGone, fromSource, fromGone, fromSnap, made, emptyMade, having("gold"), having("silver"), carrying("team"), chosenThere, infeasible("gold")} {
		if r.IntN(100) < 25 {
			chosen = append(chosen, alter)
		}
	}
	return chosen
}

func randomSource(r *rand.Rand) []func(*decide.Source) {
	states := []func(*decide.Source){sourceGone, sourceGoing, sourceForeign, sourceUnbound, sourceMoving, sourceUnseen, sourceOther,
		sourceWaits, sourceEnds, sourcePlain, sourceBlock, sourceLarger, sourceNamed}
	if r.IntN(100) < 50 {
		return nil
	}
	return []func(*decide.Source){states[r.IntN(len(states))]}
}

func randomSnapshot(r *rand.Rand) []func(*decide.Snapshot) {
	states := []func(*decide.Snapshot){apiUnknown, apiAbsent, snapGone, snapGoing, snapUntaken, snapThief, contentGoing, snapUnready, snapNameless,
		snapLarger, snapBlock, snapOfOther, snapNonsense, snapForHome, thereUnseen, thereOther, thereGoing, thereUnknown}
	if r.IntN(100) < 60 {
		return nil
	}
	return []func(*decide.Snapshot){states[r.IntN(len(states))]}
}

func randomStandIn(r *rand.Rand) []func(*decide.StandIn) {
	states := []func(*decide.StandIn){standInAlone, standInGoing, standInEnds, standInWaits, standInOthers, standInGone}
	if r.IntN(100) < 50 {
		return nil
	}
	return []func(*decide.StandIn){states[r.IntN(len(states))]}
}

func randomVolume(r *rand.Rand) []func(*corev1.PersistentVolume) {
	var chosen []func(*corev1.PersistentVolume)
	for _, alter := range []func(*corev1.PersistentVolume){released, keepIt, nameless, small, driverless, healing, declaredLost} {
		if r.IntN(100) < 40 {
			chosen = append(chosen, alter)
		}
	}
	return chosen
}

func randomReal(r *rand.Rand) []func(*corev1.PersistentVolume) {
	var chosen []func(*corev1.PersistentVolume)
	for _, alter := range []func(*corev1.PersistentVolume){reclaimed, going, mending} {
		if r.IntN(100) < 30 {
			chosen = append(chosen, alter)
		}
	}
	return chosen
}
