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
	claims []snapshot.PodClaim
	scores map[string]int64
}

// NewScale returns the scale of a pod.
func NewScale(view *snapshot.Snapshot, pod snapshot.Pod) Scale {
	// Sums of capacities may exceed an int64; a float is exact enough for ten
	// steps.
	bytes := map[string]float64{}
	total := 0.0
	claims := append(view.ClaimsOf(pod), view.ClaimsNear(pod)...)
	for _, claim := range claims {
		if volume := claim.Volume; volume != nil {
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
	return Scale{claims: claims, scores: scores}
}

// Claims returns the claims whose data counted.
func (s Scale) Claims() []snapshot.PodClaim {
	return s.claims
}

// Scores returns the clusters that got a score. It must not be changed.
func (s Scale) Scores() map[string]int64 {
	return s.scores
}

// Of returns the score of a node.
func (s Scale) Of(node snapshot.Node) int64 {
	return s.scores[node.Cluster]
}
