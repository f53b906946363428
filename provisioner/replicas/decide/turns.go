package decide

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Turn is of a replica whose next point is due and waits until fewer are being made.
type Turn struct {
	UID types.UID
	// Cut is the moment of its newest version, zero if it has none, RPO how old that may be. Since is since when it waits.
	Cut, Since time.Time
	RPO        time.Duration
}

// TurnOf returns how a replica waits whose next point is due.
func TurnOf(o Observation) Turn {
	w := Turn{UID: o.Record.UID, Since: o.Now, RPO: RPO(o.Replica)}
	if last := o.Record.Newest(); last != nil {
		w.Cut = last.Cut
	}
	return w
}

// age is how old the newest version is, as a part of the RPO. One without a version, or with one of a moment that has not come yet, comes
// when others are due that began with it.
func (w Turn) age(now time.Time) float64 {
	if w.Cut.IsZero() || Ahead(w.Cut, now) {
		return 1 + now.Sub(w.Since).Seconds()/w.RPO.Seconds()
	}
	return now.Sub(w.Cut).Seconds() / w.RPO.Seconds()
}

// Before says whether a replica has its turn before another: the one whose version is older, measured by its RPO. So more points than can
// be made have all versions become older in the same measure.
func (w Turn) Before(other Turn, now time.Time) bool {
	if a, b := w.age(now), other.age(now); a != b {
		return a > b
	}
	return w.UID < other.UID
}

// HasTurn says whether a replica may begin a point beside others that wait, if so many more may be made.
func HasTurn(w Turn, others []Turn, now time.Time, free int) bool {
	for _, other := range others {
		if other.UID != w.UID && other.Before(w, now) {
			free--
		}
	}
	return free > 0
}

// Turns returns those that have their turn, if so many more points may be made.
func Turns(all []Turn, now time.Time, free int) (next []types.UID) {
	if free <= 0 {
		return nil
	}
	all = slices.Clone(all)
	for ; free > 0 && len(all) > 0; free-- {
		first := 0
		for i := range all {
			if all[i].Before(all[first], now) {
				first = i
			}
		}
		next = append(next, all[first].UID)
		all = slices.Delete(all, first, first+1)
	}
	return next
}
