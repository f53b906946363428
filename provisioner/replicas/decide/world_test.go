package decide_test

import (
	"fmt"
	"math/rand/v2"
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

// world is a source, a standby and what is between them. The content of a volume is a number that grows with each write.
type world struct {
	t       *testing.T
	random  *rand.Rand
	o       decide.Observation
	source  int
	cut     int
	clone   int
	content int // of the head; -1: torn
	task    *moverapi.TaskStatus
	sealed  map[string]int
	n       int
	failing bool
}

func newWorld(t *testing.T, seed uint64) *world {
	o := observation(0)
	o.Record.Head.UID = ""
	o.Head, o.Sealed, o.Kept = nil, map[string]types.UID{}, map[string]string{}
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 1)), o: o, source: 1, sealed: map[string]int{}, failing: true}
	w.o.Origin = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "s1"}}
	return w
}

func (w *world) uid() types.UID { w.n++; return types.UID(fmt.Sprintf("u%d", w.n)) }

// step has something happen, and takes the next step. It returns whether there was one.
func (w *world) step() bool {
	w.o.Now = w.o.Now.Add(time.Second)
	w.source++
	w.happen()
	step := decide.Next(w.o)
	require.NotContains(w.t, step.Say, "does not know")
	if step.Action == nil {
		if step.After > 0 {
			w.o.Now = w.o.Now.Add(min(step.After, time.Minute))
		}
		return false
	}
	w.act(step.Action)
	w.check()
	return true
}

// happen lets the clusters do what they do, and things go wrong.
func (w *world) happen() {
	o := &w.o
	o.Source, o.Standby = decide.Cluster{}, decide.Cluster{}
	for _, m := range []*movers.State{&o.Reader, &o.Writer} {
		switch {
		case m.Leaving && w.random.IntN(2) == 0:
			*m = movers.State{}
		case m.Exists && !m.Unstarted && !m.Leaving:
			m.Running = true
		}
	}
	if w.random.IntN(30) == 0 || !w.failing {
		clear(o.Kept)
	}
	o.Copy = nil
	if o.Reader.Running {
		o.Copy, o.Advanced = &moverapi.Status{Connected: o.Writer.Running, Task: w.task}, o.Now
	}
	if w.task != nil && w.task.State == moverapi.Running && o.Writer.Running {
		w.finish()
	}
	for _, s := range []*decide.Snapshot{&o.Snapshot, &o.Seal} {
		if s.Exists {
			s.Ready = !s.Leaving && w.random.IntN(3) > 0
		}
		if s.Leaving && w.random.IntN(2) == 0 {
			*s = decide.Snapshot{}
		}
	}
	if o.Clone != nil && o.Clone.DeletionTimestamp != nil && w.random.IntN(2) == 0 {
		o.Clone = nil
	}
	if !w.failing {
		return
	}
	switch w.random.IntN(40) {
	case 0:
		o.Source.Unusable = "away"
	case 1:
		o.Standby.Unusable = "away"
	case 2:
		if w.task != nil && w.task.State == moverapi.Running {
			w.task.State, w.task.Error = moverapi.Failed, "it broke"
		}
	case 3:
		if o.Reader.Exists {
			o.Reader.Ended, o.Reader.Running, w.task = true, false, nil
		}
	case 4:
		if o.Writer.Exists {
			o.Writer.Ended, o.Writer.Running = true, false
		}
	case 5:
		if o.Record.Point != nil {
			o.Snapshot.Problem, o.Snapshot.Wrong = "of another volume", true
		}
	case 6:
		if o.Head != nil && w.random.IntN(4) == 0 {
			// Somebody deletes it.
			o.Head, o.HeadVolume = nil, nil
		}
	}
}

// finish ends a task.
func (w *world) finish() {
	if w.random.IntN(2) == 0 {
		return
	}
	w.task.State = moverapi.Done
	switch w.task.Kind {
	case moverapi.Prepare:
		w.task.Prepared = &moverapi.Prepared{Source: []byte(`"s"`)}
	case moverapi.Final:
		w.content = w.clone
	case moverapi.Verify:
		equal := w.content == w.clone
		w.task.Verified = &moverapi.Verified{Equal: equal, SourceRoot: fmt.Sprint(w.clone), TargetRoot: fmt.Sprint(w.content)}
	default:
		w.t.Fatalf("nobody asked for %s", w.task.Kind)
	}
}

