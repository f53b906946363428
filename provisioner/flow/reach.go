package flow

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
	"github.com/lodestone-storage/lodestone/provisioner/reach"
)

// reach adds whether nodes are left on which the real volumes of a claim can be
// used, which matters only once there is a virtual volume.
func (f *Flow) reach(o *decide.Observation) {
	if o.Volume == nil {
		return
	}
	for i := range o.Backings {
		b := &o.Backings[i]
		switch {
		case !reach.Confined(b.Volume):
		case b.Cluster == keys.Home:
			b.NodesGone = reach.Lost(b.Volume, f.Sources.Nodes.GetStore())
		default:
			if cluster := f.Clusters.Get(b.Cluster); cluster != nil {
				b.NodesGone = cluster.NodesGone(b.Volume)
			}
		}
	}
}

// nodeMoved brings back the claims whose data is on a home node that is gone or
// means something else now, and those whose data may have got its node back.
func (f *Flow) nodeMoved(before, after *corev1.Node) {
	if before != nil && after != nil && maps.Equal(before.Labels, after.Labels) {
		return
	}
	if before != nil {
		for _, volume := range indexed[corev1.PersistentVolume](f.Sources.Volumes, byCluster, keys.Home) {
			if volume.Spec.ClaimRef != nil && reach.Allows(volume, before) {
				f.Enqueue(volume.Spec.ClaimRef.UID)
			}
		}
	}
	if after != nil {
		for _, claim := range f.Metrics.troubled(keys.Home, decide.BackingNodeGone) {
			f.Enqueue(claim)
		}
	}
}
