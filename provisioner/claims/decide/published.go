// This file is the step for a claim whose virtual volume exists, and what can be wrong with the volume: the cluster does not
// answer, the backing claim is missing, deleted or made anew, the data is lost or declared lost. It is long because each of
// them has its sentence, and they exclude each other in one order.

package decide

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// published is the step for a claim whose virtual volume exists.
func published(o steps.Observation) steps.Step {
	ref, err := backing.RefOf(o.Volume)
	if err != nil {
		return steps.Step{Tell: steps.Warn("InvalidVolume", fmt.Sprintf("volume %q is not one that Lodestone made: %v; restore its annotation %s",
			o.Volume.Name, err, keys.Backing))}
	}
	if o.Volume.UID == "" {
		// Wait until the API server has certainly stored it.
		step := steps.Step{After: steps.Slow}
		if o.Now.Sub(o.Volume.CreationTimestamp.Time) >= steps.Slow {
			step.Tell = steps.Warn("VolumeNotStored", fmt.Sprintf(
				"the home cluster does not take volume %q: let its administrator see why in the log of the provisioner; it is tried again",
				o.Volume.Name))
		}
		return step
	}
	if step, ok := restored(o, ref); ok {
		return step
	}
	step := discard(o, func(b steps.Backing) bool {
		return b.Claim.UID != ref.UID && backing.Unpublished(b.Claim) && !Holds(b, o.Volume)
	})
	if _, remove := step.Action.(steps.RemoveBacking); remove {
		return step
	}
	if ref.Cluster == keys.Home && o.Volume.Annotations[keys.Healing] != "" {
		// Also before a release: a half-healed volume looks like one that an administrator
		// keeps.
		if step, ok := heal(o, ref); ok {
			return step
		}
		if !toDelete(o.Volume) {
			return unhealed(o, ref)
		}
	}
	lost := givenUp(o.Volume, ref)
	if lost && toDelete(o.Volume) {
		return abandon(ref)
	}
	if step, ok := madeAnew(o, ref); ok {
		return step
	}
	if toDelete(o.Volume) {
		return release(o, ref)
	}
	if o.Standing.Behind() && o.Claim != nil && o.Claim.DeletionTimestamp == nil && o.Claim.Spec.VolumeName == o.Volume.Name {
		return behind(o)
	}
	if o.Changed != "" && o.Claim != nil && o.Claim.DeletionTimestamp == nil && o.Claim.Spec.VolumeName == o.Volume.Name {
		return steps.Step{Action: steps.RequeuePods{}}
	}
	if lost {
		return declaredLostStep(o, ref, inUse(o, ref))
	}
	return inUse(o, ref)
}

// newerBacking is the reason of a claim of which newer data exists.
const newerBacking = "NewerBacking"

// behind is the step for a claim of which newer data exists than what its volume stands for: home, or its volume, was
// restored from a backup from before a move. Pods would write to the old data, so new ones wait until an administrator has
// chosen; neither copy is changed meanwhile.
func behind(o steps.Observation) steps.Step {
	text := o.Standing.Describe(types.NamespacedName{Namespace: o.Claim.Namespace, Name: o.Claim.Name})
	return lock(o, steps.ShownAsTold(steps.Step{Trouble: newerBacking, Tell: steps.Warn(newerBacking, text)}))
}

// lock adds to a step that new pods of the claim must wait.
func lock(o steps.Observation, step steps.Step) steps.Step {
	if o.Claim.Labels[keys.Moving] != keys.MovingNow || o.Claim.Annotations[keys.Move] != keys.NoMove ||
		o.Claim.Annotations[keys.Newer] != NewerRef(o) {
		step.Action = steps.LockClaim{}
	}
	return step
}

// NewerRef names the newest copy of a claim that is newer than its volume's; empty if that is not known.
func NewerRef(o steps.Observation) string {
	if len(o.Standing.Newer) == 0 {
		return ""
	}
	return o.Standing.Newer[0].Ref().String()
}

