// This file is the world in which replicas are tried at random. It is long because each request that decisions make, and each fault that
// may befall it, has its place in one loop.

package decide_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

func head(uid types.UID) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "replica-r1", UID: uid,
		Labels: map[string]string{keys.ReplicaOf: "r1"}}}
}

// world is a source of some claims, a standby and what is between them. The content of a volume is a number that grows with each write,
// which the application writes to all volumes.
type world struct {
	t       *testing.T
	random  *rand.Rand
	o       decide.Observation
	source  int
	cut     int
	copies  []content
	sealed  map[string]int
	n       int
	failing bool
	// spoils has somebody delete snapshots of versions.
	spoils bool
	// slots are the real claims at the standby where versions are in slots; nil: they are snapshots. See slots_test.go.
	slots *slotWorld
	// frozen is the application where it is frozen for each point; nil: it is not, and always writes. See freeze_test.go.
	frozen *frozenWorld
	// lost has clusters of the source be lost; nil: none is. See left_test.go.
	lost *lostWorld
	// rotten is how often storage has altered a copy; see scrub_test.go.
	rotten int
	// idle is an application that rests for long; nil: it always writes. See unchanged_test.go.
	idle *idleWorld
	// lostRequests, repeats and jumps count requests that were lost, those that came twice, and how often home's clock was set. again is the
	// last one, if it comes once more, and againOf the record that it was for.
	lostRequests, repeats, jumps int
	again                        decide.Action
	againOf                      *record.Record
}

// content is the copy of a claim for a point.
type content struct {
	clone int
	head  int // -1: torn
	// touched says that a mover has changed the head for the point.
	touched bool
	task    *moverapi.TaskStatus
	// cloneTimes and headTimes stand for what file systems say of them.
	cloneTimes, headTimes int
}

func newWorld(t *testing.T, seed uint64, claims int) *world {
	o := observation(0)
	o.Record.Head.UID = ""
	for i := 1; i < claims; i++ {
		o.Record.Others = append(o.Record.Others, o.Record.Part)
	}
	o.Sealed, o.Kept, o.Claims = map[string]types.UID{}, map[string]string{}, make([]decide.Claim, claims)
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 1)), o: o, source: 1, sealed: map[string]int{}, failing: true,
		copies: make([]content, claims)}
	for i := range w.o.Claims {
		w.o.Claims[i].Origin = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: sourceUID(i)}}
	}
	return w
}

// blockOne is the claim that is a block volume.
const blockOne = 1

func sourceUID(i int) types.UID { return types.UID(fmt.Sprintf("s%d", i)) }

func (w *world) uid() types.UID { w.n++; return types.UID(fmt.Sprintf("u%d", w.n)) }

// step has something happen, and takes the next step. It returns whether there was one.
func (w *world) step() bool {
	w.o.Now = w.o.Now.Add(time.Second)
	if (w.frozen == nil || w.frozen.writes()) && (w.idle == nil || w.idle.writes(w)) {
		w.source++
	}
	w.happen()
	w.setClock()
	w.repeat()
	step := decide.Next(w.o)
	w.must(!strings.Contains(step.Say, "does not know"), "it says: %s", step.Say)
	if step.Action == nil {
		if step.After > 0 {
			w.o.Now = w.o.Now.Add(min(step.After, time.Minute))
		}
		return false
	}
	if w.failing && w.frozen == nil && w.random.IntN(20) == 0 {
		w.lostRequests++
		return true
	}
	w.act(step.Action)
	w.again, w.againOf = nil, w.o.Record
	if w.failing && w.frozen == nil && w.random.IntN(20) == 0 {
		w.again = step.Action
	}
	w.check()
	if w.frozen != nil {
		w.checkFrozen()
	}
	return true
}

