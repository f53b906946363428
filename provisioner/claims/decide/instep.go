package decide

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// inStep keeps size, attributes, labels and annotations of claim and backing claim
// consistent, sizes first.
func inStep(o steps.Observation, b steps.Backing) steps.Step {
	step := syncSize(o, b)
	if step.Action != nil {
		return step
	}
	next := syncAttributesAndMetadata(o, b)
	if step.Tell != nil {
		next.Tell = step.Tell
	}
	if step.Trouble != "" {
		next.Trouble, next.Shows = step.Trouble, step.Shows
	}
	next.After = steps.Sooner(next.After, step.After)
	return next
}

// KeepsSize says whether we write the size of a virtual volume and of its claim. We do not
// if the volume has the CSI driver of a real one: that driver's resizer and kubelet treat
// the virtual volume as their own, and a size written by anybody else would tell kubelet
// that the file system was expanded already.
func KeepsSize(volume *corev1.PersistentVolume) bool {
	return volume.Spec.CSI == nil || volume.Spec.CSI.Driver == keys.Driver
}

// syncSize keeps the size of a volume consistent: it copies the claim's request to the
// backing claim, and the result back.
func syncSize(o steps.Observation, b steps.Backing) steps.Step {
	if o.Claim == nil || o.Claim.Spec.VolumeName != o.Volume.Name || o.Claim.Status.Phase != corev1.ClaimBound {
		return steps.Step{}
	}
	if step := fixedSize(o, b); step.Action != nil {
		return step
	}
	switch {
	case !KeepsSize(o.Volume):
		return recordDriverSize(o, b)
	case b.Claim.Status.Phase != corev1.ClaimBound || b.Volume == nil:
		if want, have := requested(o.Claim), requested(b.Claim); want.Cmp(have) > 0 {
			return steps.Step{Tell: steps.Note(expansionWaits, fmt.Sprintf(
				"the volume grows to %s once real claim %s/%s in %s is bound, which a pod there may have to use first", want.String(),
				b.Claim.Namespace, b.Claim.Name, steps.Where(b.Cluster)))}
		}
		return steps.Step{}
	}
	asks := asksForMore(o.Claim, b.Claim)
	declined := o.RefusedSize
	if declined != nil && (!asks || !declined.Size.Equal(requested(o.Claim))) {
		declined = nil
	}
	if asks && declined == nil {
		return steps.Step{Action: steps.ExpandBacking{Backing: b, Size: requested(o.Claim)}}
	}
	step := claimStatus(o, b, declined)
	if declined != nil {
		step.After = steps.Sooner(step.After, declined.Until.Sub(o.Now)+time.Millisecond)
		step.Trouble = declined.Reason
	}
	return step
}

// Reasons of events and conditions about sizes.
const (
	expansionWaits      = "ExpansionWaits"
	expansionFailed     = "ExpansionFailed"
	expansionNotAllowed = "ExpansionNotAllowed"
	expanded            = "VolumeResizeSuccessful"
	backingResized      = "BackingResized"
	backingPending      = "BackingPending"
)

// growsLater is the event for a request for more space while the cluster is not usable.
func growsLater(o steps.Observation, ref backing.Ref, cluster steps.Cluster) *steps.Message {
	if o.Claim == nil || o.Claim.Spec.VolumeName != o.Volume.Name || o.Claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	want := requested(o.Claim)
	if want.Cmp(reachedSize(o.Claim)) <= 0 {
		return nil
	}
	text := fmt.Sprintf("the volume grows to %s once %s can be used again", want.String(), steps.Where(ref.Cluster))
	if cluster.Message != "" {
		text += ": " + cluster.Message
	}
	return steps.Note(expansionWaits, text)
}