// toDelete says whether a virtual volume is released and its data is to be deleted.
func toDelete(virtual *corev1.PersistentVolume) bool {
	return virtual.Status.Phase == corev1.VolumeReleased && virtual.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

// inUse keeps a volume consistent with its backing claim.
func inUse(o steps.Observation, ref backing.Ref) steps.Step {
	b := o.BackingOf(ref)
	if cluster := o.Cluster(ref.Cluster); !cluster.Usable || (b == nil && !cluster.Seen) {
		return clusterSilent(o, ref, cluster, steps.Step{Unknown: true, Tell: growsLater(o, ref, cluster)})
	}
	if b == nil {
		return missing(o, ref)
	}
	switch {
	case unsettled(o, ref, *b):
		return settle(o, ref, *b)
	case backing.Unpublished(b.Claim):
		step := steps.Step{Action: steps.MarkPublished{Backing: *b}}
		if b.Volume != nil && !volumeOutdated(o.Volume, b.Volume) {
			step.Tell = ignoredMountOptions(o, *b)
		}
		return step
	case backing.WasRestored(o.Volume, o.UID) && b.Claim.Labels[keys.ClaimUID] != string(o.UID) && o.Claim != nil &&
		o.Claim.Spec.VolumeName == o.Volume.Name:
		return takeOver(o, ref, *b)
	case ref.Cluster == keys.Home && b.Claim.DeletionTimestamp != nil && b.Volume != nil && volumeOutdated(o.Volume, b.Volume):
		// Record the name of the real volume before its claim goes.
		return steps.Step{Action: steps.UpdateVolume{Backing: *b}}
	case b.Claim.DeletionTimestamp != nil && healable(o, ref, *b):
		return steps.Step{Action: steps.HealBacking{Cure: steps.Begin, Ref: ref, Backing: *b}, Tell: steps.Note("BackingHealing", fmt.Sprintf(
			"somebody deleted real claim %s in %s; its data is safe, and the claim is made anew", ref.Key(), steps.Where(ref.Cluster)))}
	case b.Claim.DeletionTimestamp != nil:
		return deleted(o, ref, *b)
	case b.Claim.Status.Phase == corev1.ClaimLost:
		return lostVolume(o, ref)
	case Unmarked(o.Volume, *b):
		return steps.Step{Action: steps.UpdateVolume{Backing: *b}}
	case backing.GenerationOf(o.Volume) > backing.GenerationOf(b.Claim) && o.Now.Sub(o.Synced) >= metadataPause:
		// It was made anew, or chosen before a newer one: a home that is restored later must see that.
		return steps.Step{Action: steps.SyncMetadata{Backing: *b, Annotations: map[string]any{
			keys.Generation: strconv.FormatInt(backing.GenerationOf(o.Volume), 10)}}}
	}
	late := b.Volume != nil && volumeOutdated(o.Volume, b.Volume)
	if late && quietFor(o, *b) == 0 {
		step := steps.Step{Action: steps.UpdateVolume{Backing: *b}}
		if o.Volume.Annotations[keys.BackingVolume] == "" {
			step.Tell = ignoredMountOptions(o, *b)
		}
		return step
	}
	step := inStep(o, *b)
	if late {
		step.After = steps.Sooner(step.After, quietFor(o, *b))
	}
	if o.Claim != nil && handMade(b) && backing.CopyOf(b.Claim) != "" {
		// It was published before it had a volume, which its pod may use by now.
		step.Tell = notACopy(*b)
	}
	if b.Claim.Status.Phase == corev1.ClaimPending && step.Action == nil && step.Tell == nil {
		return pending(o, ref, *b)
	}
	if b.Volume != nil && step.Action == nil {
		return realVolumeTrouble(step, ref, *b)
	}
	return step
}

// notRestored is the reason of a volume that was restored from a backup and that its claim cannot have.
const notRestored = "NotRestored"

// restored is the step for a volume that was made for another claim, if this one cannot have the data: claims and volumes
// can be restored to another namespace, and beside those that the backup was made of. Nothing is changed or deleted then,
// for the data is somebody else's.
func restored(o steps.Observation, ref backing.Ref) (steps.Step, bool) {
	elsewhere := o.Place != "" && o.Place != ref.Namespace
	switch {
	case !backing.WasRestored(o.Volume, o.UID) || o.Another == "" && !elsewhere:
	case toDelete(o.Volume) && o.Volume.DeletionTimestamp != nil:
		// Only the volume goes, as an administrator wants.
		return steps.Step{Action: steps.FinishVolume{}}, true
	case o.Another != "":
		return steps.WithTrouble(steps.Step{}, notRestored, fmt.Sprintf(
			"volumes %q and %q both stand for real claim %s in %s, and until one of them is gone nothing is changed or deleted for this one: let "+
				"an administrator delete the one that is too many", o.Volume.Name, o.Another, ref.Key(), steps.Where(ref.Cluster))), true
	case elsewhere:
		return steps.WithTrouble(steps.Step{}, notRestored, fmt.Sprintf(
			"the volume's data is in namespace %s of %s, and claims of this namespace can have theirs in %s only: restore claim and volume to "+
				"the namespace that they had", ref.Namespace, steps.Where(ref.Cluster), o.Place)), true
	}
	return steps.Step{}, false
}

// takeOver is the step for a claim that was restored from a backup, with its volume: the backing claim
// carries the UID of the claim before, and gets that of this one. If the claim's namespace was restored
// too, the owner of the remote cluster must have given it what is there.
func takeOver(o steps.Observation, ref backing.Ref, b steps.Backing) steps.Step {
	if mapped := o.Cluster(ref.Cluster).Mapped; mapped.Asked && !mapped.Given {
		step, text := steps.Step{After: steps.Slow}, fmt.Sprintf("the volume's data is in cluster %s: %s", ref.Cluster, unreadable(mapped))
		switch {
		case mapped.Reason != "":
			step.Tell = steps.Warn(namespaceRefused, text)
		case o.Now.Sub(mapped.Since) >= Patience:
			step.Tell = steps.Warn(namespaceNotMade, text)
		}
		return step
	}
	if left := metadataPause - o.Now.Sub(o.Synced); left > 0 {
		return steps.Step{After: left + time.Millisecond}
	}
	return steps.Step{Action: steps.SyncMetadata{Backing: b, Labels: map[string]any{keys.ClaimUID: string(o.UID)},
		Annotations: map[string]any{keys.Claim: o.Claim.Namespace + "/" + o.Claim.Name}}}
}

// volumeOutdated says whether a virtual volume lacks data of the real one. A remote real
// volume is often created only after the virtual one.
func volumeOutdated(virtual, real *corev1.PersistentVolume) bool {
	if virtual.Annotations[keys.BackingVolume] != real.Name {
		return true
	}
	if !KeepsSize(virtual) {
		return false
	}
	have, want := virtual.Spec.Capacity[corev1.ResourceStorage], real.Spec.Capacity[corev1.ResourceStorage]
	return have.Cmp(want) < 0
}

// ignoredMountOptions reports mount options of the virtual class that have no effect. It is
// for the step that is taken once, when the real volume has become known; nil for none.
func ignoredMountOptions(o steps.Observation, b steps.Backing) *steps.Message {
	if b.Cluster == keys.Home || b.Volume == nil {
		return nil
	}
	text := backing.IgnoredOptions(o.Volume, b.Volume, b.Cluster, className(b.Claim))
	if text == "" {
		return nil
	}
	return steps.Warn(backing.MountOptionsIgnored, text)
}

// release deletes what belongs to a released volume, in this order: no node may still use
// it, then the backing claim is deleted, then the real volume.
func release(o steps.Observation, ref backing.Ref) steps.Step {
	if o.Gone {
		return steps.Step{Action: steps.FinishVolume{}}
	}
	if o.Attached != "" {
		return steps.Step{Tell: steps.Warn("StillAttached", fmt.Sprintf("waiting until the volume is detached from node %q before its data is "+
			"deleted", o.Attached))}
	}
	if ref.Cluster != keys.Home {
		switch cluster := o.Cluster(ref.Cluster); {
		case !cluster.Known:
			return steps.Step{Unknown: true,
				Tell: steps.Warn("UnknownCluster", fmt.Sprintf("the volume's data in cluster %s cannot be deleted, for there is no RemoteCluster of "+
					"that name: create it again", ref.Cluster))}
		case !cluster.Usable:
			return steps.Step{Unknown: true, After: steps.Slow,
				Tell: steps.Warn("ClusterNotUsable", fmt.Sprintf("waiting for cluster %s to delete the volume's data there: %s", ref.Cluster,
					cluster.Message))}
		case !cluster.Seen:
			// A request gives a better error than waiting: rights may be missing.
			return steps.Step{Action: steps.ConfirmGone{Ref: ref}}
		}
	}
	if b := o.BackingOf(ref); b != nil {
		if Unmarked(o.Volume, *b) || b.Volume != nil && volumeOutdated(o.Volume, b.Volume) {
			// Record which cluster to ask, and which real volume to wait for before its claim goes.
			return steps.Step{Action: steps.UpdateVolume{Backing: *b}}
		}
		if b.Volume == nil && b.Claim.Status.Phase == corev1.ClaimBound && o.Volume.Annotations[keys.BackingVolume] == "" {
			// The same; if its volume is gone the claim will soon be Lost.
			return steps.Step{After: steps.Slow}
		}
		if b.Claim.DeletionTimestamp != nil && !backing.Protected(b.Claim) {
			return steps.Step{After: steps.Slow, Tell: steps.IfSlow(o, b.Claim, steps.Note("WaitingForBacking", fmt.Sprintf(
				"waiting until real claim %s in %s is gone: another finalizer or a pod holds it", ref.Key(), steps.Where(ref.Cluster))))}
		}
		return steps.Step{Action: steps.ReleaseBacking{Backing: *b}}
	}
	return steps.Step{Action: steps.ConfirmGone{Ref: ref}}
}

// Reasons of volumes about which their cluster reports nothing.
const (
	clusterNotUsable = "ClusterNotUsable"
	unknownCluster   = "UnknownCluster"
	backingNotSeen   = "BackingNotSeen"
)

// ClusterSilent says whether the cluster of a volume's data reports nothing about it now.
func ClusterSilent(o steps.Observation) bool {
	if o.Volume == nil {
		return false
	}
	ref, err := backing.RefOf(o.Volume)
	if err != nil {
		return false
	}
	cluster := o.Cluster(ref.Cluster)
	return !cluster.Usable || !cluster.Seen && o.BackingOf(ref) == nil
}

// clusterSilent adds to a volume's step that its cluster has reported nothing for long. An
// earlier problem stays on the claim: nothing proves that it is solved. The messages
// contain nothing that changes during the outage, and an event comes only with the write of
// the condition: many claims have their data in one cluster.
func clusterSilent(o steps.Observation, ref backing.Ref, cluster steps.Cluster, step steps.Step) steps.Step {
	if have := shown(o.Claim); have != nil && !slices.Contains([]string{clusterNotUsable, unknownCluster, backingNotSeen, backingPending},
		have.Reason) {
		step.Trouble, step.Shows = have.Reason, have.Message
		return step
	}
	if left := steps.Overdue - o.Now.Sub(o.AwaySince); left > 0 {
		step.After = steps.Sooner(step.After, left+time.Millisecond)
		return step
	}
	switch {
	case !cluster.Known:
		step.Trouble = unknownCluster
		step.Shows = fmt.Sprintf("nothing is known of the volume, for there is no RemoteCluster %s, where its data is: create it again, with a "+
			"kubeconfig that leads there", ref.Cluster)
	case !cluster.Usable:
		step.Trouble = clusterNotUsable
		step.Shows = fmt.Sprintf("nothing is known of the volume, for cluster %s, where its data is, cannot be used now: see the conditions of "+
			"RemoteCluster %s", ref.Cluster, ref.Cluster)
	default:
		step.Trouble = backingNotSeen
		step.Shows = fmt.Sprintf("nothing is known of the volume, whose data is in cluster %s: %s", ref.Cluster, unreadable(cluster.Mapped))
	}
	return step
}

// missingAfter is how long a backing claim must be missing before that is reported: caches
// may lag, and claims are recreated.
const missingAfter = 10 * time.Second

// BackingMissed says whether a volume's backing claim is missing although the cache of its
// cluster is complete.
func BackingMissed(o steps.Observation) bool {
	if o.Volume == nil {
		return false
	}
	ref, err := backing.RefOf(o.Volume)
	if err != nil || o.BackingOf(ref) != nil {
		return false
	}
	cluster := o.Cluster(ref.Cluster)
	return cluster.Usable && cluster.Seen
}

// whenMissedLong suppresses a step that reports something missing until missingAfter has
// passed.
func whenMissedLong(o steps.Observation, step steps.Step) steps.Step {
	if left := missingAfter - o.Now.Sub(o.MissedSince); left > 0 {
		return steps.Step{Unknown: true, After: left + time.Millisecond}
	}
	return step
}

// missing reports a backing claim that is gone, and what is known of its data.
func missing(o steps.Observation, ref backing.Ref) steps.Step {
	gone := fmt.Sprintf("real claim %s in %s is gone", ref.Key(), steps.Where(ref.Cluster))
	if awaits(o.Real, ref) {
		return whenMissedLong(o, steps.ShownAsTold(steps.Step{After: steps.Slow, Trouble: "BackingMissing", Tell: steps.Warn("BackingMissing",
			fmt.Sprintf(
				"%s, its volume %s is there with the data; waiting for its claim: let an administrator there make it anew if nobody does", gone,
				o.Real.Name))}))
	}
	return whenMissedLong(o, steps.ShownAsTold(steps.Step{Trouble: "BackingMissing", Tell: steps.Warn("BackingMissing",
		gone+", and with it perhaps the data: restore the claim from a backup or delete this one")}))
}

// awaits says whether a real volume will stay and has a claimRef with the name of the
// missing claim, whatever its UID.
func awaits(real *corev1.PersistentVolume, ref backing.Ref) bool {
	if real == nil || real.DeletionTimestamp != nil || real.Spec.ClaimRef == nil ||
		real.Spec.ClaimRef.Namespace != ref.Namespace || real.Spec.ClaimRef.Name != ref.Name {
		return false
	}
	// Otherwise its own cluster deletes it now, with the claim that it was bound to.
	return real.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain ||
		real.Spec.ClaimRef.UID != ref.UID && real.Status.Phase != corev1.VolumeReleased
}

// declaredLost is the reason of a volume that was given up.
const declaredLost = "DeclaredLost"

// givenUp says whether a user has declared lost a volume with its data in a remote cluster.
// Only administrators write volumes, so no tenant can do that. Data at home is never given
// up: whoever could declare it lost can delete it.
func givenUp(volume *corev1.PersistentVolume, ref backing.Ref) bool {
	return ref.Cluster != keys.Home && volume.Annotations[keys.Lost] != ""
}

// abandon is the step for a released volume that was given up. The virtual volume is
// deleted whether or not its cluster answers, and nothing is deleted in that cluster: it
// may have all that is left of the data.
func abandon(ref backing.Ref) steps.Step {
	return steps.Step{Action: steps.FinishVolume{}, Tell: steps.Note(declaredLost, fmt.Sprintf(
		"the volume was declared lost, so nothing is deleted in %s: if real claim %s is there after all, it stays there with its data",
		steps.Where(ref.Cluster), ref.Key()))}
}

// declaredLostStep is the step for a volume that was given up and is not released: it is
// kept consistent if its cluster is back, and the user gets an event.
func declaredLostStep(o steps.Observation, ref backing.Ref, step steps.Step) steps.Step {
	if step.Action != nil {
		return step
	}
	step.Trouble = declaredLost
	if b := o.BackingOf(ref); b != nil && o.Cluster(ref.Cluster).Usable {
		step.Tell = steps.Warn(declaredLost, fmt.Sprintf(
			"the volume was declared lost, but %s is back and has real claim %s: its administrator takes the declaration back with kubectl "+
				"lodestone lose pv %s --undo; if this claim is deleted before, the data stays there",
			steps.Where(ref.Cluster), ref.Key(), o.Volume.Name))
		return steps.ShownAsTold(step)
	}
	step.Tell = steps.Warn(declaredLost, fmt.Sprintf(
		"the volume was declared lost with %s: delete this claim and the pods that use it; nothing in that cluster is touched",
		steps.Where(ref.Cluster)))
	return steps.ShownAsTold(step)
}

// leftBehind returns a backing claim that may have data while claim and volume at home are
// gone: policy Retain kept it, or its volume was declared lost or forgotten. Nil if there
// is none.
func leftBehind(o steps.Observation) *steps.Backing {
	if o.Claim != nil || o.Volume != nil || o.HandedOut {
		return nil
	}
	for i, b := range o.Backings {
		if !backing.Unpublished(b.Claim) {
			return &o.Backings[i]
		}
	}
	return nil
}

// Reasons of volumes whose data is on a node that is gone, or not ready.
const (
	BackingNodeGone     = "BackingNodeGone"
	BackingNodeNotReady = "BackingNodeNotReady"
)

// Reasons of real volumes that have a problem themselves.
const (
	backingLost          = "BackingLost"
	backingVolumeDeleted = "BackingVolumeDeleted"
	backingVolumeFailed  = "BackingVolumeFailed"
)

// lostVolume is the step for a backing claim whose real volume is gone. Nothing is
// recreated: only the storage knows whether the data still exists, and where.
func lostVolume(o steps.Observation, ref backing.Ref) steps.Step {
	real := "its real volume"
	if name := o.Volume.Annotations[keys.BackingVolume]; name != "" {
		real = fmt.Sprintf("its real volume %q", name)
	}
	return steps.ShownAsTold(steps.Step{Trouble: backingLost, Tell: steps.Warn(backingLost, fmt.Sprintf(
		"real claim %s in %s has lost %s, which somebody deleted there: let its administrator make that volume again as it was if the storage "+
			"has the data, or restore the data from a backup to a new claim",
		ref.Key(), steps.Where(ref.Cluster), real))})
}

// realVolumeTrouble adds to a step what is wrong with the real volume of a backing claim.
func realVolumeTrouble(step steps.Step, ref backing.Ref, b steps.Backing) steps.Step {
	real := fmt.Sprintf("real volume %q in %s", b.Volume.Name, steps.Where(b.Cluster))
	switch {
	case b.Volume.Status.Phase == corev1.VolumeFailed:
		said := ""
		if b.Volume.Status.Message != "" {
			said = ": it says " + strconv.Quote(sentence.Cut(b.Volume.Status.Message, maxQuoted))
		}
		return steps.WithTrouble(step, backingVolumeFailed, fmt.Sprintf("%s has failed: let its administrator see its events there%s", real,
			said))
	case b.Volume.DeletionTimestamp != nil && b.Claim.DeletionTimestamp == nil:
		return steps.WithTrouble(step, backingVolumeDeleted, fmt.Sprintf(
			"somebody deleted %s: it stays with the data only as long as real claim %s is there, so copy the data to a new claim", real, ref.Key()))
	case b.NodesGone != "":
		on, who := nodes(b, b.NodesGone, "bring the node back")
		return steps.WithTrouble(step, BackingNodeGone, fmt.Sprintf("%s can be used on no node that is left there%s: %s, or restore the data "+
			"from a backup to a new claim", real, on, who))
	case b.NodesDown != "":
		// If a cluster is cut off from its nodes, this affects all volumes on them at once:
		// so an event comes only with the write of the condition.
		on, who := nodes(b, b.NodesDown, "see what the node lacks")
		step.Trouble, step.Shows = BackingNodeNotReady, fmt.Sprintf("%s can be used on no node that is ready there%s: %s", real, on, who)
	}
	return step
}

// nodes names the home nodes on which a real volume could be used, and says who must do
// what. Names of remote nodes are not written at home.
func nodes(b steps.Backing, names, what string) (on, who string) {
	if b.Cluster != keys.Home {
		return "", "let its administrator " + what
	}
	return fmt.Sprintf(" (only on %s)", sentence.Cut(names, maxQuoted)), what
}

// healable says whether a backing claim at home that somebody deleted can be recreated.
// That of a released volume is not: deleting it is how retained data is disposed of.
func healable(o steps.Observation, ref backing.Ref, b steps.Backing) bool {
	return ref.Cluster == keys.Home && !o.StorageLeaving && o.Volume.Status.Phase != corev1.VolumeReleased && !backing.Unpublished(b.Claim) &&
		b.Volume != nil && b.Volume.DeletionTimestamp == nil &&
		b.Claim.Status.Phase == corev1.ClaimBound && o.Volume.Annotations[keys.BackingVolume] == b.Volume.Name
}

// heal is the next step of a healing that has begun; false if the real volume cannot be
// healed: it is gone, going or bound to another claim.
func heal(o steps.Observation, ref backing.Ref) (steps.Step, bool) {
	real := o.Real
	if real == nil || real.DeletionTimestamp != nil || real.Spec.ClaimRef == nil {
		return steps.Step{}, false
	}
	cure := func(cure steps.Cure) (steps.Step, bool) {
		return steps.Step{Action: steps.HealBacking{Cure: cure, Ref: ref, Backing: steps.Backing{Cluster: keys.Home, Claim: twinOf(o),
			Volume: real}}}, true
	}
	wait := func(what string) (steps.Step, bool) {
		step := steps.Step{After: steps.Slow}
		if twin := twinOf(o); twin != nil {
			step.Tell = steps.IfSlow(o, twin,
				steps.Note("WaitingForBacking", fmt.Sprintf("waiting until real claim %s in %s %s", ref.Key(), steps.Where(keys.Home), what)))
		}
		return step, true
	}
	twin := twinOf(o)
	bound := real.Spec.ClaimRef.UID
	switch {
	case bound == ref.UID && twin != nil && twin.UID == ref.UID && twin.DeletionTimestamp == nil:
		return conclude(o, real, cure)
	case bound == ref.UID && real.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		return cure(steps.Retain)
	case bound == ref.UID && twin != nil && twin.UID == ref.UID && backing.Protected(twin):
		return cure(steps.LetGo)
	case twin != nil && (twin.UID == ref.UID || twin.DeletionTimestamp != nil && bound != twin.UID):
		return wait("is gone: another finalizer or a pod holds it")
	case bound == ref.UID && twin == nil:
		return cure(steps.Free)
	case bound == "" && twin == nil:
		return cure(steps.Rebuild)
	case bound != "" && twin != nil && bound == twin.UID:
		return cure(steps.Adopt)
	case bound == "" && twin != nil:
		return wait("is bound to its volume again: see its events")
	}
	return steps.Step{}, false
}

// conclude ends a healing once the new claim is bound to the real volume.
func conclude(o steps.Observation, real *corev1.PersistentVolume, cure func(steps.Cure) (steps.Step, bool)) (steps.Step, bool) {
	if real.Status.Phase != corev1.VolumeBound {
		return steps.Step{After: steps.Slow}, true
	}
	if before := o.Volume.Annotations[keys.Healing]; string(real.Spec.PersistentVolumeReclaimPolicy) != before {
		return cure(steps.Restore)
	}
	return cure(steps.End)
}

// twinOf returns our claim at home that has the backing claim's name.
func twinOf(o steps.Observation) *corev1.PersistentVolumeClaim {
	if b := o.BackingIn(keys.Home); b != nil {
		return b.Claim
	}
	return nil
}

// unhealed reports a healing that cannot continue.
func unhealed(o steps.Observation, ref backing.Ref) steps.Step {
	return whenMissedLong(o, steps.ShownAsTold(steps.Step{After: steps.Slow, Trouble: "BackingMissing", Tell: steps.Warn("BackingMissing",
		fmt.Sprintf(
			"somebody deleted real claim %s in %s, and its real volume %q is gone, going or given to another: restore the claim from a "+
				"backup, or delete it", ref.Key(), steps.Where(ref.Cluster), o.Volume.Annotations[keys.BackingVolume]))}))
}

// madeAnew is the step for a volume whose remote backing claim is being, or was, recreated
// in its cluster: by the remote agent there or by an administrator. It is false for any
// other volume.
func madeAnew(o steps.Observation, ref backing.Ref) (steps.Step, bool) {
	cluster := o.Cluster(ref.Cluster)
	switch {
	case ref.Cluster == keys.Home || !cluster.Usable:
		return steps.Step{}, false
	case o.Real != nil && o.Real.Labels[keys.Healing] != "":
		return healing(o, ref), true
	}
	b := o.BackingIn(ref.Cluster)
	if b == nil || b.Claim.UID == ref.UID || !TakesThePlace(b.Claim, ref, o.Volume.Annotations[keys.BackingVolume]) || b.Volume == nil {
		return steps.Step{}, false
	}
	return steps.Step{Action: steps.HealBacking{Cure: steps.Adopt, Ref: ref, Backing: *b}, Tell: steps.Note("BackingHealed", fmt.Sprintf(
		"real claim %s in %s was made anew and has its volume %s with all data", ref.Key(), steps.Where(ref.Cluster), b.Volume.Name))}, true
}

// healing reports a backing claim that the remote agent recreates.
func healing(o steps.Observation, ref backing.Ref) steps.Step {
	what := fmt.Sprintf("somebody deleted real claim %s in %s; its data is safe, ", ref.Key(), steps.Where(ref.Cluster))
	last := ""
	if toDelete(o.Volume) {
		last = "; then it is deleted"
	}
	if stalled(o, ref) {
		return steps.ShownAsTold(steps.Step{Trouble: "BackingDeleted", Tell: steps.Warn("BackingDeleted", fmt.Sprintf(
			"%sbut the remote agent there does not get on with making the claim anew: see the events NotHealed and NameTaken of the claim and of "+
				"volume %s there, and whether the agent runs%s", what, o.Real.Name, last))})
	}
	return steps.Step{After: steps.Slow, Tell: steps.Note("BackingHealing", what+"and the remote agent there makes the claim anew once no "+
		"pod uses it"+last)}
}

// stalled says whether the remote agent takes longer to recreate a claim than its steps
// need. It has to wait as long as a pod there uses the old claim: that has lost our
// finalizer by then, and the real volume is still bound.
func stalled(o steps.Observation, ref backing.Ref) bool {
	b := o.BackingIn(ref.Cluster)
	switch {
	case o.Real.Status.Phase == corev1.VolumeReleased:
		return o.WaitsLong()
	case b == nil:
		return false
	case b.Claim.DeletionTimestamp != nil:
		return backing.Protected(b.Claim) && o.WaitsLong()
	}
	return b.Claim.UID != ref.UID && o.WaitsLong()
}

// TakesThePlace says whether b, a backing claim of the same virtual claim, has the real
// volume of the backing claim that a virtual volume refers to. real is the name of that
// real volume, empty if it was never observed. A claim marked as unpublished may have been
// recreated from a copy with that mark: it counts if it is bound to just that volume or, in
// a remote cluster, if a pod there used it.
func TakesThePlace(b *corev1.PersistentVolumeClaim, ref backing.Ref, real string) bool {
	if b.Namespace != ref.Namespace || b.Name != ref.Name || !backing.Protected(b) || b.Status.Phase != corev1.ClaimBound {
		return false
	}
	if real != "" {
		return b.Spec.VolumeName == real
	}
	return !backing.Unpublished(b) || used(steps.Backing{Cluster: ref.Cluster, Claim: b})
}

// Holds says whether a backing claim is bound to, or requests by name, the real volume that
// a virtual volume names. Then it leads to that volume's data, whatever its UID and its
// annotations.
func Holds(b steps.Backing, virtual *corev1.PersistentVolume) bool {
	ref, err := backing.RefOf(virtual)
	real := virtual.Annotations[keys.BackingVolume]
	return err == nil && ref.Cluster == b.Cluster && real != "" && b.Claim.Spec.VolumeName == real
}

// deleted reports a backing claim that somebody deleted and that this program does not
// recreate.
func deleted(o steps.Observation, ref backing.Ref, b steps.Backing) steps.Step {
	step := steps.Step{Trouble: "BackingDeleted"}
	what := fmt.Sprintf("somebody deleted real claim %s in %s", ref.Key(), steps.Where(ref.Cluster))
	safe := fmt.Sprintf("%s; its data is safe, for finalizer %s holds the claim", what, keys.BackingFinalizer)
	const instead = "move the data to a new claim, then delete this one"
	remote := ref.Cluster != keys.Home
	switch {
	case remote && b.Claim.Status.Phase == corev1.ClaimPending:
		step.Tell = steps.Warn("BackingDeleted", what+"; it had no volume yet and cannot get one any more: delete this claim, and create it "+
			"again")
	case remote && o.Cluster(ref.Cluster).Mapped.Asked && !o.WaitsLong():
		step.Trouble, step.After = "", steps.Slow
		step.Tell = steps.Note("BackingHealing", what+"; its data is safe, and the remote agent there makes the claim anew")
	case remote && o.Volume.Status.Phase == corev1.VolumeReleased:
		step.Tell = steps.Warn("BackingDeleted", safe+": let an administrator there take that off if the data is not needed")
	case remote && o.Cluster(ref.Cluster).Mapped.Asked:
		step.Tell = steps.Warn("BackingDeleted", safe+", but the remote agent does not make it anew, and no new pod there can use it: see its "+
			"events there, and whether the agent runs; or "+instead)
	case remote:
		step.Tell = steps.Warn("BackingDeleted", fmt.Sprintf("%s, but no new pod there can use it: let an administrator there keep a copy of "+
			"it, set its volume %s to policy Retain, take that finalizer off, remove uid and resourceVersion from the volume's claimRef, create "+
			"the claim again from the copy without its uid, resourceVersion and annotations pv.kubernetes.io/*, and set the policy as it was; or %s",
			safe, b.Claim.Spec.VolumeName, instead))
	case o.StorageLeaving:
		policy := corev1.PersistentVolumeReclaimRetain
		if b.Volume != nil {
			policy = b.Volume.Spec.PersistentVolumeReclaimPolicy
		}
		step.Tell = steps.Warn("BackingDeleted", fmt.Sprintf(
			"%s, and pods go on, but namespace %s is being deleted, so that it cannot be made anew: let an administrator run kubectl annotate "+
				"pv %s %s=%s, the like for each claim there, and make that namespace again, as Lodestone was installed, once it is gone",
			safe, ref.Namespace, o.Volume.Name, keys.Healing, policy))
	default:
		step.Tell = steps.Warn("BackingDeleted", safe+", but "+consequence(o)+": "+instead)
	}
	return steps.ShownAsTold(step)
}

// consequence says why this program cannot recreate a backing claim at home that is being
// deleted.
func consequence(o steps.Observation) string {
	if o.Volume.Status.Phase == corev1.VolumeReleased {
		return "it is not made anew, for its volume is released"
	}
	return "it cannot be made anew, for its real volume is going or gone, too"
}
