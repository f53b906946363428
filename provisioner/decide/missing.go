package decide

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// missingAfter is how long a backing claim is not seen before that is told: what is
// known may lag, and claims are made anew.
const missingAfter = 10 * time.Second

// Missed says whether the backing claim that a volume refers to is not seen in its
// cluster although it would be.
func Missed(o Observation) bool {
	if o.Volume == nil {
		return false
	}
	ref, err := backing.RefOf(o.Volume)
	if err != nil || findRef(o, ref) != nil {
		return false
	}
	cluster := o.Cluster(ref.Cluster)
	return cluster.Usable && cluster.Seen
}

// patiently holds back the step that tells that something is missing, for a while.
func patiently(o Observation, step Step) Step {
	if left := missingAfter - o.Now.Sub(o.MissedSince); left > 0 {
		return Step{Verb: Idle, Unknown: true, After: left + time.Millisecond}
	}
	return step
}

// missing tells of a backing claim that is gone, and of its data what is known.
func missing(o Observation, ref backing.Ref) Step {
	gone := fmt.Sprintf("real claim %s in %s is gone", ref.Key(), where(ref.Cluster))
	if awaits(o.Real, ref) {
		return patiently(o, showing(Step{Verb: Idle, After: slow, Trouble: "BackingMissing", Tell: warn("BackingMissing", fmt.Sprintf(
			"%s, its volume %s is there with the data; waiting for its claim: let an administrator there make it anew if nobody does", gone, o.Real.Name))}))
	}
	return patiently(o, showing(Step{Verb: Idle, Trouble: "BackingMissing", Tell: warn("BackingMissing",
		gone+", and with it perhaps the data: restore the claim from a backup or delete this one")}))
}

// awaits says whether a real volume is there to stay and belongs to a claim of the
// name of the one that is gone, whatever its UID.
func awaits(real *corev1.PersistentVolume, ref backing.Ref) bool {
	if real == nil || real.DeletionTimestamp != nil || real.Spec.ClaimRef == nil ||
		real.Spec.ClaimRef.Namespace != ref.Namespace || real.Spec.ClaimRef.Name != ref.Name {
		return false
	}
	// Else its own cluster deletes it now, with the claim that held it.
	return real.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain ||
		real.Spec.ClaimRef.UID != ref.UID && real.Status.Phase != corev1.VolumeReleased
}
