package send

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/engine"
	"github.com/lodestone-storage/lodestone/mover/exchange"
	"github.com/lodestone-storage/lodestone/mover/restic"
	"github.com/lodestone-storage/lodestone/mover/stream"
	"github.com/lodestone-storage/lodestone/mover/tree"
)

// StoreFrom is from how many bytes on content goes through the repository where nothing
// else is said. As little as a move stops its pods for goes over the connection: restic
// needs seconds to start.
const StoreFrom = 32 << 20

const (
	// roundFiles and roundBytes are how much is in the store at once, of files that are not
	// larger themselves: restic remembers each file, and stores have quotas.
	roundFiles = 50_000
	roundBytes = 4 << 30
)

// throughStore carries contents through the repository, if there is one and enough
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
	r.meter.begin(r.sendingThrough(), bytes, files)
	// An earlier life of this mover has removed it when that was asked to end.
	if err := r.sender.Store.Open(ctx, true); err != nil {
		return false, r.outlast(ctx, err)
	}
	if err := r.rounds(ctx, conn, chosen.files(target, source)); err != nil {
		return false, r.outlast(ctx, err)
	}
	r.stored, r.files, r.bytes = bytes, r.files+files, r.bytes+bytes
	return true, nil
}

func (r *run) sendingThrough() string { return "sending through " + r.sender.Store.Noun() }

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
				r.meter.step(r.sendingThrough())
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
		Op: exchange.Fetch, Body: exchange.FetchAsked{Snapshot: saved.Snapshot, Part: saved.Part, BytesPerSecond: r.limit}, Result: &answer,
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
		klog.FromContext(ctx).Info("Not all went through the repository", "reason", answer.Left)
	}
	fetched(now.bytes)
	r.meter.files.Add(now.files)
	r.sender.clear(ctx)
	return nil
}
