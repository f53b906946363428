package moves

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/turns"
)

const (
	// tellRate is how many waiting moves a second are told where they stand, tellBurst how
	// many at once: hundreds of moves stand elsewhere whenever one begins.
	tellRate, tellBurst = 5, 20
)

// line has the moves without a record, each until it has one: those that wait for their turn,
// and those whose turn it is. It is safe for concurrent use.
type line struct {
	limits  turns.Limits
	records *Records
	// changed has a value when places may have changed.
	changed chan struct{}

	mu    sync.Mutex
	moves map[types.UID]*queued
	// lanes are those of moves and of dry runs: these end at once, and so wait for each
	// other alone.
	lanes [2]lane
}

// lane has the turns of moves of one kind.
type lane struct {
	served map[string]int64
	last   int64
}

// queued is a move in the line.
type queued struct {
	turns.Move
	lane int
	// begins says that it is its turn.
	begins bool
	// told is the message about its place that its status has.
	told string
}

func newLine(limits turns.Limits, records *Records) *line {
	l := &line{limits: limits, records: records, changed: make(chan struct{}, 1), moves: map[types.UID]*queued{}}
	for i := range l.lanes {
		l.lanes[i].served = map[string]int64{}
	}
	return l
}

// join puts a move into the line if it is not there, and notes what its status says.
func (l *line) join(move *v1alpha1.VolumeMove) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.moves[move.UID]
	if q == nil {
		q = &queued{Move: turns.Move{UID: move.UID, Namespace: move.Namespace, Name: move.Name, Created: move.CreationTimestamp.Time}}
		if move.Spec.DryRun {
			q.lane = 1
		}
		l.moves[move.UID] = q
	}
	q.told = move.Status.Message
}

// leave takes a move out of the line, and says whether it was in it.
func (l *line) leave(move types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, was := l.moves[move]
	delete(l.moves, move)
	return was
}

// stands says whether a move is in the line, and whether it is its turn.
func (l *line) stands(move types.UID) (in, begins bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.moves[move]
	return q != nil, q != nil && q.begins
}

// served notes that a namespace had a turn, before this process began.
func (l *line) served(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lanes[0].serve(namespace)
}

func (l *lane) serve(namespace string) {
	l.last++
	l.served[namespace] = l.last
}

// advance gives moves their turn and returns them.
func (l *line) advance() (begin []turns.Move) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.lanes {
		for _, move := range turns.Next(l.limits, l.state(i)) {
			l.moves[move.UID].begins = true
			l.lanes[i].serve(move.Namespace)
			begin = append(begin, move)
		}
	}
	if len(l.moves) == 0 {
		// What was before does not matter to anybody.
		for i := range l.lanes {
			clear(l.lanes[i].served)
		}
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return begin
}

// state is what the turns of a lane depend on; the caller holds the lock.
func (l *line) state(i int) turns.State {
	s := turns.State{Active: map[string]int{}, Served: l.lanes[i].served}
	if i == 0 {
		// A move leaves the line once it has a record, so each counts once.
		s.Active = l.records.holding(func(move types.UID) bool { return l.moves[move] == nil })
	}
	for _, q := range l.moves {
		switch {
		case q.lane != i:
		case q.begins:
			s.Active[q.Namespace]++
		default:
			s.Waiting = append(s.Waiting, q.Move)
		}
	}
	return s
}

// untold returns where the first move stands whose status does not say so; false if there is
// none. It counts as told from now on.
func (l *line) untold() (turns.Place, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.lanes {
		for _, place := range turns.Places(l.limits, l.state(i)) {
			if q := l.moves[place.Move.UID]; q.told != place.Say(l.limits) {
				q.told = place.Say(l.limits)
				return place, true
			}
		}
	}
	return turns.Place{}, false
}

// waiting returns how many moves wait for their turn.
func (l *line) waiting() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.moves {
		if !q.begins {
			n++
		}
	}
	return n
}

// fillLine puts all moves into the line that have not begun, before the first one begins: in
// turn, and not as they are read.
func (c *Controller) fillLine() {
	began := func(r *record.Record) time.Time { return r.Began[v1alpha1.MovePrepare] }
	for _, r := range slices.SortedFunc(maps.Values(c.Records.all()), func(a, b *record.Record) int { return began(a).Compare(began(b)) }) {
		if r.Holds() {
			c.line.served(r.Namespace)
		}
	}
	for _, move := range controller.All[v1alpha1.VolumeMove](c.Objects) {
		if c.awaitsTurn(move) {
			c.line.join(move)
		}
	}
}

// awaitsTurn says whether a move has not begun and has to wait for its turn, as far as known.
func (c *Controller) awaitsTurn(move *v1alpha1.VolumeMove) bool {
	return decide.AwaitsTurn(move) && !c.Records.has(move.UID)
}

// isDone says whether a move is over for good, as was last seen: there is no record of it, and
// nothing is to be done any more. So hundreds of them cost no request.
func (c *Controller) isDone(key moveKey) bool {
	move := controller.Get[v1alpha1.VolumeMove](c.Objects, key.String())
	return move != nil && move.UID == key.uid && move.DeletionTimestamp == nil && !c.Records.has(key.uid) && decide.IsFinished(move) &&
		!slices.Contains(move.Finalizers, keys.MoveFinalizer) && move.Spec.TTLSecondsAfterFinished == nil &&
		move.Status.ObservedGeneration == move.Generation
}

// moveChanged queues a move that changed, unless it waits for its turn.
func (c *Controller) moveChanged(was, now *v1alpha1.VolumeMove) {
	move := controller.Either(was, now)
	if now != nil && c.awaitsTurn(now) {
		c.line.join(now)
		c.advance()
		return
	}
	if c.line.leave(move.UID) {
		c.advance()
	}
	c.queue.Add(moveKey{types.NamespacedName{Namespace: move.Namespace, Name: move.Name}, move.UID})
}

// advance lets those moves begin whose turn it is.
func (c *Controller) advance() {
	defer func() { c.Metrics.setWaiting(c.line.waiting()) }()
	for _, move := range c.line.advance() {
		c.queue.Add(moveKey{types.NamespacedName{Namespace: move.Namespace, Name: move.Name}, move.UID})
	}
}

// runLine tells waiting moves where they stand, the next one first, until ctx ends.
func (c *Controller) runLine(ctx context.Context) {
	pace := rate.NewLimiter(tellRate, tellBurst)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.line.changed:
		}
		for {
			if pace.Wait(ctx) != nil {
				return
			}
			place, ok := c.line.untold()
			if !ok {
				break
			}
			c.tellPlace(ctx, place)
		}
	}
}

// tellPlace writes where a move stands to its status. If the move has changed, an event has it told again.
func (c *Controller) tellPlace(ctx context.Context, place turns.Place) {
	move := controller.Get[v1alpha1.VolumeMove](c.Objects, place.Move.Namespace+"/"+place.Move.Name)
	if move == nil || move.UID != place.Move.UID {
		return
	}
	next := *move.Status.DeepCopy()
	next.ObservedGeneration, next.Message, next.QueuePosition = move.Generation, place.Say(c.line.limits), int32(place.Position)
	c.writeStatus(ctx, move, next)
}