// setClock has somebody set home's clock, by more than a point may take. What a process remembers of moments follows that.
func (w *world) setClock() {
	if !w.failing || w.frozen != nil || w.idle != nil || w.random.IntN(300) > 0 {
		return
	}
	by := 31 * 24 * time.Hour
	if w.random.IntN(2) == 0 {
		by = -by
	}
	w.jumps++
	w.o.Now = w.o.Now.Add(by)
	for i := range w.o.Claims {
		w.o.Claims[i].Advanced = w.o.Claims[i].Advanced.Add(by)
	}
}

// repeat has the last request come once more, where its API server would not refuse that: most name a UID, or a name that is taken.
func (w *world) repeat() {
	r := w.o.Record
	if w.again == nil || r == nil || r.Point == nil || w.againOf == nil || w.againOf.Point == nil || w.againOf.Point.Number != r.Point.Number {
		return
	}
	again := w.again
	w.again = nil
	switch a := again.(type) {
	case decide.DropMover:
		if seen := w.o.Claims[a.Claim]; a.Role == moverapi.Sender && seen.Reader.Exists || a.Role == moverapi.Receiver && seen.Writer.Exists {
			w.repeats++
			w.act(a)
		}
	case decide.MakeMover:
		if seen := w.o.Claims[a.Claim]; a.Role == moverapi.Sender && !seen.Reader.Exists || a.Role == moverapi.Receiver && !seen.Writer.Exists {
			w.repeats++
			w.act(a)
		}
	case decide.Unlabel:
		w.repeats++
		w.act(a)
	}
}

// happen lets the clusters do what they do, and things go wrong.
func (w *world) happen() {
	o := &w.o
	o.Source, o.Standby = decide.Cluster{}, decide.Cluster{}
	if w.slots != nil {
		w.happenSlots()
	}
	for i := range o.Claims {
		w.live(&o.Claims[i], &w.copies[i])
	}
	w.age(&o.Group.Snapshot)
	if o.Record != nil && o.Record.Point != nil && o.Record.Point.Group != nil {
		for i := range o.Claims {
			// They are its members.
			o.Claims[i].Snapshot = decide.Snapshot{}
			if o.Record.Point.At(i).Taken != "" {
				o.Claims[i].Snapshot = o.Group.Snapshot
			}
		}
	}
	w.takeSource()
	if w.lost != nil {
		w.happenLost()
	}
	if w.frozen != nil {
		w.happenFrozen()
	}
	if w.random.IntN(30) == 0 || !w.failing {
		clear(o.Kept)
	}
	if !w.failing {
		return
	}
	seen, its := &o.Claims[w.random.IntN(len(o.Claims))], &w.copies[0]
	for i := range o.Claims {
		if seen == &o.Claims[i] {
			its = &w.copies[i]
		}
	}
	switch w.random.IntN(40) {
	case 0:
		o.Source.Unusable = "away"
	case 1:
		o.Standby.Unusable = "away"
	case 2:
		if its.task != nil && its.task.State == moverapi.Running {
			its.task.State, its.task.Error = moverapi.Failed, "it broke"
		}
	case 3:
		if seen.Reader.Exists {
			seen.Reader.Ended, seen.Reader.Running, its.task = true, false, nil
		}
	case 4:
		if seen.Writer.Exists {
			seen.Writer.Ended, seen.Writer.Running = true, false
		}
	case 5:
		if o.Record != nil && o.Record.Point != nil {
			seen.Snapshot.Problem, seen.Snapshot.Wrong = "of another volume", true
		}
	case 6:
		if seen.Head != nil && w.random.IntN(4) == 0 && (w.slots == nil || !w.slots.taken[seen.Head.UID]) {
			// Somebody deletes it.
			if w.slots != nil {
				delete(w.slots.claims, seen.Head.Name)
			}
			seen.Head, seen.HeadVolume = nil, nil
		}
	case 8:
		// What the copy was to begin with is gone.
		seen.Kept = nil
	case 7:
		if w.slots == nil && w.spoils && o.Record.Point == nil && w.random.IntN(8) == 0 {
			// Somebody deletes a snapshot of a version.
			for _, name := range slices.Sorted(maps.Keys(o.Sealed)) {
				delete(o.Sealed, name)
				delete(w.sealed, name)
				return
			}
		}
	}
}

