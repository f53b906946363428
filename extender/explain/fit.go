package explain

import (
	"slices"

	"github.com/lodestone-storage/lodestone/extender/score"
)

// maxDecision bounds a decision in bytes, and overhead is the share of it that
// each item of a list takes besides its text. What does not fit is left out and
// counted.
const (
	maxDecision = 4 << 10
	overhead    = 160
)

// fit returns the decision cut to what may be kept of it. Half of the room is for
// the nodes, and half of the rest for the scores.
func (d Decision) fit() Decision {
	budget := maxDecision - overhead
	var left [3]int
	d.Nodes, left[0] = cut(d.Nodes, budget/2, Verdict.size)
	rest := budget - total(d.Nodes, Verdict.size)
	d.Scores, left[1] = cut(d.Scores, rest/2, markSize)
	rest -= total(d.Scores, markSize)
	d.Claims, left[2] = cut(d.Claims, rest, Claim.size)
	d.Omitted = left[0] + left[1] + left[2]
	d.bytes = maxDecision - rest + total(d.Claims, Claim.size)
	return d
}

// cut returns the first items that fit into budget bytes, and how many it left
// out.
func cut[T any](items []T, budget int, size func(T) int) (kept []T, omitted int) {
	for i, item := range items {
		if budget -= size(item); budget < 0 {
			return slices.Clone(items[:i]), len(items) - i
		}
	}
	return items, 0
}

func total[T any](items []T, size func(T) int) int {
	sum := 0
	for _, item := range items {
		sum += size(item)
	}
	return sum
}

func (c Claim) size() int {
	sum := overhead + len(c.Name) + len(c.StorageClass) + len(c.Volume) + len(c.DataIn) + len(c.Prefers) + len(c.CopyOf)
	for _, refused := range c.Refusals {
		sum += overhead + len(refused.Cluster) + len(refused.Node) + len(refused.Reason) + len(refused.Message)
	}
	return sum
}

func (v Verdict) size() int {
	sum := overhead + len(v.Cluster)
	for _, example := range v.Examples {
		sum += len(example)
	}
	return sum
}

func markSize(m score.Mark) int {
	size := overhead/2 + len(m.Cluster)
	if m.Data != nil {
		size += overhead / 4
	}
	if m.Siblings != nil {
		size += overhead / 2
	}
	if m.Room != nil {
		size += overhead/2 + len(m.Room.Class)
	}
	return size
}
