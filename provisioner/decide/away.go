package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// Reasons of volumes of which their cluster tells nothing.
const (
	clusterNotUsable = "ClusterNotUsable"
	unknownCluster   = "UnknownCluster"
	backingNotSeen   = "BackingNotSeen"
)

// Away says whether the cluster of a volume's data tells nothing of it now.
func Away(o Observation) bool {
	if o.Volume == nil {
		return false
	}
	ref, err := backing.RefOf(o.Volume)
	if err != nil {
		return false
	}
	cluster := o.Cluster(ref.Cluster)
	return !cluster.Usable || !cluster.Seen && findRef(o, ref) == nil
}

// away adds to the step of a volume of which its cluster tells nothing that this
// has been so for long. What the claim showed before holds on: nothing says that
// it is mended. The sentences have nothing in them that changes while it lasts, and
// there is an event only when the condition is written: many claims have their
// data in one cluster.
func away(o Observation, ref backing.Ref, cluster Cluster, step Step) Step {
	if have := shown(o.Claim); have != nil && !slices.Contains([]string{clusterNotUsable, unknownCluster, backingNotSeen, backingPending}, have.Reason) {
		step.Trouble, step.Shows = have.Reason, have.Message
		return step
	}
	if left := overdue - o.Now.Sub(o.AwaySince); left > 0 {
		step.After = sooner(step.After, left+time.Millisecond)
		return step
	}
	switch {
	case !cluster.Known:
		step.Trouble = unknownCluster
		step.Shows = fmt.Sprintf("nothing is known of the volume, for there is no RemoteCluster %s, where its data is: create it again, with a kubeconfig that leads there", ref.Cluster)
	case !cluster.Usable:
		step.Trouble = clusterNotUsable
		step.Shows = fmt.Sprintf("nothing is known of the volume, for cluster %s, where its data is, cannot be used now: see the conditions of RemoteCluster %s", ref.Cluster, ref.Cluster)
	default:
		step.Trouble = backingNotSeen
		step.Shows = fmt.Sprintf("nothing is known of the volume, whose data is in cluster %s: %s", ref.Cluster, unreadable(cluster.Mapped))
	}
	return step
}
