// What must hold of every step is one file: all of it is tried on the same random observations, which are made here.

package decide_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// TestNextNeverHarms checks the invariants of every step for many random observations,
// impossible ones included.
func TestNextNeverHarms(t *testing.T) {
	const observations = 100_000
	taken, cures, promises := map[string]int{}, map[steps.Cure]int{}, 0
	for seed := range uint64(observations) {
		o := random(rand.New(rand.NewPCG(seed, 1)))
		step := decide.Next(o)
		taken[step.Verb()]++
		cures[as[steps.HealBacking](step).Cure]++
		if b := as[steps.CreateVolume](step).Backing; b.Cluster == keys.Home && b.Claim.Status.Phase != corev1.ClaimBound {
			promises++
		}
		if broken := harm(o, step); broken != "" {
			require.Fail(t, broken, "seed %d: step %+v\nclaim %+v\nvolume %+v\nbackings %+v", seed, step, o.Claim, o.Volume, o.Backings)
		}
	}
	for _, verb := range []string{"Idle", "Record", "Create", "Publish", "Mark", "Remove",
		"Reschedule", "Wake", "Release", "Confirm", "Finish", "Update", "Expand", "Reflect",
		"Fix", "Modify", "Carry", "Ask", "Heal", "Stage", "Unstage", "Locate", "Lock"} {
		require.Greater(t, taken[verb], 50, "too few random observations lead to %s to say anything", verb)
	}
	require.Greater(t, promises, 50, "too few random observations lead to a volume before its twin is bound to say anything")
	for _, cure := range []steps.Cure{steps.Begin, steps.Retain, steps.LetGo, steps.Free, steps.Rebuild, steps.Adopt, steps.Restore,
		steps.End} {
		require.Greater(t, cures[cure], 20, "too few random observations lead to %s to say anything", cure)
	}
}

