package why

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// reasons makes a set.
func reasons(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// What the provisioner says on claims, by what it means for the sentence.
var (
	// harmed: the data is in danger.
	harmed = reasons("BackingDeleted", "BackingLost", "BackingMissing", "BackingVolumeDeleted", "BackingVolumeFailed")
	// impaired: the volume cannot be used now.
	impaired = reasons("BackingPending", "BackingNodeGone", "BackingNodeNotReady")
	// stuck: nothing goes on until somebody acts.
	stuck = reasons("TooLarge", "InvalidClaim", "BackingHasData", "CannotPublish", "VolumeNotStored")
	// slow: it goes on by itself, but takes long.
	slow = reasons("WaitingForBacking", "WaitingForSibling", "ClusterNotUsable", "CreateFailed", "RecordFailed",
		"RemoveFailed", "MarkFailed", "RescheduleFailed", "WakeFailed", "UpdateFailed", "ExpandFailed", "ReflectFailed", "FixFailed")
)

// Of returns why a claim waits.
func (c Claim) Of(s Setting) Answer {
	answer := c.judge(s)
	answer.Facts = c.facts(s)
	return answer
}

func (c Claim) judge(s Setting) Answer {
	claim := c.Claim
	if claim == nil {
		return waits("claim %q does not exist: create it", c.Name)
	}
	switch {
	case claim.DeletionTimestamp != nil:
		return c.deleting()
	case claim.Status.Phase == corev1.ClaimLost:
		return waits("claim %q has lost its volume %q: restore the data from a backup, or delete the claim", c.Name, claim.Spec.VolumeName)
	case claim.Status.Phase == corev1.ClaimBound:
		if trouble := inTrouble(claim); trouble != "" {
			return waits("claim %q is bound, but %s", c.Name, trouble)
		}
		if event := latest(c.Events, harmed); event != nil {
			return waits("claim %q is bound, but %s", c.Name, event.Message)
		}
		if event := latest(c.Events, impaired); event != nil && s.Now.Sub(when(*event)) < memory {
			return waits("claim %q is bound, but %s", c.Name, event.Message)
		}
		if why := notExpanded(claim); why != "" {
			return waits("claim %q is bound, but not expanded to %s: %s", c.Name, claim.Spec.Resources.Requests.Storage(), why)
		}
		return fine("claim %q is bound: its data is in %s", c.Name, place(dataIn(c.Volume)))
	case c.Class == nil && claim.Spec.StorageClassName != nil && *claim.Spec.StorageClassName != "":
		return waits("claim %q names storage class %q, which does not exist: create the class, or the claim anew with another", c.Name, *claim.Spec.StorageClassName)
	case c.Class == nil:
		return waits("claim %q has no storage class, and there is no default class: create the claim anew with one", c.Name)
	case !virtualclass.Is(c.Class):
		return waits("claim %q is of storage class %q, whose provisioner is %q and not Lodestone: kubectl describe pvc says what that one does", c.Name, c.Class.Name, c.Class.Provisioner)
	case c.Class.VolumeBindingMode == nil || *c.Class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer:
		return waits("claim %q is of storage class %q, which binds at once: create the class anew with volumeBindingMode WaitForFirstConsumer", c.Name, c.Class.Name)
	}
	return c.pending(s)
}

// inTrouble says what is wrong with the volume of a claim, empty for nothing.
func inTrouble(claim *corev1.PersistentVolumeClaim) string {
	for _, condition := range claim.Status.Conditions {
		if condition.Type == keys.VolumeTrouble && condition.Status == corev1.ConditionTrue {
			return condition.Message
		}
	}
	return ""
}

// notExpanded says why a claim does not get the size that it asks for; empty if it
// has it, or soon will.
func notExpanded(claim *corev1.PersistentVolumeClaim) string {
	for _, condition := range claim.Status.Conditions {
		if condition.Status == corev1.ConditionTrue &&
			(condition.Type == corev1.PersistentVolumeClaimControllerResizeError || condition.Type == corev1.PersistentVolumeClaimNodeResizeError) {
			return condition.Message
		}
	}
	return ""
}

func (c Claim) deleting() Answer {
	var users []string
	for _, pod := range c.Pods {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			users = append(users, pod.Name)
		}
	}
	if len(users) > 0 {
		return waits("claim %q is being deleted and waits until no pod uses it: delete %s", c.Name, strings.Join(users, ", "))
	}
	return waits("claim %q is being deleted and is held by %s", c.Name, strings.Join(c.Claim.Finalizers, ", "))
}

// pending says why a virtual claim has no volume.
func (c Claim) pending(s Setting) Answer {
	if event := latest(c.Events, stuck); event != nil && s.Now.Sub(when(*event)) < memory {
		return waits("claim %q cannot be served: %s", c.Name, event.Message)
	}
	node := c.Claim.Annotations[keys.SelectedNode]
	if node == "" {
		if refused, ok := newestRefusal(c.Claim, s.Now); ok {
			return waits("claim %q was refused by %s: %s; that place is tried again after %s", c.Name, place(refused.Cluster), refused.Message, refused.Until.Format(time.TimeOnly))
		}
		return c.unscheduled()
	}
	cluster := keys.Home
	if n := s.node(node); n != nil && n.Labels[keys.Cluster] != "" {
		cluster = n.Labels[keys.Cluster]
	}
	if cluster != keys.Home {
		if problem := s.unusable(cluster); problem != "" {
			return waits("claim %q is to be made in %s, which cannot be used now: %s", c.Name, place(cluster), problem)
		}
	}
	if event := latest(c.Events, slow); event != nil && s.Now.Sub(when(*event)) < memory {
		return waits("claim %q is being made in %s: %s", c.Name, place(cluster), event.Message)
	}
	return waits("claim %q is being made in %s, for node %q: this takes seconds; if it lasts, see the log of the provisioner", c.Name, place(cluster), node)
}

// memory is how long an event says something of the present: the provisioner
// repeats it every 5 minutes while it holds.
const memory = 6 * time.Minute

// unscheduled says what a claim waits for that no node was chosen for.
func (c Claim) unscheduled() Answer {
	for _, pod := range c.Pods {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			return waits("claim %q waits until its pod %q has a node: kubectl lodestone why pod %s -n %s", c.Name, pod.Name, pod.Name, pod.Namespace)
		}
	}
	return waits("claim %q waits for a pod that uses it: its volume is made where that pod is scheduled", c.Name)
}

// newestRefusal returns the refusal that holds longest.
func newestRefusal(claim *corev1.PersistentVolumeClaim, now time.Time) (refusal.Refusal, bool) {
	var newest refusal.Refusal
	for _, r := range refusal.Active(refusal.Decode(claim.Annotations[keys.Refused]), now) {
		if r.Until.After(newest.Until) {
			newest = r
		}
	}
	return newest, newest.Cluster != ""
}

// dataIn returns the cluster that holds a volume's data, empty if it is not
// confined to one.
func dataIn(volume *corev1.PersistentVolume) string {
	if volume == nil {
		return ""
	}
	if cluster, _, _ := strings.Cut(volume.Annotations[keys.Backing], "/"); cluster != "" {
		return cluster
	}
	return volume.Labels[keys.Cluster]
}

// place names a cluster in a sentence.
func place(cluster string) string {
	switch cluster {
	case keys.Home:
		return "the home cluster"
	case "":
		return "no cluster in particular"
	}
	return fmt.Sprintf("cluster %q", cluster)
}
