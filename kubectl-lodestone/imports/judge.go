package imports

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// origin is the claim of a user whose data the real volume has or had, empty if
// nothing says so.
func (h Home) origin() types.NamespacedName {
	if h.Holder != nil && h.Holder.Namespace != h.Storage {
		return types.NamespacedName{Namespace: h.Holder.Namespace, Name: h.Holder.Name}
	}
	if h.Holder != nil {
		if namespace, name, ok := strings.Cut(h.Holder.Annotations[keys.Claim], "/"); ok {
			return types.NamespacedName{Namespace: namespace, Name: name}
		}
	}
	for _, volume := range []*corev1.PersistentVolume{h.Old, h.Real} {
		if volume != nil && volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.Namespace != h.Storage {
			return types.NamespacedName{Namespace: volume.Spec.ClaimRef.Namespace, Name: volume.Spec.ClaimRef.Name}
		}
	}
	return types.NamespacedName{}
}

// foreign says why the data is not this home's to take: clusters that are each
// other's remote hold backing claims of other homes, which those homes and the
// remote agent of this cluster look after.
func (h Home) foreign() error {
	if b := h.Holder; b != nil {
		if home := b.Labels[keys.HomeID]; home != "" && home != h.HomeID {
			return outcome.Refuse("claim %s/%s belongs to home cluster %q: it cannot be imported here", b.Namespace, b.Name, home)
		}
	}
	if home := h.Real.Labels[keys.Healing]; home != "" {
		return outcome.Refuse("volume %s belongs to home cluster %q, and its claim is being made anew: it cannot be imported here", h.Real.Name, home)
	}
	return nil
}

// over says whether a claim has the real volume, as when the last write of an earlier run
// was carried out only after this one had found the record of the import.
func (h Home) over(target types.NamespacedName) bool {
	return h.Record == nil && h.Owner != nil && h.Old != nil && h.Owner.Namespace == target.Namespace && h.Owner.Name == target.Name &&
		h.Owner.Spec.VolumeName == h.Old.Name
}

// undoable says why an import must not be taken back.
func (h Home) undoable() error {
	from := h.Record.From
	switch {
	case h.Claim != nil && h.ours(), h.Holder == nil && from.UID != "", h.Holder != nil && h.Holder.DeletionTimestamp != nil:
		return outcome.Refuse("claim %s is gone or going, so the import can only go on: run the same command without --undo; the data is safe in volume %s", from, h.Real.Name)
	case h.Record.Old != "" && (h.Old == nil || h.Old.Name != h.Record.Old || h.Old.DeletionTimestamp != nil):
		return outcome.Refuse("volume %s, which stood for the data, is gone or going, so the import can only go on: run the same command without --undo; the data is safe in volume %s", h.Record.Old, h.Real.Name)
	}
	return nil
}

// mayGo says why a virtual volume that stands for the data must not be deleted.
func mayGo(old *corev1.PersistentVolume) error {
	switch claim := old.Spec.ClaimRef; {
	case old.Status.Phase != corev1.VolumeReleased:
		return outcome.Refuse("the data is that of volume %s, which claim %s/%s uses: there is nothing to import", old.Name, claim.Namespace, claim.Name)
	case old.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		return outcome.Refuse("volume %s is released with policy %s, so its data is being deleted: kubectl patch pv %s -p '{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Retain\"}}' keeps it, if it is not too late; then import again", old.Name, old.Spec.PersistentVolumeReclaimPolicy, old.Name)
	case old.Annotations[keys.Healing] != "":
		return outcome.Refuse("the real claim behind volume %s is being made anew: try again when that is done", old.Name)
	}
	return nil
}

// unused says who uses a claim or its volume.
func unused(claim string, users []string, volume, node string) error {
	switch {
	case len(users) > 0:
		return outcome.Refuse("claim %s is used by pod %s: stop what runs it (kubectl scale … --replicas=0, or kubectl delete pod), then run the same command again", claim, strings.Join(users, ", "))
	case node != "":
		return outcome.Refuse("volume %s is still attached to node %q: run the same command again when it is detached", volume, node)
	}
	return nil
}

// Judge returns why the real volume must not be imported into a class, before
// anything is changed. It is pure.
func (h Home) Judge(class virtualclass.Class, target types.NamespacedName) error {
	real := h.Real
	switch {
	case real.Annotations[keys.Backing] != "":
		return outcome.Refuse("volume %s is virtual already: there is nothing to import", real.Name)
	case real.DeletionTimestamp != nil:
		return outcome.Refuse("volume %s is being deleted: it cannot be imported", real.Name)
	case real.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain && h.Holder == nil && real.Spec.ClaimRef != nil:
		return outcome.Refuse("volume %s is %s with policy %s, so its data is being deleted: it cannot be imported", real.Name, real.Status.Phase, real.Spec.PersistentVolumeReclaimPolicy)
	case !class.Allows(keys.Home):
		return outcome.Refuse("storage class %q keeps its volumes out of the home cluster: choose a class whose parameter %s lists %s", class.Name, keys.Clusters, keys.Home)
	}
	if err := h.foreign(); err != nil {
		return err
	}
	if from := h.origin(); from.Namespace != "" && from.Namespace != target.Namespace && !h.Chosen {
		return outcome.Refuse("the data of volume %s is that of claim %s, but the virtual claim would be in namespace %q: say with -n which namespace it is to be in", real.Name, from, target.Namespace)
	}
	if b := h.Holder; b != nil {
		name := b.Namespace + "/" + b.Name
		same := target == types.NamespacedName{Namespace: b.Namespace, Name: b.Name}
		switch {
		case b.Spec.VolumeName != real.Name || b.Status.Phase != corev1.ClaimBound:
			return outcome.Refuse("claim %s is %s, not bound to volume %s: import it once it is", name, b.Status.Phase, real.Name)
		case b.DeletionTimestamp != nil:
			return outcome.Refuse("claim %s is being deleted: it cannot be imported", name)
		case podOwns(b):
			return outcome.Refuse("claim %s belongs to a pod (a generic ephemeral volume) and goes with it: it cannot be imported", name)
		case h.Owner != nil || backings.Unpublished(b):
			return outcome.Refuse("claim %s is the twin of a virtual claim: there is nothing to import", name)
		case h.Claim != nil && !same:
			return outcome.Refuse("there is a claim %s already: choose another name with --as", target)
		}
		if h.Old != nil {
			if err := mayGo(h.Old); err != nil {
				return err
			}
		}
		return unused(name, h.Users, real.Name, h.Node)
	}
	if h.Claim != nil {
		return outcome.Refuse("there is a claim %s already: choose another name with --as", target)
	}
	return unused(target.String(), nil, real.Name, h.Node)
}

// podOwns says whether a claim belongs to a pod.
func podOwns(claim *corev1.PersistentVolumeClaim) bool {
	for _, owner := range claim.OwnerReferences {
		if owner.Kind == "Pod" {
			return true
		}
	}
	return false
}
