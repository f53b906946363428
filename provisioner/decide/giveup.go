package decide

import (
	"fmt"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// discard returns the step that removes one of the backing claims that match and
// that were never published; Idle when none is left. A published one stays: it
// may hold data.
func discard(o Observation, match func(Backing) bool) Step {
	for _, b := range o.Backings {
		if !match(b) {
			continue
		}
		if !backing.Unpublished(b.Claim) || used(b) {
			if o.Claim == nil || o.Claim.Spec.VolumeName != "" {
				continue
			}
			return Step{Verb: Idle, Tell: warn("BackingHasData", fmt.Sprintf(
				"real claim %s/%s in %s was this claim's volume and may hold data: make the pod run in that cluster, or delete this claim to start anew", b.Claim.Namespace, b.Claim.Name, where(b.Cluster)))}
		}
		if b.Cluster != keys.Home && !o.Cluster(b.Cluster).Usable {
			return cannotReach(o, b.Cluster)
		}
		return Step{Verb: Remove, Cluster: b.Cluster, Backing: b}
	}
	if o.Claim == nil || o.Unsent {
		return Step{Verb: Idle}
	}
	// The annotation says that a backing claim may exist where nothing is seen.
	if id := o.Claim.Annotations[keys.Routed]; id != "" && find(o, id) == nil && o.Volume == nil {
		cluster := o.Cluster(id)
		if cluster.Known && !cluster.Seen && match(Backing{Cluster: id, Claim: o.Claim}) {
			return cannotReach(o, id)
		}
	}
	return Step{Verb: Idle}
}

// used says whether a pod uses a shadow, or did: only for a pod is a node chosen
// there. Then it was published, whatever it says: home may have been restored from
// a backup.
func used(b Backing) bool {
	return b.Cluster != keys.Home && b.Claim.Annotations[keys.SelectedNode] != ""
}

func cannotReach(o Observation, id string) Step {
	cluster := o.Cluster(id)
	text := fmt.Sprintf("waiting for cluster %s, which may hold a backing claim of this claim", id)
	switch {
	case cluster.Usable:
		text += ": " + unreadable(cluster.Mapped)
	case cluster.Message != "":
		text += ": " + cluster.Message
	}
	return Step{Verb: Idle, After: slow, Tell: warn("ClusterNotUsable", text)}
}

// unreadable says why it is not known which backing claims are in a namespace.
func unreadable(mapped Mapped) string {
	switch {
	case mapped.Message != "":
		return "it gives the claim's namespace no place: " + mapped.Message
	case mapped.Asked:
		return "backing claims in its namespace cannot be read yet; if this lasts, look at the NamespaceRequest there"
	}
	return "backing claims in its namespace cannot be read yet; if this lasts, bind the rights of deploy/remote-volumes there"
}

// giveUp takes the selected node off the claim once no backing claim is left.
func giveUp(o Observation, refused *Refusal, tell *Message) Step {
	if step := discard(o, func(Backing) bool { return true }); step.Verb != Idle || step.Tell != nil {
		return step
	}
	if beingWritten(o) {
		return Step{Verb: Idle}
	}
	if tell == nil {
		tell = warn(refused.Reason, refused.Message)
	}
	return Step{Verb: Reschedule, Cluster: keys.Home, Refusal: refused, Tell: tell}
}

// beingWritten says whether kube-controller-manager is about to write the claim,
// which it does once after the first choice of a node: a write of ours before
// that would make its own fail, with a warning for the user.
func beingWritten(o Observation) bool {
	return o.Claim.Annotations[keys.StorageProvisioner] == ""
}

// isDropped says whether the real provisioner took the selected node off a twin,
// whose class binds only with one.
func isDropped(b *Backing) bool {
	return b != nil && !Ready(*b, keys.Home, true) && b.Claim.Annotations[keys.SelectedNode] == ""
}

// dropped is the step for a twin whose real provisioner took the selected node
// off again.
func dropped(o Observation, to route.Route) Step {
	return removed(o, &Refusal{Cluster: keys.Home, Node: to.Node, Reason: "NoCapacity",
		Message: fmt.Sprintf("real storage class %q cannot make the volume for node %q: free some space there or let the pod run elsewhere", to.Class.Name, to.Node)})
}

// removed is the step for a refusal that only the backing claim shows: its
// removal and the refusal are one step. Apart, the claim would get the same
// backing claim again.
func removed(o Observation, refused *Refusal) Step {
	if beingWritten(o) {
		return Step{Verb: Idle}
	}
	step := discard(o, func(Backing) bool { return true })
	if step.Verb == Remove {
		step.Refusal, step.Tell = refused, warn(refused.Reason, refused.Message)
	}
	return step
}

func refusalOf(cluster string, r *route.Refused) *Refusal {
	return &Refusal{Cluster: cluster, Node: r.Node, Reason: r.Reason, Message: r.Message}
}

// unusable is the step for a claim whose selected node stands for a cluster that
// takes no requests. If nothing was asked of that cluster the claim waits a
// while and then goes elsewhere; otherwise a backing claim may exist there and a
// second one must not be made.
func unusable(o Observation, id string) Step {
	if o.Claim.Annotations[keys.Routed] == id && !o.Unsent {
		return cannotReach(o, id)
	}
	cluster := o.Cluster(id)
	text := fmt.Sprintf("cluster %s cannot be used now", id)
	if cluster.Message != "" {
		text += ": " + cluster.Message
	}
	if left := Patience - o.Now.Sub(cluster.Since); left > 0 {
		return Step{Verb: Idle, After: left + time.Millisecond, Tell: warn("ClusterNotUsable", text)}
	}
	return giveUp(o, &Refusal{Cluster: id, Reason: "ClusterNotUsable", Message: text + "; the scheduler chooses another place"}, nil)
}
