package decide_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// idleWorld is an application that writes for a while, and rests for longer. What it writes reaches the disk up to five minutes later, and
// the times of that up to half a minute later, each on its own: so a snapshot has the times of what was written last and not its content,
// or that and not its times.
type idleWorld struct {
	until, flushedAt, timesAt time.Time
	resting                   bool
	// flushed is whose content has reached the disk, and times whose times. cut is times when the snapshot was taken, and least what had
	// reached the disk a minute before.
	flushed, times, cut, least int
	// before has what had reached the disk at each second.
	before map[int64]int
	kept   int
}

func (d *idleWorld) writes(w *world) bool {
	if w.o.Now.After(d.until) {
		d.resting = !d.resting
		most := 20 * time.Minute
		if d.resting {
			most = 3 * time.Hour
		}
		d.until = w.o.Now.Add(time.Duration(w.random.Int64N(int64(most))))
	}
	if w.random.IntN(100) == 0 || w.o.Now.Sub(d.flushedAt) > 5*time.Minute {
		d.flushed, d.flushedAt = w.source, w.o.Now
	}
	if w.random.IntN(20) == 0 || w.o.Now.Sub(d.timesAt) > 30*time.Second {
		d.times, d.timesAt = w.source, w.o.Now
	}
	d.before[w.o.Now.Unix()] = d.flushed
	return !d.resting
}

// cutIdle has the snapshot have what is on the disk.
func (w *world) cutIdle() {
	if d := w.idle; d != nil {
		d.cut, w.cut, d.least = d.times, max(1, d.flushed), 0
		for ago := range int64(600) {
			if n, known := d.before[w.o.Now.Unix()-60-ago]; known {
				d.least = n
				break
			}
		}
	}
}

// fingerprints stand for those of both volumes.
func (c *content) fingerprints(w *world) *moverapi.Fingerprints {
	if w.idle == nil {
		return nil
	}
	return &moverapi.Fingerprints{Source: fmt.Sprint(c.cloneTimes), Target: fmt.Sprint(c.headTimes)}
}

// saveIdle checks that a head which is kept has what the point is of.
func (w *world) saveIdle(next *record.Record) {
	if next.Point == nil || w.o.Record.Point == nil {
		return
	}
	for i := range w.copies {
		if next.Point.At(i).Unchanged && !w.o.Record.Point.At(i).Unchanged {
			its := &w.copies[i]
			w.must(its.head >= w.idle.least && its.head <= its.clone, "claim %d: the head has %d, and the source had %d a minute ago", i, its.head,
				w.idle.least)
			w.must(!its.touched, "nothing was written")
			w.idle.kept++
		}
	}
}

func TestNothingIsReadOfASourceThatRests(t *testing.T) {
	kept, points := 0, 0
	for seed := range uint64(60) {
		w := newWorld(t, seed, 1+2*int(seed%2))
		w.idle = &idleWorld{before: map[int64]int{}}
		if seed%3 == 0 {
			w.useSlots()
		}
		for range 4000 {
			w.step()
			if p := w.o.Record.Point; p == nil && w.slots == nil && w.random.IntN(500) == 0 {
				// Somebody writes to a head.
				w.copies[0].head, w.copies[0].headTimes = w.copies[0].head+1_000_000, w.copies[0].headTimes+1
			}
		}
		w.failing = false
		for range 2000 {
			w.step()
		}
		require.Zero(t, w.o.Record.Failures, w.o.Record.Why)
		kept, points = kept+w.idle.kept, points+int(w.o.Record.Last)
	}
	t.Log(kept, "of", points, "points were made without reading")
	require.Greater(t, kept, points/20)
}

func TestWhetherFingerprintsAreAsked(t *testing.T) {
	same := moverapi.Fingerprints{Source: "s", Target: "t"}
	const day = 24 * time.Hour
	for name, row := range map[string]struct {
		was   record.Known
		tune  func(*decide.Observation)
		asked bool
	}{
		"the source has rested before its snapshot": {was: record.Known{Fingerprints: same, Since: noon.Add(-40 * time.Minute),
			Cut: noon.Add(-30 * time.Minute)}, asked: true},
		"it has not for long enough": {was: record.Known{Fingerprints: same, Since: noon.Add(-39 * time.Minute),
			Cut: noon.Add(-30 * time.Minute)}},
		"contents were read long ago": {was: record.Known{Fingerprints: same, Since: noon.Add(-9 * day), Cut: noon.Add(-7 * day)}},
		"a clock was ahead":           {was: record.Known{Fingerprints: same, Since: noon, Cut: noon.Add(time.Hour)}},
		"a file system is not to be relied on": {was: record.Known{Since: noon.Add(-40 * time.Minute),
			Cut: noon.Add(-30 * time.Minute)}},
		"it is a scrub": {was: record.Known{Fingerprints: same, Since: noon.Add(-40 * time.Minute), Cut: noon.Add(-30 * time.Minute)},
			tune: func(o *decide.Observation) { o.Record.Point.Scrub = true }},
		"it is frozen for the snapshot": {was: record.Known{Fingerprints: same, Since: noon.Add(-40 * time.Minute),
			Cut: noon.Add(-30 * time.Minute)}, tune: func(o *decide.Observation) { o.Record.Point.Freeze = &record.Freeze{} }},
		"the RPO is too short": {was: record.Known{Fingerprints: same, Since: noon.Add(-40 * time.Minute), Cut: noon.Add(-30 * time.Minute)},
			tune: func(o *decide.Observation) { o.Replica.Spec.RPO.Duration = 4 * time.Minute }},
		"it is being copied": {was: record.Known{Fingerprints: same, Since: noon.Add(-40 * time.Minute), Cut: noon.Add(-30 * time.Minute)},
			tune: func(o *decide.Observation) { o.Record.Point.Expect = []byte(`"s"`) }},
	} {
		t.Run(name, func(t *testing.T) {
			o := copies(nil)
			p := o.Record.Point
			p.Expect, p.Copied, p.Looked, p.Was = nil, false, true, &row.was
			if row.tune != nil {
				row.tune(&o)
			}
			start, ok := decide.Next(o).Action.(decide.Start)
			require.True(t, ok)
			assert.Equal(t, row.asked, start.Task.Kind == moverapi.Fingerprint, start.Task.Kind)
		})
	}
}

