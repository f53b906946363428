package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// sealing is a replica with two versions whose point is about to be sealed: before it each claim had had bytes, has now, and wrote so much.
func sealing(had, now, wrote int64) decide.Observation {
	o := observation(2)
	o.Record.Held = []record.Held{{UID: "h1", Bytes: had}}
	o.Record.Point = &record.Point{Number: 3, Stage: record.Seal, Since: o.Now, Cut: o.Now,
		Session: record.Session{Root: "r", Bytes: now, Wrote: wrote, Copied: true, SealBy: "by"}}
	o.Claims[0].Head = head("h1")
	o.Claims[0].Seal = decide.Snapshot{UID: "s3", Exists: true, Ready: true}
	return o
}

func TestWhichChangesPinVersions(t *testing.T) {
	const mib = 1 << 20
	for name, row := range map[string]struct {
		had, now, wrote int64
		tune            func(*decide.Observation)
		gone            int64 // 0: nothing is pinned
	}{
		"a little":                          {100 * mib, 100 * mib, 5 * mib, nil, 0},
		"just half":                         {100 * mib, 100 * mib, 50 * mib, nil, 0},
		"more than half is overwritten":     {100 * mib, 100 * mib, 51 * mib, nil, 51 * mib},
		"as much is added":                  {100 * mib, 300 * mib, 200 * mib, nil, 0},
		"as much is added, and overwritten": {100 * mib, 200 * mib, 160 * mib, nil, 60 * mib},
		"all is gone":                       {100 * mib, 0, 0, nil, 100 * mib},
		"more than half is removed":         {100 * mib, 40 * mib, 0, nil, 60 * mib},
		"some is removed, some overwritten": {100 * mib, 70 * mib, 25 * mib, nil, 55 * mib},
		"all is written twice":              {100 * mib, 100 * mib, 300 * mib, nil, 100 * mib},
		"there was little":                  {mib - 1, 0, 0, nil, 0},
		"it takes more":                     {100 * mib, 100 * mib, 80 * mib, func(o *decide.Observation) { above(o, 90) }, 0},
		"it takes less":                     {100 * mib, 100 * mib, 20 * mib, func(o *decide.Observation) { above(o, 10) }, 20 * mib},
		"nobody wants it":                   {100 * mib, 0, 0, func(o *decide.Observation) { above(o, 0) }, 0},
		"it is the first copy":              {0, 0, 100 * mib, func(o *decide.Observation) { o.Record.Held = nil }, 0},
		"the head is another one":           {100 * mib, 0, 0, func(o *decide.Observation) { o.Record.Held[0].UID = "h0" }, 0},
		"points that failed wrote some of it": {100 * mib, 100 * mib, 20 * mib, func(o *decide.Observation) {
			o.Record.Held[0].Wrote = 40 * mib
		}, 60 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			o := sealing(row.had, row.now, row.wrote)
			if row.tune != nil {
				row.tune(&o)
			}
			next := saved(t, o)
			require.Len(t, next.Sealed, 3)
			assert.Equal(t, []record.Held{{UID: "h1", Bytes: row.now}}, next.Held, "the next one is judged by this one")
			for i, version := range next.Sealed {
				assert.Equal(t, row.gone > 0 && i < 2, version.Pinned, version.Name)
			}
			if row.gone == 0 {
				assert.Nil(t, next.Change)
				return
			}
			want := &record.Change{Version: next.Sealed[2].Name, Number: 3, Had: row.had, Gone: row.gone}
			if row.now < row.had/2 {
				want.Claim = "data" // it is said that it has shrunk
			}
			assert.Equal(t, want, next.Change)
		})
	}
}

// above sets the share that pins versions.
func above(o *decide.Observation, percent int32) { o.Replica.Spec.Versions.PinAbove = ptr.To(percent) }

func TestSeveralClaimsAreJudgedTogetherAndAShrunkOneAlone(t *testing.T) {
	const mib = 1 << 20
	of := func(now, wrote int64) *record.Change {
		o := sealing(100*mib, 100*mib, 0)
		o.Record.Others = []record.Part{{Claim: "wal", Head: o.Record.Head, Held: []record.Held{{UID: "h2", Bytes: 10 * mib}}}}
		o.Record.Others[0].Head.UID = "h2"
		for i := range o.Record.Sealed {
			o.Record.Sealed[i].Others = make([]record.Content, 1)
		}
		o.Record.Point.Others = []record.Session{{Root: "r", Bytes: now, Wrote: wrote, SealBy: "by"}}
		o.Claims = append(o.Claims, decide.Claim{Head: head("h2"), Seal: o.Claims[0].Seal})
		return saved(t, o).Change
	}
	assert.Nil(t, of(10*mib, 10*mib), "a log is written anew all the time")
	change := of(0, 0)
	require.NotNil(t, change)
	assert.Equal(t, "wal", change.Claim)
	assert.EqualValues(t, 10*mib, change.Gone)
}

