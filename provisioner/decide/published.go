package decide

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualvolume"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// published is the step for a claim whose virtual volume exists.
func published(o Observation) Step {
	ref, err := backing.RefOf(o.Volume)
	if err != nil {
		return Step{Verb: Idle, Tell: warn("InvalidVolume", fmt.Sprintf("volume %q is not one that Lodestone made: %v; restore its annotation %s", o.Volume.Name, err, keys.Backing))}
	}
	if o.Volume.UID == "" {
		// Not yet known to be stored.
		step := Step{Verb: Idle, After: slow}
		if o.Now.Sub(o.Volume.CreationTimestamp.Time) >= slow {
			step.Tell = warn("VolumeNotStored", fmt.Sprintf(
				"the home cluster does not take volume %q: let its administrator see why in the log of the provisioner; it is tried again", o.Volume.Name))
		}
		return step
	}
	if step := discard(o, func(b Backing) bool {
		return b.Claim.UID != ref.UID && backing.Unpublished(b.Claim) && !Holds(b, o.Volume)
	}); step.Verb == Remove {
		return step
	}
	if ref.Cluster == keys.Home && o.Volume.Annotations[keys.Healing] != "" {
		// Also before a release: what is half healed could not be told from what
		// its own administrator keeps.
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
	if step, ok := mended(o, ref); ok {
		return step
	}
	if toDelete(o.Volume) {
		return release(o, ref)
	}
	if o.Changed != "" && o.Claim != nil && o.Claim.DeletionTimestamp == nil && o.Claim.Spec.VolumeName == o.Volume.Name {
		return Step{Verb: Wake, Cluster: keys.Home}
	}
	if lost {
		return lostStep(o, ref, keep(o, ref))
	}
	return keep(o, ref)
}

// toDelete says whether a virtual volume is released and its data to be deleted.
func toDelete(virtual *corev1.PersistentVolume) bool {
	return virtual.Status.Phase == corev1.VolumeReleased && virtual.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

// keep holds a volume in step with its backing claim.
func keep(o Observation, ref backing.Ref) Step {
	b := findRef(o, ref)
	if cluster := o.Cluster(ref.Cluster); !cluster.Usable || (b == nil && !cluster.Seen) {
		return away(o, ref, cluster, Step{Verb: Idle, Unknown: true, Tell: growsLater(o, ref, cluster)})
	}
	if b == nil {
		return missing(o, ref)
	}
	switch {
	case backing.Unpublished(b.Claim):
		step := Step{Verb: Mark, Cluster: ref.Cluster, Backing: *b}
		if b.Volume != nil && !behind(o.Volume, b.Volume) {
			step.Tell = unmounted(o, *b)
		}
		return step
	case ref.Cluster == keys.Home && b.Claim.DeletionTimestamp != nil && b.Volume != nil && behind(o.Volume, b.Volume):
		// Which real volume it is must be known before its claim goes.
		return Step{Verb: Update, Cluster: keys.Home, Backing: *b}
	case b.Claim.DeletionTimestamp != nil && healable(o, ref, *b):
		return Step{Verb: Heal, Cluster: keys.Home, Cure: Begin, Ref: ref, Backing: *b, Tell: note("BackingHealing", fmt.Sprintf(
			"somebody deleted real claim %s in %s; its data is safe, and the claim is made anew", ref.Key(), where(ref.Cluster)))}
	case b.Claim.DeletionTimestamp != nil:
		return deleted(o, ref, *b)
	case b.Claim.Status.Phase == corev1.ClaimLost:
		return lostVolume(o, ref)
	}
	late := b.Volume != nil && behind(o.Volume, b.Volume)
	if late && quiet(o, *b) == 0 {
		step := Step{Verb: Update, Cluster: keys.Home, Backing: *b}
		if o.Volume.Annotations[keys.BackingVolume] == "" {
			step.Tell = unmounted(o, *b)
		}
		return step
	}
	step := inStep(o, *b)
	if late {
		step.After = sooner(step.After, quiet(o, *b))
	}
	if o.Claim != nil && handMade(b) && backing.CopyOf(b.Claim) != "" {
		// It was published before it had a volume, which its pod may use by now.
		step.Tell = notACopy(*b)
	}
	if b.Claim.Status.Phase == corev1.ClaimPending && step.Verb == Idle && step.Tell == nil {
		return pending(o, ref, *b)
	}
	if b.Volume != nil && step.Verb == Idle {
		return impaired(step, ref, *b)
	}
	return step
}

// inStep holds size, attributes, labels and annotations in step, sizes first.
func inStep(o Observation, b Backing) Step {
	step := size(o, b)
	if step.Verb != Idle {
		return step
	}
	next := follow(o, b)
	if step.Tell != nil {
		next.Tell = step.Tell
	}
	if step.Trouble != "" {
		next.Trouble, next.Shows = step.Trouble, step.Shows
	}
	next.After = sooner(next.After, step.After)
	return next
}

// sooner returns the shorter of two times to wait, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || (b > 0 && b < a) {
		return b
	}
	return a
}

