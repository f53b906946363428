package moves

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// answering is how long a cluster may take to answer that was asked for a namespace.
const answering = time.Minute

// inspectTarget judges where the data is to go, as for a new claim there.
func (c *Controller) inspectTarget(ctx context.Context, r *record.Record, claim *corev1.PersistentVolumeClaim, node *corev1.Node, source record.Copy) (*record.Copy, error) {
	class, err := c.classOf(claim)
	if err != nil {
		return nil, refuse("%v", err)
	}
	wanted := claim.DeepCopy()
	wanted.Spec.DataSource, wanted.Spec.DataSourceRef = nil, nil
	if r.Target.Class != "" {
		if wanted.Annotations == nil {
			wanted.Annotations = map[string]string{}
		}
		wanted.Annotations[keys.Class] = r.Target.Class
	}
	to, err := route.To(route.Input{
		Claim: wanted, Class: class, Node: node, Namespace: c.Space(claim.Namespace),
		Cluster: func(id string) route.Cluster { return c.View(id, claim.Namespace).Cluster },
	})
	if err != nil {
		return nil, refuse("claim %q cannot go there: %v", claim.Name, err)
	}
	target := &record.Copy{Class: to.Class.Name, Node: r.Target.Node}
	switch {
	case to.Cluster == source.Ref.Cluster && to.Class.Name == source.Class && r.Target.Node == "":
		return nil, refuse("the data of claim %q is there already, in storage class %q: name another cluster, node or class", claim.Name, to.Class.Name)
	case to.Cluster == source.Ref.Cluster && to.Cluster != keys.Home:
		return nil, refuse("claim %q cannot change its class within cluster %s, where its name is taken by its own data: move it home first", claim.Name, to.Cluster)
	}
	at, why := c.reach(to.Cluster)
	if why != "" {
		return nil, refuse("%s: wait until it is ready, and move again", why)
	}
	key, err := c.freeName(ctx, at, claim, to.Cluster)
	if err != nil {
		return nil, err
	}
	target.Ref = backing.Ref{Cluster: to.Cluster, Namespace: key.Namespace, Name: key.Name}
	return target, nil
}

// freeName returns a name for the backing claim of a target that nobody has.
func (c *Controller) freeName(ctx context.Context, at site, claim *corev1.PersistentVolumeClaim, cluster string) (types.NamespacedName, error) {
	if cluster == keys.Home {
		for n := 1; ; n++ {
			key := types.NamespacedName{Namespace: c.Place.StorageNamespace, Name: backing.Moved(claim.UID, n)}
			taken, err := claimAt(ctx, at, key.Namespace, key.Name)
			if err != nil || taken == nil {
				return key, err
			}
		}
	}
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
	key := c.Place.Of(cluster, remote.Spec.Namespaces.Strategy, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, claim.UID)
	taken, err := claimAt(ctx, at, key.Namespace, key.Name)
	if err == nil && taken != nil {
		err = refuse("cluster %s has a claim %s already: remove it there if its data is not needed, and move again", cluster, key)
	}
	return key, err
}
