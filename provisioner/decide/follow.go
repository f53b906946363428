package decide

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// carryPause is how long after labels and annotations were carried to a backing
// claim they are carried again: somebody there may take them off each time.
const carryPause = 5 * time.Second

// follow brings a backing claim in step with changes of its bound virtual claim.
func follow(o Observation, b Backing) Step {
	if o.Claim == nil || o.Claim.DeletionTimestamp != nil || o.Claim.Spec.VolumeName != o.Volume.Name {
		return Step{Verb: Idle}
	}
	refused := o.Ungiven
	if refused != nil && (!modifiable(o, b) || refused.Attributes != backing.Attributes(o.Claim)) {
		refused = nil
	}
	switch {
	case modifiable(o, b) && refused == nil:
		return Step{Verb: Modify, Cluster: b.Cluster, Backing: b}
	case b.Claim.Status.Phase == corev1.ClaimBound && Attributed(o, b):
		return Step{Verb: Update, Cluster: keys.Home, Backing: b}
	}
	step := carry(o, b)
	switch {
	case refused != nil:
		step.Tell, step.Trouble = warn(refused.Reason, refused.Message), refused.Reason
		step.After = sooner(step.After, refused.Until.Sub(o.Now)+time.Millisecond)
	case b.Cluster != keys.Home:
		unattributed(&step, o, b)
	}
	return step
}

// modifiable says whether a backing claim has other attributes than its virtual
// claim asks for, and may be asked for those. Kubernetes takes no change of a claim
// that is not bound, and takes them back to none only until the first are there.
func modifiable(o Observation, b Backing) bool {
	want, have := backing.Attributes(o.Claim), backing.Attributes(b.Claim)
	switch {
	case want == have || b.Claim.Status.Phase != corev1.ClaimBound:
		return false
	case want == "":
		return b.Cluster != keys.Home && ptr.Deref(b.Claim.Status.CurrentVolumeAttributesClassName, "") == ""
	}
	return b.Cluster != keys.Home || attributesDone(o)
}

// attributesDone says whether the volume has the attributes that its virtual
// claim asks for. At home the driver of the real volume sees to that by itself,
// for the virtual volume is that volume; the twin only records it.
func attributesDone(o Observation) bool {
	return ptr.Deref(o.Claim.Status.CurrentVolumeAttributesClassName, "") == backing.Attributes(o.Claim)
}

// Attributed says whether a remote volume has the attributes that its virtual
// claim asks for, and that claim or its volume do not tell so yet.
func Attributed(o Observation, b Backing) bool {
	if o.Claim == nil || b.Cluster == keys.Home {
		return false
	}
	want := backing.Attributes(o.Claim)
	return want != "" && ptr.Deref(b.Claim.Status.CurrentVolumeAttributesClassName, "") == want &&
		(ptr.Deref(o.Volume.Spec.VolumeAttributesClassName, "") != want || !attributesDone(o))
}

// carry is the step that brings labels and annotations in step.
func carry(o Observation, b Backing) Step {
	if o.Class == nil || !virtualclass.Is(o.Class) {
		// It may come back; what is carried stays as it is.
		return Step{Verb: Idle}
	}
	class, err := virtualclass.Parse(o.Class)
	if err != nil {
		return Step{Verb: Idle}
	}
	labels, annotations := backing.CarryPatch(b.Claim, o.Claim, class)
	if len(labels)+len(annotations) == 0 {
		return Step{Verb: Idle}
	}
	if left := carryPause - o.Now.Sub(o.Carried); left > 0 {
		return Step{Verb: Idle, After: left}
	}
	return Step{Verb: Carry, Cluster: b.Cluster, Backing: b, Labels: labels, Annotations: annotations}
}
