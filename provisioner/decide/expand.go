package decide

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// Declined is a size that the place of a published backing claim refused lately.
type Declined struct {
	Size resource.Quantity
	// Reason is one word, Message one sentence.
	Reason, Message string
	// Until is when the place is asked again.
	Until time.Time
}

// Reasons of what is told of sizes.
const (
	expansionWaits      = "ExpansionWaits"
	expansionFailed     = "ExpansionFailed"
	expansionNotAllowed = "ExpansionNotAllowed"
	expanded            = "VolumeResizeSuccessful"
	backingResized      = "BackingResized"
	backingPending      = "BackingPending"
)

// KeepsSize says whether the size of a virtual volume and of its claim is kept by
// us. It is not where the volume has the CSI driver of a real one: that driver's
// resizer and kubelet know the virtual volume as their own, and a size written by
// anybody else would tell kubelet that the file system has grown already.
func KeepsSize(volume *corev1.PersistentVolume) bool {
	return volume.Spec.CSI == nil || volume.Spec.CSI.Driver == keys.Driver
}

// size holds the size of a volume in step: what its claim asks for goes to the
// backing claim, and what became of it comes back.
func size(o Observation, b Backing) Step {
	if o.Claim == nil || o.Claim.Spec.VolumeName != o.Volume.Name || o.Claim.Status.Phase != corev1.ClaimBound {
		return Step{Verb: Idle}
	}
	if step := fix(o, b); step.Verb != Idle {
		return step
	}
	switch {
	case !KeepsSize(o.Volume):
		return record(o, b)
	case b.Claim.Status.Phase != corev1.ClaimBound || b.Volume == nil:
		if want, have := requested(o.Claim), requested(b.Claim); want.Cmp(have) > 0 {
			return Step{Verb: Idle, Tell: note(expansionWaits, fmt.Sprintf(
				"the volume grows to %s once real claim %s/%s in %s is bound, which a pod there may have to use first", want.String(), b.Claim.Namespace, b.Claim.Name, where(b.Cluster)))}
		}
		return Step{Verb: Idle}
	}
	asks := asksForMore(o.Claim, b.Claim)
	declined := o.Declined
	if declined != nil && (!asks || !declined.Size.Equal(requested(o.Claim))) {
		declined = nil
	}
	if asks && declined == nil {
		return Step{Verb: Expand, Cluster: b.Cluster, Backing: b, Size: requested(o.Claim)}
	}
	step := reflect(o, b, declined)
	if declined != nil {
		step.After = sooner(step.After, declined.Until.Sub(o.Now)+time.Millisecond)
		step.Trouble = declined.Reason
	}
	return step
}

// growsLater tells a user who asks for more of a cluster that cannot be used now.
func growsLater(o Observation, ref backing.Ref, cluster Cluster) *Message {
	if o.Claim == nil || o.Claim.Spec.VolumeName != o.Volume.Name || o.Claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	want := requested(o.Claim)
	if want.Cmp(reachedSize(o.Claim)) <= 0 {
		return nil
	}
	text := fmt.Sprintf("the volume grows to %s once %s can be used again", want.String(), where(ref.Cluster))
	if cluster.Message != "" {
		text += ": " + cluster.Message
	}
	return note(expansionWaits, text)
}

// asksForMore says whether a virtual claim asks for another size than its backing
// claim does, and for one that the backing claim can still ask for. A request
// that was lowered, as after an expansion that failed, must be above the size
// that was reached: Kubernetes refuses any other.
func asksForMore(virtual, b *corev1.PersistentVolumeClaim) bool {
	want, have, reached := requested(virtual), requested(b), reachedSize(b)
	return want.Cmp(have) > 0 || (want.Cmp(have) < 0 && want.Cmp(reached) > 0)
}

