package moves

import (
	"time"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
)

// advance remembers when the copies of a move got further.
type advance struct {
	phase  v1alpha1.MovePhase
	claims []furthest
	at     time.Time
}

// furthest is how far the copy of one claim ever got with a task. One that begins from the
// start again, since its connection broke, gets no further until it is beyond that.
type furthest struct {
	task                       string
	state                      movecontrol.State
	bytes, files, sent, stored int64
}

// see looks at the copies, and returns when one of them got further last.
func (a *advance) see(o decide.Observation) time.Time {
	if a.phase != o.Record.Phase || len(a.claims) != len(o.Claims) {
		*a = advance{phase: o.Record.Phase, claims: make([]furthest, len(o.Claims)), at: o.Now}
	}
	for i := range o.Claims {
		if copied := o.Claims[i].Copy; copied != nil && copied.Task != nil && a.claims[i].reach(copied.Task) {
			a.at = o.Now
		}
	}
	return a.at
}

// reach says whether a task is further than it ever was.
func (f *furthest) reach(task *movecontrol.TaskStatus) bool {
	p := task.Progress
	if task.ID != f.task {
		*f = furthest{task: task.ID, state: task.State, bytes: p.BytesDone, files: p.FilesDone, sent: p.BytesSent, stored: p.BytesStored}
		return true
	}
	further := p.BytesDone > f.bytes || p.FilesDone > f.files || p.BytesSent > f.sent || p.BytesStored > f.stored || task.State != f.state && task.State == movecontrol.Done
	f.bytes, f.files, f.state = max(f.bytes, p.BytesDone), max(f.files, p.FilesDone), task.State
	f.sent, f.stored = max(f.sent, p.BytesSent), max(f.stored, p.BytesStored)
	return further
}
