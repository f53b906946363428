package decide

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// writing returns the pods that may write. One that is gone and was not seen to end stays among them: it may have been deleted by force, and then its node goes
// on to run it for its grace period after it has heard of that. That time counts only
// while the node is ready. Of those that the record does not have yet only as many are
// returned as there is room for.
func writing(o Observation, room int) []record.Pod {
	want, known := slices.Clone(o.Writers), uids(o.Writers)
	for i, pod := range slices.Concat(o.Record.Pods, o.Unended) {
		if i >= len(o.Record.Pods) && len(want) >= room {
			break
		}
		node := pod.On()
		if known[pod.UID] || o.Ended[pod.UID] || o.Off[node] {
			continue
		}
		known[pod.UID] = true
		switch {
		case o.Away[node] != "" || pod.Cluster != "" && o.Unusable[record.Source] != "":
			// In the latter case it cannot be seen whether it is gone.
			pod.Gone = time.Time{}
		case pod.Gone.IsZero() || pod.Gone.After(o.Now):
			// Also when the clock was set back.
			pod.Gone = o.Now
		case !o.Now.Before(ends(o, pod)):
			continue
		}
		want = append(want, pod)
	}
	slices.SortFunc(want, func(a, b record.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return want
}

// ends is when a pod that is gone runs no longer.
func ends(o Observation, pod record.Pod) time.Time {
	return pod.Gone.Add(time.Duration(pod.Grace)*time.Second + o.Margin)
}

// outlived waits while pods that are gone may still run; false if none may.
func outlived(o Observation) (Step, bool) {
	left := lingering(o)
	if len(left) == 0 {
		return Step{}, false
	}
	last := slices.MaxFunc(left, func(a, b record.Pod) int { return ends(o, a).Compare(ends(o, b)) })
	say := fmt.Sprintf("waiting until %s for pod %s, which may still write on node %s%s: it was deleted by force, or nobody saw it end, and its grace period of %ds and %s more must pass",
		ends(o, last).UTC().Format(time.RFC3339), last.Name, last.Node, inCluster(last), last.Grace, o.Margin)
	if more := len(left) - 1; more > 0 {
		say += fmt.Sprintf(" (other pods like it: %d)", more)
	}
	return wait(soon, say), true
}

// inCluster says in which remote cluster a pod is.
func inCluster(pod record.Pod) string {
	if pod.Cluster == "" {
		return ""
	}
	return " of " + pod.Cluster
}

// lingering returns the pods that are gone and may still write.
func lingering(o Observation) []record.Pod {
	there := uids(o.Writers)
	return slices.DeleteFunc(writing(o, math.MaxInt), func(pod record.Pod) bool { return there[pod.UID] })
}

func uids(pods []record.Pod) map[types.UID]bool {
	found := map[types.UID]bool{}
	for _, pod := range pods {
		found[pod.UID] = true
	}
	return found
}
