package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// versionsOf are versions of moments in March 2026, as day.hour, the oldest first; an x in front says that it is going.
func versionsOf(t *testing.T, moments string) (versions []record.Version) {
	t.Helper()
	for _, moment := range strings.Fields(moments) {
		at, going := strings.CutPrefix(moment, "x")
		cut, err := time.Parse("2006-01-2.15", "2026-03-"+at)
		require.NoError(t, err)
		versions = append(versions, record.Version{Content: record.Content{Name: at, UID: types.UID(at)}, Cut: cut, Going: going})
	}
	return versions
}

func TestVersionsStayByTheirNumberAndByTheirDay(t *testing.T) {
	for name, row := range map[string]struct {
		versions    string
		keep, daily int32
		stay, byDay string
	}{
		"there is none":                             {"", 4, 7, "", ""},
		"fewer than are wanted":                     {"1.00 1.01", 4, 0, "1.00 1.01", ""},
		"by number alone":                           {"1.00 1.12 2.00 2.12 3.00", 2, 0, "2.12 3.00", ""},
		"one at least, whatever is asked for":       {"1.00 1.12", 0, 0, "1.12", ""},
		"the newest of each day":                    {"1.00 1.12 2.00 2.12 3.00", 1, 3, "1.12 2.12 3.00", "1.12 2.12"},
		"the day of the newest counts as one":       {"1.12 2.12 3.00", 1, 2, "2.12 3.00", "2.12"},
		"one day is that of the newest":             {"1.12 2.12 3.00", 1, 1, "3.00", ""},
		"both, and none twice":                      {"1.00 1.12 2.00 2.12 3.00 3.12", 3, 3, "1.12 2.12 3.00 3.12", "1.12"},
		"more by number than there are days":        {"1.00 1.12 2.00 2.12", 4, 2, "1.00 1.12 2.00 2.12", ""},
		"days without one are not counted":          {"1.12 9.00 9.12 20.00", 1, 3, "1.12 9.12 20.00", "1.12 9.12"},
		"days end as in UTC":                        {"1.23 2.00", 1, 2, "1.23 2.00", "1.23"},
		"a clock that was ahead makes one day":      {"1.12 2.12 31.00 3.00 3.12 4.12", 1, 4, "2.12 31.00 3.12 4.12", "2.12 31.00 3.12"},
		"a clock that was behind does, too":         {"10.12 11.12 1.00 12.00", 1, 3, "11.12 1.00 12.00", "11.12 1.00"},
		"of one day in two parts the later one":     {"5.12 31.00 5.13 5.14", 1, 2, "31.00 5.14", "31.00"},
		"one that is going stays in nobody's stead": {"1.12 2.10 x2.12 x3.00 3.01", 1, 2, "2.10 3.01", "2.10"},
	} {
		t.Run(name, func(t *testing.T) {
			versions := versionsOf(t, row.versions)
			wanted, daily := decide.Retained(versions, v1alpha1.ReplicaVersions{Keep: row.keep, Daily: row.daily})
			var stay, byDay []string
			for i := range versions {
				if wanted[i] {
					stay = append(stay, versions[i].Name)
				}
				if daily[i] {
					byDay = append(byDay, versions[i].Name)
				}
			}
			assert.Equal(t, row.stay, strings.Join(stay, " "))
			assert.Equal(t, row.byDay, strings.Join(byDay, " "))
		})
	}
}

// TestAYearOfPointsLeavesTheNewestOfTheLastDays seals a version every three hours, and lets each go that is to.
func TestAYearOfPointsLeavesTheNewestOfTheLastDays(t *testing.T) {
	o := observation(0)
	o.Replica.Spec.Versions = v1alpha1.ReplicaVersions{Keep: 3, Daily: 7}
	o.Record.Last = 1
	begin := time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
	for n := range 365 * 8 {
		name := fmt.Sprintf("v%d", n)
		o.Now = begin.Add(time.Duration(n) * 3 * time.Hour)
		o.Record.Sealed = append(o.Record.Sealed, record.Version{Content: record.Content{Name: name, UID: types.UID(name)}, Cut: o.Now})
		o.Sealed[name] = types.UID(name)
		for {
			switch a := decide.Next(o).Action.(type) {
			case decide.Save:
				o.Record = a.Record
				continue
			case decide.DropVersion:
				delete(o.Sealed, a.Name)
				continue
			}
			break
		}
		require.LessOrEqual(t, len(o.Record.Sealed), 9)
	}
	var cuts []string
	for _, version := range o.Record.Sealed {
		cuts = append(cuts, version.Cut.Format("02 15"))
	}
	assert.Equal(t, []string{"25 22", "26 22", "27 22", "28 22", "29 22", "30 22", "31 16", "31 19", "31 22"}, cuts)
}

func TestOneThatAClaimIsMadeOfStaysBesideThoseOfTheLastDays(t *testing.T) {
	o := observation(0)
	o.Record.Sealed = versionsOf(t, "1.10 1.12 2.10 2.12 3.10 3.12")
	o.Replica.Spec.Versions, o.Used = v1alpha1.ReplicaVersions{Keep: 1, Daily: 2}, []string{"1.10", "2.12"}
	assert.Equal(t, []int{1, 2, 4}, decide.Surplus(o))
}

func TestAVersionOfWhichNoClaimCanBeMadeIsInNobodysPlace(t *testing.T) {
	day := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	versions := []record.Version{{Cut: day, Unready: "v0: no"}, {Cut: day.Add(time.Hour)}, {Cut: day.Add(24 * time.Hour)},
		{Cut: day.Add(25 * time.Hour), Unready: "v3: no"}}
	wanted, byDay := decide.Retained(versions, v1alpha1.ReplicaVersions{Keep: 1, Daily: 2})
	assert.Equal(t, []bool{false, true, true, true}, wanted, "the newest may be used again; an older one is no more wanted")
	assert.Equal(t, []bool{false, true, false, false}, byDay, "it makes no day")
}