// asksForMore says whether a virtual claim requests another size than its backing claim,
// and one that the backing claim can still request. A lowered request, as after a failed
// expansion, must be above the size that was reached: Kubernetes refuses any other.
func asksForMore(virtual, b *corev1.PersistentVolumeClaim) bool {
	want, have, reached := requested(virtual), requested(b), reachedSize(b)
	return want.Cmp(have) > 0 || (want.Cmp(have) < 0 && want.Cmp(reached) > 0)
}

// recordDriverSize updates the backing claim at home of a volume that its own CSI driver
// expands. When kubelet has finished an expansion of the virtual claim, the same size is
// requested on the backing claim, for which the driver has nothing left to do, and then
// written to its status, since no kubelet ever mounts it.
func recordDriverSize(o steps.Observation, b steps.Backing) steps.Step {
	step := steps.Step{}
	want, reached := requested(o.Claim), reachedSize(o.Claim)
	if allowed, known := allowsExpansion(o, b); known && !allowed && want.Cmp(reached) > 0 {
		step.Trouble = expansionNotAllowed
		step.Tell = steps.Warn(expansionNotAllowed, fmt.Sprintf(
			"real storage class %q in %s does not allow expansion, so that the volume may keep its size: let its administrator set "+
				"allowVolumeExpansion there", className(b.Claim), steps.Where(b.Cluster)))
	}
	if b.Claim.Status.Phase != corev1.ClaimBound || b.Volume == nil {
		return step
	}
	if theirs := requested(b.Claim); theirs.Cmp(want) > 0 && theirs.Cmp(reached) > 0 {
		step.Trouble = backingResized
		step.Tell = steps.Note(backingResized, fmt.Sprintf(
			"real claim %s/%s in %s was made to ask for %s: let this claim ask for as much to have it", b.Claim.Namespace, b.Claim.Name,
			steps.Where(b.Cluster), theirs.String()))
		step = steps.ShownAsTold(step)
	}
	if reached.Cmp(reachedSize(b.Claim)) <= 0 {
		return step
	}
	declined := o.RefusedSize != nil && o.RefusedSize.Size.Equal(reached)
	switch {
	case reached.Cmp(requested(b.Claim)) > 0 && declined:
		step.After, step.Trouble, step.Shows = o.RefusedSize.Until.Sub(o.Now)+time.Millisecond, o.RefusedSize.Reason, ""
		step.Tell = steps.Warn(o.RefusedSize.Reason, fmt.Sprintf(
			"the volume has grown to %s, but real claim %s/%s in %s cannot ask for as much, so that quotas there count too little: %s; let its "+
				"administrator allow it", reached.String(), b.Claim.Namespace, b.Claim.Name, steps.Where(b.Cluster), o.RefusedSize.Message))
	case reached.Cmp(requested(b.Claim)) > 0:
		return steps.Step{Action: steps.ExpandBacking{Backing: b, Size: reached}, Tell: step.Tell, Trouble: step.Trouble}
	default:
		finishTwinSize(&step, b, reached)
	}
	return step
}

// finishTwinSize writes the size of a backing claim at home that waits only for a kubelet.
func finishTwinSize(step *steps.Step, b steps.Backing, reached resource.Quantity) {
	real := b.Volume.Spec.Capacity[corev1.ResourceStorage]
	if real.Cmp(reached) < 0 || !awaitsKubelet(b.Claim) {
		return
	}
	status := b.Claim.Status.DeepCopy()
	setStorage(&status.Capacity, reached)
	delete(status.AllocatedResourceStatuses, corev1.ResourceStorage)
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), isResize)
	step.Action = steps.UpdateClaimStatus{Backing: b, On: b.Claim, Status: status}
}

// fixedSize writes on a claim whose virtual class allows expansion that its real class does
// not, so that a larger request is refused at admission.
func fixedSize(o steps.Observation, b steps.Backing) steps.Step {
	allowed, known := allowsExpansion(o, b)
	if !known || o.Class == nil || o.Class.AllowVolumeExpansion == nil || !*o.Class.AllowVolumeExpansion {
		return steps.Step{}
	}
	fixed := ""
	if !allowed {
		fixed = fmt.Sprintf("real storage class %q in %s does not allow expansion", className(b.Claim), steps.Where(b.Cluster))
	}
	if o.Claim.Annotations[keys.FixedSize] == fixed {
		return steps.Step{}
	}
	return steps.Step{Action: steps.MarkFixedSize{Why: fixed}}
}

