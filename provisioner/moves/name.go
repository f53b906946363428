package moves

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// answering is how long a cluster may take to answer that was asked for a namespace.
const answering = time.Minute

// names is how many names are tried for the backing claim of a target.
const names = 32

// freeName returns a name for the backing claim of a target that nobody has.
func (c *Controller) freeName(ctx context.Context, at site, claim *corev1.PersistentVolumeClaim, cluster string) (types.NamespacedName, error) {
	if cluster == keys.Home {
		return firstFree(ctx, at, c.Place.StorageNamespace, claim, cluster)
	}
	key, err := c.ownName(at, claim, cluster)
	if err != nil {
		return key, err
	}
	taken, err := claimAt(ctx, at, key.Namespace, key.Name)
	if err != nil || taken == nil {
		return key, err
	}
	// A left-over, whosever it is, or the claim's own data in another class. It stays.
	if !c.findsClaims(cluster) {
		return key, refuse("cluster %s has a claim %s already, and no virtual node of this version stands for it, whose pods alone could use the data under another name: %s, and move again",
			cluster, key, instead(taken, claim, c.Place.HomeID))
	}
	return firstFree(ctx, at, key.Namespace, claim, cluster)
}

// instead says what to do about a name that is taken.
func instead(taken, claim *corev1.PersistentVolumeClaim, homeID string) string {
	if backing.IsOf(taken, claim.UID, homeID) {
		return "that is the data of this claim, so move it home first"
	}
	return "remove that claim there if its data is not needed"
}

// findsClaims says whether a node stands for a cluster whose pods there get the claims
// that volumes name.
func (c *Controller) findsClaims(cluster string) bool {
	for _, node := range c.StandIns(cluster) {
		if node.Labels[keys.Claims] == keys.ClaimsOfVolumes {
			return true
		}
	}
	return false
}

// firstFree returns the first of the names that moves give which nobody has.
func firstFree(ctx context.Context, at site, namespace string, claim *corev1.PersistentVolumeClaim, cluster string) (types.NamespacedName, error) {
	for n := range names {
		key := types.NamespacedName{Namespace: namespace, Name: backing.Moved(claim.UID, n+1)}
		taken, err := claimAt(ctx, at, key.Namespace, key.Name)
		if err != nil || taken == nil {
			return key, err
		}
	}
	return types.NamespacedName{}, refuse("cluster %s has a claim under each of the names %s/%s to %s: remove there what is not needed, and move again",
		cluster, namespace, backing.Moved(claim.UID, 1), backing.Moved(claim.UID, names))
}

// ownName returns the name that the backing claim of a new claim would have in a remote
// cluster.
func (c *Controller) ownName(at site, claim *corev1.PersistentVolumeClaim, cluster string) (types.NamespacedName, error) {
	remote, view := c.Clusters.Object(cluster), c.View(cluster, claim.Namespace)
	switch {
	case remote == nil:
		return types.NamespacedName{}, refuse("there is no RemoteCluster %s: create it again", cluster)
	case at.Remote == nil:
		return types.NamespacedName{}, refuse("cluster %s runs no remote agent, which makes the movers there: install deploy/remote in it, and move again", cluster)
	case view.Mapped.Asked && !view.Mapped.Given && view.Mapped.Message == "" && time.Since(view.Mapped.Since) < answering:
		return types.NamespacedName{}, fmt.Errorf("cluster %s has not said yet whether it gives namespace %s a place", cluster, claim.Namespace)
	case view.Mapped.Asked && !view.Mapped.Given:
		return types.NamespacedName{}, refuse("cluster %s gives namespace %s no place yet: %s; move again when it does", cluster, claim.Namespace, view.Mapped.Message)
	}
	return c.Place.Of(cluster, remote.Spec.Namespaces.Strategy, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, claim.UID), nil
}
