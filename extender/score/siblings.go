package score

import (
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Siblings is how many volumes of the other pods of a pod's StatefulSet are in a
// cluster, by the rule of the class of the pod's own new volume.
type Siblings struct {
	// Pull is from 0 to 1: with the rule pack the share that is there; with the
	// rule spread 0 in the candidate cluster that has most, 1 where there are
	// none; the mean of both if the pod's classes have different rules.
	Pull   float64 `json:"pull"`
	Pack   *Count  `json:"pack,omitempty"`
	Spread *Count  `json:"spread,omitempty"`
}

// Count is how many siblings are in a cluster, of how many in all.
type Count struct {
	Here int `json:"here"`
	Of   int `json:"of"`
}

type siblings struct {
	pack, spread counts
}

type counts struct {
	in    map[string]int
	total int
	// most is the number in the candidate cluster that has most.
	most int
}

func (s *siblings) add(view *snapshot.Snapshot, pod snapshot.Pod, claim snapshot.PodClaim, rule string) {
	counted := &s.pack
	switch rule {
	case keys.SiblingsIgnore:
		return
	case keys.SiblingsSpread:
		counted = &s.spread
	}
	for cluster := range view.Siblings(pod, claim) {
		if counted.in == nil {
			counted.in = map[string]int{}
		}
		counted.in[cluster]++
		counted.total++
	}
}

func (s *siblings) none() bool {
	return s.pack.total+s.spread.total == 0
}

// compare finds the candidate cluster that has most.
func (s *siblings) compare(candidates []string) {
	s.spread.most = 0
	for _, cluster := range candidates {
		s.spread.most = max(s.spread.most, s.spread.in[cluster])
	}
}

func (s *siblings) in(cluster string) (Siblings, bool) {
	if s.none() {
		return Siblings{}, false
	}
	var found Siblings
	rules := 0.0
	if s.pack.total > 0 {
		found.Pack = s.pack.count(cluster)
		found.Pull += float64(found.Pack.Here) / float64(found.Pack.Of)
		rules++
	}
	if s.spread.total > 0 {
		found.Spread = s.spread.count(cluster)
		found.Pull++
		if s.spread.most > 0 {
			found.Pull -= float64(found.Spread.Here) / float64(s.spread.most)
		}
		rules++
	}
	found.Pull /= rules
	return found, true
}

func (c *counts) count(cluster string) *Count {
	return &Count{Here: c.in[cluster], Of: c.total}
}