// allowsExpansion says whether the class of a backing claim allows expansion, and whether
// that is known.
func allowsExpansion(o steps.Observation, b steps.Backing) (allowed, known bool) {
	for _, class := range o.Cluster(b.Cluster).Offered {
		if class.Name == className(b.Claim) {
			return class.AllowVolumeExpansion, true
		}
	}
	return false, false
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

// maxMessage limits, in bytes, the message of a remote cluster's condition that is written
// at home.
const maxMessage = 1024

// resizeConditions are the conditions of a claim about its size.
var resizeConditions = []corev1.PersistentVolumeClaimConditionType{
	corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
	corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
}

var conditionStates = []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}

// resizeStates are the states that an API server accepts.
var resizeStates = []corev1.ClaimResourceStatus{
	corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress,
	corev1.PersistentVolumeClaimNodeResizeInfeasible,
}

// claimStatus updates the status of a virtual claim from its backing claim: the size, and
// the conditions and states of changes of size and attributes. It is idle if they are
// equal.
func claimStatus(o steps.Observation, b steps.Backing, declined *steps.RefusedSize) steps.Step {
	want := wantedStatus(o, b.Claim, declined)
	failure := failureOf(want.Conditions)
	step := steps.Step{}
	if failure != nil && declined == nil {
		step.Trouble = expansionFailed
	}
	if sameSize(o.Claim.Status, *want) {
		return step
	}
	if wait := quietFor(o, b); wait > 0 {
		step.After = wait
		return step
	}
	step.Action = steps.UpdateClaimStatus{Backing: b, On: o.Claim, Status: want}
	before, after := reachedSize(o.Claim), want.Capacity[corev1.ResourceStorage]
	asked := requested(o.Claim)
	theirs := requested(b.Claim)
	at := backing.RefTo(b.Cluster, b.Claim).Key()
	switch {
	case declined != nil:
		step.Tell = steps.Warn(declined.Reason, declined.Message)
	case failure != nil:
		step.Tell = steps.Warn(expansionFailed, fmt.Sprintf("real claim %s in %s is not expanded to %s: %s; it is tried again there, or ask for "+
			"less, but more than the present %s", at, steps.Where(b.Cluster), theirs.String(), failure.Message, after.String()))
	case after.Cmp(before) > 0 && theirs.Cmp(asked) > 0:
		step.Tell = steps.Note(backingResized, fmt.Sprintf("the volume has %s now: real claim %s in %s was made to ask for %s", after.String(),
			at,
			steps.Where(b.Cluster), theirs.String()))
	case after.Cmp(before) > 0 && asked.Cmp(before) > 0 && after.Cmp(asked) >= 0:
		step.Tell = steps.Note(expanded, fmt.Sprintf("the volume has %s now", after.String()))
	}
	return step
}

// wantedStatus is the status that a virtual claim should have.
func wantedStatus(o steps.Observation, b *corev1.PersistentVolumeClaim, declined *steps.RefusedSize) *corev1.PersistentVolumeClaimStatus {
	status := o.Claim.Status.DeepCopy()
	// The remote status cannot be trusted: a size never shrinks, and never exceeds the
	// virtual volume's, which is written first.
	if reached := smaller(reachedSize(b), o.Volume.Spec.Capacity[corev1.ResourceStorage]); reached.Cmp(reachedSize(o.Claim)) > 0 {
		setStorage(&status.Capacity, reached)
	}
	// It counts against the quota at home, so it never exceeds the request.
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
		if isReflected(c) && !told && slices.Contains(conditionStates, c.Status) &&
			!(declined != nil && c.Type == corev1.PersistentVolumeClaimControllerResizeError) {
			status.Conditions = append(status.Conditions, condition(o, c.Type, c.Status, c.Reason, c.Message))
		}
	}
	if declined != nil {
		status.Conditions = append(status.Conditions, condition(o, corev1.PersistentVolumeClaimControllerResizeError, corev1.ConditionTrue,
			declined.Reason, declined.Message))
	}
	return status
}

