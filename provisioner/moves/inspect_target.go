package moves

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/reach"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

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
	if to.Cluster == source.Ref.Cluster && to.Class.Name == source.Class {
		if err := c.changes(ctx, r, claim, node, source); err != nil {
			return nil, err
		}
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

// changes refuses a move within one class of one cluster that would change nothing: to no
// other node, or to one that the volume is bound to by its own affinity already. One that
// can be used on all nodes may be copied for one of them.
func (c *Controller) changes(ctx context.Context, r *record.Record, claim *corev1.PersistentVolumeClaim, node *corev1.Node, source record.Copy) error {
	if r.Target.Node == "" {
		return already{refusal(fmt.Sprintf("the data of claim %q is there already, in storage class %q: name another cluster, node or class", claim.Name, source.Class))}
	}
	real, err := volumeAt(ctx, c.here(), source.Real)
	if err != nil {
		return err
	}
	if isOn(real, node) {
		return already{refusal(fmt.Sprintf("the data of claim %q is on node %s already, in storage class %q: name another cluster, node or class", claim.Name, node.Name, source.Class))}
	}
	return nil
}

// isOn says whether a real volume can be used on some nodes only, and this is one of them.
func isOn(real *corev1.PersistentVolume, node *corev1.Node) bool {
	return reach.Confined(real) && reach.Allows(real, node)
}
