package decide

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// recordUsers is the step that records which pods use the claims, on which nodes, and with
// which SELinux level; false if that is recorded.
func recordUsers(o steps.Observation) (steps.Step, bool) {
	next := o.Record.Clone()
	next.Ran, next.Pods = usedNodes(o), possibleWriters(o, record.MostPods)
	if len(next.Pods) > record.MostPods {
		return steps.GoBack(o, fmt.Sprintf("more than %d pods use the volumes, or did so a moment ago: scale their owners down, and move again",
			record.MostPods), record.PodsInTheWay), true
	}
	if known := noteLevels(o, next); known && slices.Equal(next.Ran, o.Record.Ran) && slices.Equal(next.Pods, o.Record.Pods) {
		return steps.Step{}, false
	}
	return steps.Step{Action: steps.Save{Record: next}}, true
}

// noteLevels adds the SELinux levels of pods to a record, for movers that are created when
// the pods are gone; known says that the record has them already.
func noteLevels(o steps.Observation, next *record.Record) (known bool) {
	known = true
	for i, claim := range o.Claims {
		if has := &next.Claims[i].Level; len(claim.Levels) > 0 && !slices.Contains(claim.Levels, *has) {
			// Pods with different levels take the volume from one another.
			*has, known = slices.Min(claim.Levels), false
		}
	}
	return known
}

// usedNodes returns the nodes on which pods use the claims. A node stays after its pods are
// gone until it is known to be ready or gone: a force-deleted pod may still run on a node
// that does not answer.
func usedNodes(o steps.Observation) []record.Node {
	if o.Source.Unusable != "" {
		return o.Record.Ran
	}
	want := slices.Clone(o.Users)
	for _, node := range o.Record.Ran {
		if o.Nodes[node].Why != "" {
			want = append(want, node)
		}
	}
	slices.SortFunc(want, func(a, b record.Node) int {
		return strings.Compare(a.Cluster+"/"+a.Name, b.Cluster+"/"+b.Name)
	})
	return slices.Compact(want)
}

// possibleWriters returns the pods that may write. A pod that is gone and was not observed
// to end is included: if it was force-deleted, its node runs it for its grace period after
// it has learned of that, and the time counts only while the node is ready. Of pods that
// the record does not have yet, only as many are returned as there is room for.
func possibleWriters(o steps.Observation, room int) []record.Pod {
	want, known := slices.Clone(o.Writers), uidSet(o.Writers)
	for i, pod := range slices.Concat(o.Record.Pods, o.Unended) {
		if i >= len(o.Record.Pods) && len(want) >= room {
			break
		}
		node := pod.On()
		if known[pod.UID] || o.Ended[pod.UID] || o.Nodes[node].Off {
			continue
		}
		known[pod.UID] = true
		switch {
		case o.Nodes[node].Why != "" || pod.Cluster != "" && o.Source.Unusable != "":
			// In the latter case it cannot be observed whether it is gone.
			pod.Gone = time.Time{}
		case pod.Gone.IsZero() || pod.Gone.After(o.Now):
			// Also if the clock was set back.
			pod.Gone = o.Now
		case !o.Now.Before(runsUntil(o, pod)):
			continue
		}
		want = append(want, pod)
	}
	slices.SortFunc(want, func(a, b record.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return want
}

// runsUntil is when a pod that is gone has certainly ended.
func runsUntil(o steps.Observation, pod record.Pod) time.Time {
	return pod.Gone.Add(time.Duration(pod.Grace)*time.Second + o.Margin)
}

func uidSet(pods []record.Pod) map[types.UID]bool {
	found := map[types.UID]bool{}
	for _, pod := range pods {
		found[pod.UID] = true
	}
	return found
}

// awaitNodes waits while it is unknown what runs on a node on which the claims were used,
// or while a pod that is gone may still run; false if neither is the case.
func awaitNodes(o steps.Observation) (steps.Step, bool) {
	on := slices.Clone(o.Record.Ran)
	for _, pod := range goneWriters(o) {
		on = append(on, pod.On())
	}
	for _, node := range on {
		if why := o.Nodes[node].Why; why != "" {
			return steps.WaitForHelp(steps.NodeAway, steps.Soon, fmt.Sprintf("waiting until it is known that nobody writes on node %s of %s, "+
					"where a pod used "+
					"the volume: %s; "+
					"bring it back, or once it is surely off delete the Node or taint it node.kubernetes.io/out-of-service", node.Name, node.Cluster,
					why)),
				true
		}
	}
	return awaitGracePeriods(o)
}

// awaitGoneWriters is awaitNodes for a move that has not stopped any pod yet: it waits only if
// pods that are gone may still write.
func awaitGoneWriters(o steps.Observation) (steps.Step, bool) {
	if len(goneWriters(o)) == 0 {
		return steps.Step{}, false
	}
	return awaitNodes(o)
}

// goneWriters returns the pods that are gone and may still write.
func goneWriters(o steps.Observation) []record.Pod {
	there := uidSet(o.Writers)
	return slices.DeleteFunc(possibleWriters(o, math.MaxInt), func(pod record.Pod) bool { return there[pod.UID] })
}

// awaitGracePeriods waits while pods that are gone may still run; false if none may.
func awaitGracePeriods(o steps.Observation) (steps.Step, bool) {
	left := goneWriters(o)
	if len(left) == 0 {
		return steps.Step{}, false
	}
	last := slices.MaxFunc(left, func(a, b record.Pod) int { return runsUntil(o, a).Compare(runsUntil(o, b)) })
	say := fmt.Sprintf("waiting until %s for pod %s, which may still write on node %s%s: it was deleted by force, or nobody saw it end, and "+
		"its grace period of %ds and %s more must pass",
		runsUntil(o, last).UTC().Format(time.RFC3339), last.Name, last.Node, inCluster(last), last.Grace, o.Margin)
	if more := len(left) - 1; more > 0 {
		say += fmt.Sprintf(" (other pods like it: %d)", more)
	}
	return steps.Wait(steps.Soon, say), true
}

// inCluster names the remote cluster of a pod in a sentence.
func inCluster(pod record.Pod) string {
	if pod.Cluster == "" {
		return ""
	}
	return " of " + pod.Cluster
}
