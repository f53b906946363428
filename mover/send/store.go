package send

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/content/blocks"
	"github.com/lodestone-storage/lodestone/mover/content/restic"
	"github.com/lodestone-storage/lodestone/mover/content/rsync"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/mover/wire"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// StoreFrom is the default of Config.StoreFrom. The little content that a move sends while pods are
// stopped goes over the connection: restic needs seconds to start.
const StoreFrom = 32 << 20

const (
	// maxRoundFiles and maxRoundBytes limit how much is in the store at once, except that a single
	// file may be larger: restic keeps each file in memory, and stores have quotas.
	maxRoundFiles = 50_000
	maxRoundBytes = 4 << 30
)

// sendThroughStore sends contents through the repository, if there is one and enough differs. If
// carried is true the target has changed since it was scanned.
func (r *run) sendThroughStore(ctx context.Context, conn *wire.Conn, source, target *tree.Manifest) (carried bool, err error) {
	if r.sender.Store == nil || r.sender.Block {
		return false, nil
	}
	chosen, err := newStoreSelection(r.sender.Volume)
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
	// What still differs after it went through the store would not arrive the second time either:
	// it is sent over the connection.
	if bytes < r.sender.StoreFrom || bytes == 0 || r.lastStoredBytes > 0 && bytes > r.lastStoredBytes/2 {
		return false, nil
	}
	r.meter.start(r.sendingThrough(), bytes, files)
	// A mover that ends removes its repository, so that of an earlier process is gone.
	if err := r.sender.Store.Open(ctx, true); err != nil {
		return false, r.awaitStore(ctx, err)
	}
	if err := r.sendRounds(ctx, conn, chosen.files(target, source)); err != nil {
		return false, r.awaitStore(ctx, err)
	}
	r.lastStoredBytes, r.storedFiles, r.storedBytes = bytes, r.storedFiles+files, r.storedBytes+bytes
	return true, nil
}

func (r *run) sendingThrough() string { return "sending through " + r.sender.Store.Noun() }

// storeRound is what is saved and fetched at once.
type storeRound struct {
	list         *os.File
	names        uint64
	files, bytes int64
}

// sendRounds sends files in rounds, each as large as the store may hold.
func (r *run) sendRounds(ctx context.Context, conn *wire.Conn, files func(func(*tree.Entry, error) bool)) error {
	budget, err := r.sender.Scratch.Budget()
	if err != nil {
		return err
	}
	list, err := os.Create(r.sender.Scratch.File("store.list"))
	if err != nil {
		return fmt.Errorf("list what to send: %w", err)
	}
	defer list.Close()
	now := &storeRound{list: list}
	flush := func() error {
		if now.files == 0 {
			return nil
		}
		if err := r.sendRound(ctx, conn, now); err != nil {
			return err
		}
		budget.Release(now.names)
		*now = storeRound{list: list}
		return list.Truncate(0)
	}
	for e, err := range files {
		if err != nil {
			return err
		}
		if now.files >= maxRoundFiles || now.files > 0 && now.bytes+int64(e.Size) > maxRoundBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		name := e.Path + "\x00"
		if err := budget.Reserve(uint64(len(name))); err != nil {
			return err
		}
		if _, err := list.WriteAt([]byte(name), int64(now.names)); err != nil {
			return fmt.Errorf("list what to send: %w", err)
		}
		now.names, now.files, now.bytes = now.names+uint64(len(name)), now.files+1, now.bytes+int64(e.Size)
	}
	return flush()
}

// sendRound saves the files of a list in the store and has the receiver fetch them. The store is
// emptied in the background.
func (r *run) sendRound(ctx context.Context, conn *wire.Conn, now *storeRound) error {
	if _, err := now.list.Seek(0, 0); err != nil {
		return fmt.Errorf("read what to send: %w", err)
	}
	store, before := r.sender.Store, r.meter.bytes.Load()
	// Each byte counts twice: saved and fetched.
	progress := func(half int64) func(int64) {
		return func(bytes int64) {
			// Restic also reports when it makes no progress.
			if done := before + (half*now.bytes+min(bytes, now.bytes))/2; done > r.meter.bytes.Load() {
				r.meter.setStep(r.sendingThrough())
				r.meter.bytes.Store(done)
			}
		}
	}
	saved, err := store.Save(ctx, r.sender.Volume, now.list, r.limit, restic.Output{Progress: progress(0), Retrying: r.reportRetry})
	if err != nil {
		return err
	}
	r.meter.stored.Add(saved.Bytes)
	fetched := progress(1)
	fetched(0)
	var answer wire.FetchResponse
	err = conn.Do(wire.Call{
		Op: wire.OpFetch, Body: wire.FetchRequest{Snapshot: saved.Snapshot, Part: saved.Part, BytesPerSecond: r.limit}, Result: &answer,
		Progress: func(payload []byte) {
			var p wire.FetchProgress
			if json.Unmarshal(payload, &p) != nil {
				return
			}
			if fetched(p.Bytes); p.Waits != "" {
				r.reportRetry(p.Waits)
			}
		},
	})
	switch {
	case err != nil:
		return err
	case answer.Unusable != "":
		return &restic.Error{Sentence: "at the target, " + answer.Unusable}
	case answer.Full != "":
		return fmt.Errorf("%w: %s", rsync.ErrNoSpace, answer.Full)
	case answer.Left != "":
		// The rest is sent over the connection.
		klog.FromContext(ctx).Info("Not all went through the repository", "reason", answer.Left)
	}
	fetched(now.bytes)
	r.meter.files.Add(now.files)
	r.sender.clearStore(ctx)
	return nil
}