func (w *world) act(action decide.Action) {
	o := &w.o
	r := o.Record
	mover := func(role moverapi.Role) *movers.State {
		if role == moverapi.Sender {
			return &o.Reader
		}
		return &o.Writer
	}
	switch a := action.(type) {
	case decide.BeginPoint:
		next := r.Clone()
		next.Last++
		next.Point = &record.Point{Number: next.Last, Stage: record.Cut, Since: o.Now, Cut: o.Now,
			Source: backing.Ref{Cluster: "home", UID: "s1"}}
		o.Record, w.cut, w.clone = next, w.source, 0
		o.Snapshot, o.Seal, o.Clone, w.task = decide.Snapshot{}, decide.Snapshot{}, nil, nil
	case decide.Save:
		o.Record = a.Record
	case decide.TakeSnapshot:
		o.Snapshot = decide.Snapshot{Exists: true, UID: w.uid()}
		require.LessOrEqual(w.t, w.cut, w.source)
		w.cut = w.source
	case decide.MakeClone:
		require.True(w.t, o.Snapshot.Ready)
		w.clone = w.cut
		o.Clone = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: w.uid()},
			Spec: corev1.PersistentVolumeClaimSpec{DataSource: frozen.From(r.PointName())}}
	case decide.DropClone:
		o.Clone.DeletionTimestamp = &metav1.Time{Time: o.Now}
	case decide.DropSnapshot:
		o.Snapshot.Leaving = true
	case decide.MakeHead:
		o.Head, w.content = head(w.uid()), 0
		o.HeadVolume = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}}}
		o.SealBy = "by"
	case decide.DropHead:
		o.Head, o.HeadVolume = nil, nil
	case decide.MakeMover:
		*mover(a.Role) = movers.State{Exists: true, Unstarted: true}
	case decide.StartMover:
		mover(a.Role).Unstarted = false
	case decide.DropMover:
		mover(a.Role).Leaving, mover(a.Role).Running = true, false
		if a.Role == moverapi.Sender {
			w.task = nil
		}
	case decide.Start:
		require.True(w.t, o.Reader.Running && o.Writer.Running)
		w.task = &moverapi.TaskStatus{Task: a.Task, State: moverapi.Running}
		if a.Task.Kind == moverapi.Final {
			w.content = -1
		}
	case decide.TakeSeal:
		require.False(w.t, o.Reader.Exists || o.Writer.Exists, "nobody has the head")
		o.Seal = decide.Snapshot{Exists: true, UID: w.uid()}
		o.Sealed[r.SealName()], w.sealed[r.SealName()] = o.Seal.UID, w.content
	case decide.DropVersion:
		if w.failing && w.random.IntN(4) == 0 {
			o.Kept[a.Name] = "its owner keeps it"
			return
		}
		if o.Seal.UID == a.UID {
			o.Seal.Leaving = true
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

// check checks what holds at each moment: every version is whole, and of what the source had when it was cut; once there is one there
// always is; and no more go than may.
func (w *world) check() {
	if w.o.Record == nil || w.o.Replica.DeletionTimestamp != nil {
		return
	}
	last := 0
	for _, version := range w.o.Record.Sealed {
		content, there := w.sealed[version.Name]
		if version.Going && !there {
			continue
		}
		require.True(w.t, there, "version %s is recorded and gone", version.Name)
		require.Equal(w.t, version.Root, fmt.Sprint(content), "it is what was compared")
		require.Positive(w.t, content, "it is not torn")
		require.GreaterOrEqual(w.t, content, last, "versions are in their order")
		last = content
	}
	if len(w.o.Record.Sealed) > 0 {
		require.NotNil(w.t, w.o.Record.Newest(), "once there is a version there always is")
	}
}

func TestEveryVersionIsWholeWhateverHappens(t *testing.T) {
	points := 0
	for seed := range uint64(100) {
		w := newWorld(t, seed)
		for range 600 {
			w.step()
		}
		// In the end all goes well.
		w.failing = false
		before := w.o.Record.Last
		for range 2000 {
			w.step()
		}
		require.Greater(t, w.o.Record.Last, before+1, "it goes on: %+v", w.o.Record)
		require.Zero(t, w.o.Record.Failures, w.o.Record.Why)
		require.LessOrEqual(t, len(w.o.Record.Sealed), 3)
		points += int(w.o.Record.Last)
		// And all goes.
		w.o.Replica.DeletionTimestamp = &metav1.Time{Time: w.o.Now}
		for range 500 {
			if w.o.Replica == nil {
				break
			}
			w.step()
		}
		require.Nil(t, w.o.Replica, "%+v", w.o.Record)
		require.Empty(t, w.sealed)
		require.Nil(t, w.o.Head)
		require.Nil(t, w.o.Clone)
		require.False(t, w.o.Snapshot.Exists)
	}
	t.Log(points, "points")
}
