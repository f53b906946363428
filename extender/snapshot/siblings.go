package snapshot

import (
	"iter"
	"strconv"
	"strings"
)

// reach is how many ordinals below a pod's own, and above it, siblings are
// looked for.
const reach = 64

// Siblings returns the clusters that hold the data of a claim's siblings, or will,
// once for each sibling: the claims that the other pods of the pod's StatefulSet
// have by the same template. Those for which no node was chosen, or whose data may
// be anywhere, are left out. Names alone say what a sibling is, so the pod's
// StatefulSet looks the same after it was made anew.
func (s *Snapshot) Siblings(pod Pod, claim PodClaim) iter.Seq[string] {
	return func(yield func(cluster string) bool) {
		ordinal, ok := ordinalOf(pod)
		template, made := strings.CutSuffix(claim.Name, "-"+pod.Name)
		if !ok || !made || template == "" {
			return
		}
		key := ClaimKey(pod.Namespace, template+"-"+pod.StatefulSet+"-")
		for i := max(0, ordinal-reach); i <= ordinal+reach; i++ {
			if i == ordinal {
				continue
			}
			sibling, ok := s.Claims.Get(key + strconv.FormatInt(i, 10))
			if !ok {
				continue
			}
			if cluster := s.siblingIn(sibling); cluster != "" && !yield(cluster) {
				return
			}
		}
	}
}

// siblingIn returns the cluster that holds a claim's data, or in which its volume
// is being made: pods that start together choose their nodes one right after the
// other.
func (s *Snapshot) siblingIn(claim *Claim) string {
	if claim.VolumeName == "" {
		cluster, _ := s.Nodes.Get(claim.SelectedNode)
		return cluster
	}
	cluster, _ := s.podClaim("", claim).DataIn()
	return cluster
}

// ordinalOf returns the ordinal of a pod of a StatefulSet.
func ordinalOf(pod Pod) (int64, bool) {
	digits, ok := strings.CutPrefix(pod.Name, pod.StatefulSet+"-")
	if !ok || pod.StatefulSet == "" {
		return 0, false
	}
	ordinal, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || strconv.FormatInt(ordinal, 10) != digits || ordinal < 0 {
		return 0, false
	}
	return ordinal, true
}
