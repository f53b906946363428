// Package send is the end of a move that reads: it does the tasks of the controller
// with the receiver at the other end of the data connection.
//
// Each task looks at both volumes as they are and sends what differs, so that a task
// may be begun again at any point: after a cut connection, or in another life of
// either mover.
package send

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/exchange"
	"github.com/lodestone-storage/lodestone/mover/link"
	"github.com/lodestone-storage/lodestone/mover/restic"
	"github.com/lodestone-storage/lodestone/mover/scratch"
	"github.com/lodestone-storage/lodestone/mover/stream"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// Config is what a sender needs.
type Config struct {
	// Self is the mover's own program, Volume the directory to read, or, with Block, the
	// block device, Scratch a directory for manifests outside of it.
	Self, Volume string
	Scratch      scratch.Folder
	Block        bool
	// Snapshot: the volume was made of a snapshot of the source.
	Snapshot bool
	Version  string
	Link     *link.Sender
	Pacer    *stream.Pacer
	// Store is where most content travels through; nil: all goes over the connection.
	Store *restic.Store
	// StoreFrom is from how many bytes of files on it is used.
	StoreFrom int64
}

// Sender does tasks, one at a time.
type Sender struct {
	Config
	confined atomic.Bool
	// clearing removes things from the store, until left ends.
	clearing sync.WaitGroup
	left     context.Context
	leave    context.CancelFunc
}

// New makes a sender.
func New(config Config) *Sender {
	s := &Sender{Config: config}
	s.left, s.leave = context.WithCancel(context.Background())
	return s
}

// Confined says whether the receiver's rsync is confined, as it said last.
func (s *Sender) Confined() bool { return s.confined.Load() }

// Run does a task and puts its result into status, whose Progress it leaves alone:
// that is meter's. An error is the sentence for the user.
func (s *Sender) Run(ctx context.Context, task movecontrol.Task, meter *Meter) (movecontrol.TaskStatus, error) {
	s.Pacer.Set(task.BytesPerSecond)
	result := movecontrol.TaskStatus{Task: task}
	expect, err := s.expectation(task)
	if err != nil {
		return result, err
	}
	r := &run{sender: s, meter: meter, expect: expect, limit: task.BytesPerSecond}
	started := time.Now()
	switch task.Kind {
	case movecontrol.Prepare:
		result.Prepared, err = again(ctx, r, func(conn *stream.Conn) (*movecontrol.Prepared, error) { return r.prepare(ctx, conn) })
	case movecontrol.Pass, movecontrol.Final:
		result.Passed, err = again(ctx, r, func(conn *stream.Conn) (*movecontrol.Passed, error) {
			return r.pass(ctx, conn, task.Kind == movecontrol.Final)
		})
		if err == nil {
			result.Passed.Changed += r.files
			result.Passed.ChangedBytes += r.bytes
			result.Passed.Seconds = time.Since(started).Seconds()
			result.Passed.BytesSent = meter.sent.Load()
		}
	case movecontrol.Verify:
		result.Verified, err = again(ctx, r, func(conn *stream.Conn) (*movecontrol.Verified, error) {
			return r.verify(ctx, conn, task.Full)
		})
	default:
		err = fmt.Errorf("there is no task of kind %q", task.Kind)
	}
	return result, err
}

// expectation is what the source must look like: what the controller has kept, else
// what this sender saw in the first task that it has scratch of.
func (s *Sender) expectation(task movecontrol.Task) (*tree.Expectation, error) {
	kept := task.Expect
	if len(kept) == 0 {
		content, err := os.ReadFile(s.expectPath())
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what the source must look like: %w", err)
		}
		kept = content
	}
	expect := &tree.Expectation{}
	if err := json.Unmarshal(kept, expect); err != nil {
		return nil, fmt.Errorf("decode what the source must look like: %w", err)
	}
	return expect, nil
}

func (s *Sender) expectPath() string { return s.Scratch.File("expect.json") }

// remember keeps what the source looks like, if nothing is kept yet.
func (s *Sender) remember(summary tree.Summary) error {
	if _, err := os.Stat(s.expectPath()); err == nil {
		return nil
	}
	content, err := json.Marshal(summary.Expect())
	if err != nil {
		return fmt.Errorf("encode what the source looks like: %w", err)
	}
	if err := os.WriteFile(s.expectPath()+".partial", content, 0o600); err != nil {
		return fmt.Errorf("keep what the source looks like: %w", err)
	}
	return os.Rename(s.expectPath()+".partial", s.expectPath())
}

// run is one task under way.
type run struct {
	sender *Sender
	meter  *Meter
	expect *tree.Expectation
	// pruned: room was made at the target already.
	pruned bool
	// limit is how many bytes a second may travel; 0: no bound.
	limit int64
	// stored is how many bytes of files went through the store last, failures how often
	// that could not be used.
	stored   int64
	failures int
	// files and bytes are what went through it altogether.
	files, bytes int64
}

// errLookAgain means that the target is not what it was when it was looked at.
var errLookAgain = errors.New("look at both ends again")

// pauses between attempts grow to this.
const longestPause = 10 * time.Second

// again does something with a connection, and again with the next one whenever the
// connection is lost, until it succeeds, fails for another reason, or ctx ends.
func again[T any](ctx context.Context, r *run, do func(*stream.Conn) (T, error)) (T, error) {
	pause := 200 * time.Millisecond
	var none T
	for {
		began := time.Now()
		conn, err := r.sender.greet(ctx, r.meter)
		if err == nil {
			stop := context.AfterFunc(ctx, conn.Close)
			var result T
			result, err = do(conn)
			stop()
			if err == nil {
				return result, nil
			}
		}
		if errors.Is(err, errLookAgain) {
			continue
		}
		if ctx.Err() != nil {
			return none, ctx.Err()
		}
		if !errors.Is(err, stream.ErrLost) {
			return none, err
		}
		r.meter.reconnects.Add(1)
		klog.FromContext(ctx).Info("The connection was lost; it is made again, and the task goes on", "reason", err.Error())
		if time.Since(began) > time.Minute {
			pause = 200 * time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return none, ctx.Err()
		}
		pause = min(2*pause, longestPause)
	}
}

// greet waits for a connection and says hello on it.
func (s *Sender) greet(ctx context.Context, meter *Meter) (*stream.Conn, error) {
	if meter != nil {
		meter.step("waiting for the receiver")
	}
	conn, err := s.Link.Get(ctx)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, conn.Close)()
	var answer exchange.HelloAnswer
	if err := conn.Do(stream.Call{Op: exchange.Hello, Body: exchange.HelloAsked{Version: s.Version, Block: s.Block, Snapshot: s.Snapshot}, Result: &answer}); err != nil {
		return nil, err
	}
	s.confined.Store(answer.Confined)
	return conn, nil
}

// Settle waits until the receiver answers, so that nothing of an earlier connection
// writes any more.
func (s *Sender) Settle(ctx context.Context) error {
	for {
		_, err := s.greet(ctx, nil)
		if err == nil || !errors.Is(err, stream.ErrLost) || ctx.Err() != nil {
			return err
		}
	}
}
