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
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

func TestTheOldestVersionByItsRPOHasTheFirstTurn(t *testing.T) {
	waits := func(uid string, age, rpo time.Duration) decide.Turn {
		w := decide.Turn{UID: types.UID(uid), RPO: rpo, Since: noon.Add(-age)}
		if uid != "none" {
			w.Cut = noon.Add(-age)
		}
		return w
	}
	all := []decide.Turn{waits("day", 25*time.Hour, 24*time.Hour), waits("minutes", 20*time.Minute, 15*time.Minute),
		waits("none", time.Minute, 15*time.Minute), waits("soon", 14*time.Minute, 15*time.Minute)}
	assert.Equal(t, []types.UID{"minutes", "none", "day", "soon"}, decide.Turns(all, noon, 9))
	assert.Equal(t, []types.UID{"minutes"}, decide.Turns(all, noon, 1))
	assert.Empty(t, decide.Turns(all, noon, 0))
	for free, has := range []bool{false, false, true, true} {
		assert.Equal(t, has, decide.HasTurn(all[2], all, noon, free), "%d free", free)
	}
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

// lags has so many replicas with an RPO of 15 minutes make their points with some slots, of which they need a part. It
// returns how old versions became, as parts of the RPO, once all began.
func lags(replicas, slots int, load float64) (all []float64) {
	const rpo = 15 * time.Minute
	random := rand.New(rand.NewPCG(1, uint64(load*100)))
	usual := float64(slots) * load * rpo.Seconds() / float64(replicas)
	seen := make([]decide.Observation, replicas)
	var pending events
	for i := range seen {
		seen[i].Record = &record.Record{UID: types.UID(fmt.Sprint(i))}
		seen[i].Replica = &v1alpha1.VolumeReplica{Spec: v1alpha1.VolumeReplicaSpec{RPO: &metav1.Duration{Duration: rpo}}}
		heap.Push(&pending, event{at: noon.Add(time.Duration(random.Int64N(int64(rpo)))), who: i})
	}
	var waiting []decide.Turn
	cuts, free := make([]time.Time, replicas), slots
	for end := noon.Add(80 * time.Minute); pending.Len() > 0; {
		e, _ := heap.Pop(&pending).(event)
		if e.at.After(end) {
			break
		}
		o := &seen[e.who]
		if o.Now = e.at; e.sealed {
			free++
			if last := o.Record.Newest(); last != nil && e.at.Sub(noon) > 45*time.Minute {
				all = append(all, e.at.Sub(last.Cut).Seconds()/rpo.Seconds())
			}
			o.Record.Sealed = []record.Version{{Cut: cuts[e.who], Took: e.at.Sub(cuts[e.who])}}
			heap.Push(&pending, event{at: decide.Due(*o), who: e.who})
		} else {
			waiting = append(waiting, decide.TurnOf(*o))
		}
		for _, uid := range decide.Turns(waiting, e.at, free) {
			i := slices.IndexFunc(waiting, func(w decide.Turn) bool { return w.UID == uid })
			waiting = slices.Delete(waiting, i, i+1)
			var who int
			_, _ = fmt.Sscan(string(uid), &who)
			free--
			cuts[who] = e.at
			took := time.Duration((0.5 + random.Float64()) * usual * float64(time.Second))
			heap.Push(&pending, event{at: e.at.Add(took), who: who, sealed: true})
		}
	}
	slices.Sort(all)
	return all
}

func TestTenThousandReplicasShareTheirSlots(t *testing.T) {
	all := lags(10_000, 16, 0.6)
	require.Greater(t, len(all), 20_000)
	t.Logf("at 60 %% of the slots: median %.2f, longest %.2f of the RPO", all[len(all)/2], all[len(all)-1])
	assert.LessOrEqual(t, all[len(all)-1], 1.25, "with slots to spare no version becomes much older than its RPO")

	all = lags(10_000, 16, 1.2)
	median, longest := all[len(all)/2], all[len(all)-1]
	t.Logf("at 120 %% of the slots: median %.2f, longest %.2f of the RPO", median, longest)
	assert.Greater(t, median, 1.0, "there is more to do than can be done")
	assert.LessOrEqual(t, longest/median, 1.5, "all become older in the same measure")
}