// clearTimeout limits the removal of what was saved.
const clearTimeout = 5 * time.Minute

// clearStore removes what was saved in the store, in the background.
func (s *Sender) clearStore(ctx context.Context) {
	logger := klog.FromContext(ctx)
	s.clears.Go(func() {
		ctx, stop := context.WithTimeout(s.storeContext, clearTimeout)
		defer stop()
		if err := s.Store.Clear(ctx); err != nil && s.storeContext.Err() == nil {
			logger.Info("What was saved in the repository is removed later", "reason", err.Error())
		}
	})
}

// reportRetry shows in the progress why the store is being tried again.
func (r *run) reportRetry(why string) {
	r.meter.setStep("waiting for " + r.sender.Store.Noun() + ": " + why)
}

// awaitStore waits, after a failure of the store, until it can be used again. The movers do not
// give up: only the controller knows whether pods wait.
func (r *run) awaitStore(ctx context.Context, err error) error {
	pause := time.Second
	for {
		var unusable *restic.Error
		if !errors.As(err, &unusable) || ctx.Err() != nil {
			return err
		}
		klog.FromContext(ctx).Info("The repository cannot be used, and is tried again", "reason", unusable.Sentence)
		r.reportRetry(unusable.Sentence)
		if r.storeFailures++; r.storeFailures > 1 {
			pause = min(pause*2, maxBackoff)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err = r.sender.Store.Reopen(ctx, r.storeFailures > 1); err == nil {
			return errScanAgain
		}
	}
}

// storeRefusals returns why one of the ends cannot use the store.
func (r *run) storeRefusals(ctx context.Context, conn *wire.Conn) (refusals []moverapi.Refusal, err error) {
	if r.sender.Store == nil || r.sender.Block {
		return nil, nil
	}
	store := r.sender.Store
	r.meter.start("trying "+store.Noun(), 0, 0)
	refuse := func(end, why string) []moverapi.Refusal {
		return []moverapi.Refusal{{Reason: fmt.Sprintf("the mover at the %s cannot use %s: %s", end,
			strings.TrimSpace(store.Noun()+" "+store.Host()), why)}}
	}
	var unusable *restic.Error
	if err := store.Open(ctx, true); errors.As(err, &unusable) {
		return refuse("source", unusable.Sentence), nil
	} else if err != nil {
		return nil, err
	}
	var answer wire.CheckStoreResponse
	if err := conn.Do(wire.Call{Op: wire.OpCheckStore, Body: wire.CheckStoreRequest{Part: store.Part()}, Result: &answer}); err != nil {
		return nil, err
	}
	if answer.Unusable != "" {
		return refuse("target", answer.Unusable), nil
	}
	return nil, nil
}

// RemoveStored removes what the move has in the store. It is called at the end of this mover, when
// no task runs any more. After an error something may be left there.
func (s *Sender) RemoveStored(ctx context.Context) error {
	if s.Store == nil {
		return nil
	}
	s.stopClears()
	s.clears.Wait()
	return s.Store.Remove(ctx)
}

// storeSelection selects the files whose content is to go through the store.
type storeSelection struct {
	root int
}

func newStoreSelection(volume string) (*storeSelection, error) {
	root, err := unix.Open(volume, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the volume: %w", err)
	}
	return &storeSelection{root: root}, nil
}

func (c *storeSelection) close() { _ = unix.Close(c.root) }

// files returns the files whose content is to be sent through the store, under each of their names:
// restic makes names of one file at the source names of one file at the target.
func (c *storeSelection) files(target, source *tree.Manifest) func(func(*tree.Entry, error) bool) {
	return func(yield func(*tree.Entry, error) bool) {
		for change, err := range tree.Changes(target, source) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !contentDiffers(change) {
				continue
			}
			worth, err := c.worthStoring(change)
			if err != nil {
				yield(nil, err)
				return
			}
			if !worth {
				continue
			}
			if !yield(change.New, nil) {
				return
			}
		}
	}
}

// contentDiffers reports whether a change is a file with content that the target does not have.
func contentDiffers(c *tree.Change) bool {
	if c.New == nil || c.New.Type != tree.File || c.New.Size == 0 {
		return false
	}
	return c.Old == nil || c.Differs&(tree.AspectType|tree.AspectContent|tree.AspectSize) != 0
}

// worthStoring reports whether a file is to be sent through the store as a whole. Restic reads all
// of a file, with its holes, and saves all of it again: so a large file of which less than a
// quarter differs, or is allocated, is sent over the connection, which can send parts.
func (c *storeSelection) worthStoring(change *tree.Change) (bool, error) {
	e := change.New
	if e.Size < blocks.LargeFrom {
		return true, nil
	}
	var differs uint64
	for r, err := range change.Ranges() {
		if err != nil {
			return false, err
		}
		differs += r.Length
	}
	var s unix.Stat_t
	err := unix.Fstatat(c.root, e.Path, &s, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil // It is left to the next pass.
	}
	if err != nil {
		return false, fmt.Errorf("look at %q at the source: %w", e.Path, err)
	}
	return min(differs, uint64(s.Blocks)*512) >= e.Size/4, nil
}