func TestAHeadIsKeptOnlyWithTheFingerprintsThatItHad(t *testing.T) {
	for name, row := range map[string]struct {
		said *moverapi.Fingerprints
		kept bool
	}{
		"both are as they were":    {said: &moverapi.Fingerprints{Source: "s", Target: "t"}, kept: true},
		"the source is not":        {said: &moverapi.Fingerprints{Source: "x", Target: "t"}},
		"the head is not":          {said: &moverapi.Fingerprints{Source: "s", Target: "x"}},
		"they are none":            {said: &moverapi.Fingerprints{}},
		"the mover says nothing":   {},
		"one is the other's":       {said: &moverapi.Fingerprints{Source: "t", Target: "s"}},
		"only one can be had":      {said: &moverapi.Fingerprints{Source: "s"}},
		"a mover says what it may": {said: &moverapi.Fingerprints{Source: string(make([]byte, 1<<20)), Target: "t"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := copies(&moverapi.TaskStatus{Task: moverapi.Task{ID: "fingerprint", Kind: moverapi.Fingerprint}, State: moverapi.Done,
				Fingerprints: row.said})
			p := o.Record.Point
			p.Expect, p.Copied, p.Looked = nil, false, true
			p.Was = &record.Known{UID: "h1", Root: "a", Bytes: 7, RootVersion: 2, Since: noon.Add(-time.Hour), Cut: noon.Add(-time.Minute),
				Fingerprints: moverapi.Fingerprints{Source: "s", Target: "t"}}
			action := decide.Next(o).Action
			if !row.kept {
				require.Equal(t, moverapi.Prepare, action.(decide.Start).Task.Kind)
				return
			}
			next := action.(decide.Save).Record
			assert.Equal(t, record.Settle, next.Point.Stage)
			assert.Equal(t, "a", next.Point.Root)
			next.Learn(noon)
			assert.Equal(t, []record.Known{*p.Was}, next.Known, "contents were read when they were")
		})
	}
}

// TestOfSeveralClaimsAllAreKeptOrNone: what was read of one may be some seconds newer than what was not of another.
func TestOfSeveralClaimsAllAreKeptOrNone(t *testing.T) {
	o := copies(&moverapi.TaskStatus{Task: moverapi.Task{ID: "verify", Kind: moverapi.Verify}, State: moverapi.Done,
		Verified: &moverapi.Verified{Equal: true, SourceRoot: "b", TargetRoot: "b"}})
	o.Record.Others = []record.Part{o.Record.Part}
	was := &record.Known{UID: "h1", Root: "a", Since: noon.Add(-time.Hour), Cut: noon.Add(-time.Minute),
		Fingerprints: moverapi.Fingerprints{Source: "s", Target: "t"}}
	p := o.Record.Point
	p.Others = []record.Session{{Expect: []byte(`"s"`), Copied: true, Looked: true, Was: was}}
	p.Session = record.Session{Looked: true, Was: was}
	p.Keep(0)
	o.Claims = append(o.Claims, o.Claims[0])

	next := decide.Next(o).Action.(decide.Save).Record.Point
	assert.Equal(t, record.Copy, next.Stage)
	assert.Equal(t, "b", next.At(1).Root)
	assert.Empty(t, next.At(0).Root, "it is copied, too")
	o.Record.Point, o.Claims[0].Copy = next, &moverapi.Status{Connected: true}
	assert.Equal(t, moverapi.Prepare, decide.Next(o).Action.(decide.Start).Task.Kind, "and not asked again")

	p.Others[0] = record.Session{Looked: true, Was: was, Root: "a", Copied: true, Unchanged: true}
	p.Root, p.Unchanged, p.Copied = "", false, false
	o.Record.Point = p
	o.Claims[0].Copy = &moverapi.Status{Connected: true, Task: &moverapi.TaskStatus{Task: moverapi.Task{ID: "fingerprint",
		Kind: moverapi.Fingerprint}, State: moverapi.Done, Fingerprints: &moverapi.Fingerprints{Source: "s", Target: "t"}}}
	assert.Equal(t, record.Settle, decide.Next(o).Action.(decide.Save).Record.Point.Stage, "none has changed")
}

// TestAPointThatReadsBeginsInTimeAfterThoseThatDoNot: a kept version is made in seconds, and the next one may have to be read.
func TestAPointThatReadsBeginsInTimeAfterThoseThatDoNot(t *testing.T) {
	o := observation(2)
	o.Record.Known = []record.Known{{UID: "h1", Took: 2 * time.Minute}}
	assert.Equal(t, noon.Add(6*time.Minute), decide.Due(o))
}