// harm describes the invariant that a step violates; empty if none.
func harm(o steps.Observation, step steps.Step) string {
	wanted := o.Claim != nil && o.Claim.DeletionTimestamp == nil && o.Claim.Spec.VolumeName == "" && o.Volume == nil && !o.HandedOut
	others := 0
	for _, b := range o.Backings {
		if b.Cluster != step.Cluster() {
			others++
		}
	}
	if o.Moving && (step.Verb() != "Idle" || step.Tell != nil || step.Left != nil) {
		return "something done about a claim that a move holds"
	}
	if step.Cluster() != "" && step.Cluster() != keys.Home && !o.Cluster(step.Cluster()).Usable {
		return "a request to a cluster that cannot be used"
	}
	if wanted && o.Claim.Annotations[keys.Import] != "" &&
		slices.Contains([]string{"Record", "Create", "Publish", "Remove", "Reschedule"}, step.Verb()) {
		return "something done about a claim that gets its volume from an import"
	}
	if step.Left != nil && (o.Claim != nil || o.Volume != nil || backing.Unpublished(step.Left.Claim) || step.Verb() == "Release") {
		return "a backing claim called left behind that is not"
	}
	switch step.Verb() {
	case "Idle", "Update", "Show":
	case "Heal":
		return harmHealing(o, step)
	case "Stage", "Unstage", "Locate":
		return harmToStandIn(o, step)
	case "Wake":
		if bound := o.Claim != nil && o.Volume != nil && o.Claim.Spec.VolumeName == o.Volume.Name; !wanted && !bound {
			return "a write of a claim that wants no volume and is bound to none"
		}
	case "Modify", "Carry":
		switch {
		case o.Volume == nil || o.Claim == nil || o.Claim.Spec.VolumeName != o.Volume.Name || o.Claim.DeletionTimestamp != nil:
			return "a backing claim changed for a claim that is not bound to its volume"
		case refUID(o) != string(backingOf(step).Claim.UID):
			return "a backing claim of another volume changed"
		case slices.ContainsFunc(slices.Concat(slices.Collect(maps.Keys(as[steps.SyncMetadata](step).Labels)),
			slices.Collect(maps.Keys(as[steps.SyncMetadata](step).Annotations))),
			func(key string) bool { return key != keys.Carried && !virtualclass.Carriable(key) }):
			return "a key changed that is not the user's"
		}
	case "Ask":
		switch {
		case backingOf(step).Claim.Status.Phase == corev1.ClaimBound:
			return "a question about a claim that does not wait"
		case o.LastWarning != nil && o.LastWarning.Backing == backingOf(step).Claim.UID && o.Now.Before(o.LastWarning.Again):
			return "a question that was asked a moment ago"
		}
	case "Record":
		if !wanted {
			return "a write of a claim that wants no volume"
		}
	case "Create":
		routed := o.Claim.Annotations[keys.Routed]
		hidden := routed != "" && routed != step.Cluster() && o.Cluster(routed).Known && !o.Cluster(routed).Seen && !o.Unsent
		switch {
		case !wanted:
			return "a backing claim for a claim that wants no volume"
		case len(o.Backings) > 0:
			return fmt.Sprintf("a second backing claim, beside %d", len(o.Backings))
		case hidden:
			return "a second backing claim, perhaps"
		case step.Cluster() != keys.Home && routed != step.Cluster():
			return "a backing claim in a cluster that was not recorded"
		case (o.Source != nil) != (routeOf(step).Source.Name != ""):
			return "an empty volume for a copy, or the reverse"
		case fromSnapshot(o):
			return harmToSnapshot(o, step)
		case o.Source != nil && (refOf(o.Source.Volume).Key() != routeOf(step).Source || refOf(o.Source.Volume).Cluster != step.Cluster()):
			return "a copy of something else"
		}
	case "Publish":
		b := backingOf(step)
		switch {
		case !wanted:
			return "a second volume"
		case b.Cluster != routeOf(step).Cluster || !decide.Ready(b, routeOf(step)):
			return "a volume without a ready backing claim"
		case len(o.Backings) != 1:
			return "a volume with a backing claim to spare"
		case b.Cluster == keys.Home && b.Claim.Status.Phase != corev1.ClaimBound:
			return harmToPromise(o, step)
		case o.Source != nil && backing.Unpublished(b.Claim) && backing.CopyOf(b.Claim) == "":
			return "an empty volume for a copy"
		case fromSnapshot(o) && b.Claim.Status.Phase != corev1.ClaimBound:
			if broken := harmToSnapshot(o, step); broken != "" {
				return broken
			}
		case o.Source != nil && !fromSnapshot(o) && b.Claim.Status.Phase != corev1.ClaimBound &&
			backing.CopyOf(b.Claim) != refOf(o.Source.Volume).Name:
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
	case "Mark":
		b := backingOf(step).Claim
		switch {
		case !backing.Unpublished(b):
			return "a mark that is there already"
		case step.Cluster() == keys.Home && b.Status.Phase == corev1.ClaimPending:
			return "a twin called settled that is not bound"
		case step.Cluster() == keys.Home && o.Volume != nil && backing.Misbound(o.Volume, b):
			return "a twin called settled that is bound to another volume"
		}
	case "Lock":
		if o.Claim == nil || o.Volume == nil || o.Claim.DeletionTimestamp != nil || o.Claim.Spec.VolumeName != o.Volume.Name {
			return "a lock on a claim that is not bound to its volume"
		}
	case "Remove":
		switch {
		case !backing.Unpublished(backingOf(step).Claim):
			return "a published backing claim removed"
		case step.Cluster() != keys.Home && backingOf(step).Claim.Annotations[keys.SelectedNode] != "":
			return "a backing claim removed that a pod uses"
		case o.HandedOut && o.Volume == nil:
			return "a backing claim removed while its volume is being created"
		case o.Volume != nil && refUID(o) == string(backingOf(step).Claim.UID):
			return "the backing claim of a volume removed"
		case o.Volume != nil && refOf(o.Volume).Cluster == step.Cluster() && o.Volume.Annotations[keys.BackingVolume] != "" &&
			o.Volume.Annotations[keys.BackingVolume] == backingOf(step).Claim.Spec.VolumeName:
			return "a claim removed that holds the data of a volume"
		}
	case "Reschedule":
		if !wanted || len(o.Backings) > 0 {
			return "a claim rescheduled that still has a backing claim"
		}
	case "Expand", "Reflect", "Fix":
		return harmToSize(o, step)
	case "Release", "Confirm", "Finish":
		switch {
		case o.Volume == nil || o.Volume.Status.Phase != corev1.VolumeReleased ||
			o.Volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
			return "data deleted of a volume that is in use or to be kept"
		case refOf(o.Volume).Cluster != keys.Home && o.Volume.Annotations[keys.Lost] != "":
			if step.Verb() != "Finish" {
				return "something done about data that was declared lost"
			}
		case step.Verb() == "Finish" && !o.Gone:
			return "a volume let go before what is behind it"
		case step.Verb() == "Release" && (o.Attached != "" || refUID(o) != string(backingOf(step).Claim.UID)):
			return "data deleted that is in use, or of another claim"
		}
	}
	return ""
}

// harmToPromise describes what is wrong with a volume that is published before its twin is bound; empty
// if nothing.
func harmToPromise(o steps.Observation, step steps.Step) string {
	b := backingOf(step)
	real := b.Volume
	switch {
	case real == nil || real.Spec.ClaimRef == nil || real.Spec.ClaimRef.UID != b.Claim.UID:
		return "a volume of what does not name the twin"
	case b.Claim.Spec.VolumeName != "" && b.Claim.Spec.VolumeName != real.Name:
		return "a volume of another than the twin names"
	case !routeOf(step).Deferred() || *b.Claim.Spec.StorageClassName != routeOf(step).Class.Name || real.Spec.StorageClassName !=
		routeOf(step).Class.Name:
		return "a volume before its twin is bound, which may get any other"
	case real.Annotations["pv.kubernetes.io/provisioned-by"] != driver || real.DeletionTimestamp != nil ||
		real.Status.Phase == corev1.VolumeReleased:
		return "a volume of what was not made for the twin, or is going"
	case real.Spec.Capacity.Storage().Cmp(*b.Claim.Spec.Resources.Requests.Storage()) < 0 || real.Spec.VolumeMode != nil || backing.Attributes(
		b.Claim) != "" || len(real.Spec.AccessModes) < len(b.Claim.Spec.AccessModes):
		return "a volume of what does not fit the twin, which is not bound to it therefore"
	case o.Source != nil || !backing.Unpublished(b.Claim) || o.Class.ReclaimPolicy != nil &&
		*o.Class.ReclaimPolicy == corev1.PersistentVolumeReclaimRetain:
		return "a volume of which it cannot be told later that its twin is not settled, or whose data is not there"
	}
	for _, s := range o.Siblings {
		if !s.Ready {
			return "a volume although a sibling may have to go elsewhere"
		}
	}
	return ""
}

func refUID(o steps.Observation) string {
	return string(refOf(o.Volume).UID)
}

// refOf is the backing claim that a volume refers to, empty if it is unreadable.
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

// randomUse returns a claim bound to a volume with a backing claim in a cluster, all of
// random sizes.
func randomUse(r *rand.Rand, cluster string) []change {
	size := func() string { return []string{"1Gi", "2Gi", "3Gi"}[r.IntN(3)] }
	behind := append(randomBacking(r), published, asks(size(), size()))
	if r.IntN(100) < 80 {
		behind = append(behind, pvcBound)
	}
	if r.IntN(100) < 40 {
		behind = append(behind, says(corev1.PersistentVolumeClaimFileSystemResizePending, "start a pod"))
	}
	if r.IntN(100) < 60 {
		behind = append(behind, of([]string{"now", "roomy", "gone"}[r.IntN(3)]))
	}
	changes := []change{volume(cluster, randomVolume(r)...), have(cluster, behind...), inUse(size(), size())}
	if r.IntN(100) < 30 {
		changes = append(changes, declined(size()))
	}
	if r.IntN(100) < 30 {
		changes = append(changes, growing)
	}
	if r.IntN(100) < 30 {
		changes = append(changes, annotated(keys.FixedSize, "it is of stone"))
	}
	return changes
}

// harmToSize describes what is wrong with a step that changes a claim's requested size or
// its size status; empty if nothing.
func harmToSize(o steps.Observation, step steps.Step) string {
	if o.Claim == nil || o.Volume == nil || o.Claim.Spec.VolumeName != o.Volume.Name {
		return "a size of a claim that is not bound to the volume"
	}
	if fix, ok := step.Action.(steps.MarkFixedSize); ok {
		if fix.Why == o.Claim.Annotations[keys.FixedSize] {
			return "a write that changes nothing"
		}
		return ""
	}
	ours, reached := decide.KeepsSize(o.Volume), o.Claim.Status.Capacity.Storage()
	if expand, ok := step.Action.(steps.ExpandBacking); ok {
		b := expand.Backing.Claim
		have, has := b.Spec.Resources.Requests.Storage(), b.Status.Capacity.Storage()
		switch {
		case refUID(o) != string(b.UID) || b.DeletionTimestamp != nil || b.Status.Phase != corev1.ClaimBound:
			return "a size of a claim that is not in use behind the volume"
		case expand.Size.Cmp(*have) == 0 || expand.Size.Cmp(*has) <= 0 && expand.Size.Cmp(*have) < 0:
			return "a size that is there already, or that Kubernetes refuses"
		case ours && !expand.Size.Equal(*o.Claim.Spec.Resources.Requests.Storage()):
			return "a size that nobody asked for"
		case !ours && !expand.Size.Equal(*reached):
			return "a twin larger than its driver has made the volume"
		case o.RefusedSize != nil && o.RefusedSize.Size.Equal(expand.Size):
			return "a size that was refused just now"
		}
		return ""
	}
	update := as[steps.UpdateClaimStatus](step)
	status := update.Status
	switch {
	case backingOf(step).Cluster != keys.Home && o.QuietUntil.After(o.Now):
		return "a write of what a cluster says that has said too much"
	case update.On == o.Claim && status.ModifyVolumeStatus != nil &&
		status.ModifyVolumeStatus.TargetVolumeAttributesClassName != backing.Attributes(o.Claim):
		return "a change of attributes told that nobody asked for"
	case step.Cluster() != keys.Home:
		return "a status written in a cluster that keeps its own"
	case update.On == o.Claim && !ours:
		return "a status written that the driver and kubelet keep"
	case update.On == o.Claim && status.Capacity.Storage().Cmp(*reached) < 0:
		return "a claim that shrinks"
	case update.On == o.Claim && status.Capacity.Storage().Cmp(*reached) > 0 &&
		status.Capacity.Storage().Cmp(*o.Volume.Spec.Capacity.Storage()) > 0:
		return "a claim that is larger than its volume"
	case update.On == o.Claim && status.AllocatedResources.Storage().Cmp(*o.Claim.Spec.Resources.Requests.Storage()) > 0:
		return "more of the quota taken than was asked for"
	case update.On != o.Claim && (ours || !status.Capacity.Storage().Equal(*reached)):
		return "a twin that says other than kubelet said"
	}
	return ""
}

// harmHealing describes what is wrong with a step of healing; empty if nothing.
func harmHealing(o steps.Observation, step steps.Step) string {
	var twin *corev1.PersistentVolumeClaim
	for _, b := range o.Backings {
		if b.Cluster == keys.Home {
			twin = b.Claim
		}
	}
	held := twin != nil && twin.DeletionTimestamp == nil && o.Real != nil && o.Real.Spec.ClaimRef.UID == twin.UID
	stays := o.Real != nil && o.Real.DeletionTimestamp == nil &&
		o.Real.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
	old := twin != nil && string(twin.UID) == refUID(o)
	if o.Volume != nil && refOfStep(step).Cluster != keys.Home {
		return harmAdoption(o, step)
	}
	switch {
	case o.Volume == nil || refOfStep(step).Cluster != keys.Home || step.Cluster() != keys.Home:
		return "healed what is not at home"
	case (as[steps.HealBacking](step).Cure == steps.Begin) == (o.Volume.Annotations[keys.Healing] != ""):
		return "healed without a record, or recorded twice"
	case as[steps.HealBacking](step).Cure == steps.LetGo &&
		(!stays || !old || twin.DeletionTimestamp == nil || string(o.Real.Spec.ClaimRef.UID) != refUID(o)):
		return "a twin let go whose volume would go with it, or that nobody deleted"
	case as[steps.HealBacking](step).Cure == steps.Free && (!stays || twin != nil):
		return "a real volume freed that is held, or would not stay"
	case as[steps.HealBacking](step).Cure == steps.Rebuild && (twin != nil || o.Real.Spec.ClaimRef.UID != ""):
		return "a second twin"
	case as[steps.HealBacking](step).Cure == steps.Adopt && (old || o.Real.Spec.ClaimRef.UID != twin.UID):
		return "a virtual volume with another's twin"
	case as[steps.HealBacking](step).Cure == steps.Restore && (!held || !old):
		return "a real volume that nothing holds may be deleted"
	case as[steps.HealBacking](step).Cure == steps.End &&
		(!held || !old || string(o.Real.Spec.PersistentVolumeReclaimPolicy) != o.Volume.Annotations[keys.Healing]):
		return "a healing ended too early"
	}
	return ""
}

// harmAdoption describes what is wrong with making a virtual volume name another remote
// backing claim; empty if nothing.
func harmAdoption(o steps.Observation, step steps.Step) string {
	b := backingOf(step)
	known := o.Volume.Annotations[keys.BackingVolume]
	switch {
	case step.Cluster() != keys.Home || as[steps.HealBacking](step).Cure != steps.Adopt:
		return "healed what is not at home"
	case refOfStep(step) != refOf(o.Volume) || b.Cluster != refOfStep(step).Cluster || b.Claim.Namespace != refOfStep(step).Namespace ||
		b.Claim.Name != refOfStep(step).Name:
		return "a virtual volume with a backing claim of elsewhere"
	case known == "" && backing.Unpublished(b.Claim) && b.Claim.Annotations[keys.SelectedNode] == "":
		return "a virtual volume with a claim that no pod ever used"
	case string(b.Claim.UID) == refUID(o) || b.Volume == nil || known != "" && b.Volume.Name != known:
		return "a virtual volume with the data of another"
	case o.Real != nil && o.Real.Labels[keys.Healing] != "":
		return "a shadow taken that is not whole yet"
	case !o.Cluster(b.Cluster).Usable:
		return "a cluster believed that is away"
	}
	return ""
}

func fromSnapshot(o steps.Observation) bool { return o.Source != nil && o.Source.Snapshot != nil }

// harmToSnapshot describes what is wrong with a backing claim that is created from a
// snapshot, or published before it has its data; empty if nothing.
func harmToSnapshot(o steps.Observation, step steps.Step) string {
	s, to := o.Source.Snapshot, routeOf(step)
	switch {
	case s.Object == nil || s.Content == nil || s.Content.Spec.Snapshot.UID != s.Object.UID:
		return "a volume from the snapshot of somebody else"
	case !*s.Content.Status.ReadyToUse || s.Object.DeletionTimestamp != nil || s.Content.DeletionTimestamp != nil:
		return "a volume from a snapshot that is not ready, or going"
	case !to.FromSnapshot:
		return "a volume from a claim of the snapshot's name"
	case to.Cluster == keys.Home && (s.Content.Spec.Driver != driver || o.StandIn.Object == nil ||
		!volumesnapshot.StandsFor(o.StandIn.Content, s.Content)):
		return "a twin from other data"
	case to.Cluster == keys.Home:
		return ""
	}
	ref, err := backing.ParseRef(*s.Content.Status.SnapshotHandle)
	if err != nil || s.Content.Spec.Driver != keys.Driver || ref.Cluster != to.Cluster || s.There == nil || s.There.UID != ref.UID ||
		ref.Key() != to.Source {
		return "a shadow from other data"
	}
	return ""
}

// harmToStandIn describes what is wrong with a step about a stand-in, or with recording the
// cluster of a snapshot; empty if nothing.
func harmToStandIn(o steps.Observation, step steps.Step) string {
	switch {
	case step.Verb() == "Locate" && (o.Volume != nil || o.Claim == nil || o.Claim.Spec.VolumeName != "" || !fromSnapshot(o)):
		return "a claim told where its snapshot is that needs none"
	case step.Verb() == "Stage" && (o.Volume != nil || !fromSnapshot(o) || o.Source.Snapshot.Content.Spec.Driver == keys.Driver):
		return "a stand-in that nobody needs"
	case step.Verb() != "Unstage":
		return ""
	}
	for _, b := range o.Backings {
		if b.Cluster == keys.Home && b.Claim.DeletionTimestamp == nil && b.Claim.Status.Phase != corev1.ClaimBound {
			return "a stand-in removed that a twin is made from"
		}
	}
	return ""
}

func random(r *rand.Rand) steps.Observation {
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
	maybe(3, func(o *steps.Observation) { o.Node = nil })
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
	maybe(40, driven(keys.Home, driver))
	maybe(30, attributes(pick("gold", "silver")))
	maybe(10, attributed("gold"))
	maybe(15, ungiven(pick("", "gold", "silver")))
	maybe(20, quietly)
	maybe(20, justMissed)
	maybe(20, parameter(keys.Carry, pick("team", "*", "backup/*")))
	maybe(20, annotated(pick("team", "backup/daily"), pick("a", "b")))
	maybe(20, func(o *steps.Observation) { o.Synced = now })
	maybe(40, said(place(), pick("", "ProvisioningFailed"), "no"))
	maybe(5, handedOut)
	maybe(10, func(o *steps.Observation) { o.Gone = true })
	maybe(5, func(o *steps.Observation) { o.Changed = "cluster west" })
	maybe(5, func(o *steps.Observation) { o.Namespace = nil })
	maybe(5, func(o *steps.Observation) { o.Attached = "node-1" })
	for _, id := range []string{"west", "east"} {
		maybe(20, unreachable(id, time.Duration(r.IntN(60))*time.Second))
		maybe(10, unseen(id))
		maybe(5, unknown(id))
		maybe(5, cluster(id, func(c *steps.Cluster) { c.Leaving = true }))
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
		// Otherwise a deletion at home would be rare.
		places = places[1:]
		used = keys.Home
		changes = append(changes, have(keys.Home, pvcBound, published, terminating), volume(keys.Home))
		maybe(20, func(o *steps.Observation) { unprotected(&o.Backings[0]) })
		maybe(10, func(o *steps.Observation) {
			o.Backings[0].Volume.DeletionTimestamp = o.Backings[0].Claim.DeletionTimestamp
		})
		maybe(30, func(o *steps.Observation) { another(&o.Backings[0]) })
		maybe(30, func(o *steps.Observation) { o.Backings[0].Claim.DeletionTimestamp = nil })
		maybe(50, func(o *steps.Observation) { healing(o.Volume) })
		maybe(20, func(o *steps.Observation) { released(o.Volume) })
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
			// The usual case.
			changes = append(changes, func(o *steps.Observation) { o.Backings = nil }, have(in, append(randomBacking(r), pvcBound, published)...))
		}
	}
	if chance(5) {
		// Its twin is not bound yet.
		twin := promised()
		if chance(30) {
			twin = promised(randomMade(r))
		}
		changes = append(changes, on("node-1"), driven(keys.Home, driver), func(o *steps.Observation) { o.Backings, o.Volume = nil, nil },
			have(keys.Home, twin))
	}
	if chance(5) {
		// Its volume was made before its twin was bound.
		twin := append(randomBacking(r), promised())
		if chance(60) {
			twin = append(twin, boundAs(pick("pvc-b-home", "other")))
		}
		changes = append(changes, func(o *steps.Observation) { o.Backings = nil }, have(keys.Home, twin...),
			volume(keys.Home, append(randomVolume(r), onTime)...), boundTo("pvc-u1"))
	}
	maybe(50, real(types.UID(pick("b-home", "b-new", "", "other")), randomReal(r)...))
	maybe(5, leaving)
	maybe(3, func(o *steps.Observation) { o.Moving = true })
	// Last, since it leaves nothing to change.
	maybe(15, noClaim)
	return observe(changes...)
}

