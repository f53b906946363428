package explain

import (
	"strings"

	"github.com/lodestone-storage/lodestone/extender/filter"
)

// examples is how many refused nodes are named of each cluster and reason.
const examples = 3

// few is how many verdicts are found faster one after another than by their hash.
const few = 8

// Tally counts nodes by their cluster and by what became of them. The zero value
// is empty and ready for use.
type Tally struct {
	verdicts []Verdict
	// current is the verdict that was counted last: the next node is mostly alike.
	current *Verdict
	// at finds a verdict once there are many.
	at map[group]int
}

type group struct {
	cluster string
	reason  filter.Reason
}

// Add counts a node. The name is copied if it is kept.
func (t *Tally) Add(cluster string, reason filter.Reason, name string) {
	if t.current == nil || t.current.Reason != reason || t.current.Cluster != cluster {
		t.current = t.verdict(group{cluster: cluster, reason: reason})
	}
	t.current.Nodes++
	if reason != filter.Accepted && len(t.current.Examples) < examples {
		// The name may be cut out of a large request.
		t.current.Examples = append(t.current.Examples, strings.Clone(name))
	}
}

func (t *Tally) verdict(g group) *Verdict {
	for i := range min(len(t.verdicts), few) {
		if v := &t.verdicts[i]; v.Reason == g.reason && v.Cluster == g.cluster {
			return v
		}
	}
	if i, ok := t.at[g]; ok {
		return &t.verdicts[i]
	}
	t.verdicts = append(t.verdicts, Verdict{Cluster: g.cluster, Reason: g.reason})
	last := len(t.verdicts) - 1
	if last >= few {
		if t.at == nil {
			t.at = map[group]int{}
		}
		t.at[g] = last
	}
	return &t.verdicts[last]
}

// Verdicts returns what was counted, in the order of first appearance.
func (t *Tally) Verdicts() []Verdict {
	return t.verdicts
}

// Refused returns how many nodes each reason refused; nil when all were accepted.
func (t *Tally) Refused() map[filter.Reason]int {
	var counts map[filter.Reason]int
	for _, verdict := range t.verdicts {
		if verdict.Reason == filter.Accepted {
			continue
		}
		if counts == nil {
			counts = map[filter.Reason]int{}
		}
		counts[verdict.Reason] += verdict.Nodes
	}
	return counts
}
