package flow

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
	"github.com/lodestone-storage/lodestone/provisioner/reach"
)

// flipsTogether is how long is waited for more nodes to become ready, or unready:
// where one does, many do, and then all volumes are looked through once.
const flipsTogether = 2 * time.Second

// reach adds whether nodes are left on which the real volumes of a claim can be
// used, and ready ones, which matters only once there is a virtual volume.
func (f *Flow) reach(o *decide.Observation) {
	if o.Volume == nil {
		return
	}
	for i := range o.Backings {
		b := &o.Backings[i]
		switch {
		case !reach.Confined(b.Volume):
		case b.Cluster == keys.Home:
			b.NodesGone, b.NodesDown = reach.Lost(b.Volume, f.Sources.Nodes.GetStore())
		default:
			if cluster := f.Clusters.Get(b.Cluster); cluster != nil {
				b.NodesGone, b.NodesDown = cluster.NodesGone(b.Volume)
			}
		}
	}
}

// nodeMoved brings back the claims whose data is on a home node that is gone or
// means something else now, and those whose data may have got its node back.
func (f *Flow) nodeMoved(before, after *corev1.Node) {
	if before != nil && after != nil && maps.Equal(before.Labels, after.Labels) {
		if reach.Down(before) != reach.Down(after) {
			f.flips.AddAfter(after.Name, flipsTogether)
		}
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
		for _, reason := range []string{decide.BackingNodeGone, decide.BackingNodeNotReady} {
			for _, claim := range f.Metrics.troubled(keys.Home, reason) {
				f.Enqueue(claim)
			}
		}
	}
}

// followFlips brings back the claims whose data is on home nodes that have become
// ready, or are no longer, until the queue is shut down.
func (f *Flow) followFlips() {
	for {
		first, shutdown := f.flips.Get()
		if shutdown {
			return
		}
		names := []string{first}
		for more := f.flips.Len(); more > 0; more-- {
			name, _ := f.flips.Get()
			names = append(names, name)
		}
		places := map[string]bool{}
		for _, name := range names {
			f.flips.Done(name)
			if node := one[corev1.Node](f.Sources.Nodes, name); node != nil {
				reach.AddPlaces(places, node)
			}
		}
		for _, volume := range indexed[corev1.PersistentVolume](f.Sources.Volumes, byCluster, keys.Home) {
			if volume.Spec.ClaimRef != nil && reach.Confined(volume) && reach.Among(volume, places) {
				f.Enqueue(volume.Spec.ClaimRef.UID)
			}
		}
	}
}