// live lets what there is of a claim go on.
func (w *world) live(seen *decide.Claim, its *content) {
	for _, m := range []*movers.State{&seen.Reader, &seen.Writer} {
		switch {
		case m.Leaving && w.random.IntN(2) == 0:
			*m = movers.State{}
		case m.Exists && !m.Unstarted && !m.Leaving:
			m.Running = true
		}
	}
	seen.Copy = nil
	if seen.Reader.Running {
		seen.Copy = &moverapi.Status{Connected: seen.Writer.Running && seen.HeadVolume != nil, Task: its.task}
		if seen.Copy.Connected {
			seen.Advanced = w.o.Now
		}
	}
	if its.task != nil && its.task.State == moverapi.Running && seen.Writer.Running {
		w.finish(its)
	}
	w.age(&seen.Snapshot)
	w.age(&seen.Seal)
	w.age(&seen.Basis)
	seen.Seal.Taken = seen.Seal.Taken || seen.Seal.Ready
	if seen.Clone != nil && seen.Clone.DeletionTimestamp != nil && w.random.IntN(2) == 0 {
		seen.Clone = nil
	}
	if seen.Head != nil && seen.HeadVolume == nil && seen.Writer.Running && (seen.Head.Spec.DataSource == nil || seen.Basis.Ready) {
		// Of a snapshot that is gone no volume is ever made.
		seen.HeadVolume = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}}}
	}
}

// takeSource has the snapshot of the source, or of all sources, be taken at last: of what there is at that moment.
func (w *world) takeSource() {
	s := &w.o.Claims[0].Snapshot
	if w.o.Record != nil && w.o.Record.Point != nil && w.o.Record.Point.Group != nil {
		s = &w.o.Group.Snapshot
	}
	if s.Exists && !s.Taken && (s.Ready || w.random.IntN(2) == 0) {
		s.Taken, w.cut = true, w.source
		w.cutIdle()
		if w.frozen != nil {
			w.frozen.taken, w.frozen.rested = w.source, w.frozen.rested && len(w.frozen.pods) == 0
		}
	}
}

// age has a snapshot become ready, or go.
func (w *world) age(s *decide.Snapshot) {
	if s.Exists {
		s.Ready = !s.Leaving && w.random.IntN(3) > 0
	}
	if s.Leaving && w.random.IntN(2) == 0 {
		*s = decide.Snapshot{}
	}
}

// finish ends a task.
func (w *world) finish(its *content) {
	if w.random.IntN(2) == 0 {
		return
	}
	its.task.State = moverapi.Done
	switch its.task.Kind {
	case moverapi.Fingerprint:
		its.task.Fingerprints = its.fingerprints(w)
	case moverapi.Prepare:
		its.task.Prepared = &moverapi.Prepared{Source: []byte(`"s"`)}
	case moverapi.Final:
		its.head = its.clone
		w.keepSlots()
	case moverapi.Verify:
		its.task.Verified = &moverapi.Verified{Equal: its.head == its.clone, SourceRoot: fmt.Sprint(its.clone), TargetRoot: fmt.Sprint(its.head)}
		if its.task.Task.Fingerprints {
			its.task.Verified.Fingerprints = its.fingerprints(w)
		}
		if !its.task.Settled.IsZero() {
			require.False(w.t, its.touched || its.head < 0, "what is torn tells nothing")
			its.task.Verified.Unseen = &moverapi.Unseen{Bytes: 4096}
		}
	default:
		w.t.Fatalf("nobody asked for %s", its.task.Kind)
	}
}

