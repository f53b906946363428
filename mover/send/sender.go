// Package send is the reading end of a move: Sender.Run executes the tasks of the controller with
// the receiver at the other end of the data connection. Read sender.go first; pass.go has the tasks,
// with the scans of both ends, fingerprints.go what can be said without reading, store.go the way through a repository.
//
// Each task scans both volumes as they are and sends the differences, so a task may be started
// again at any point: after a cut connection, or after a restart of either mover.
package send

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/content/restic"
	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/mover/wire"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// Config is what a sender needs.
type Config struct {
	// Self is the path of the mover's own program, Volume the directory to read, or, with Block,
	// the block device, Scratch a directory for manifests outside of it.
	Self, Volume string
	Scratch      sandbox.Scratch
	Block        bool
	// Snapshot says that the volume was made from a snapshot of the source.
	Snapshot  bool
	Version   string
	Connector *wire.Connector
	Pacer     *wire.Pacer
	// Store is the repository for most content; nil: all is sent over the connection.
	Store *restic.Store
	// StoreFrom is from how many bytes of files on it is used.
	StoreFrom int64
}

// Sender executes tasks, one at a time.
type Sender struct {
	Config
	confined atomic.Bool
	// writer is who the receiver is, as it last reported; nil: root.
	writer atomic.Pointer[tree.Writer]
	// clears are running removals from the store; stopClears ends storeContext and so them.
	clears       sync.WaitGroup
	storeContext context.Context
	stopClears   context.CancelFunc
}

// New makes a sender.
func New(config Config) *Sender {
	s := &Sender{Config: config}
	s.storeContext, s.stopClears = context.WithCancel(context.Background())
	return s
}

// Confined reports whether the receiver's rsync is confined, as the receiver last reported.
func (s *Sender) Confined() bool { return s.confined.Load() }

// Run executes a task and puts its result into status, except Progress, which meter has. An error
// is the sentence for the user.
func (s *Sender) Run(ctx context.Context, task moverapi.Task, meter *Meter) (moverapi.TaskStatus, error) {
	s.Pacer.Set(task.BytesPerSecond)
	result := moverapi.TaskStatus{Task: task}
	expect, err := s.expectation(task)
	if err != nil {
		return result, err
	}
	r := &run{sender: s, meter: meter, expect: expect, limit: task.BytesPerSecond, looks: !task.Settled.IsZero()}
	started := time.Now()
	switch task.Kind {
	case moverapi.Prepare:
		result.Prepared, err = withConn(ctx, r, func(conn *wire.Conn) (*moverapi.Prepared, error) { return r.prepare(ctx, conn) })
	case moverapi.Fingerprint:
		result.Fingerprints, err = withConn(ctx, r, func(conn *wire.Conn) (*moverapi.Fingerprints, error) {
			return r.fingerprints(ctx, conn)
		})
	case moverapi.Pass, moverapi.Final:
		result.Passed, err = withConn(ctx, r, func(conn *wire.Conn) (*moverapi.Passed, error) {
			return r.pass(ctx, conn, task.Kind == moverapi.Final)
		})
		if err == nil {
			result.Passed.Changed += r.storedFiles
			result.Passed.ChangedBytes += r.storedBytes
			result.Passed.Seconds = time.Since(started).Seconds()
			result.Passed.BytesSent = meter.sent.Load()
		}
	case moverapi.Verify:
		result.Verified, err = withConn(ctx, r, func(conn *wire.Conn) (*moverapi.Verified, error) {
			return r.verify(ctx, conn, task)
		})
	case moverapi.Release:
		meter.setStep("letting the target go")
		_, err = withConn(ctx, r, func(conn *wire.Conn) (struct{}, error) { return struct{}{}, conn.Do(wire.Call{Op: wire.OpRelease}) })
	default:
		err = fmt.Errorf("there is no task of kind %q", task.Kind)
	}
	return result, err
}

// run is one running task.
type run struct {
	sender *Sender
	meter  *Meter
	expect *tree.Expectation
	// looks says that the source is compared before it is prepared for a copy: it may be empty, and what it has is noted later.
	looks bool
	// pruned says that room was made at the target already.
	pruned bool
	// limit is how many bytes a second may be sent; 0: no limit.
	limit int64
	// lastStoredBytes is how many bytes of files were sent through the store in the last attempt,
	// storeFailures how often the store could not be used.
	lastStoredBytes int64
	storeFailures   int
	// storedFiles and storedBytes are what was sent through the store in all.
	storedFiles, storedBytes int64
}

// errScanAgain means that the target has changed since it was scanned.
var errScanAgain = errors.New("look at both ends again")

// maxBackoff is the longest pause between attempts.
const maxBackoff = 10 * time.Second