// some chooses each with a chance in percent.
func some[T any](r *rand.Rand, percent int, each ...func(*T)) (chosen []func(*T)) {
	for _, alter := range each {
		if r.IntN(100) < percent {
			chosen = append(chosen, alter)
		}
	}
	return chosen
}

// atMostOne chooses one with a chance in percent.
func atMostOne[T any](r *rand.Rand, percent int, of ...func(*T)) []func(*T) {
	if r.IntN(100) >= 100-percent {
		return []func(*T){of[r.IntN(len(of))]}
	}
	return nil
}

func randomBacking(r *rand.Rand) []func(*steps.Backing) {
	return some(r, 25, pvcBound, published, lost, terminating, unprotected, old, dropped, volumeUnseen, another,
		nodesGone, fromSource, fromGone, fromSnap, made, emptyMade, having("gold"), having("silver"), carrying("team"), chosenThere,
		infeasible("gold"))
}

// randomMade spoils a volume that was made for a twin.
func randomMade(r *rand.Rand) func(*corev1.PersistentVolume) {
	return []func(*corev1.PersistentVolume){
		func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "" },
		func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "other" }, func(v *corev1.PersistentVolume) { v.Annotations = nil },
		func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "now" }, func(v *corev1.PersistentVolume) { v.Spec.Capacity = nil },
		func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) },
		func(v *corev1.PersistentVolume) { v.Spec.AccessModes = nil }, released,
		func(v *corev1.PersistentVolume) { v.DeletionTimestamp = ptr.To(metav1.NewTime(now)) },
	}[r.IntN(10)]
}

func randomSource(r *rand.Rand) []func(*steps.Source) {
	return atMostOne(r, 50, sourceGone, sourceGoing, sourceForeign, sourceUnbound, sourceMoving, sourceUnseen, sourceOther,
		sourceWaits, sourceEnds, sourcePlain, sourceBlock, sourceLarger, sourceNamed)
}

func randomSnapshot(r *rand.Rand) []func(*steps.Snapshot) {
	return atMostOne(r, 40, apiUnknown, apiAbsent, snapGone, snapGoing, snapUntaken, snapThief, contentGoing, snapUnready,
		snapNameless,
		snapLarger, snapBlock, snapOfOther, snapNonsense, snapForHome, thereUnseen, thereOther, thereGoing, thereUnknown)
}

func randomStandIn(r *rand.Rand) []func(*steps.StandIn) {
	return atMostOne(r, 50, standInAlone, standInGoing, standInEnds, standInWaits, standInOthers, standInGone)
}

func randomVolume(r *rand.Rand) []func(*corev1.PersistentVolume) {
	return some(r, 40, released, keepIt, nameless, small, driverless, healing, declaredLost)
}

func randomReal(r *rand.Rand) []func(*corev1.PersistentVolume) {
	return some(r, 30, reclaimed, going, mending)
}