// quiet is how long what a remote cluster says of a volume is not written at home;
// 0: it may be.
func quiet(o Observation, b Backing) time.Duration {
	if b.Cluster == keys.Home {
		return 0
	}
	return max(0, o.QuietUntil.Sub(o.Now))
}

// unmounted tells of mount options of the virtual class that change nothing. It is for the
// step that is taken once, when the real volume has become known; nil for nothing to tell.
func unmounted(o Observation, b Backing) *Message {
	if b.Cluster == keys.Home || b.Volume == nil {
		return nil
	}
	text := virtualvolume.IgnoredOptions(o.Volume, b.Volume, b.Cluster, className(b.Claim))
	if text == "" {
		return nil
	}
	return warn(virtualvolume.MountOptionsIgnored, text)
}

// behind says whether a virtual volume does not yet tell what is known of the
// real one. A remote real volume is often made only after the virtual one.
func behind(virtual, real *corev1.PersistentVolume) bool {
	if virtual.Annotations[keys.BackingVolume] != real.Name {
		return true
	}
	if !KeepsSize(virtual) {
		return false
	}
	have, want := virtual.Spec.Capacity[corev1.ResourceStorage], real.Spec.Capacity[corev1.ResourceStorage]
	return have.Cmp(want) < 0
}

// release deletes what is behind a released volume, in this order: no node may
// still use it, its backing claim goes, the real volume goes.
func release(o Observation, ref backing.Ref) Step {
	if o.Gone {
		return Step{Verb: Finish, Cluster: keys.Home}
	}
	if o.Attached != "" {
		return Step{Verb: Idle, Tell: warn("StillAttached", fmt.Sprintf("waiting until the volume is detached from node %q before its data is deleted", o.Attached))}
	}
	if ref.Cluster != keys.Home {
		switch cluster := o.Cluster(ref.Cluster); {
		case !cluster.Known:
			return Step{Verb: Idle, Unknown: true, Tell: warn("UnknownCluster", fmt.Sprintf("the volume's data in cluster %s cannot be deleted, for there is no RemoteCluster of that name: create it again", ref.Cluster))}
		case !cluster.Usable:
			return Step{Verb: Idle, Unknown: true, After: slow, Tell: warn("ClusterNotUsable", fmt.Sprintf("waiting for cluster %s to delete the volume's data there: %s", ref.Cluster, cluster.Message))}
		case !cluster.Seen:
			// Asking says more than waiting: rights may be missing.
			return Step{Verb: Confirm, Cluster: ref.Cluster, Ref: ref}
		}
	}
	if b := findRef(o, ref); b != nil {
		if b.Volume != nil && behind(o.Volume, b.Volume) {
			// Which real volume to wait for must be known before the claim goes.
			return Step{Verb: Update, Cluster: keys.Home, Backing: *b}
		}
		if b.Volume == nil && b.Claim.Status.Phase == corev1.ClaimBound && o.Volume.Annotations[keys.BackingVolume] == "" {
			// The same; if its volume is gone the claim will soon be Lost.
			return Step{Verb: Idle, After: slow}
		}
		if b.Claim.DeletionTimestamp != nil && !backing.Protected(b.Claim) {
			return Step{Verb: Idle, After: slow, Tell: later(o, b.Claim, note("WaitingForBacking", fmt.Sprintf(
				"waiting until real claim %s in %s is gone: another finalizer or a pod holds it", ref.Key(), where(ref.Cluster))))}
		}
		return Step{Verb: Release, Cluster: ref.Cluster, Backing: *b}
	}
	return Step{Verb: Confirm, Cluster: ref.Cluster, Ref: ref}
}

func findRef(o Observation, ref backing.Ref) *Backing { return findIn(o.Backings, ref) }

func findIn(backings []Backing, ref backing.Ref) *Backing {
	for i, b := range backings {
		if b.Cluster == ref.Cluster && b.Claim.UID == ref.UID {
			return &backings[i]
		}
	}
	return nil
}