// record holds the twin of a volume that its own driver expands in step with it:
// what kubelet has brought to its end on the virtual claim is asked of the twin,
// for which the driver has nothing left to do, and then noted on it, since no
// kubelet ever mounts a twin.
func record(o Observation, b Backing) Step {
	step := Step{Verb: Idle}
	want, reached := requested(o.Claim), reachedSize(o.Claim)
	if allowed, known := allowsExpansion(o, b); known && !allowed && want.Cmp(reached) > 0 {
		step.Trouble = expansionNotAllowed
		step.Tell = warn(expansionNotAllowed, fmt.Sprintf(
			"real storage class %q in %s does not allow expansion, so that the volume may keep its size: let its administrator set allowVolumeExpansion there", className(b.Claim), where(b.Cluster)))
	}
	if b.Claim.Status.Phase != corev1.ClaimBound || b.Volume == nil {
		return step
	}
	if theirs := requested(b.Claim); theirs.Cmp(want) > 0 && theirs.Cmp(reached) > 0 {
		step.Trouble = backingResized
		step.Tell = note(backingResized, fmt.Sprintf(
			"real claim %s/%s in %s was made to ask for %s: let this claim ask for as much to have it", b.Claim.Namespace, b.Claim.Name, where(b.Cluster), theirs.String()))
		step = showing(step)
	}
	if reached.Cmp(reachedSize(b.Claim)) <= 0 {
		return step
	}
	declined := o.Declined != nil && o.Declined.Size.Equal(reached)
	switch {
	case reached.Cmp(requested(b.Claim)) > 0 && declined:
		step.After, step.Trouble, step.Shows = o.Declined.Until.Sub(o.Now)+time.Millisecond, o.Declined.Reason, ""
		step.Tell = warn(o.Declined.Reason, fmt.Sprintf(
			"the volume has grown to %s, but real claim %s/%s in %s cannot ask for as much, so that quotas there count too little: %s; let its administrator allow it",
			reached.String(), b.Claim.Namespace, b.Claim.Name, where(b.Cluster), o.Declined.Message))
	case reached.Cmp(requested(b.Claim)) > 0:
		return Step{Verb: Expand, Cluster: keys.Home, Backing: b, Size: reached, Tell: step.Tell, Trouble: step.Trouble}
	default:
		finish(&step, b, reached)
	}
	return step
}

// finish has the size of a twin noted that waits for a kubelet alone.
func finish(step *Step, b Backing, reached resource.Quantity) {
	real := b.Volume.Spec.Capacity[corev1.ResourceStorage]
	if real.Cmp(reached) < 0 || !awaitsKubelet(b.Claim) {
		return
	}
	status := b.Claim.Status.DeepCopy()
	setStorage(&status.Capacity, reached)
	delete(status.AllocatedResourceStatuses, corev1.ResourceStorage)
	status.Conditions = withoutResize(status.Conditions)
	step.Verb, step.Cluster, step.Backing, step.On, step.Status = Reflect, keys.Home, b, b.Claim, status
}

// fix says on a claim of a virtual class that allows expansion that its real class
// does not, so that a larger request is refused when it is made.
func fix(o Observation, b Backing) Step {
	allowed, known := allowsExpansion(o, b)
	if !known || o.Class == nil || o.Class.AllowVolumeExpansion == nil || !*o.Class.AllowVolumeExpansion {
		return Step{Verb: Idle}
	}
	fixed := ""
	if !allowed {
		fixed = fmt.Sprintf("real storage class %q in %s does not allow expansion", className(b.Claim), where(b.Cluster))
	}
	if o.Claim.Annotations[keys.FixedSize] == fixed {
		return Step{Verb: Idle}
	}
	return Step{Verb: Fix, Cluster: keys.Home, Fixed: fixed}
}

// allowsExpansion says whether the class of a backing claim allows expansion, if
// that is known.
func allowsExpansion(o Observation, b Backing) (allowed, known bool) {
	for _, class := range o.Cluster(b.Cluster).Offered {
		if class.Name == className(b.Claim) {
			return class.AllowVolumeExpansion, true
		}
	}
	return false, false
}

// pending is the step for a volume that was published before its real one was
// made.
func pending(o Observation, ref backing.Ref, b Backing) Step {
	waited := o.Now.Sub(o.Volume.CreationTimestamp.Time)
	step := Step{Verb: Idle}
	switch said := words(o, b); {
	case said != "":
		step.Trouble = backingPending
		step.Tell = warn(backingPending, fmt.Sprintf("real claim %s in %s is not bound yet: %s", ref.Key(), where(b.Cluster), said))
	case waited < overdue:
		step.After = overdue - waited + time.Millisecond
	default:
		step.Trouble = backingPending
		step.Tell = note(backingPending, fmt.Sprintf(
			"real claim %s in %s is not bound yet: if its pod is there already, see the claim's events there", ref.Key(), where(b.Cluster)))
	}
	return asked(o, b, o.Volume.CreationTimestamp.Time, showing(step))
}

func className(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

func requested(claim *corev1.PersistentVolumeClaim) resource.Quantity {
	return claim.Spec.Resources.Requests[corev1.ResourceStorage]
}

func reachedSize(claim *corev1.PersistentVolumeClaim) resource.Quantity {
	return claim.Status.Capacity[corev1.ResourceStorage]
}
