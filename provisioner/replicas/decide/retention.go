package decide

import (
	"slices"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// Retained says of each version, the oldest first, whether it is to stay: the newest ones that keep says, at least one, and the newest of
// each of the last daily days (UTC) that have one, of which the day of the newest is the first. Days are counted by what there is, not by
// the clock: so nothing goes because no points were made for a while, or because a clock was wrong. One that is going is not wanted. One of
// which no claim can be made now is in nobody's place, and stays until enough newer ones are there. Neither makes a day. byDay says which
// stay for their day alone.
func Retained(versions []record.Version, want v1alpha1.ReplicaVersions) (wanted, byDay []bool) {
	wanted, byDay = make([]bool, len(versions)), make([]bool, len(versions))
	left, days := max(want.Keep, 1), map[string]bool{}
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].Going {
			continue
		}
		if !versions[i].Counts() {
			wanted[i] = left > 0
			continue
		}
		day := versions[i].Cut.UTC().Format(time.DateOnly)
		newest := !days[day] && len(days) < int(want.Daily)
		if newest {
			days[day] = true
		}
		wanted[i], byDay[i] = left > 0 || newest, left <= 0 && newest
		left--
	}
	return wanted, byDay
}

// Surplus are the indices of the versions in the record that nobody wants any more, the oldest first. The newest is never one, and none
// that is pinned.
func Surplus(o Observation) (surplus []int) {
	wanted, _ := Retained(o.Record.Sealed, o.Replica.Spec.Versions)
	for i, version := range o.Record.Sealed {
		if !version.Going && !version.Pinned && !wanted[i] && !slices.Contains(o.Used, version.Name) {
			surplus = append(surplus, i)
		}
	}
	return surplus
}
