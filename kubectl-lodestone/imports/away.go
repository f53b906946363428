package imports

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The steps of an import from a remote cluster, beside those that it has in common
// with one at home.
const (
	// Mark protects the claim there and says which home it belongs to, Own which
	// virtual claim.
	Mark Step = "Mark"
	Own  Step = "Own"
)

// Away is what both clusters hold of one import from a remote cluster. All was
// read from the API servers just now.
type Away struct {
	Cluster, HomeID string
	// Target is the virtual claim to make.
	Target types.NamespacedName
	// Shadow is the claim there, nil if there is none, Real its volume, Users the
	// pods there that use it.
	Shadow *corev1.PersistentVolumeClaim
	Real   *corev1.PersistentVolume
	Users  []string
	// Old is the virtual volume of home that stands for the shadow, if it is not
	// that of Claim, Owner the virtual claim that the shadow was made for, if it is
	// still there.
	Old   *corev1.PersistentVolume
	Owner *corev1.PersistentVolumeClaim
	// Claim is what has the name of the virtual claim, Virtual what has that of its
	// volume.
	Claim   *corev1.PersistentVolumeClaim
	Virtual *corev1.PersistentVolume
}

// ours says whether the virtual claim was made by this import.
func (a Away) ours() bool {
	id := remoteID(a.Cluster, a.Shadow)
	return a.Claim.Annotations[keys.Import] == id || a.Virtual != nil && a.Virtual.Annotations[keys.Backing] == id
}

func (a Away) marked() bool {
	return backings.Protected(a.Shadow) && !backings.Unpublished(a.Shadow) && a.Shadow.Labels[keys.HomeID] == a.HomeID &&
		a.Shadow.Annotations[keys.Claim] == a.Target.String()
}

// Begun says whether a run before this one has made the virtual claim.
func (a Away) Begun() bool { return a.Shadow != nil && a.Claim != nil && a.ours() }

// Judge returns why the claim there must not be imported, before anything is
// changed. It is pure.
func (a Away) Judge() error {
	if a.Shadow == nil {
		return fmt.Errorf("cluster %q has no claim %q in the namespace that belongs to %q", a.Cluster, a.Target.Name, a.Target.Namespace)
	}
	name := a.Shadow.Namespace + "/" + a.Shadow.Name
	home := a.Shadow.Labels[keys.HomeID]
	switch {
	case a.Shadow.DeletionTimestamp != nil:
		return outcome.Refuse("claim %s in cluster %q is being deleted: it cannot be imported", name, a.Cluster)
	case a.Shadow.Status.Phase != corev1.ClaimBound || a.Real == nil:
		return outcome.Refuse("claim %s in cluster %q is not bound to a volume: import it once it is", name, a.Cluster)
	case home != "" && home != a.HomeID:
		return outcome.Refuse("claim %s in cluster %q belongs to home cluster %q: it cannot be imported here", name, a.Cluster, home)
	case a.Real.Annotations[keys.Backing] != "":
		return outcome.Refuse("claim %s in cluster %q has a virtual volume, whose data may be anywhere: import it where that is", name, a.Cluster)
	case a.Owner != nil:
		return outcome.Refuse("claim %s in cluster %q is that of virtual claim %s/%s: there is nothing to import", name, a.Cluster, a.Owner.Namespace, a.Owner.Name)
	case podOwns(a.Shadow):
		return outcome.Refuse("claim %s in cluster %q belongs to a pod (a generic ephemeral volume) and goes with it: it cannot be imported", name, a.Cluster)
	case a.Claim != nil && !a.ours():
		return outcome.Refuse("there is a claim %s at home already: delete it if nobody needs it, for the claim in cluster %q keeps its name", a.Target, a.Cluster)
	}
	if a.Old != nil {
		if err := mayGo(a.Old); err != nil {
			return err
		}
	}
	return unused(name+" in cluster "+a.Cluster, a.Users, "", "")
}

// Next returns the next step; with Wait comes what is waited for. It is pure.
func (a Away) Next() (Step, string, error) {
	if a.Claim == nil || !a.ours() {
		// Until there is a virtual claim anything may still forbid it.
		if err := a.Judge(); err != nil {
			return "", "", err
		}
	}
	switch {
	case a.Shadow.DeletionTimestamp != nil:
		return "", "", outcome.Refuse("claim %s/%s in cluster %q is being deleted: create it anew, bound to its volume, then run the same command again", a.Shadow.Namespace, a.Shadow.Name, a.Cluster)
	case !a.marked():
		return Mark, "", nil
	case a.Old != nil && a.Old.DeletionTimestamp != nil:
		return Wait, fmt.Sprintf("volume %s, which is being deleted, to be gone", a.Old.Name), nil
	case a.Old != nil:
		if err := mayGo(a.Old); err != nil {
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
