package decide_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

func TestTheOldestVersionByItsRPOHasTheFirstTurn(t *testing.T) {
	waits := func(uid string, age, rpo time.Duration) decide.Turn {
		w := decide.Turn{UID: types.UID(uid), Source: "home", Standby: "west", RPO: rpo, Since: noon.Add(-age)}
		if uid != "none" {
			w.Cut = noon.Add(-age)
		}
		return w
	}
	all := []decide.Turn{waits("day", 25*time.Hour, 24*time.Hour), waits("minutes", 20*time.Minute, 15*time.Minute),
		waits("none", time.Minute, 15*time.Minute), waits("soon", 14*time.Minute, 15*time.Minute)}
	but := func(free int) decide.Points { return made(map[string]int{"west": decide.MostPoints - free}) }
	assert.Equal(t, []types.UID{"minutes", "none", "day", "soon"}, decide.Turns(all, noon, but(9)))
	assert.Equal(t, []types.UID{"minutes"}, decide.Turns(all, noon, but(1)))
	assert.Empty(t, decide.Turns(all, noon, but(0)))
	for free, has := range []bool{false, false, true, true} {
		assert.Equal(t, has, decide.HasTurn(all[2], all, noon, but(free)), "%d free", free)
	}
}

// made are so many points from home to each standby.
func made(standbys map[string]int) (points decide.Points) {
	for standby, n := range standbys {
		points.Add("home", standby, n)
	}
	return points
}

func TestAClusterHasHalfOfThePlacesAgainstReplicasThatDoNotUseIt(t *testing.T) {
	to := func(source, standby string) decide.Turn {
		return decide.Turn{UID: types.UID(source + standby), Source: source, Standby: standby, RPO: time.Hour, Since: noon}
	}
	for name, row := range map[string]struct {
		points decide.Points
		turn   decide.Turn
		begins int
	}{
		"alone a cluster has all places":                        {decide.Points{}, to("home", "west"), 16},
		"one that has all begins no more":                       {made(map[string]int{"west": 16}), to("home", "west"), 0},
		"others have the other half beside that":                {made(map[string]int{"west": 16}), to("home", "east"), 8},
		"also those with another source":                        {made(map[string]int{"west": 16}), to("east", "home"), 8},
		"also those whose source is the standby of all":         {made(map[string]int{"west": 16}), to("west", "east"), 8},
		"a cluster with half of the places has no more than it": {made(map[string]int{"west": 8}), to("home", "east"), 8},
		"it has none again before it has less than its half":    {made(map[string]int{"west": 9, "east": 8}), to("home", "west"), 0},
		"two that have half each leave none":                    {made(map[string]int{"west": 8, "east": 8}), to("home", "north"), 0},
		"there are never more than twice as many":               {made(map[string]int{"west": 25}), to("east", "north"), 7},
	} {
		t.Run(name, func(t *testing.T) {
			var waiting []decide.Turn
			for i := range 40 {
				row.turn.UID = types.UID(fmt.Sprint(i))
				waiting = append(waiting, row.turn)
			}
			assert.Len(t, decide.Turns(waiting, noon, row.points), row.begins)
			assert.Equal(t, row.begins > 0, decide.HasTurn(waiting[0], waiting, noon, row.points))
		})
	}

	// Replicas of the cluster that has all places are the oldest, and hold up nobody.
	old := to("home", "west")
	old.Since = noon.Add(-24 * time.Hour)
	full := made(map[string]int{"west": 16})
	assert.Equal(t, []types.UID{"homeeast"}, decide.Turns([]decide.Turn{old, to("home", "east")}, noon, full))
	assert.True(t, decide.HasTurn(to("home", "east"), []decide.Turn{old, to("home", "east")}, noon, full))
	assert.False(t, decide.HasTurn(old, []decide.Turn{old, to("home", "east")}, noon, full))
}

// event is when a point of a replica is due, or its version is sealed.
type event struct {
	at     time.Time
	who    int
	sealed bool
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) } //nolint:forcetypeassert // by heap
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// standby is a cluster to which replicas have their copies from home.
type standby struct {
	name     string
	replicas int
	// needs is how many points of it are made at once on average.
	needs float64
	// stands says that no point of it ends, and that all are due at once.
	stands bool
}