func (w *world) act(action decide.Action) {
	o := &w.o
	r := o.Record
	mover := func(i int, role moverapi.Role) *movers.State {
		if role == moverapi.Sender {
			return &o.Claims[i].Reader
		}
		return &o.Claims[i].Writer
	}
	switch a := action.(type) {
	case decide.BeginPoint:
		source := "home"
		if w.lost != nil {
			if source = w.lost.at; r.LeftIn(source) {
				return // it is refused
			}
		}
		next := r.Clone()
		next.Last++
		next.Point = &record.Point{Number: next.Last, Stage: record.Cut, Since: o.Now, Cut: o.Now, FailedOver: o.FailedOver,
			Others: make([]record.Session, len(r.Others))}
		if r.Len() > 1 {
			next.Point.Group = &record.Group{Version: "v1"}
		}
		for i := range r.Len() {
			next.Point.At(i).Source, next.Point.At(i).Block = backing.Ref{Cluster: source, UID: sourceUID(i)}, i == blockOne
			o.Claims[i].Snapshot, o.Claims[i].Seal, o.Claims[i].Clone = decide.Snapshot{}, decide.Snapshot{}, nil
			w.copies[i].clone, w.copies[i].task, w.copies[i].touched = 0, nil, false
			if r.At(i).Head.UID == "" && !r.Slots && !r.At(i).Whole && w.random.IntN(2) == 0 {
				next.Point.At(i).Basis = &record.Basis{Name: next.BasisName(i), Of: backing.Ref{UID: "kept"}}
				o.Claims[i].Kept = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "kept"}}
			}
		}
		require.False(w.t, o.Group.Exists, "nothing is left of the point before")
		if w.frozen != nil {
			w.beginFrozen(next.Point)
		}
		o.Record, w.cut = next, w.source
	case decide.Freeze:
		w.freeze()
	case decide.Thaw:
		w.thaw()
	case decide.Save:
		if w.frozen != nil {
			w.checkMade(a.Record)
		}
		w.saveLost(a.Record)
		w.saveIdle(a.Record)
		o.Record = a.Record
		w.seeSlots()
	case decide.TakeSnapshot:
		require.LessOrEqual(w.t, w.cut, w.source)
		w.cut = w.source
		if w.frozen != nil {
			w.frozen.asked, w.frozen.rested = w.source, len(w.frozen.pods) == 0
		}
		if r.Len() == 1 {
			o.Claims[0].Snapshot = decide.Snapshot{Exists: true, UID: w.uid()}
			break
		}
		o.Group = decide.Group{Snapshot: decide.Snapshot{Exists: true, UID: w.uid()}}
		for i := range o.Claims {
			o.Claims[i].Labelled = true
			o.Group.Members = append(o.Group.Members, fmt.Sprintf("member-%d", i))
		}
	case decide.CleanLeft:
		w.cleanLeft(a)
	case decide.Unlabel:
		o.Claims[a.Claim].Labelled = false
	case decide.MakeClone:
		require.True(w.t, o.Claims[a.Claim].Snapshot.Ready)
		w.copies[a.Claim].clone, w.copies[a.Claim].cloneTimes = w.cut, w.cut
		if w.idle != nil {
			w.copies[a.Claim].cloneTimes = w.idle.cut
		}
		o.Claims[a.Claim].Clone = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: w.uid()},
			Spec: corev1.PersistentVolumeClaimSpec{DataSource: frozen.From(cmp.Or(r.Point.At(a.Claim).Taken, r.PointName(a.Claim)))}}
	case decide.DropClone:
		o.Claims[a.Claim].Clone.DeletionTimestamp = &metav1.Time{Time: o.Now}
	case decide.DropSnapshot:
		o.Claims[0].Snapshot.Leaving, o.Group.Leaving = o.Claims[0].Snapshot.Exists, o.Group.Exists
	case decide.MakeHead:
		seen := &o.Claims[a.Claim]
		seen.Head, w.copies[a.Claim].head = head(w.uid()), 0
		if basis := r.Point.At(a.Claim).Basis; basis != nil {
			require.True(w.t, seen.Basis.Ready)
			w.copies[a.Claim].head, seen.Head.Spec.DataSource = w.source/2, frozen.From(basis.Name)
		}
		seen.HeadVolume, seen.SealBy = nil, "by"
		if w.slots != nil {
			w.makeSlot(a.Claim)
		}
	case decide.TakeBasis:
		o.Claims[a.Claim].Basis = decide.Snapshot{Exists: true, UID: w.uid()}
	case decide.DropBasis:
		o.Claims[a.Claim].Basis.Leaving = true
	case decide.DropSlot:
		w.dropSlot(o.Claims[a.Claim].Slot)
	case decide.Unseal:
		delete(o.Claims[a.Claim].Head.Annotations, keys.Seal)
	case decide.DropHead:
		if w.slots != nil {
			w.dropSlot(o.Claims[a.Claim].Head)
		}
		o.Claims[a.Claim].Head, o.Claims[a.Claim].HeadVolume = nil, nil
	case decide.MakeMover:
		*mover(a.Claim, a.Role) = movers.State{Exists: true, Unstarted: true}
	case decide.StartMover:
		mover(a.Claim, a.Role).Unstarted = false
	case decide.DropMover:
		mover(a.Claim, a.Role).Leaving, mover(a.Claim, a.Role).Running = true, false
		if a.Role == moverapi.Sender {
			w.copies[a.Claim].task = nil
		}
	case decide.Start:
		require.True(w.t, o.Claims[a.Claim].Reader.Running && o.Claims[a.Claim].Writer.Running)
		w.copies[a.Claim].task = &moverapi.TaskStatus{Task: a.Task, State: moverapi.Running}
		if a.Task.Kind == moverapi.Prepare {
			w.copies[a.Claim].touched = true
			w.copies[a.Claim].headTimes++
		}
		if a.Task.Kind == moverapi.Final {
			w.copies[a.Claim].head = -1
			w.keepSlots()
		}
	case decide.TakeSeal:
		for i := range o.Claims {
			require.False(w.t, o.Claims[i].Writer.Exists, "nobody has a head")
		}
		if w.slots != nil {
			o.Claims[a.Claim].Head.Annotations = map[string]string{keys.Seal: sealed(w.t, r.Point.Number, r.Point.Moment(),
				r.Point.At(a.Claim).Root)}
			break
		}
		name := r.SealName(a.Claim)
		o.Claims[a.Claim].Seal = decide.Snapshot{Exists: true, UID: w.uid()}
		o.Sealed[name], w.sealed[name] = o.Claims[a.Claim].Seal.UID, w.copies[a.Claim].head
	case decide.DropVersion:
		if w.failing && w.random.IntN(4) == 0 {
			o.Kept[a.Name] = "its owner keeps it"
			return
		}
		for i := range o.Claims {
			if o.Claims[i].Seal.UID == a.UID {
				o.Claims[i].Seal.Leaving = true
			}
		}
		delete(o.Sealed, a.Name)
		delete(w.sealed, a.Name)
	case decide.Forget:
		o.Record = nil
	case decide.Leave:
		o.Replica = nil
	default:
		w.t.Fatalf("nobody takes %T", action)
	}
}

