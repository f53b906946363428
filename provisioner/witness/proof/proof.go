// Package proof says when it is proven that nobody has a volume: from what was seen of those who use it (Seen), and what
// is remembered of them (Known), which is stored, since a pod that is gone may still write. The package is pure: no
// client, no clock. Package witness sees.
package proof

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Node is a node of a cluster.
type Node struct {
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
}

// Absence is the state of a node that is not ready; the zero value is that of one that is.
type Absence struct {
	// Off says that the node is gone or marked as shut down: nothing runs there.
	Off bool
	// Why says, unless Off, why it is not known what runs there.
	Why string
}

// Pod is a pod that is bound to a node.
type Pod struct {
	// Cluster is the remote cluster of the pod; empty: home.
	Cluster string    `json:"cluster,omitempty"`
	UID     types.UID `json:"uid"`
	Name    string    `json:"name"`
	Node    string    `json:"node"`
	// Grace is its termination grace period, in seconds.
	Grace int64 `json:"grace"`
	// Hosted says that the remote agent of that cluster has made it for home.
	Hosted bool `json:"hosted,omitempty"`
	// Gone is since when the pod is known to be gone while its node is ready; zero if
	// either is not the case.
	Gone time.Time `json:"gone,omitzero"`
}

// On returns the node of a pod.
func (p Pod) On() Node {
	if p.Cluster == "" {
		return Node{Cluster: keys.Home, Name: p.Node}
	}
	return Node{Cluster: p.Cluster, Name: p.Node}
}

// MostPods is how many pods are remembered at most.
const MostPods = 500

// Known is what is remembered of those who may have volumes. It is stored before anything is done that relies on it.
type Known struct {
	// Ran are the nodes on which pods used the volumes: on a node that does not answer, they
	// may still write.
	Ran []Node `json:"ran,omitempty"`
	// Pods are the pods that may write: existing ones, and those that are gone but were not
	// observed to end.
	Pods []Pod `json:"pods,omitempty"`
}

// Seen is what was last observed of those who have volumes.
type Seen struct {
	// Others describes users of the volumes that are not pods of virtual claims, such as pods of a remote cluster, and
	// Attachments the nodes that a volume is attached to; both without movers.
	Others      []string
	Attachments []string
	// Users are the nodes of pods that use a volume now, without movers' nodes. Nodes has
	// those of these and of the remembered nodes that are not ready.
	Users []Node
	Nodes map[Node]Absence
	// Writers are the pods that use a volume and have not ended, except home pods on nodes
	// that represent a cluster. Unended are pods that had not ended when they were last
	// observed and are gone now, Ended those that were observed to end. Margin is for how
	// long after its grace period an unended pod may still run on a node that is ready.
	Writers []Pod
	Unended []Pod
	Ended   map[types.UID]bool
	Margin  time.Duration
}

// NoteEnded notes that a pod has ended.
func (s *Seen) NoteEnded(pod types.UID) {
	if s.Ended == nil {
		s.Ended = map[types.UID]bool{}
	}
	s.Ended[pod] = true
}

// Next is what is to be remembered after an observation at a time. Away says that the cluster of the volumes does not
// answer, so that nothing was seen there. Of pods that are not known yet and are gone, only as many are added as there
// is room for.
func Next(k Known, now time.Time, s Seen, away bool) Known {
	return Known{Ran: usedNodes(k, s, away), Pods: possibleWriters(k, now, s, away, MostPods)}
}

// Equal says whether the same is remembered.
func Equal(a, b Known) bool { return slices.Equal(a.Ran, b.Ran) && slices.Equal(a.Pods, b.Pods) }

// usedNodes returns the nodes on which pods use the volumes. A node stays after its pods are
// gone until it is known to be ready or gone: a force-deleted pod may still run on a node
// that does not answer.
func usedNodes(k Known, s Seen, away bool) []Node {
	if away {
		return k.Ran
	}
	want := slices.Clone(s.Users)
	for _, node := range k.Ran {
		if s.Nodes[node].Why != "" {
			want = append(want, node)
		}
	}
	slices.SortFunc(want, func(a, b Node) int {
		return strings.Compare(a.Cluster+"/"+a.Name, b.Cluster+"/"+b.Name)
	})
	return slices.Compact(want)
}