// withConn calls do with a connection, and again with the next one whenever the
// connection is lost, until it succeeds, fails for another reason, or ctx ends.
func withConn[T any](ctx context.Context, r *run, do func(*wire.Conn) (T, error)) (T, error) {
	pause := 200 * time.Millisecond
	var none T
	for {
		began := time.Now()
		conn, err := r.sender.connect(ctx, r.meter)
		if err == nil {
			stop := context.AfterFunc(ctx, conn.Close)
			var result T
			result, err = do(conn)
			stop()
			if err == nil {
				return result, nil
			}
		}
		if errors.Is(err, errScanAgain) {
			continue
		}
		if ctx.Err() != nil {
			return none, ctx.Err()
		}
		if !errors.Is(err, wire.ErrLost) {
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
		pause = min(2*pause, maxBackoff)
	}
}

// connect waits for a connection and says hello on it.
func (s *Sender) connect(ctx context.Context, meter *Meter) (*wire.Conn, error) {
	if meter != nil {
		meter.setStep("waiting for the receiver")
	}
	conn, err := s.Connector.Get(ctx)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, conn.Close)()
	var answer wire.HelloResponse
	if err := conn.Do(wire.Call{Op: wire.OpHello, Body: wire.HelloRequest{Version: s.Version, Block: s.Block, Snapshot: s.Snapshot},
		Result: &answer}); err != nil {
		return nil, err
	}
	s.confined.Store(answer.Confined)
	s.writer.Store(answer.Writer)
	return conn, nil
}

// AwaitReceiver waits until the receiver answers, so that nothing from an earlier connection writes
// any more.
func (s *Sender) AwaitReceiver(ctx context.Context) error {
	for {
		_, err := s.connect(ctx, nil)
		if err == nil || !errors.Is(err, wire.ErrLost) || ctx.Err() != nil {
			return err
		}
	}
}

// RemovePartialFiles removes unfinished files of an earlier process.
func (s *Sender) RemovePartialFiles() error {
	left, err := filepath.Glob(s.Scratch.File("*.partial"))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove an unfinished file: %w", err)
		}
	}
	return nil
}

// Meter measures the progress of a task. It may be read while the task runs.
type Meter struct {
	bytes, bytesTotal, files, filesTotal, sent, stored, reconnects atomic.Int64
	// thereBytes and thereFiles are what the receiver says of its own volume, where it reads that.
	thereBytes, thereFiles atomic.Int64

	mutex sync.Mutex
	step  string
	// samples are the latest values of bytes with their times, oldest first.
	samples []sample
}

type sample struct {
	at    time.Time
	bytes int64
}

const (
	samplesEvery = 500 * time.Millisecond
	samplesKept  = 20
)

// setStep sets the words for what is being done.
func (m *Meter) setStep(words string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.step = words
}

// start begins a new step with new totals; a total may be 0 while it is not known.
func (m *Meter) start(words string, bytesTotal, filesTotal int64) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.step, m.samples = words, nil
	m.bytes.Store(0)
	m.files.Store(0)
	m.thereBytes.Store(0)
	m.thereFiles.Store(0)
	m.bytesTotal.Store(bytesTotal)
	m.filesTotal.Store(filesTotal)
}

// here notes the progress of a scan of the source, and there that of one of the target.
func (m *Meter) here(p tree.Progress) {
	m.bytes.Store(int64(p.ReadBytes))
	m.files.Store(int64(p.Entries))
}

func (m *Meter) there(payload []byte) {
	var p tree.Progress
	if json.Unmarshal(payload, &p) == nil {
		m.thereBytes.Store(int64(p.ReadBytes))
		m.thereFiles.Store(int64(p.Entries))
	}
}

// Progress returns the progress of the task at now.
func (m *Meter) Progress(now time.Time) moverapi.Progress {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	p := moverapi.Progress{
		Step: m.step, BytesDone: m.bytes.Load() + m.thereBytes.Load(), BytesTotal: m.bytesTotal.Load(),
		FilesDone: m.files.Load() + m.thereFiles.Load(), FilesTotal: m.filesTotal.Load(),
		BytesSent: m.sent.Load(), BytesStored: m.stored.Load(), Reconnects: m.reconnects.Load(),
	}
	if p.BytesTotal > 0 {
		p.BytesDone = min(p.BytesDone, p.BytesTotal)
	}
	if len(m.samples) == 0 || now.Sub(m.samples[len(m.samples)-1].at) >= samplesEvery {
		m.samples = append(m.samples, sample{now, p.BytesDone})
		if len(m.samples) > samplesKept {
			m.samples = m.samples[1:]
		}
	}
	oldest := m.samples[0]
	if over := now.Sub(oldest.at); over >= samplesEvery {
		p.BytesPerSecond = int64(float64(p.BytesDone-oldest.bytes) / over.Seconds())
	}
	if p.BytesPerSecond > 0 && p.BytesTotal > p.BytesDone {
		p.SecondsLeft = 1 + (p.BytesTotal-p.BytesDone)/p.BytesPerSecond
	}
	return p
}
