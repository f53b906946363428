package decide

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// Ungiven are attributes that the place of a published backing claim refused lately.
type Ungiven struct {
	// Attributes is the name of the VolumeAttributesClass, empty for none.
	Attributes string
	// Reason is one word, Message one sentence.
	Reason, Message string
	// Until is when the place is asked again.
	Until time.Time
}

// attributesFailed is the reason of what is told of attributes that the driver of a
// remote volume cannot give it.
const attributesFailed = "AttributesFailed"

// modifyConditions are the conditions of a claim that tell of its attributes.
var modifyConditions = []corev1.PersistentVolumeClaimConditionType{
	corev1.PersistentVolumeClaimVolumeModifyingVolume, corev1.PersistentVolumeClaimVolumeModifyVolumeError,
}

// modifyStates are the states of such a change.
var modifyStates = []corev1.PersistentVolumeClaimModifyVolumeStatus{
	corev1.PersistentVolumeClaimModifyVolumePending, corev1.PersistentVolumeClaimModifyVolumeInProgress, corev1.PersistentVolumeClaimModifyVolumeInfeasible,
}

// unattributed tells that a remote volume cannot be given the attributes that its
// virtual claim asks for.
func unattributed(step *Step, o Observation, b Backing) {
	want := backing.Attributes(o.Claim)
	if want == "" || want != backing.Attributes(b.Claim) || want == ptr.Deref(b.Claim.Status.CurrentVolumeAttributesClassName, "") {
		return
	}
	// What is said there may still be of attributes that were asked for before.
	state := b.Claim.Status.ModifyVolumeStatus
	if state == nil || state.TargetVolumeAttributesClassName != want {
		return
	}
	failed := state.Status == corev1.PersistentVolumeClaimModifyVolumeInfeasible
	for _, c := range b.Claim.Status.Conditions {
		if c.Type == corev1.PersistentVolumeClaimVolumeModifyVolumeError && c.Status == corev1.ConditionTrue {
			failed = true
		}
	}
	if !failed {
		return
	}
	// What the cluster says of it is in the conditions, which are not written at any
	// rate that it likes.
	step.Trouble = attributesFailed
	step.Tell = warn(attributesFailed, fmt.Sprintf(
		"real claim %s in %s does not get the attributes of VolumeAttributesClass %q: the conditions of the claim say why; it is tried again there, or ask for those that it had before",
		backing.RefTo(b.Cluster, b.Claim).Key(), where(b.Cluster), want))
}

// modifying returns what a remote claim tells of the change that its virtual claim
// asks for, nil for nothing.
func modifying(virtual, b *corev1.PersistentVolumeClaim) *corev1.ModifyVolumeStatus {
	state := b.Status.ModifyVolumeStatus
	if state == nil || state.TargetVolumeAttributesClassName == "" ||
		state.TargetVolumeAttributesClassName != backing.Attributes(virtual) || !slices.Contains(modifyStates, state.Status) {
		return nil
	}
	return state
}

func sameModifying(a, b *corev1.ModifyVolumeStatus) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// isReflected says whether a condition is copied from a backing claim.
func isReflected(c corev1.PersistentVolumeClaimCondition) bool {
	return isResize(c) || slices.Contains(modifyConditions, c.Type)
}
