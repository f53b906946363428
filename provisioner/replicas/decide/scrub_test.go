package decide_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// until takes steps until something is so.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	for range 20_000 {
		if w.step(); is() {
			return
		}
	}
	require.Fail(w.t, "it is never so", "%s: %+v", what, w.o.Record)
}

// known says whether it is known of all copies what they have, between two points.
func (w *world) known() bool {
	for i := range w.o.Record.Len() {
		if len(w.o.Record.At(i).Known) == 0 {
			return false
		}
	}
	return w.o.Record.Point == nil
}

// TestWhatStorageHasAlteredIsFoundAndMended has storage alter one copy between two points. Everything else goes wrong that can before.
func TestWhatStorageHasAlteredIsFoundAndMended(t *testing.T) {
	for seed := range uint64(24) {
		claims, rots := 1, 0
		if seed%2 == 1 {
			claims, rots = 3, int(seed/2%3)
		}
		t.Run(fmt.Sprintf("claim %d of %d, %d", rots, claims, seed), func(t *testing.T) {
			w := newWorld(t, seed, claims)
			w.o.Replica.Spec.ScrubEvery = &metav1.Duration{Duration: time.Hour}
			w.until("a first scrub", func() bool { return !w.o.Record.Scrubbed.IsZero() })
			w.failing = false
			w.until("copies that are whole", w.known)
			w.rotten++
			w.copies[rots].head += 1_000_000
			before, last := w.o.Record.Scrubbed, w.o.Record.Last
			if rots == blockOne {
				// Each point mends it, so what it had just before a scrub is found.
				w.until("that a scrub is due", func() bool { return w.known() && w.o.Now.Sub(w.o.Record.Scrubbed) > time.Hour })
				require.Empty(t, w.o.Record.Found)
				w.copies[rots].head += 1_000_000
				last = w.o.Record.Last
			}
			w.until("that it is found", func() bool { return len(w.o.Record.Found) > 0 })
			found := w.o.Record.Found[0]
			assert.Equal(t, last+1, found.Number, "by the next point")
			assert.True(t, found.Altered)
			assert.Equal(t, rots == blockOne, found.Block)
			assert.Contains(t, decide.SayFound(w.o.Record), "was not what was sealed there")
			w.until("that it is mended", w.known)
			sealed := w.o.Record.Newest()
			require.Equal(t, found.Number, sealed.Number)
			assert.Equal(t, sealed.At(rots).Root, fmt.Sprint(w.sealed[sealed.At(rots).Name]))
			w.until("that it counts no more", func() bool { return len(w.o.Record.Found) == 0 })
			assert.GreaterOrEqual(t, w.o.Record.Scrubbed.Sub(before), time.Hour, "by a scrub")
		})
	}
}

// looks is an observation of a point that has looked at a copy that had root a.
func looks(block bool, seen *moverapi.Verified) decide.Observation {
	o := copies(&moverapi.TaskStatus{Task: moverapi.Task{ID: "look"}, State: moverapi.Done, Verified: seen})
	o.Replica.Spec.ScrubEvery = &metav1.Duration{Duration: time.Hour}
	p := o.Record.Point
	p.Expect, p.Copied, p.Scrub, p.Block = nil, false, true, block
	p.Was = &record.Known{UID: "h1", Root: "a", Bytes: 7, RootVersion: 2, Cut: noon}
	return o
}

