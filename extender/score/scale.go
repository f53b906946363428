// Package score says how much of a pod's data is already in a cluster. It is
// pure.
package score

import (
	"math"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

// Max is the highest score that kube-scheduler takes from an extender.
const Max = 10

// Scale gives each cluster its score for one pod: the share of the pod's bytes
// that is there, from 0 to Max. The pod's bytes are those of its bound claims
// and of the claims that it wants to be near; volumes whose cluster is unknown
// count nowhere. A pod without such bytes prefers nothing.
type Scale struct {
	scores map[string]int64
}

// NewScale returns the scale of a pod.
func NewScale(view *snapshot.Snapshot, pod snapshot.Pod) Scale {
	// Sums of capacities may exceed an int64; a float is exact enough for ten
	// steps.
	bytes := map[string]float64{}
	total := 0.0
	for _, claim := range dataOf(view, pod) {
		if volume, ok := view.VolumeOf(claim); ok {
			bytes[volume.Cluster] += float64(volume.Bytes)
			total += float64(volume.Bytes)
		}
	}
	if total == 0 {
		return Scale{}
	}
	scores := make(map[string]int64, len(bytes))
	for cluster, here := range bytes {
		scores[cluster] = int64(math.Round(here / total * Max))
	}
	return Scale{scores: scores}
}

// Of returns the score of a node.
func (s Scale) Of(node snapshot.Node) int64 {
	return s.scores[node.Cluster]
}

func dataOf(view *snapshot.Snapshot, pod snapshot.Pod) []*snapshot.Claim {
	claims := view.ClaimsOf(pod)
	seen := map[string]bool{}
	for _, claim := range claims {
		seen[claim.UID] = true
	}
	for _, name := range pod.Near {
		claim, ok := view.Claims.Get(snapshot.ClaimKey(pod.Namespace, name))
		if ok && !seen[claim.UID] {
			seen[claim.UID] = true
			claims = append(claims, claim)
		}
	}
	return claims
}
