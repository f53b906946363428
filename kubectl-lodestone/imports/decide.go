package imports

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Step is the next thing to do.
type Step string

// The steps at home, in their order. In a remote cluster they are Mark, in place of Begin, DropOld,
// Make, Own, Publish and Clear.
const (
	// Begin records the import on the real volume and sets its reclaim policy to Retain, in one
	// write.
	Begin Step = "Begin"
	// Keep sets the policy to Retain again, if somebody changed it.
	Keep Step = "Keep"
	// DropOld deletes the released virtual volume through which the data was used before.
	DropOld Step = "DropOld"
	// Delete deletes the claim that is bound to the real volume: from here on there is no undo.
	Delete Step = "Delete"
	// LetGo removes our finalizer from that claim.
	LetGo Step = "LetGo"
	// Make creates the virtual claim.
	Make Step = "Make"
	// Free reserves the volume for the twin.
	Free Step = "Free"
	// Twin creates the twin.
	Twin Step = "Twin"
	// Restore sets the volume's own reclaim policy again.
	Restore Step = "Restore"
	// Publish creates the virtual volume.
	Publish Step = "Publish"
	// Clear removes the record from the virtual claim, End from the real volume.
	Clear Step = "Clear"
	End   Step = "End"
	// Done means that there is nothing left to do, Wait that others have to act first.
	Done Step = "Done"
	Wait Step = "Wait"
)

// Home is the state of one import in the home cluster. All of it was just read from the API server,
// not from a cache.
type Home struct {
	Real   *corev1.PersistentVolume
	Record *Record
	// Holder is the claim that the real volume is bound to, nil if that claim is deleted.
	Holder *corev1.PersistentVolumeClaim
	// Users are the pods that use the claim, Node is the node that the volume is attached to.
	Users []string
	Node  string
	// Old is the virtual volume that refers to Holder, if Holder is a twin.
	Old *corev1.PersistentVolume
	// Owner is the virtual claim that the holder was made for, if it is a twin.
	Owner *corev1.PersistentVolumeClaim
	// Claim is the object with the name of the virtual claim, Twin the one with the name of its
	// twin, Virtual the one with the name of its volume; whoever made them.
	Claim, Twin *corev1.PersistentVolumeClaim
	Virtual     *corev1.PersistentVolume
	// Storage is the namespace of twins, HomeID the ID of the home cluster.
	Storage, HomeID string
	// NamespaceGiven says that the user named the namespace of the virtual claim on the command
	// line.
	NamespaceGiven bool
}

// twinName returns the namespace and name of the twin of the virtual claim.
func (h Home) twinName() types.NamespacedName {
	return types.NamespacedName{Namespace: h.Storage, Name: "pvc-" + string(h.Claim.UID)}
}

// boundUID returns the UID of the claim that the real volume is bound to.
func (h Home) boundUID() types.UID {
	if ref := h.Real.Spec.ClaimRef; ref != nil {
		return ref.UID
	}
	return ""
}

// ours reports whether this import made the virtual claim.
func (h Home) ours() bool {
	return h.Claim.Annotations[keys.Import] == homeID(h.Real) ||
		h.Virtual != nil && h.Virtual.Annotations[keys.BackingVolume] == h.Real.Name
}

// twinIsBound reports whether the twin is bound to the real volume.
func (h Home) twinIsBound() bool {
	return h.Twin != nil && h.boundUID() == h.Twin.UID && h.Real.Status.Phase == corev1.VolumeBound && h.Twin.Status.Phase == corev1.ClaimBound
}

