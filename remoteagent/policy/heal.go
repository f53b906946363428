package policy

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Healing is all that the next step depends on towards a shadow in the place of
// one that somebody deleted, bound to the same real volume.
type Healing struct {
	Volume *corev1.PersistentVolume
	// Record is that of the volume, nil while nothing is being healed.
	Record *Record
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
	if h.Record == nil {
		switch {
		case !wounded(h):
			return HealStep{Cure: Rest}
		case h.Refusal != nil:
			return HealStep{Cure: Rest, Tell: h.Refusal}
		}
		return HealStep{Cure: Begin}
	}
	ref, claim := h.Volume.Spec.ClaimRef, h.Claim
	switch {
	case h.Volume.DeletionTimestamp != nil || ref == nil:
		return HealStep{Abide, &Refusal{"NotHealed", "The volume is being deleted, or its claimRef was removed: its claim is not made anew. Make a new volume of the same storage by hand, or take the label and annotations lodestone.dev/healing… off."}}
	case claim != nil && !h.Record.is(claim, h.Volume):
		return HealStep{Abide, &Refusal{"NameTaken", fmt.Sprintf("Another claim has the name %s/%s: delete it, or the claim of this volume cannot be made anew.", ref.Namespace, ref.Name)}}
	case claim != nil && claim.UID == ref.UID && claim.DeletionTimestamp == nil:
		return conclude(h)
	case h.Volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		return HealStep{Cure: Insist}
	case claim == nil:
		return rebuild(h)
	case claim.DeletionTimestamp == nil:
		return HealStep{Cure: Give}
	case !protected(claim):
		return HealStep{Cure: Abide} // a pod uses it
	case h.Refusal != nil && claim.UID == ref.UID:
		return HealStep{Undo, h.Refusal}
	}
	return HealStep{Cure: LetGo}
}

// wounded reports whether the shadow of a volume was deleted by somebody who may
// not have known what that means. Home takes our finalizer off before it deletes.
func wounded(h Healing) bool {
	ref := h.Volume.Spec.ClaimRef
	return h.Claim != nil && ref != nil && h.Claim.UID == ref.UID && h.Claim.DeletionTimestamp != nil && h.Volume.DeletionTimestamp == nil &&
		h.Claim.Spec.VolumeName == h.Volume.Name && Healable(h.Claim)
}

// Healable reports whether a claim is a shadow that could be made anew: it holds
// a real volume, and its virtual volume exists or existed.
func Healable(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Labels[keys.HomeID] != "" && claim.Labels[keys.ClaimUID] != "" && protected(claim) &&
		claim.Annotations[keys.Unpublished] == "" && claim.Status.Phase == corev1.ClaimBound
}

// Stuck reports whether a claim keeps a namespace that is being deleted, and could
// not be made anew.
func Stuck(claim *corev1.PersistentVolumeClaim) bool { return protected(claim) && !Healable(claim) }

func protected(claim *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Finalizers, keys.BackingFinalizer)
}

// rebuild decides for a volume whose shadow is gone.
func rebuild(h Healing) HealStep {
	switch {
	case h.Namespace != nil && h.Namespace.DeletionTimestamp == nil && h.Namespace.Labels[keys.HomeID] == h.Record.Labels[keys.HomeID]:
		return HealStep{Cure: Rebuild}
	case h.Refusal != nil:
		return HealStep{Abide, h.Refusal}
	}
	return HealStep{Cure: Abide}
}

// conclude decides for a volume that names a new shadow.
func conclude(h Healing) HealStep {
	bound := h.Claim.Status.Phase == corev1.ClaimBound
	_, fresh := h.Claim.Annotations[keys.Healing]
	switch {
	case fresh && (bound || h.Volume.Status.Phase == corev1.VolumeBound):
		return HealStep{Cure: Touch}
	case bound && !fresh:
		return HealStep{Cure: End}
	}
	return HealStep{Cure: Abide}
}

// Mend says why a shadow in a namespace is not to be made anew, nil if it is.
// Whatever of home, request and namespace does not exist is nil; count is how many
// namespaces the home cluster has, and stuck the name of a claim that keeps the
// namespace from going, if that is being deleted.
func Mend(home *remotev1alpha1.HomeCluster, request *remotev1alpha1.NamespaceRequest, namespace *corev1.Namespace, count int, stuck string) *Refusal {
	const notHealed = "NotHealed"
	switch {
	case home == nil || home.DeletionTimestamp != nil:
		return &Refusal{notHealed, "The claim is not made anew, since its home cluster is served no longer: take its finalizer " + keys.BackingFinalizer + " off if its data is not needed."}
	case request == nil || request.DeletionTimestamp != nil:
		return &Refusal{notHealed, "The claim is not made anew, since its home cluster asks for the namespace no longer: take its finalizer " + keys.BackingFinalizer + " off if its data is not needed."}
	case namespace == nil:
		return Grant(home, request, nil, count)
	case namespace.DeletionTimestamp == nil:
		return take(home, request, namespace)
	case !Made(namespace, home) || namespace.Annotations[keys.MadeFor] != MadeFor(home, request):
		return &Refusal{notHealed, "The claim is not made anew, since its namespace was not made for home cluster " + home.Name + "."}
	case stuck != "":
		return &Refusal{notHealed, fmt.Sprintf("The claim is not made anew yet, since its namespace is being deleted and claim %s, which has no volume or is not in use yet, keeps it: delete that claim at home, or take its finalizer %s off.", stuck, keys.BackingFinalizer)}
	}
	if refusal := Grant(home, request, nil, count-1); refusal != nil {
		return &Refusal{notHealed, "The claim is not made anew, since its namespace would not be given again: " + refusal.Message}
	}
	return nil
}
