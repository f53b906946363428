package decide_test

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// snap is the snapshot of a source; the claim made of it and its mover are at
// record.Snapped.
type snap struct {
	exists, leaving, ready bool
	// content is what the source had held when it was taken.
	content int
	// stuck: it gets never ready, refused: it is refused.
	stuck, refused bool
	mover          movecontrol.Status
	copied         int
}

func (s *snap) gone() bool { return s == nil || !s.exists }

// mayStandStill says whether pods may for a whole copy: where no snapshot can be taken they
// must.
func (w *world) mayStandStill() bool {
	for _, c := range w.claims {
		if c.single && c.snap == nil {
			return true
		}
	}
	return len(w.claims) == 1
}

// snapshot is what a first record has of it.
func (c *claim) snapshot(r *record.Record, i int, source record.Copy) *record.Snapshot {
	if c.snap == nil {
		return nil
	}
	return &record.Snapshot{Copy: record.Copy{Ref: backing.Ref{Cluster: source.Ref.Cluster, Namespace: source.Ref.Namespace, Name: r.MoverName(i, record.Snapped)}}}
}

// agreed checks that pods are not stopped for a whole copy that nobody allowed.
func (w *world) agreed(next *record.Record) {
	if next.Phase != v1alpha1.MoveQuiesce || w.decoded().Phase == v1alpha1.MoveQuiesce || next.LongStop {
		return
	}
	for i := range next.Claims {
		for _, p := range w.pods {
			w.must(!next.Claims[i].Whole() || !p.Bound || p.Leaving, "pods are stopped for all of claim %d, which nobody allowed", i)
		}
		w.must(!w.claims[i].at[record.Snapped].mover.Exists, "a snapshot is still copied when the pods are stopped")
	}
}

// said is what a mover says.
func (w *world) said(c *claim, status movecontrol.Status) *movecontrol.Status {
	if status.Task != nil {
		task := *status.Task
		status.Task = &task
	}
	status.Connected = c.at[record.Target].mover.Running && !w.down[record.Target]
	return &status
}

func (w *world) seeSnapshot(r *record.Record, i int) (seen decide.Snapshot) {
	c := w.claims[i]
	if c.snap == nil || w.down[record.Source] || !r.Claims[i].Snapshot.There() {
		return seen
	}
	seen.Side = w.side(c, record.Snapped)
	seen.Exists, seen.Leaving, seen.Ready, seen.Refused = c.snap.exists, c.snap.leaving, c.snap.ready, c.snap.refused
	if seen.Exists {
		seen.UID = "s1"
	}
	if seen.Refused || c.snap.stuck {
		seen.Problem = "the pool is full"
	}
	return seen
}

// snapshot takes a step as the API servers would.
func (w *world) snapshot(c *claim, step decide.Step) {
	at := c.at[record.Snapped]
	switch step.Verb {
	case decide.MakeSnapshot:
		w.must(!c.snap.exists && !c.snap.refused, "a second snapshot")
		c.snap.exists, c.snap.content = true, c.at[record.Source].content
	case decide.MakeClone:
		w.must(at.backing == nil && c.snap.ready, "a claim of no snapshot")
		at.backing, at.content = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprintf("clone-%d", step.Claim))}}, c.snap.content
	case decide.DropClone:
		w.must(!at.mover.Exists, "a claim is removed that is in use")
		at.backing.DeletionTimestamp = &metav1.Time{Time: w.now}
	default:
		w.must(at.backing == nil, "a snapshot is removed before what was made of it")
		c.snap.leaving = true
	}
}

// startSnapshot starts a task of the mover at a snapshot.
func (w *world) startSnapshot(c *claim, step decide.Step) {
	w.must(step.Task.Kind == movecontrol.Prepare || step.Task.Kind == movecontrol.Pass, "the mover at a snapshot does %s", step.Task.Kind)
	w.must(step.Task.Kind == movecontrol.Prepare || string(step.Task.Expect) == string(snapshotOf(step.Claim)), "it is not told what it must see: %s", step.Task.Expect)
	c.snap.mover.Task = &movecontrol.TaskStatus{Task: step.Task, State: movecontrol.Running}
}

// snapshotOf is what Prepare saw of a snapshot.
func snapshotOf(i int) json.RawMessage { return fmt.Appendf(nil, `{"copied":true,"entries":%d}`, i) }

// snapshotLives is whoever takes snapshots, and makes claims of them, and the mover.
func (w *world) snapshotLives(i int, c *claim, chance func(int) bool) {
	s, at := c.snap, c.at[record.Snapped]
	if s == nil {
		return
	}
	if !w.calm {
		s.refused = s.refused || !s.exists && chance(1)
		s.stuck = s.stuck || !s.ready && chance(2)
		if at.mover.Running && chance(3) {
			w.log = append(w.log, "the mover at the snapshot dies")
			at.mover = decide.Mover{Exists: true, Ended: true}
		}
		if at.backing != nil && chance(1) {
			w.log = append(w.log, "somebody deletes the claim made of a snapshot")
			at.backing.DeletionTimestamp = &metav1.Time{Time: w.now}
		}
		s.leaving = s.leaving || s.exists && chance(1)
	}
	if s.stuck && s.exists && chance(20) {
		// Nothing else happens meanwhile.
		w.now = w.now.Add(3 * time.Minute)
	}
	s.ready = s.exists && !s.leaving && (s.ready || !s.stuck && chance(40))
	if s.leaving && chance(40) {
		*s = snap{stuck: s.stuck, refused: s.refused, mover: s.mover, copied: s.copied}
	}
	if at.backing != nil && at.backing.DeletionTimestamp != nil && !at.mover.Exists && chance(40) {
		at.backing = nil
	}
	task := s.mover.Task
	if task == nil || task.State != movecontrol.Running || !at.mover.Running || !c.at[record.Target].mover.Running || chance(50) {
		return
	}
	switch {
	case !w.calm && chance(5):
		task.State, task.Error = movecontrol.Failed, "its disk is broken"
	case task.Kind == movecontrol.Prepare:
		task.State, task.Prepared = movecontrol.Done, &movecontrol.Prepared{Source: snapshotOf(i)}
	default:
		w.must(record.Before(w.decoded().Phase, v1alpha1.MoveQuiesce) || w.decoded().Phase == v1alpha1.MoveRollBack, "a snapshot is copied in phase %s", w.decoded().Phase)
		task.State, task.Passed = movecontrol.Done, &movecontrol.Passed{}
		c.at[record.Target].content = at.content
		s.copied++
	}
}