// lags has replicas with an RPO of 15 minutes make their points. It returns how old the versions at each standby became, as parts of
// the RPO, once all began, and how many points were made at once at most.
func lags(standbys ...standby) (all map[string][]float64, most int) {
	const rpo = 15 * time.Minute
	random := rand.New(rand.NewPCG(1, uint64(standbys[0].needs*100)))
	var seen []decide.Observation
	var at []standby
	var pending events
	for _, one := range standbys {
		for range one.replicas {
			i := len(seen)
			at = append(at, one)
			seen = append(seen, decide.Observation{At: "home",
				Record:  &record.Record{UID: types.UID(fmt.Sprint(i)), Part: record.Part{Head: backing.Ref{Cluster: one.name}}},
				Replica: &v1alpha1.VolumeReplica{Spec: v1alpha1.VolumeReplicaSpec{RPO: &metav1.Duration{Duration: rpo}}}})
			begins := noon.Add(time.Duration(random.Int64N(int64(rpo))))
			if one.stands {
				begins = noon
			}
			heap.Push(&pending, event{at: begins, who: i})
		}
	}
	var waiting []decide.Turn
	cuts, making := make([]time.Time, len(seen)), map[string]int{}
	all = map[string][]float64{}
	for end := noon.Add(80 * time.Minute); pending.Len() > 0; {
		e, _ := heap.Pop(&pending).(event)
		if e.at.After(end) {
			break
		}
		o := &seen[e.who]
		if o.Now = e.at; e.sealed {
			making[at[e.who].name]--
			if last := o.Record.Newest(); last != nil && e.at.Sub(noon) > 45*time.Minute {
				all[at[e.who].name] = append(all[at[e.who].name], e.at.Sub(last.Cut).Seconds()/rpo.Seconds())
			}
			o.Record.Sealed = []record.Version{{Cut: cuts[e.who], Took: e.at.Sub(cuts[e.who])}}
			heap.Push(&pending, event{at: decide.Due(*o), who: e.who})
		} else {
			waiting = append(waiting, decide.TurnOf(*o))
		}
		for _, uid := range decide.Turns(waiting, e.at, made(making)) {
			i := slices.IndexFunc(waiting, func(w decide.Turn) bool { return w.UID == uid })
			waiting = slices.Delete(waiting, i, i+1)
			var who int
			_, _ = fmt.Sscan(string(uid), &who)
			its := at[who]
			making[its.name]++
			cuts[who] = e.at
			took := time.Duration((0.5 + random.Float64()) * its.needs * float64(rpo) / float64(its.replicas))
			if its.stands {
				took = 24 * time.Hour
			}
			heap.Push(&pending, event{at: e.at.Add(took), who: who, sealed: true})
		}
		n := 0
		for _, m := range making {
			n += m
		}
		most = max(most, n)
	}
	for _, its := range all {
		slices.Sort(its)
	}
	return all, most
}

func TestTenThousandReplicasShareTheirPlaces(t *testing.T) {
	seen, most := lags(standby{name: "west", replicas: 10_000, needs: 0.6 * decide.MostPoints})
	all := seen["west"]
	require.Greater(t, len(all), 20_000)
	t.Logf("at 60 %% of the places: median %.2f, longest %.2f of the RPO", all[len(all)/2], all[len(all)-1])
	assert.LessOrEqual(t, all[len(all)-1], 1.25, "with places to spare no version becomes much older than its RPO")
	assert.LessOrEqual(t, most, decide.MostPoints)

	seen, _ = lags(standby{name: "west", replicas: 10_000, needs: 1.2 * decide.MostPoints})
	all = seen["west"]
	median, longest := all[len(all)/2], all[len(all)-1]
	t.Logf("at 120 %% of the places: median %.2f, longest %.2f of the RPO", median, longest)
	assert.Greater(t, median, 1.0, "there is more to do than can be done")
	assert.LessOrEqual(t, longest/median, 1.5, "all become older in the same measure")
}

func TestReplicasOfSeveralStandbysShareTheirPlacesLikewise(t *testing.T) {
	// Most replicas have the same standby, which may have more than half of the places, as nothing stands there.
	seen, most := lags(standby{name: "west", replicas: 900, needs: 0.54 * decide.MostPoints},
		standby{name: "east", replicas: 100, needs: 0.06 * decide.MostPoints})
	for name, all := range seen {
		t.Logf("at 60 %% of the places, %s: median %.2f, longest %.2f of the RPO", name, all[len(all)/2], all[len(all)-1])
		assert.LessOrEqual(t, all[len(all)-1], 1.25, name)
	}
	assert.LessOrEqual(t, most, 2*decide.MostPoints)

	seen, _ = lags(standby{name: "west", replicas: 500, needs: decide.MostPoints},
		standby{name: "east", replicas: 500, needs: decide.MostPoints})
	both := slices.Concat(seen["west"], seen["east"])
	slices.Sort(both)
	median, longest := both[len(both)/2], both[len(both)-1]
	t.Logf("at 200 %% of the places: median %.2f, longest %.2f of the RPO", median, longest)
	assert.Greater(t, median, 1.0, "there is more to do than can be done")
	assert.LessOrEqual(t, longest/median, 1.5, "all become older in the same measure")
}

func TestAClusterInWhichPointsStandHoldsUpNoOthers(t *testing.T) {
	seen, most := lags(standby{name: "west", replicas: 100, needs: 1, stands: true},
		standby{name: "east", replicas: 1_000, needs: 0.6 * decide.MostPoints / 2})
	all := seen["east"]
	require.Greater(t, len(all), 2_000)
	t.Logf("beside a cluster that has all places: median %.2f, longest %.2f of the RPO", all[len(all)/2], all[len(all)-1])
	assert.LessOrEqual(t, all[len(all)-1], 1.25, "others get on in the other half of the places")
	assert.Empty(t, seen["west"])
	assert.Equal(t, decide.MostPoints*3/2, most, "it began with all places, and others went on beside it")
}
