package decide

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// MostPoints is how many points are made at once, of all replicas. Each claim of a replica counts.
const MostPoints = 16

// Turn is of a replica whose next point is due and waits until fewer are being made.
type Turn struct {
	UID types.UID
	// Source and Standby are the clusters that it is between; Source is empty if it is not known.
	Source, Standby string
	// Cut is the moment of its newest version, zero if it has none, RPO how old that may be. Since is since when it waits.
	Cut, Since time.Time
	RPO        time.Duration
}

// TurnOf returns how a replica waits whose next point is due.
func TurnOf(o Observation) Turn {
	w := Turn{UID: o.Record.UID, Source: o.At, Standby: o.Record.Head.Cluster, Since: o.Now, RPO: RPO(o.Replica)}
	if last := o.Record.Newest(); last != nil {
		w.Cut = last.Cut
	}
	return w
}

// age is how old the newest version is, as a part of the RPO. One without a version, or with one of a moment that has not come yet, comes
// when others are due that began with it.
func (w Turn) age(now time.Time) float64 {
	if w.Cut.IsZero() || Ahead(w.Cut, now) {
		return 1 + float64(now.Sub(w.Since))/float64(w.RPO)
	}
	return float64(now.Sub(w.Cut)) / float64(w.RPO)
}

// agesOf is the age of each.
func agesOf(all []Turn, now time.Time) []float64 {
	ages := make([]float64, len(all))
	for i := range all {
		ages[i] = all[i].age(now)
	}
	return ages
}

// Before says whether a replica has its turn before another: the one whose version is older, measured by its RPO. So more points than can
// be made have all versions become older in the same measure.
func (w Turn) Before(other Turn, now time.Time) bool {
	if a, b := w.age(now), other.age(now); a != b {
		return a > b
	}
	return w.UID < other.UID
}

// Points are those that are being made. The zero value has none.
type Points struct {
	all int
	in  map[string]int
}

// Add adds those of so many claims between two clusters.
func (p *Points) Add(source, standby string, claims int) {
	if p.in == nil {
		p.in = map[string]int{}
	}
	p.all += claims
	p.in[standby] += claims
	if source != standby {
		p.in[source] += claims
	}
}

// free is how many more points may be made as a replica sees it. Of a cluster that it does not use at most half of MostPoints count: so
// one in which points take long, because it is slow or means harm, holds up others in that half alone, however many it has. The others
// are not kept waiting until points there end, so for that long more are made than MostPoints, at most twice as many.
func (p Points) free(w Turn) int {
	const half = (MostPoints + 1) / 2
	beyond := 0
	for cluster, n := range p.in {
		if cluster != w.Source && cluster != w.Standby {
			beyond = max(beyond, n-half)
		}
	}
	return min(MostPoints+beyond, 2*MostPoints) - p.all
}

// HasTurn says whether a replica may begin a point beside others that wait.
func HasTurn(w Turn, others []Turn, now time.Time, points Points) bool {
	if points.free(w) <= 0 {
		return false
	}
	first := []Turn{w}
	for _, other := range others {
		if other.UID != w.UID && other.Before(w, now) {
			first = append(first, other)
		}
	}
	return slices.Contains(Turns(first, now, points), w.UID)
}

// Turns returns those that have their turn: the first one that may begin, then the first one that may beside that, and so on.
func Turns(all []Turn, now time.Time, points Points) (next []types.UID) {
	points.in = maps.Clone(points.in)
	var ages []float64
	for {
		// Thousands may wait, and many of them are between the same two clusters.
		free, last := map[[2]string]bool{}, [2]string{}
		first, looked, mayBegin := -1, false, false
		for i := range all {
			w := &all[i]
			if between := [2]string{w.Source, w.Standby}; !looked || between != last {
				var known bool
				if mayBegin, known = free[between]; !known {
					mayBegin = points.free(*w) > 0
					free[between] = mayBegin
				}
				last, looked = between, true
			}
			if !mayBegin {
				continue
			}
			if ages == nil {
				ages = agesOf(all, now)
			}
			if (first < 0 || ages[i] > ages[first] || ages[i] == ages[first] && w.UID < all[first].UID) && !slices.Contains(next, w.UID) {
				first = i
			}
		}
		if first < 0 {
			return next
		}
		next = append(next, all[first].UID)
		points.Add(all[first].Source, all[first].Standby, 1)
	}
}