// Next returns the next step of an import at home that has begun; with Wait it also returns what is
// awaited. The error says what the user must do first. It is pure.
func (h Home) Next() (Step, string, error) {
	if h.Real.DeletionTimestamp != nil {
		return "", "", cli.Refuse("volume %s is being deleted: it cannot be imported", h.Real.Name)
	}
	if h.Claim != nil && !h.ours() {
		return "", "", cli.Refuse("claim %s/%s is there, and this import did not make it: delete it if nobody needs it, then run the same "+
			"command again; the data is safe in volume %s, which is kept", h.Claim.Namespace, h.Claim.Name, h.Real.Name)
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
	case !backing.IsOf(h.Twin, h.Claim.UID, h.HomeID) || h.Twin.DeletionTimestamp != nil:
		return "", "", cli.Refuse("claim %s/%s is not the twin that it should be: delete it, then run the same command again", h.Twin.Namespace,
			h.Twin.Name)
	case !h.twinIsBound():
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

// release returns the step towards the end of the claim that is bound to the real volume.
func (h Home) release() (Step, string, error) {
	name := h.Holder.Namespace + "/" + h.Holder.Name
	if err := h.checkHome(); err != nil {
		return "", "", err
	}
	// A run that was stopped may have left a twin of a virtual claim that somebody
	// deleted since.
	ours := h.Holder.Namespace == h.Storage && h.Holder.Labels[keys.HomeID] == h.HomeID && h.Owner == nil
	switch {
	case h.Holder.UID != h.Record.From.UID && !ours:
		return "", "", cli.Refuse("volume %s was bound to claim %s meanwhile: run the same command with --undo, then import that claim",
			h.Real.Name, name)
	case h.Real.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		return Keep, "", nil
	case h.Old != nil && h.Old.DeletionTimestamp != nil:
		return Wait, fmt.Sprintf("volume %s, which is being deleted, to be gone", h.Old.Name), nil
	case h.Old != nil:
		if err := checkReleased(h.Old); err != nil {
			return "", "", err
		}
		return DropOld, "", nil
	case h.Holder.DeletionTimestamp == nil:
		if err := checkUnused(name, h.Users, h.Real.Name, h.Node); err != nil {
			return "", "", err
		}
		return Delete, "", nil
	case backing.Protected(h.Holder):
		return LetGo, "", nil
	}
	what := fmt.Sprintf("claim %s to be gone", name)
	if len(h.Users) > 0 {
		what += ", which pods still use (" + strings.Join(h.Users, ", ") + "): delete them"
	}
	return Wait, what, nil
}

// reserved reports whether the real volume is reserved for the twin.
func (h Home) reserved() bool {
	ref, at := h.Real.Spec.ClaimRef, h.twinName()
	return ref != nil && ref.UID == "" && ref.Namespace == at.Namespace && ref.Name == at.Name
}

// origin returns the user's claim whose data the real volume has or had, empty if nothing says
// which.
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

// checkHome says why this home must not take the data. Two clusters may be remote clusters of each
// other: then there are backing claims of other homes here, which belong to those homes and to the
// remote agent of this cluster.
func (h Home) checkHome() error {
	if b := h.Holder; b != nil {
		if home := b.Labels[keys.HomeID]; home != "" && home != h.HomeID {
			return cli.Refuse("claim %s/%s belongs to home cluster %q: it cannot be imported here", b.Namespace, b.Name, home)
		}
	}
	if home := h.Real.Labels[keys.Healing]; home != "" {
		return cli.Refuse("volume %s belongs to home cluster %q, and its claim is being made anew: it cannot be imported here", h.Real.Name, home)
	}
	return nil
}

// isDone reports whether the target claim already has the real volume, for example because the last
// write of an earlier run took effect only after this run had read the record of the import.
func (h Home) isDone(target types.NamespacedName) bool {
	return h.Record == nil && h.Owner != nil && h.Old != nil && h.Owner.Namespace == target.Namespace && h.Owner.Name == target.Name &&
		h.Owner.Spec.VolumeName == h.Old.Name
}

// checkUndo says why an import must not be undone, nil if it may be.
func (h Home) checkUndo() error {
	from := h.Record.From
	switch {
	case h.Claim != nil && h.ours(), h.Holder == nil && from.UID != "", h.Holder != nil && h.Holder.DeletionTimestamp != nil:
		return cli.Refuse("claim %s is gone or going, so the import can only go on: run the same command without --undo; the data is "+
			"safe in volume %s", from, h.Real.Name)
	case h.Record.Old != "" && (h.Old == nil || h.Old.Name != h.Record.Old || h.Old.DeletionTimestamp != nil):
		return cli.Refuse("volume %s, which stood for the data, is gone or going, so the import can only go on: run the same command without "+
			"--undo; the data is safe in volume %s", h.Record.Old, h.Real.Name)
	}
	return nil
}

// checkReleased says why a virtual volume that refers to the data must not be deleted, nil if it
// may be.
func checkReleased(old *corev1.PersistentVolume) error {
	switch claim := old.Spec.ClaimRef; {
	case old.Status.Phase != corev1.VolumeReleased:
		return cli.Refuse("the data is that of volume %s, which claim %s/%s uses: there is nothing to import", old.Name, claim.Namespace,
			claim.Name)
	case old.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		return cli.Refuse("volume %s is released with policy %s, so its data is being deleted: kubectl patch pv %s -p "+
			"'{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Retain\"}}' keeps it, if it is not too late; then import again", old.Name,
			old.Spec.PersistentVolumeReclaimPolicy, old.Name)
	case old.Annotations[keys.Healing] != "":
		return cli.Refuse("the real claim behind volume %s is being made anew: try again when that is done", old.Name)
	}
	return nil
}

// checkUnused returns an error that says who uses a claim or its volume, nil if nobody does.
func checkUnused(claim string, users []string, volume, node string) error {
	switch {
	case len(users) > 0:
		return cli.Refuse("claim %s is used by pod %s: stop what runs it (kubectl scale … --replicas=0, or kubectl delete pod), then run the "+
			"same command again", claim, strings.Join(users, ", "))
	case node != "":
		return cli.Refuse("volume %s is still attached to node %q: run the same command again when it is detached", volume, node)
	}
	return nil
}

// Check returns why the real volume must not be imported into a class, nil if it may be. It is
// called before anything is changed. It is pure.
func (h Home) Check(class virtualclass.Class, target types.NamespacedName) error {
	real := h.Real
	switch {
	case real.Annotations[keys.Backing] != "":
		return cli.Refuse("volume %s is virtual already: there is nothing to import", real.Name)
	case real.DeletionTimestamp != nil:
		return cli.Refuse("volume %s is being deleted: it cannot be imported", real.Name)
	case real.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain && h.Holder == nil && real.Spec.ClaimRef != nil:
		return cli.Refuse("volume %s is %s with policy %s, so its data is being deleted: it cannot be imported", real.Name, real.Status.Phase,
			real.Spec.PersistentVolumeReclaimPolicy)
	case !class.Allows(keys.Home):
		return cli.Refuse("storage class %q keeps its volumes out of the home cluster: choose a class whose parameter %s lists %s", class.Name,
			keys.Clusters, keys.Home)
	}
	if err := h.checkHome(); err != nil {
		return err
	}
	if from := h.origin(); from.Namespace != "" && from.Namespace != target.Namespace && !h.NamespaceGiven {
		return cli.Refuse("the data of volume %s is that of claim %s, but the virtual claim would be in namespace %q: say with -n which "+
			"namespace it is to be in", real.Name, from, target.Namespace)
	}
	if b := h.Holder; b != nil {
		name := b.Namespace + "/" + b.Name
		same := target == types.NamespacedName{Namespace: b.Namespace, Name: b.Name}
		switch {
		case b.Spec.VolumeName != real.Name || b.Status.Phase != corev1.ClaimBound:
			return cli.Refuse("claim %s is %s, not bound to volume %s: import it once it is", name, b.Status.Phase, real.Name)
		case b.DeletionTimestamp != nil:
			return cli.Refuse("claim %s is being deleted: it cannot be imported", name)
		case podOwns(b):
			return cli.Refuse("claim %s belongs to a pod (a generic ephemeral volume) and goes with it: it cannot be imported", name)
		case h.Owner != nil && h.Owner.Status.Phase == corev1.ClaimLost:
			return ownerIsLost(name, h.Owner)
		case h.Owner != nil || backing.Unpublished(b):
			return cli.Refuse("claim %s is the twin of a virtual claim: there is nothing to import", name)
		case h.Claim != nil && !same:
			return cli.Refuse("there is a claim %s already: choose another name with --as", target)
		}
		if h.Old != nil {
			if err := checkReleased(h.Old); err != nil {
				return err
			}
		}
		return checkUnused(name, h.Users, real.Name, h.Node)
	}
	if h.Claim != nil {
		return cli.Refuse("there is a claim %s already: choose another name with --as", target)
	}
	return checkUnused(target.String(), nil, real.Name, h.Node)
}

// ownerIsLost refuses the data of a claim that is still there.
func ownerIsLost(name string, owner *corev1.PersistentVolumeClaim) error {
	return cli.Refuse("claim %s has the data of claim %s/%s, which is Lost: delete that one, which deletes no data, then run the same "+
		"command again", name, owner.Namespace, owner.Name)
}

func podOwns(claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(claim.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Kind == "Pod" })
}

// The steps of an import from a remote cluster, besides those that it shares with one at home.
const (
	// Mark protects the claim there and labels it with the home that it belongs to, Own with its
	// virtual claim.
	Mark Step = "Mark"
	Own  Step = "Own"
)

// Remote is the state of one import from a remote cluster, in both clusters. All of it was just
// read from the API servers, not from caches.
type Remote struct {
	Cluster, HomeID string
	// ClusterUID is the UID of the cluster.
	ClusterUID string
	// Target is the virtual claim to make.
	Target types.NamespacedName
	// Shadow is the real claim there, nil if there is none, Real its volume, Users the pods there
	// that use it.
	Shadow *corev1.PersistentVolumeClaim
	Real   *corev1.PersistentVolume
	Users  []string
	// Old is the virtual volume of home that refers to the shadow, if it is not that of Claim;
	// Owner is the virtual claim that the shadow was made for, if it still exists.
	Old   *corev1.PersistentVolume
	Owner *corev1.PersistentVolumeClaim
	// Claim is the object with the name of the virtual claim, Virtual the one with the name of its
	// volume.
	Claim   *corev1.PersistentVolumeClaim
	Virtual *corev1.PersistentVolume
}

// ours reports whether this import made the virtual claim.
func (a Remote) ours() bool {
	id := remoteID(a.Cluster, a.Shadow)
	return a.Claim.Annotations[keys.Import] == id || a.Virtual != nil && a.Virtual.Annotations[keys.Backing] == id
}

func (a Remote) marked() bool {
	return backing.Protected(a.Shadow) && !backing.Unpublished(a.Shadow) && a.Shadow.Labels[keys.HomeID] == a.HomeID &&
		a.Shadow.Annotations[keys.Claim] == a.Target.String()
}

// Begun reports whether an earlier run has made the virtual claim.
func (a Remote) Begun() bool { return a.Shadow != nil && a.Claim != nil && a.ours() }

// Check returns why the claim there must not be imported, nil if it may be. It is called before
// anything is changed. It is pure.
func (a Remote) Check() error {
	if a.Shadow == nil {
		return fmt.Errorf("cluster %q has no claim %q in the namespace that belongs to %q", a.Cluster, a.Target.Name, a.Target.Namespace)
	}
	name := a.Shadow.Namespace + "/" + a.Shadow.Name
	home := a.Shadow.Labels[keys.HomeID]
	switch {
	case a.Shadow.DeletionTimestamp != nil:
		return cli.Refuse("claim %s in cluster %q is being deleted: it cannot be imported", name, a.Cluster)
	case a.Shadow.Status.Phase != corev1.ClaimBound || a.Real == nil:
		return cli.Refuse("claim %s in cluster %q is not bound to a volume: import it once it is", name, a.Cluster)
	case home != "" && home != a.HomeID:
		return cli.Refuse("claim %s in cluster %q belongs to home cluster %q: it cannot be imported here", name, a.Cluster, home)
	case a.Real.Annotations[keys.Backing] != "":
		return cli.Refuse("claim %s in cluster %q has a virtual volume, whose data may be anywhere: import it where that is", name, a.Cluster)
	case a.Owner != nil && a.Owner.Status.Phase == corev1.ClaimLost:
		return ownerIsLost(fmt.Sprintf("%s in cluster %q", name, a.Cluster), a.Owner)
	case a.Owner != nil:
		return cli.Refuse("claim %s in cluster %q is that of virtual claim %s/%s: there is nothing to import", name, a.Cluster, a.Owner.Namespace,
			a.Owner.Name)
	case podOwns(a.Shadow):
		return cli.Refuse("claim %s in cluster %q belongs to a pod (a generic ephemeral volume) and goes with it: it cannot be imported", name,
			a.Cluster)
	case a.Claim != nil && !a.ours():
		return cli.Refuse("there is a claim %s at home already: delete it if nobody needs it, since the claim in cluster %q keeps its name",
			a.Target, a.Cluster)
	}
	if a.Old != nil {
		if err := checkReleased(a.Old); err != nil {
			return err
		}
	}
	return checkUnused(name+" in cluster "+a.Cluster, a.Users, "", "")
}

// Next returns the next step; with Wait it also returns what is awaited. It is pure.
func (a Remote) Next() (Step, string, error) {
	if a.Claim == nil || !a.ours() {
		// Until there is a virtual claim, the import may still be refused.
		if err := a.Check(); err != nil {
			return "", "", err
		}
	}
	switch {
	case a.Shadow.DeletionTimestamp != nil:
		return "", "", cli.Refuse("claim %s/%s in cluster %q is being deleted: create it anew, bound to its volume, then run the same "+
			"command again", a.Shadow.Namespace, a.Shadow.Name, a.Cluster)
	case !a.marked():
		return Mark, "", nil
	case a.Old != nil && a.Old.DeletionTimestamp != nil:
		return Wait, fmt.Sprintf("volume %s, which is being deleted, to be gone", a.Old.Name), nil
	case a.Old != nil:
		if err := checkReleased(a.Old); err != nil {
			return "", "", err
		}
		return DropOld, "", nil
	case a.Claim == nil:
		return Make, "", nil
	case a.Claim.DeletionTimestamp != nil:
		return Wait, fmt.Sprintf("claim %s, which is being deleted, to be gone", a.Target), nil
	case a.Shadow.Labels[keys.ClaimUID] != string(a.Claim.UID):
		return Own, "", nil
	case a.Virtual == nil:
		return Publish, "", nil
	case a.Claim.Status.Phase != corev1.ClaimBound:
		return Wait, fmt.Sprintf("claim %s to be bound", a.Target), nil
	case a.Claim.Annotations[keys.Import] != "":
		return Clear, "", nil
	case a.Shadow.Annotations[keys.Import] != "":
		return End, "", nil
	}
	return Done, "", nil
}