func TestPinnedVersionsStayUntilSomebodyAcceptsWhatChanged(t *testing.T) {
	o := sealing(100<<20, 0, 0)
	step := decide.Next(o)
	assert.Equal(t, decide.Suspect, step.Reason)
	assert.Contains(t, step.Say, `point 3 found that claim "data" has shrunk: 100.0 MiB of the 100.0 MiB that it had are removed at once`)
	assert.Contains(t, decide.Next(sealing(100<<20, 100<<20, 60<<20)).Say,
		"point 3 found that 60.0 MiB of the 100.0 MiB that there were are overwritten or removed at once")
	assert.Contains(t, step.Say, "kubectl lodestone replicate accept volumereplica/data -n shop")
	next := saved(t, o)
	next.Point = nil
	suspect := next.Change.Version

	// They are beside those that are wanted, and later changes pin no more.
	o = observation(2)
	o.Record = next
	o.Record.Sealed[2].Cut = noon
	o.Sealed[suspect] = "s3"
	o.Replica.Spec.Versions.Keep = 1
	assert.Empty(t, decide.Surplus(o))
	again := sealing(100<<20, 0, 0)
	again.Record.Change, again.Record.Sealed[0].Pinned = next.Change, true
	then := saved(t, again)
	assert.Equal(t, []bool{true, false, false}, []bool{then.Sealed[0].Pinned, then.Sealed[1].Pinned, then.Sealed[2].Pinned})
	assert.Equal(t, next.Change, then.Change)

	// Another version's name lets nothing go.
	o.Replica.Spec.Versions.Accepted = "v1"
	assert.Nil(t, decide.Next(o).Action)
	for name, accept := range map[string]func(*decide.Observation){
		"accepted":      func(o *decide.Observation) { o.Replica.Spec.Versions.Accepted = suspect },
		"not asked for": func(o *decide.Observation) { above(o, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			o := o
			o.Replica = o.Replica.DeepCopy()
			accept(&o)
			freed := saved(t, o)
			assert.Nil(t, freed.Change)
			assert.Empty(t, decide.SayChange(freed))
			o.Record = freed
			assert.Equal(t, []int{0, 1}, decide.Surplus(o))
		})
	}
}

func TestWhatAPointThatFailsHasWrittenCounts(t *testing.T) {
	o := copies(&moverapi.TaskStatus{Task: moverapi.Task{ID: "final", Kind: moverapi.Final}, State: moverapi.Failed, Error: "it broke",
		Progress: moverapi.Progress{BytesSent: 7 << 20}})
	o.Record.Point.Copied = false
	o.Record.Held = []record.Held{{UID: o.Record.Head.UID, Bytes: 9 << 20, Wrote: 1 << 20}}
	failed := saved(t, o)
	assert.EqualValues(t, 7<<20, failed.Point.Wrote)
	o.Record = failed
	o.Claims[0] = decide.Claim{Head: head(o.Record.Head.UID), HeadVolume: &corev1.PersistentVolume{}}
	over := saved(t, o)
	require.Nil(t, over.Point)
	assert.EqualValues(t, 8<<20, over.Held[0].Wrote)
}

func TestNoMoreIsCountedThanTheFilesThatChangedHave(t *testing.T) {
	for _, block := range []bool{false, true} {
		o := copies(&moverapi.TaskStatus{Task: moverapi.Task{ID: "final", Kind: moverapi.Final}, State: moverapi.Done,
			Progress: moverapi.Progress{BytesSent: 7 << 20}, Passed: &moverapi.Passed{ChangedBytes: 5 << 10}})
		o.Record.Point.Copied, o.Record.Point.Block = false, block
		want := int64(5 << 10)
		if block {
			want = 7 << 20
		}
		next := saved(t, o)
		assert.Equal(t, want, next.Point.Wrote, "the names of many small files are no changes")
		assert.EqualValues(t, 7<<20, next.Point.Sent)
	}
}

func TestNothingIsWrittenToASlotThatHasAPinnedVersion(t *testing.T) {
	o := inSlots(t)
	newest := o.Record.Newest()
	o.Now = newest.Cut.Add(time.Hour)
	o.Record.Pin(&record.Change{Version: newest.Name, Number: newest.Number})
	step := decide.Next(o)
	assert.Nil(t, step.Action)
	assert.Equal(t, decide.Pinned, step.Reason)
	assert.Contains(t, step.Say, "no point is made: the slot that it would be written to has the version of ")
	o.Replica.Spec.Versions.Accepted = newest.Name
	before := record.Held{UID: o.Record.Head.UID, Bytes: 16 << 20}
	after := record.Held{UID: o.Record.Slot.UID, Bytes: 16}
	o.Record.Held = []record.Held{before, after}
	o.Record = saved(t, o)
	assert.Equal(t, []record.Held{after}, o.Record.Held, "the same change is not found once more in the other slot")
	assert.Equal(t, decide.BeginPoint{}, decide.Next(o).Action)
}

func TestAHeadThatSomebodyDeletedIsMadeAnew(t *testing.T) {
	o := observation(2)
	o.Now = noon.Add(9 * time.Minute)
	step := decide.Next(o)
	assert.Contains(t, step.Say, "the next point makes it anew")
	next := saved(t, o)
	assert.Empty(t, next.Head.UID)
	o.Record = next
	assert.Equal(t, decide.BeginPoint{}, decide.Next(o).Action)
	o = observation(2)
	o.Now, o.Sealed = noon.Add(9*time.Minute), nil
	assert.Equal(t, decide.BeginPoint{}, decide.Next(o).Action, "what was not looked at is not gone")
	o.Claims[0].Head = head("h1")
	o.Claims[0].Head.DeletionTimestamp = &metav1.Time{Time: o.Now}
	assert.Equal(t, decide.BeginPoint{}, decide.Next(o).Action)
}
