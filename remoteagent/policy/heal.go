package policy

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Healing is all that the next step depends on towards a shadow in the place of
// one that somebody deleted, bound to the same real volume.
type Healing struct {
	Volume *corev1.PersistentVolume
	// Record is that of the volume, nil while nothing is being healed. Unreadable
	// says why it cannot be read, nil if it can.
	Record     *Record
	Unreadable error
	// Claim has the name that the volume names, whoever made it; nil if none has.
	Claim *corev1.PersistentVolumeClaim
	// Namespace is where that claim belongs; nil if it is not there.
	Namespace *corev1.Namespace
	// Refusal says why the shadow is not to be made anew, nil if it is.
	Refusal *Refusal
}

// Cure is what a step of healing does. The real volume is never without either a
// shadow that holds it or the policy Retain, and never open to any claim but one.
type Cure string

// The cures, in their order.
const (
	// Rest: there is nothing to heal, or it must not be.
	Rest Cure = "Rest"
	// Abide: something must happen first.
	Abide Cure = "Abide"
	// Begin records the shadow on the volume and has it outlive the shadow; one
	// write. Insist has it outlive the shadow after somebody changed that.
	Begin  Cure = "Begin"
	Insist Cure = "Insist"
	// LetGo takes our finalizer off the deleted shadow.
	LetGo Cure = "LetGo"
	// Rebuild makes the shadow anew. It names the volume, which still names the
	// one that is gone.
	Rebuild Cure = "Rebuild"
	// Give has the volume name it.
	Give Cure = "Give"
	// Protect puts our finalizer on it again after somebody took that off.
	Protect Cure = "Protect"
	// Touch has Kubernetes look at it again, which else takes 15 s.
	Touch Cure = "Touch"
	// End gives the volume its own policy back and takes the record off; one write.
	// Undo does so where healing is no longer wanted and nothing was let go.
	End  Cure = "End"
	Undo Cure = "Undo"
)

// HealStep is the next step of healing. Tell is what the owner of the cluster
// should know, nil for nothing.
type HealStep struct {
	Cure Cure
	Tell *Refusal
}

// Heal decides the next step for a real volume. After each step it is asked again.
func Heal(h Healing) HealStep {
	if h.Unreadable != nil {
		return HealStep{Abide, &Refusal{notHealed, h.Unreadable.Error() + "; correct it, or remove it and label " + keys.Healing + ", and set the volume's reclaim policy by hand."}}
	}
	if h.Record == nil {
		switch {
		case !wounded(h):
			return HealStep{Cure: Rest}
		case h.Claim.Labels[keys.ClaimUID] == "":
			return HealStep{Rest, &Refusal{notHealed, "The claim is not made anew, since it says not of which claim at home it is, as after an import that stopped: give its volume " + h.Volume.Name +
				" the reclaim policy Retain, take the claim's finalizer " + keys.BackingFinalizer + " off, make the claim anew with its volume, and import it again; or take just the finalizer off if its data is not needed."}}
		case h.Refusal != nil:
			return HealStep{Cure: Rest, Tell: h.Refusal}
		}
		return HealStep{Cure: Begin}
	}
	ref, claim := h.Volume.Spec.ClaimRef, h.Claim
	switch {
	case h.Volume.DeletionTimestamp != nil || ref == nil:
		return HealStep{Abide, &Refusal{notHealed, "The volume is being deleted, or its claimRef was removed: its claim is not made anew. Make a new volume of the same storage by hand, or take label " + keys.Healing + " and annotation " + keys.HealingRecord + " off."}}
	case claim != nil && !h.Record.is(claim, h.Volume):
		return HealStep{Abide, &Refusal{"NameTaken", fmt.Sprintf("Another claim has the name %s/%s: delete it, or the claim of this volume cannot be made anew.", ref.Namespace, ref.Name)}}
	case claim != nil && claim.UID == ref.UID && claim.DeletionTimestamp == nil:
		return conclude(h)
	case h.Volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		return HealStep{Cure: Insist}
	case claim == nil:
		return allowed(h, Rebuild)
	case claim.DeletionTimestamp == nil:
		return allowed(h, Give)
	case !protected(claim):
		return HealStep{Cure: Abide} // a pod uses it
	case h.Refusal != nil && claim.UID == ref.UID:
		return HealStep{Undo, h.Refusal}
	}
	return HealStep{Cure: LetGo}
}

// wounded reports whether the shadow of a volume was deleted by somebody who may
// not have known what that means. Home takes our finalizer off before it deletes.
// What is in no namespace of a home cluster is not its shadow, but may be a twin.
func wounded(h Healing) bool {
	ref := h.Volume.Spec.ClaimRef
	return h.Claim != nil && ref != nil && h.Claim.UID == ref.UID && h.Claim.DeletionTimestamp != nil && h.Volume.DeletionTimestamp == nil &&
		h.Claim.Spec.VolumeName == h.Volume.Name && holds(h.Claim) && h.Namespace != nil && h.Namespace.Labels[keys.HomeID] != ""
}

// Healable reports whether a claim is a shadow that could be made anew: it holds
// a real volume, and its virtual volume exists or existed.
func Healable(claim *corev1.PersistentVolumeClaim) bool {
	return holds(claim) && claim.Labels[keys.ClaimUID] != ""
}

// holds reports whether a claim is of a home cluster and keeps a real volume.
func holds(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Labels[keys.HomeID] != "" && protected(claim) && claim.Annotations[keys.Unpublished] == "" && claim.Status.Phase == corev1.ClaimBound
}

// Stuck reports whether a claim keeps a namespace that is being deleted, and could
// not be made anew.
func Stuck(claim *corev1.PersistentVolumeClaim) bool { return protected(claim) && !Healable(claim) }

func protected(claim *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Finalizers, keys.BackingFinalizer)
}

// allowed is the step that makes a claim anew, or gives it the volume: only in the
// namespace of the home cluster that it is of, and while nothing speaks against it.
// Anybody who may make claims can make one that looks like the shadow.
func allowed(h Healing, cure Cure) HealStep {
	switch {
	case h.Refusal != nil:
		return HealStep{Abide, h.Refusal}
	case h.Namespace == nil || h.Namespace.DeletionTimestamp != nil:
		return HealStep{Cure: Abide} // it is made again
	case h.Namespace.Labels[keys.HomeID] != h.Record.Labels[keys.HomeID]:
		return HealStep{Abide, &Refusal{notHealed, fmt.Sprintf("The claim is not made anew, since namespace %s was not made for home cluster %s.", h.Namespace.Name, h.Record.Labels[keys.HomeID])}}
	}
	return HealStep{Cure: cure}
}

// conclude decides for a volume that names a new shadow.
func conclude(h Healing) HealStep {
	bound := h.Claim.Status.Phase == corev1.ClaimBound
	_, fresh := h.Claim.Annotations[keys.Healing]
	switch {
	case !protected(h.Claim):
		return HealStep{Cure: Protect}
	case fresh && (bound || h.Volume.Status.Phase == corev1.VolumeBound):
		return HealStep{Cure: Touch}
	case bound && !fresh:
		return HealStep{Cure: End}
	}
	return HealStep{Cure: Abide}
}