// must fails unless something holds. An assertion looks for its line in the source each time, which takes longer than a step.
func (w *world) must(holds bool, format string, args ...any) {
	if !holds {
		require.Fail(w.t, fmt.Sprintf(format, args...))
	}
}

// check checks what holds at each moment: every version is whole, of one moment, and of what the source had when it was cut; once there is
// one there always is; and no more go than may.
func (w *world) check() {
	if w.o.Record == nil || w.o.Replica.DeletionTimestamp != nil {
		return
	}
	if w.rotten == 0 {
		w.must(len(w.o.Record.Found) == 0, "something was found though nothing but we write to the copies: %v", w.o.Record.Found)
	}
	if w.slots != nil {
		w.checkSlots()
		return
	}
	last := 0
	for v := range w.o.Record.Sealed {
		version := &w.o.Record.Sealed[v]
		w.must(len(version.Others) == len(w.o.Record.Others), "version %s is of another number of claims", version.Name)
		for i := range w.o.Record.Len() {
			content, there := w.sealed[version.At(i).Name]
			if version.Going && !there || w.o.Sealed[version.At(i).Name] == "" {
				continue // it goes, or somebody deleted it
			}
			w.must(there, "version %s is recorded and gone", version.Name)
			w.must(version.At(i).Root == strconv.Itoa(content), "%d in version %s is not what was compared, %s", content, version.Name,
				version.At(i).Root)
			w.must(version.Root == version.At(i).Root, "the claims of version %s are not of one moment", version.Name)
			w.must(content > 0, "version %s is torn", version.Name)
			w.must(content >= last, "version %s is older than the one before it", version.Name)
			last = content
		}
	}
	if len(w.o.Record.Sealed) > 0 && !w.spoils {
		w.must(w.o.Record.Newest() != nil, "there was a version, and there is none")
	}
}

