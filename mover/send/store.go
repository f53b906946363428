package send

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/engine"
	"github.com/lodestone-storage/lodestone/mover/exchange"
	"github.com/lodestone-storage/lodestone/mover/restic"
	"github.com/lodestone-storage/lodestone/mover/stream"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// StoreFrom is from how many bytes on content goes through the object store where nothing
// else is said. As little as a move stops its pods for goes over the connection: restic
// needs seconds to start.
const StoreFrom = 32 << 20

const (
	// roundFiles and roundBytes are how much is in the store at once, of files that are not
	// larger themselves: restic remembers each file, and stores have quotas.
	roundFiles = 50_000
	roundBytes = 4 << 30
)

// throughStore carries contents through the object store, if there is one and enough
// differs. With carried the target is not what it was when it was looked at.
func (r *run) throughStore(ctx context.Context, conn *stream.Conn, source, target *tree.Manifest) (carried bool, err error) {
	if r.sender.Store == nil || r.sender.Block {
		return false, nil
	}
	chosen, err := newChoice(r.sender.Volume)
	if err != nil {
		return false, err
	}
	defer chosen.close()
	var files, bytes int64
	for c, err := range chosen.files(target, source) {
		if err != nil {
			return false, err
		}
		files, bytes = files+1, bytes+int64(c.Size)
	}
	// What is left although it went through the store is not mended by that: it goes over the
	// connection.
	if bytes < r.sender.StoreFrom || bytes == 0 || r.stored > 0 && bytes > r.stored/2 {
		return false, nil
	}
	r.meter.begin(sendingThrough, bytes, files)
	if err := r.rounds(ctx, conn, chosen.files(target, source)); err != nil {
		return false, r.outlast(ctx, err)
	}
	r.stored, r.files, r.bytes = bytes, r.files+files, r.bytes+bytes
	return true, nil
}

const sendingThrough = "sending through the object store"

// round is what is saved and fetched at once.
type round struct {
	list         *os.File
	names        uint64
	files, bytes int64
}

// rounds carries files, as many at once as the store is to hold.
func (r *run) rounds(ctx context.Context, conn *stream.Conn, files func(func(*tree.Entry, error) bool)) error {
	budget, err := r.sender.Scratch.Budget()
	if err != nil {
		return err
	}
	list, err := os.Create(r.sender.Scratch.File("store.list"))
	if err != nil {
		return fmt.Errorf("list what to send: %w", err)
	}
	defer list.Close()
	now := &round{list: list}
	flush := func() error {
		if now.files == 0 {
			return nil
		}
		if err := r.round(ctx, conn, now); err != nil {
			return err
		}
		budget.Give(now.names)
		*now = round{list: list}
		return list.Truncate(0)
	}
	for e, err := range files {
		if err != nil {
			return err
		}
		if now.files >= roundFiles || now.files > 0 && now.bytes+int64(e.Size) > roundBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		name := e.Path + "\x00"
		if err := budget.Take(uint64(len(name))); err != nil {
			return err
		}
		if _, err := list.WriteAt([]byte(name), int64(now.names)); err != nil {
			return fmt.Errorf("list what to send: %w", err)
		}
		now.names, now.files, now.bytes = now.names+uint64(len(name)), now.files+1, now.bytes+int64(e.Size)
	}
	return flush()
}

