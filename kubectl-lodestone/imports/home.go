package imports

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Step is the next thing to do.
type Step string

// The steps at home, in their order; those in a remote cluster are begin's
// counterpart Mark, DropOld, Make, Own, Publish and Clear.
const (
	// Begin records the import on the real volume and has it outlive its claim, in
	// one write.
	Begin Step = "Begin"
	// Keep has the volume outlive its claim again, if somebody changed that.
	Keep Step = "Keep"
	// DropOld deletes the released virtual volume that stood for the data before.
	DropOld Step = "DropOld"
	// Delete deletes the claim that has the volume: from here on there is no undo.
	Delete Step = "Delete"
	// LetGo takes our finalizer off that claim.
	LetGo Step = "LetGo"
	// Make creates the virtual claim.
	Make Step = "Make"
	// Free has the volume wait for the twin.
	Free Step = "Free"
	// Twin creates the twin.
	Twin Step = "Twin"
	// Restore gives the volume its own reclaim policy back.
	Restore Step = "Restore"
	// Publish creates the virtual volume.
	Publish Step = "Publish"
	// Clear takes the record off the virtual claim, End off the real volume.
	Clear Step = "Clear"
	End   Step = "End"
	// Done says that there is nothing left to do, Wait that others have to act first.
	Done Step = "Done"
	Wait Step = "Wait"
)

// Home is what the home cluster holds of one import. All was read from the API
// server just now.
type Home struct {
	Real   *corev1.PersistentVolume
	Record *Record
	// Holder is the claim that the real volume is bound to, nil if that is gone.
	Holder *corev1.PersistentVolumeClaim
	// Users are the pods that use it, Node the node that the volume is attached to.
	Users []string
	Node  string
	// Old is the virtual volume that stands for the holder, if the holder is a twin.
	Old *corev1.PersistentVolume
	// Owner is the virtual claim that the holder was made for, if it is a twin.
	Owner *corev1.PersistentVolumeClaim
	// Claim is what has the name of the virtual claim, Twin what has that of its
	// twin, Virtual what has that of its volume.
	Claim, Twin *corev1.PersistentVolumeClaim
	Virtual     *corev1.PersistentVolume
	// Storage is the namespace of twins, HomeID the ID of the home cluster.
	Storage, HomeID string
	// Chosen says that the user named the namespace of the virtual claim.
	Chosen bool
}

// twinName is where the twin of the virtual claim is.
func (h Home) twinName() types.NamespacedName {
	return types.NamespacedName{Namespace: h.Storage, Name: "pvc-" + string(h.Claim.UID)}
}

// bound is the UID of the claim that the real volume is bound to.
func (h Home) bound() types.UID {
	if ref := h.Real.Spec.ClaimRef; ref != nil {
		return ref.UID
	}
	return ""
}

// ours says whether the virtual claim was made by this import.
func (h Home) ours() bool {
	return h.Claim.Annotations[keys.Import] == homeID(h.Real) ||
		h.Virtual != nil && h.Virtual.Annotations[keys.BackingVolume] == h.Real.Name
}

// holds says whether the twin has the real volume.
func (h Home) holds() bool {
	return h.Twin != nil && h.bound() == h.Twin.UID && h.Real.Status.Phase == corev1.VolumeBound && h.Twin.Status.Phase == corev1.ClaimBound
}

// Next returns the next step of an import at home that has begun; with Wait comes
// what is waited for. The error says what the user must do first. It is pure.
func (h Home) Next() (Step, string, error) {
	if h.Real.DeletionTimestamp != nil {
		return "", "", outcome.Refuse("volume %s is being deleted: it cannot be imported", h.Real.Name)
	}
	if h.Claim != nil && !h.ours() {
		return "", "", outcome.Refuse("claim %s/%s is there, and this import did not make it: delete it if nobody needs it, then run the same command again; the data is safe in volume %s, which is kept", h.Claim.Namespace, h.Claim.Name, h.Real.Name)
	}
	if h.Holder != nil && (h.Claim == nil || h.Twin == nil || h.Holder.UID != h.Twin.UID) {
		return h.release()
	}
	if h.Claim == nil {
		return Make, "", nil
	}
	switch {
	case h.Claim.DeletionTimestamp != nil:
		return Wait, fmt.Sprintf("claim %s/%s, which is being deleted, to be gone", h.Claim.Namespace, h.Claim.Name), nil
	case h.Twin == nil && !h.reserved():
		return Free, "", nil
	case h.Twin == nil:
		return Twin, "", nil
	case !backings.IsOf(h.Twin, h.Claim.UID, h.HomeID) || h.Twin.DeletionTimestamp != nil:
		return "", "", outcome.Refuse("claim %s/%s is not the twin that it should be: delete it, then run the same command again", h.Twin.Namespace, h.Twin.Name)
	case !h.holds():
		return Wait, fmt.Sprintf("claim %s/%s to be bound to volume %s", h.Twin.Namespace, h.Twin.Name, h.Real.Name), nil
	case h.Virtual == nil && h.Real.Spec.PersistentVolumeReclaimPolicy != h.Record.Policy:
		return Restore, "", nil
	case h.Virtual == nil:
		return Publish, "", nil
	case h.Claim.Status.Phase != corev1.ClaimBound:
		return Wait, fmt.Sprintf("claim %s/%s to be bound", h.Claim.Namespace, h.Claim.Name), nil
	case h.Claim.Annotations[keys.Import] != "":
		return Clear, "", nil
	}
	return End, "", nil
}

// release is the step that makes the claim go that has the real volume.
func (h Home) release() (Step, string, error) {
	name := h.Holder.Namespace + "/" + h.Holder.Name
	if err := h.foreign(); err != nil {
		return "", "", err
	}
	// A run that was stopped may have left a twin of a virtual claim that somebody
	// deleted since.
	ours := h.Holder.Namespace == h.Storage && h.Holder.Labels[keys.HomeID] == h.HomeID && h.Owner == nil
	switch {
	case h.Holder.UID != h.Record.From.UID && !ours:
		return "", "", outcome.Refuse("volume %s was bound to claim %s meanwhile: run the same command with --undo, then import that claim", h.Real.Name, name)
	case h.Real.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		return Keep, "", nil
	case h.Old != nil && h.Old.DeletionTimestamp != nil:
		return Wait, fmt.Sprintf("volume %s, which is being deleted, to be gone", h.Old.Name), nil
	case h.Old != nil:
		if err := mayGo(h.Old); err != nil {
			return "", "", err
		}
		return DropOld, "", nil
	case h.Holder.DeletionTimestamp == nil:
		if err := unused(name, h.Users, h.Real.Name, h.Node); err != nil {
			return "", "", err
		}
		return Delete, "", nil
	case backings.Protected(h.Holder):
		return LetGo, "", nil
	}
	what := fmt.Sprintf("claim %s to be gone", name)
	if len(h.Users) > 0 {
		what += ", which pods still use (" + strings.Join(h.Users, ", ") + "): delete them"
	}
	return Wait, what, nil
}

// reserved says whether the real volume waits for the twin.
func (h Home) reserved() bool {
	ref, at := h.Real.Spec.ClaimRef, h.twinName()
	return ref != nil && ref.UID == "" && ref.Namespace == at.Namespace && ref.Name == at.Name
}