func TestEveryVersionIsWholeWhateverHappens(t *testing.T) {
	for _, claims := range []int{1, 3} {
		t.Run(fmt.Sprint(claims), func(t *testing.T) { everyVersionIsWhole(t, claims, false) })
		t.Run(fmt.Sprintf("%d in slots", claims), func(t *testing.T) { everyVersionIsWhole(t, claims, true) })
	}
}

func everyVersionIsWhole(t *testing.T, claims int, slots bool) {
	points, got, scrubs, lost, lostRequests, repeats, jumps := 0, 0, 0, 0, 0, 0, 0
	seeds := 100 / (claims * claims)
	if slots {
		seeds = 40 / claims
	}
	for seed := range uint64(seeds) {
		w := newWorld(t, seed, claims)
		if slots {
			w.useSlots()
		}
		if w.spoils = seed%2 == 0; seed%3 == 0 && !slots {
			w.useLost()
		}
		if seed%4 > 1 {
			w.o.Replica.Spec.ScrubEvery = &metav1.Duration{Duration: time.Hour}
		}
		for range 600 * claims {
			w.step()
		}
		// In the end all goes well.
		w.failing = false
		before := w.o.Record.Last
		for range 1000 + 1000*claims/2 {
			w.step()
		}
		require.Greater(t, w.o.Record.Last, before+1, "it goes on: %+v", w.o.Record)
		require.Zero(t, w.o.Record.Failures, w.o.Record.Why)
		require.LessOrEqual(t, len(w.o.Record.Sealed), 3)
		points += int(w.o.Record.Last)
		if w.o.Replica.Spec.ScrubEvery != nil {
			require.False(t, w.o.Record.Scrubbed.IsZero(), "it was scrubbed")
			scrubs++
		}
		// And all goes.
		w.o.Replica.DeletionTimestamp = &metav1.Time{Time: w.o.Now}
		for range 500 * claims {
			if w.o.Replica == nil {
				break
			}
			w.step()
		}
		require.Nil(t, w.o.Replica, "%+v", w.o.Record)
		require.Empty(t, w.sealed)
		for _, seen := range w.o.Claims {
			require.True(t, seen.Head == nil || w.slots != nil && w.slots.taken[seen.Head.UID])
			require.Nil(t, seen.Clone)
			require.False(t, seen.Basis.Exists)
			require.False(t, seen.Labelled)
		}
		if slots {
			w.requireNoSlots()
			got += w.slots.got
		}
		if w.lost != nil {
			require.Empty(t, w.lost.left)
			lost += w.lost.n
		}
		require.False(t, w.o.Claims[0].Snapshot.Exists && claims == 1 || w.o.Group.Exists)
		lostRequests, repeats, jumps = lostRequests+w.lostRequests, repeats+w.repeats, jumps+w.jumps
	}
	require.True(t, lostRequests > 100 && repeats > 10 && jumps > 20, "%d requests were lost, %d came twice, and the clock was set %d times",
		lostRequests, repeats, jumps)
	require.Equal(t, slots, got > 10, "claims got %d slots", got)
	require.Positive(t, scrubs)
	require.Equal(t, !slots, lost > 5, "points were left in %d lost clusters", lost)
	t.Log(points, "points")
}
