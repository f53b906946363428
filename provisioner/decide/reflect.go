package decide

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// maxMessage bounds, in bytes, what another cluster's condition may say at home.
const maxMessage = 1024

// resizeConditions are the conditions of a claim that tell of its size.
var resizeConditions = []corev1.PersistentVolumeClaimConditionType{
	corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
	corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
}

var conditionStates = []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}

// resizeStates are the states that an API server takes.
var resizeStates = []corev1.ClaimResourceStatus{
	corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible,
}

// reflect brings the size of a virtual claim, and what tells of changes of size and
// attributes, in step with its backing claim. Idle when they are.
func reflect(o Observation, b Backing, declined *Declined) Step {
	want := reflected(o, b.Claim, declined)
	failure := failureOf(want.Conditions)
	step := Step{Verb: Idle}
	if failure != nil && declined == nil {
		step.Trouble = expansionFailed
	}
	if sameSize(o.Claim.Status, *want) {
		return step
	}
	if wait := quiet(o, b); wait > 0 {
		step.After = wait
		return step
	}
	step.Verb, step.Cluster, step.Backing, step.On, step.Status = Reflect, keys.Home, b, o.Claim, want
	before, after := reachedSize(o.Claim), want.Capacity[corev1.ResourceStorage]
	asked := requested(o.Claim)
	theirs := requested(b.Claim)
	at := backing.RefTo(b.Cluster, b.Claim).Key()
	switch {
	case declined != nil:
		step.Tell = warn(declined.Reason, declined.Message)
	case failure != nil:
		step.Tell = warn(expansionFailed, fmt.Sprintf("real claim %s in %s is not expanded to %s: %s; it is tried again there, or ask for less, but more than the present %s",
			at, where(b.Cluster), theirs.String(), failure.Message, after.String()))
	case after.Cmp(before) > 0 && theirs.Cmp(asked) > 0:
		step.Tell = note(backingResized, fmt.Sprintf("the volume has %s now: real claim %s in %s was made to ask for %s", after.String(), at, where(b.Cluster), theirs.String()))
	case after.Cmp(before) > 0 && asked.Cmp(before) > 0 && after.Cmp(asked) >= 0:
		step.Tell = note(expanded, fmt.Sprintf("the volume has %s now", after.String()))
	}
	return step
}

// reflected is the status that a virtual claim should have.
func reflected(o Observation, b *corev1.PersistentVolumeClaim, declined *Declined) *corev1.PersistentVolumeClaimStatus {
	status := o.Claim.Status.DeepCopy()
	// What is there may lie: a size never shrinks, and is never more than that of
	// the volume, which is written first.
	if reached := smaller(reachedSize(b), o.Volume.Spec.Capacity[corev1.ResourceStorage]); reached.Cmp(reachedSize(o.Claim)) > 0 {
		setStorage(&status.Capacity, reached)
	}
	// It counts against the quota at home, so it is never more than was asked for.
	delete(status.AllocatedResources, corev1.ResourceStorage)
	if allocated, ok := b.Status.AllocatedResources[corev1.ResourceStorage]; ok && allocated.Sign() > 0 {
		setStorage(&status.AllocatedResources, smaller(allocated, requested(o.Claim)))
	}
	delete(status.AllocatedResourceStatuses, corev1.ResourceStorage)
	if state := b.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; slices.Contains(resizeStates, state) {
		if status.AllocatedResourceStatuses == nil {
			status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
		}
		status.AllocatedResourceStatuses[corev1.ResourceStorage] = state
	}
	status.ModifyVolumeStatus = modifying(o.Claim, b)
	status.Conditions = slices.DeleteFunc(status.Conditions, isReflected)
	for _, c := range b.Status.Conditions {
		told := slices.ContainsFunc(status.Conditions, func(have corev1.PersistentVolumeClaimCondition) bool { return have.Type == c.Type })
		if isReflected(c) && !told && slices.Contains(conditionStates, c.Status) && !(declined != nil && c.Type == corev1.PersistentVolumeClaimControllerResizeError) {
			status.Conditions = append(status.Conditions, condition(o, c.Type, c.Status, c.Reason, c.Message))
		}
	}
	if declined != nil {
		status.Conditions = append(status.Conditions, condition(o, corev1.PersistentVolumeClaimControllerResizeError, corev1.ConditionTrue, declined.Reason, declined.Message))
	}
	return status
}

// condition returns a condition as the claim has it already, else a new one.
func condition(o Observation, kind corev1.PersistentVolumeClaimConditionType, state corev1.ConditionStatus, reason, message string) corev1.PersistentVolumeClaimCondition {
	c := corev1.PersistentVolumeClaimCondition{
		Type: kind, Status: state, Reason: cut(reason, maxMessage), Message: cut(message, maxMessage), LastTransitionTime: metav1.NewTime(o.Now),
	}
	for _, have := range o.Claim.Status.Conditions {
		if sameCondition(have, c) {
			return have
		}
	}
	return c
}

func sameCondition(a, b corev1.PersistentVolumeClaimCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// sameSize says whether two states of a claim tell the same of its size, and of
// changes of its size and attributes.
func sameSize(a, b corev1.PersistentVolumeClaimStatus) bool {
	return sameStorage(a.Capacity, b.Capacity) && sameStorage(a.AllocatedResources, b.AllocatedResources) &&
		a.AllocatedResourceStatuses[corev1.ResourceStorage] == b.AllocatedResourceStatuses[corev1.ResourceStorage] &&
		sameModifying(a.ModifyVolumeStatus, b.ModifyVolumeStatus) &&
		slices.EqualFunc(reflectedOf(a.Conditions), reflectedOf(b.Conditions), sameCondition)
}

func sameStorage(a, b corev1.ResourceList) bool {
	have, ok := a[corev1.ResourceStorage]
	want, wanted := b[corev1.ResourceStorage]
	return ok == wanted && have.Cmp(want) == 0
}

func setStorage(list *corev1.ResourceList, size resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[corev1.ResourceStorage] = size
}

// failureOf returns the condition that tells of an expansion that failed.
func failureOf(conditions []corev1.PersistentVolumeClaimCondition) *corev1.PersistentVolumeClaimCondition {
	for i, c := range conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == corev1.PersistentVolumeClaimControllerResizeError || c.Type == corev1.PersistentVolumeClaimNodeResizeError) {
			return &conditions[i]
		}
	}
	return nil
}

// awaitsKubelet says whether only a kubelet can end the expansion of a claim.
func awaitsKubelet(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimNodeResizePending {
		return true
	}
	return slices.ContainsFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending && c.Status == corev1.ConditionTrue
	})
}

func isResize(c corev1.PersistentVolumeClaimCondition) bool {
	return slices.Contains(resizeConditions, c.Type)
}

func reflectedOf(conditions []corev1.PersistentVolumeClaimCondition) []corev1.PersistentVolumeClaimCondition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c corev1.PersistentVolumeClaimCondition) bool { return !isReflected(c) })
}

func withoutResize(conditions []corev1.PersistentVolumeClaimCondition) []corev1.PersistentVolumeClaimCondition {
	return slices.DeleteFunc(slices.Clone(conditions), isResize)
}

func smaller(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// cut shortens a text to some bytes, at a character's end.
func cut(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "")
}