func TestWhatIsSeenBeforeAPointWritesIsJudged(t *testing.T) {
	for name, row := range map[string]struct {
		block bool
		seen  *moverapi.Verified
		says  string
	}{
		"all is as it was": {seen: &moverapi.Verified{TargetRoot: "a", TargetBytes: 7, RootVersion: 2, Unseen: &moverapi.Unseen{}}},
		"the source has changed, which shows": {seen: &moverapi.Verified{SourceRoot: "c", TargetRoot: "a", TargetBytes: 7, RootVersion: 2,
			Differences: []moverapi.Difference{{Path: "x", What: "other content"}}, Unseen: &moverapi.Unseen{}}},
		"the source has changed, which does not show": {seen: &moverapi.Verified{TargetRoot: "a", RootVersion: 2,
			Unseen: &moverapi.Unseen{Files: 3, Bytes: 9, First: "db/x"}},
			says: `point 2 found that of claim "data" 3 files (9 B; the first is db/x) have another content, though their size and time of ` +
				`change are the same, and the copy in cluster west was as it was sealed: `},
		"the copy has": {seen: &moverapi.Verified{TargetRoot: "b", RootVersion: 2, Unseen: &moverapi.Unseen{Files: 1, Bytes: 5, First: "y"}},
			says: `point 2 found that the copy of claim "data" in cluster west was not what was sealed there: 1 files (5 B; the first is y) ` +
				`have another content`},
		"somebody wrote to the copy": {seen: &moverapi.Verified{TargetRoot: "b", TargetBytes: 9, RootVersion: 2, Unseen: &moverapi.Unseen{}},
			says: "was not what was sealed there: names, sizes or times differ, or files that were just written; "},
		"roots are made in another way now": {seen: &moverapi.Verified{TargetRoot: "b", RootVersion: 3, Unseen: &moverapi.Unseen{}}},
		"a block volume is written to": {block: true, seen: &moverapi.Verified{TargetRoot: "a", TargetBytes: 7, RootVersion: 2,
			Unseen: &moverapi.Unseen{Bytes: 5}}},
		"a block volume has grown": {block: true, seen: &moverapi.Verified{TargetRoot: "b", TargetBytes: 8, RootVersion: 2,
			Unseen: &moverapi.Unseen{Bytes: 5}}},
		"the copy of a block volume was altered": {block: true, seen: &moverapi.Verified{TargetRoot: "b", TargetBytes: 7, RootVersion: 2,
			Unseen: &moverapi.Unseen{Bytes: 5, Files: 1}},
			says: "was not what was sealed there: it is among 5 B that differ, with what was just written; "},
	} {
		t.Run(name, func(t *testing.T) {
			step := decide.Next(looks(row.block, row.seen))
			save, ok := step.Action.(decide.Save)
			require.True(t, ok)
			assert.Equal(t, record.Copy, save.Record.Point.Stage, "the point goes on, and mends it")
			assert.True(t, save.Record.Point.Looked)
			assert.Equal(t, noon.Add(time.Second), save.Record.Scrubbed)
			assert.Equal(t, row.says != "", step.Reason == decide.Suspect)
			assert.Equal(t, step.Say, decide.SayFound(save.Record))
			assert.Contains(t, step.Say, row.says)
		})
	}
	for name, seen := range map[string]*moverapi.Verified{"nothing": nil, "no root": {Unseen: &moverapi.Unseen{}},
		"nothing of what is unseen": {TargetRoot: "a"}} {
		step := decide.Next(looks(false, seen))
		assert.Equal(t, decide.PointFailed, step.Reason, name)
	}
	long := looks(false, &moverapi.Verified{TargetRoot: "a", RootVersion: 2,
		Unseen: &moverapi.Unseen{Files: -1, Bytes: -1, First: strings.Repeat("x\n", 5000)}})
	assert.Empty(t, decide.Next(long).Say, "a mover that lies says nothing")
	long.Claims[0].Copy.Task.Verified.Unseen.Files = 1
	assert.Less(t, len(decide.Next(long).Say), 1000)
}

func TestAPointIsAScrubOnlyWhereOneIsDueAndTheCopyIsKnown(t *testing.T) {
	h1 := []record.Known{{UID: "h1", Root: "a"}}
	for name, row := range map[string]struct {
		every time.Duration
		last  time.Time
		known []record.Known
		block bool
		scrub bool
		looks bool
	}{
		"none is asked for":             {known: h1},
		"the first one":                 {every: time.Hour, known: h1, scrub: true, looks: true},
		"the last one was long ago":     {every: time.Hour, last: noon.Add(-time.Hour), known: h1, scrub: true, looks: true},
		"the last one was not":          {every: time.Hour, last: noon.Add(-time.Minute), known: h1, looks: true},
		"it was not, of a block volume": {every: time.Hour, last: noon.Add(-time.Minute), known: h1, block: true},
		"a clock was ahead":             {every: time.Hour, last: noon.Add(time.Hour), known: h1, scrub: true, looks: true},
		"nothing is known":              {every: time.Hour},
		"it is of another real claim":   {every: time.Hour, known: []record.Known{{UID: "h0"}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := copies(nil)
			if row.every > 0 {
				o.Replica.Spec.ScrubEvery = &metav1.Duration{Duration: row.every}
			}
			o.Record.Scrubbed, o.Record.Known, o.Record.Point.Stage, o.Record.Point.Block = row.last, row.known, record.Cut, row.block
			o.Record.Point.Source.UID = "s1"
			o.Claims[0].Origin = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "s1"}}
			o.Claims[0].Clone.Spec.DataSource = frozen.From(o.Record.PointName(0))
			save, ok := decide.Next(o).Action.(decide.Save)
			require.True(t, ok)
			require.Equal(t, record.Copy, save.Record.Point.Stage)
			assert.Equal(t, row.scrub, save.Record.Point.Scrub)
			assert.Equal(t, row.looks, !save.Record.Point.Looked)
			for _, known := range save.Record.Known {
				assert.NotEqual(t, o.Record.Head.UID, known.UID, "it is written to from now on")
			}
			again, err := json.Marshal(o.Record.Known)
			require.NoError(t, err)
			had, err := json.Marshal(row.known)
			require.NoError(t, err)
			assert.JSONEq(t, string(had), string(again), "a record is not changed before it is written")
		})
	}
}

func TestWhatWasFoundGoesOnceNobodyWantsScrubs(t *testing.T) {
	o := observation(2)
	o.Record.Scrubbed, o.Record.Found = noon, []record.Finding{{Claim: "data", Files: 1}}
	save, ok := decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.Zero(t, save.Record.Scrubbed)
	assert.Empty(t, save.Record.Found)
	o.Replica.Spec.ScrubEvery = &metav1.Duration{Duration: time.Hour}
	assert.Nil(t, decide.Next(o).Action)
}