// condition returns the claim's condition if it is the same already, else a new one.
func condition(o steps.Observation, kind corev1.PersistentVolumeClaimConditionType, state corev1.ConditionStatus, reason,
	message string) corev1.PersistentVolumeClaimCondition {
	c := corev1.PersistentVolumeClaimCondition{
		Type: kind, Status: state, Reason: sentence.Cut(reason, maxMessage), Message: sentence.Cut(message, maxMessage),
		LastTransitionTime: metav1.NewTime(o.Now),
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

// sameSize says whether two states of a claim are equal in size and in the conditions and
// states of changes of size and attributes.
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

// failureOf returns the condition of a failed expansion.
func failureOf(conditions []corev1.PersistentVolumeClaimCondition) *corev1.PersistentVolumeClaimCondition {
	for i, c := range conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == corev1.PersistentVolumeClaimControllerResizeError ||
			c.Type == corev1.PersistentVolumeClaimNodeResizeError) {
			return &conditions[i]
		}
	}
	return nil
}

// awaitsKubelet says whether only a kubelet can finish the expansion of a claim.
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

func smaller(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// metadataPause is the least time between two writes of a backing claim's labels and
// annotations: somebody there may remove them each time.
const metadataPause = 5 * time.Second

// syncAttributesAndMetadata copies changes of attributes, labels and annotations of a bound
// virtual claim to its backing claim.
func syncAttributesAndMetadata(o steps.Observation, b steps.Backing) steps.Step {
	if o.Claim == nil || o.Claim.DeletionTimestamp != nil || o.Claim.Spec.VolumeName != o.Volume.Name {
		return steps.Step{}
	}
	refused := o.RefusedAttributes
	if refused != nil && (!modifiable(o, b) || refused.Attributes != backing.Attributes(o.Claim)) {
		refused = nil
	}
	switch {
	case modifiable(o, b) && refused == nil:
		return steps.Step{Action: steps.ModifyBacking{Backing: b}}
	case b.Claim.Status.Phase == corev1.ClaimBound && AttributesApplied(o, b):
		return steps.Step{Action: steps.UpdateVolume{Backing: b}}
	}
	step := syncMetadata(o, b)
	switch {
	case refused != nil:
		step.Tell, step.Trouble = steps.Warn(refused.Reason, refused.Message), refused.Reason
		step.After = steps.Sooner(step.After, refused.Until.Sub(o.Now)+time.Millisecond)
	case b.Cluster != keys.Home:
		attributesTrouble(&step, o, b)
	}
	return step
}

// modifiable says whether a backing claim has other attributes than its virtual claim
// requests and may be changed to those. Kubernetes accepts no change on a claim that is not
// bound, and no change back to none once the first attributes are applied.
func modifiable(o steps.Observation, b steps.Backing) bool {
	want, have := backing.Attributes(o.Claim), backing.Attributes(b.Claim)
	switch {
	case want == have || b.Claim.Status.Phase != corev1.ClaimBound:
		return false
	case want == "":
		return b.Cluster != keys.Home && ptr.Deref(b.Claim.Status.CurrentVolumeAttributesClassName, "") == ""
	}
	return b.Cluster != keys.Home || attributesDone(o)
}

// attributesDone says whether the volume has the attributes that its virtual claim
// requests. At home the real volume's driver sees to that, for the virtual volume has the
// same handle; the backing claim only records it.
func attributesDone(o steps.Observation) bool {
	return ptr.Deref(o.Claim.Status.CurrentVolumeAttributesClassName, "") == backing.Attributes(o.Claim)
}

// AttributesApplied says whether a remote volume has the attributes that its virtual claim
// requests while that claim or its volume does not show it yet.
func AttributesApplied(o steps.Observation, b steps.Backing) bool {
	if o.Claim == nil || b.Cluster == keys.Home {
		return false
	}
	want := backing.Attributes(o.Claim)
	return want != "" && ptr.Deref(b.Claim.Status.CurrentVolumeAttributesClassName, "") == want &&
		(ptr.Deref(o.Volume.Spec.VolumeAttributesClassName, "") != want || !attributesDone(o))
}

// syncMetadata is the step that updates labels and annotations.
func syncMetadata(o steps.Observation, b steps.Backing) steps.Step {
	if o.Class == nil || !virtualclass.Is(o.Class) {
		// The class may come back; keep what is written.
		return steps.Step{}
	}
	class, err := virtualclass.Parse(o.Class)
	if err != nil {
		return steps.Step{}
	}
	labels, annotations := backing.CarryPatch(b.Claim, o.Claim, class)
	if len(labels)+len(annotations) == 0 {
		return steps.Step{}
	}
	if left := metadataPause - o.Now.Sub(o.Synced); left > 0 {
		return steps.Step{After: left}
	}
	return steps.Step{Action: steps.SyncMetadata{Backing: b, Labels: labels, Annotations: annotations}}
}

// attributesFailed is the reason if the driver of a remote volume cannot apply the
// attributes.
const attributesFailed = "AttributesFailed"

// modifyConditions are the conditions of a claim about its attributes.
var modifyConditions = []corev1.PersistentVolumeClaimConditionType{
	corev1.PersistentVolumeClaimVolumeModifyingVolume, corev1.PersistentVolumeClaimVolumeModifyVolumeError,
}

// modifyStates are the states of such a change that an API server accepts.
var modifyStates = []corev1.PersistentVolumeClaimModifyVolumeStatus{
	corev1.PersistentVolumeClaimModifyVolumePending, corev1.PersistentVolumeClaimModifyVolumeInProgress,
	corev1.PersistentVolumeClaimModifyVolumeInfeasible,
}

// attributesTrouble reports that a remote volume cannot get the attributes that its virtual
// claim requests.
func attributesTrouble(step *steps.Step, o steps.Observation, b steps.Backing) {
	want := backing.Attributes(o.Claim)
	if want == "" || want != backing.Attributes(b.Claim) || want == ptr.Deref(b.Claim.Status.CurrentVolumeAttributesClassName, "") {
		return
	}
	// The remote status may still be about attributes that were requested before.
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
	// The remote cluster's text goes into the conditions, whose writes are limited by the
	// budget.
	step.Trouble = attributesFailed
	step.Tell = steps.Warn(attributesFailed, fmt.Sprintf(
		"real claim %s in %s does not get the attributes of VolumeAttributesClass %q: the conditions of the claim say why; it is tried again "+
			"there, or ask for those that it had before",
		backing.RefTo(b.Cluster, b.Claim).Key(), steps.Where(b.Cluster), want))
}

// modifying returns the remote claim's state of the change that its virtual claim requests,
// nil for none.
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

// Unmarked says whether a virtual volume lacks the UID of the cluster that b, its backing claim, was
// seen in. Whether that cluster is the right one is proven by the UID of the claim, which is the one
// that the volume names.
func Unmarked(virtual *corev1.PersistentVolume, b steps.Backing) bool {
	return b.ClusterUID != "" && virtual.Annotations[keys.ClusterUID] == ""
}

// quietFor is for how long size and attributes from a remote cluster are not written at
// home; 0: they may be.
func quietFor(o steps.Observation, b steps.Backing) time.Duration {
	if b.Cluster == keys.Home {
		return 0
	}
	return max(0, o.QuietUntil.Sub(o.Now))
}