// possibleWriters returns the pods that may write. A pod that is gone and was not observed
// to end is included: if it was force-deleted, its node runs it for its grace period after
// it has learned of that, and the time counts only while the node is ready.
func possibleWriters(k Known, now time.Time, s Seen, away bool, room int) []Pod {
	want, known := slices.Clone(s.Writers), uidSet(s.Writers)
	for i, pod := range slices.Concat(k.Pods, s.Unended) {
		if i >= len(k.Pods) && len(want) >= room {
			break
		}
		node := pod.On()
		if known[pod.UID] || s.Ended[pod.UID] || s.Nodes[node].Off {
			continue
		}
		known[pod.UID] = true
		switch {
		case s.Nodes[node].Why != "" || pod.Cluster != "" && away:
			// In the latter case it cannot be observed whether it is gone.
			pod.Gone = time.Time{}
		case pod.Gone.IsZero() || pod.Gone.After(now):
			// Also if the clock was set back.
			pod.Gone = now
		case !now.Before(runsUntil(s, pod)):
			continue
		}
		want = append(want, pod)
	}
	slices.SortFunc(want, func(a, b Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return want
}

// runsUntil is when a pod that is gone has certainly ended.
func runsUntil(s Seen, pod Pod) time.Time {
	return pod.Gone.Add(time.Duration(pod.Grace)*time.Second + s.Margin)
}

func uidSet(pods []Pod) map[types.UID]bool {
	found := map[types.UID]bool{}
	for _, pod := range pods {
		found[pod.UID] = true
	}
	return found
}

// GoneWriters returns the pods that are gone and may still write.
func GoneWriters(k Known, now time.Time, s Seen, away bool) []Pod {
	there := uidSet(s.Writers)
	return slices.DeleteFunc(possibleWriters(k, now, s, away, math.MaxInt), func(pod Pod) bool { return there[pod.UID] })
}

// WhyNot says what is awaited while it is unknown what runs on a node on which the volumes were used, or while a pod
// that is gone may still run; empty if neither is the case. nodeAway says that it is the former, which may need a person.
func WhyNot(k Known, now time.Time, s Seen, away bool) (why string, nodeAway bool) {
	gone := GoneWriters(k, now, s, away)
	on := slices.Clone(k.Ran)
	for _, pod := range gone {
		on = append(on, pod.On())
	}
	for _, node := range on {
		if why := s.Nodes[node].Why; why != "" {
			return fmt.Sprintf("waiting until it is known that nobody writes on node %s of %s, where a pod used the volume: %s; "+
				"bring it back, or once it is surely off delete the Node or taint it node.kubernetes.io/out-of-service", node.Name, node.Cluster,
				why), true
		}
	}
	if len(gone) == 0 {
		return "", false
	}
	last := slices.MaxFunc(gone, func(a, b Pod) int { return runsUntil(s, a).Compare(runsUntil(s, b)) })
	why = fmt.Sprintf("waiting until %s for pod %s, which may still write on node %s%s: it was deleted by force, or nobody saw it end, and "+
		"its grace period of %ds and %s more must pass",
		runsUntil(s, last).UTC().Format(time.RFC3339), last.Name, last.Node, inCluster(last), last.Grace, s.Margin)
	if more := len(gone) - 1; more > 0 {
		why += fmt.Sprintf(" (other pods like it: %d)", more)
	}
	return why, false
}

// inCluster names the remote cluster of a pod in a sentence.
func inCluster(pod Pod) string {
	if pod.Cluster == "" {
		return ""
	}
	return " of " + pod.Cluster
}

// NodesToAsk returns the nodes of which the state matters. A node in use is remembered anyway, so it is asked for only
// if all is set, as once pods are stopped.
func NodesToAsk(k Known, s Seen, all bool) []Node {
	var nodes []Node
	for _, node := range k.Ran {
		if all || !slices.Contains(s.Users, node) {
			nodes = append(nodes, node)
		}
	}
	there := uidSet(s.Writers)
	for _, pod := range slices.Concat(k.Pods, s.Unended) {
		if node := pod.On(); !there[pod.UID] && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// Forgotten returns the pods that are remembered before and no longer after: they certainly run no longer.
func Forgotten(before, after Known) map[types.UID]bool {
	gone := uidSet(before.Pods)
	for _, pod := range after.Pods {
		delete(gone, pod.UID)
	}
	return gone
}
