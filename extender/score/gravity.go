// Package score says to which clusters a pod's data draws it, and how much. It is
// pure.
package score

import (
	"math"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

// Max is the highest score that kube-scheduler takes from an extender.
const Max = 10

// A score is the mean of the pulls that there are for a pod, weighted by these.
// Data that is far away costs with every read, so it outweighs the others taken
// together; siblings that are far away cost when they talk to each other; room
// only decides where nothing else does.
const (
	weightOfData     = 6
	weightOfSiblings = 3
	weightOfRoom     = 1
)

// maxNew bounds for how many claims without a volume a pod's siblings and room
// are looked up: its user writes the list.
const maxNew = 16

// Gravity is what draws a pod to clusters.
type Gravity struct {
	claims   []snapshot.PodClaim
	data     data
	siblings siblings
	room     room
}

// NewGravity returns what draws a pod, as things are in view.
func NewGravity(view *snapshot.Snapshot, pod snapshot.Pod) *Gravity {
	g := &Gravity{room: room{view: view}}
	if len(pod.Volumes) == 0 && len(pod.Near) == 0 {
		return g
	}
	g.claims = append(view.ClaimsOf(pod), view.ClaimsNear(pod)...)
	for _, claim := range g.claims {
		if claim.VolumeName != "" {
			g.data.add(claim)
			continue
		}
		class, virtual := view.Classes.Get(claim.ClassName)
		if claim.Near || !virtual || class.Invalid || len(g.room.demands) == maxNew {
			continue
		}
		g.siblings.add(view, pod, claim, class.Siblings())
		g.room.demands = append(g.room.demands, demand{claim: claim.Claim, class: class})
	}
	return g
}

// None says that nothing draws the pod anywhere, whatever the candidates are.
func (g *Gravity) None() bool {
	return g.data.total == 0 && g.siblings.none() && len(g.room.demands) == 0
}

// Claims returns the claims that counted.
func (g *Gravity) Claims() []snapshot.PodClaim {
	return g.claims
}

// Mark is the score of a cluster's nodes, with what led to it, as /explain shows
// it.
type Mark struct {
	Cluster string `json:"cluster"`
	// Score is from 0 to Max.
	Score int64 `json:"score"`
	// Data, Siblings and Room are nil where they do not count for the pod.
	Data     *Data     `json:"data,omitempty"`
	Siblings *Siblings `json:"siblings,omitempty"`
	Room     *Room     `json:"room,omitempty"`
}

// Scale has a mark for each candidate cluster.
type Scale map[string]Mark

// Scale returns the marks of the candidate clusters, each of which may be named
// many times; the empty name stands for no cluster. It is empty when nothing
// distinguishes them: then no node is preferred.
func (g *Gravity) Scale(candidates []string) Scale {
	scale := Scale{}
	var clusters []string
	last := ""
	for _, cluster := range candidates {
		if cluster == last || cluster == "" {
			continue
		}
		last = cluster
		if _, again := scale[cluster]; !again {
			scale[cluster] = Mark{Cluster: cluster}
			clusters = append(clusters, cluster)
		}
	}
	g.room.measure(clusters)
	g.siblings.compare(clusters)
	applies := false
	for _, cluster := range clusters {
		mark := g.mark(cluster)
		applies = applies || mark.Data != nil || mark.Siblings != nil || mark.Room != nil
		scale[cluster] = mark
	}
	if !applies {
		return nil
	}
	return scale
}

// Of returns the score of a node in a cluster.
func (s Scale) Of(cluster string) int64 {
	return s[cluster].Score
}

func (g *Gravity) mark(cluster string) Mark {
	mark := Mark{Cluster: cluster}
	sum, weights := 0.0, 0.0
	weigh := func(pull, weight float64) float64 {
		sum += weight * pull
		weights += weight
		return math.Round(pull*100) / 100
	}
	if found, ok := g.data.in(cluster); ok {
		found.Pull = weigh(found.Pull, weightOfData)
		mark.Data = &found
	}
	if found, ok := g.siblings.in(cluster); ok {
		found.Pull = weigh(found.Pull, weightOfSiblings)
		mark.Siblings = &found
	}
	full := false
	if found, ok := g.room.in(cluster); ok {
		full = found.full()
		found.Pull = weigh(found.Pull, weightOfRoom)
		mark.Room = &found
	}
	// What else draws a pod to a cluster is worth nothing if its new volumes have
	// no room there.
	if weights > 0 && !full {
		// A half must not fall short of itself by a float's error.
		mark.Score = int64(math.Round(sum/weights*Max + 1e-9))
	}
	return mark
}