// round saves the files of a list in the store, has the receiver fetch them, and empties
// the store again while others go on.
func (r *run) round(ctx context.Context, conn *stream.Conn, now *round) error {
	if _, err := now.list.Seek(0, 0); err != nil {
		return fmt.Errorf("read what to send: %w", err)
	}
	store, before := r.sender.Store, r.meter.bytes.Load()
	// Each byte is dealt with twice.
	told := func(half int64) func(int64) {
		return func(bytes int64) {
			// Restic speaks also when it gets no further.
			if done := before + (half*now.bytes+min(bytes, now.bytes))/2; done > r.meter.bytes.Load() {
				r.meter.step(sendingThrough)
				r.meter.bytes.Store(done)
			}
		}
	}
	saved, err := store.Save(ctx, r.sender.Volume, now.list, r.limit, restic.Told{Done: told(0), Waits: r.waits})
	if err != nil {
		return err
	}
	r.meter.stored.Add(saved.Bytes)
	fetched := told(1)
	fetched(0)
	var answer exchange.FetchAnswer
	err = conn.Do(stream.Call{
		Op: exchange.Fetch, Body: exchange.FetchAsked{Snapshot: saved.Snapshot, BytesPerSecond: r.limit}, Result: &answer,
		Progress: func(payload []byte) {
			var p exchange.FetchProgress
			if json.Unmarshal(payload, &p) != nil {
				return
			}
			if fetched(p.Bytes); p.Waits != "" {
				r.waits(p.Waits)
			}
		},
	})
	switch {
	case err != nil:
		return err
	case answer.Unusable != "":
		return &restic.Error{Sentence: "at the target, " + answer.Unusable}
	case answer.Full != "":
		return fmt.Errorf("%w: %s", engine.ErrNoSpace, answer.Full)
	case answer.Left != "":
		// The connection carries it.
		klog.FromContext(ctx).Info("Not all went through the object store", "reason", answer.Left)
	}
	fetched(now.bytes)
	r.meter.files.Add(now.files)
	r.sender.clear(ctx)
	return nil
}

// clearTimeout is how long the removal of what was saved may take.
const clearTimeout = 5 * time.Minute

// clear removes what was saved in the store, while others go on and after the task.
func (s *Sender) clear(ctx context.Context) {
	logger := klog.FromContext(ctx)
	s.clearing.Go(func() {
		ctx, stop := context.WithTimeout(s.left, clearTimeout)
		defer stop()
		if err := s.Store.Clear(ctx); err != nil && s.left.Err() == nil {
			logger.Info("What was saved in the object store is removed later", "reason", err.Error())
		}
	})
}

// waits says what keeps the store from going on.
func (r *run) waits(why string) { r.meter.step("waiting for the object store: " + why) }

// outlast waits, after a failure of the store, until that can be used again. It is not
// for the movers to give up: the controller knows whether pods wait.
func (r *run) outlast(ctx context.Context, err error) error {
	pause := time.Second
	for {
		var unusable *restic.Error
		if !errors.As(err, &unusable) || ctx.Err() != nil {
			return err
		}
		klog.FromContext(ctx).Info("The object store cannot be used, and is tried again", "reason", unusable.Sentence)
		r.waits(unusable.Sentence)
		if r.failures++; r.failures > 1 {
			pause = min(pause*2, longestPause)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err = r.sender.Store.Reopen(ctx, r.failures > 1); err == nil {
			return errLookAgain
		}
	}
}

// storeRefusals says why the store cannot be used at the ends.
func (r *run) storeRefusals(ctx context.Context, conn *stream.Conn) (refusals []movecontrol.Refusal, err error) {
	if r.sender.Store == nil || r.sender.Block {
		return nil, nil
	}
	r.meter.begin("trying the object store", 0, 0)
	refuse := func(end, why string) []movecontrol.Refusal {
		return []movecontrol.Refusal{{Reason: fmt.Sprintf("the mover at the %s cannot use the object store %s: %s", end, r.sender.Store.Host(), why)}}
	}
	var unusable *restic.Error
	if err := r.sender.Store.Open(ctx, true); errors.As(err, &unusable) {
		return refuse("source", unusable.Sentence), nil
	} else if err != nil {
		return nil, err
	}
	var answer exchange.ReachAnswer
	if err := conn.Do(stream.Call{Op: exchange.Reach, Result: &answer}); err != nil {
		return nil, err
	}
	if answer.Unusable != "" {
		return refuse("target", answer.Unusable), nil
	}
	return nil, nil
}

// Leave removes what the move has in the store, at the end of this mover, and when no task
// runs any more; after an error something may be left there.
func (s *Sender) Leave(ctx context.Context) error {
	if s.Store == nil {
		return nil
	}
	s.leave()
	s.clearing.Wait()
	return s.Store.Remove(ctx)
}
