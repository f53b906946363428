package receive

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/mover/wire"
)

// reports tells the sender of the progress of a scan, at most once a second. A lost connection ends the scan's context.
func reports(in *wire.Incoming) func(tree.Progress) {
	var reported time.Time
	return func(p tree.Progress) {
		if now := time.Now(); now.Sub(reported) > time.Second {
			reported = now
			_ = in.Progress(p)
		}
	}
}

// probe tests what the target can store, and counts what is there.
func (r *Receiver) probe(ctx context.Context, in *wire.Incoming) (any, error) {
	room, err := r.Scratch.Space()
	if err != nil {
		return nil, err
	}
	if r.Block {
		size, err := tree.DeviceSize(r.Volume)
		return wire.ProbeResponse{Abilities: tree.Abilities{Bytes: size}, Scratch: room}, err
	}
	abilities, err := tree.Probe(r.Volume)
	if err != nil {
		return nil, err
	}
	budget, err := r.Scratch.Budget()
	if err != nil {
		return nil, err
	}
	path := r.Scratch.File("there.manifest")
	defer os.Remove(path)
	there, err := tree.Scan(ctx, tree.Options{Root: r.Volume, Manifest: path, Scratch: r.Scratch.Path, Budget: budget, Shallow: true,
		Writer: r.Writer, Progress: reports(in)})
	return wire.ProbeResponse{Abilities: abilities, There: there, Scratch: room}, err
}

// scan describes the volume in a manifest, which later scans use too.
func (r *Receiver) scan(ctx context.Context, in *wire.Incoming, early *earlyScan) (any, error) {
	var request wire.ScanRequest
	if err := in.Decode(&request); err != nil {
		return nil, err
	}
	report := reports(in)
	defer early.discard()
	before := ""
	if request.Full {
		early.discard()
	} else {
		before = early.finish(report)
	}
	budget, err := r.Scratch.Budget()
	if err != nil {
		return nil, err
	}
	options := tree.Options{
		Root: r.Volume, Manifest: r.manifestPath(), Scratch: r.Scratch.Path, Budget: budget, Cold: true, Early: before, Length: request.Length,
		Writer: r.Writer, Progress: report,
	}
	var answer wire.ScanResponse
	if r.Block {
		answer.Summary, err = tree.ScanDevice(ctx, options)
	} else {
		answer.Summary, err = tree.Rescan(ctx, options, request.Full)
		if err != nil && before != "" && ctx.Err() == nil {
			// Whatever the error is: the early scan is optional, and takes room.
			early.discard()
			if options.Budget, err = r.Scratch.Budget(); err == nil {
				options.Early = ""
				answer.Summary, err = tree.Rescan(ctx, options, request.Full)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	manifest, err := os.Stat(r.manifestPath())
	if err != nil {
		return nil, fmt.Errorf("look at the target's manifest: %w", err)
	}
	answer.ManifestSize = uint64(manifest.Size())
	return answer, nil
}

// fingerprint says what the file system says of each entry. Of a block volume there is none.
func (r *Receiver) fingerprint(ctx context.Context, in *wire.Incoming) (answer wire.FingerprintResponse, err error) {
	if r.Block {
		return answer, nil
	}
	budget, err := r.Scratch.Budget()
	if err != nil {
		return answer, err
	}
	options := tree.Options{Root: r.Volume, Scratch: r.Scratch.Path, Budget: budget, Progress: reports(in)}
	answer.Fingerprint, err = tree.Fingerprint(ctx, options)
	return answer, err
}

const (
	// minEarlyBytes is from how many bytes of large files on an early scan is worthwhile.
	minEarlyBytes = 64 << 20
	// maxSettling is the longest time for which files must first stay unchanged that is worth an
	// early scan; clockTick is added for the coarsest clock of a kernel.
	maxSettling, clockTick = 5 * time.Second, 100 * time.Millisecond
	// earlyReaders are few, to leave the processor to the copying.
	earlyReaders = 2
)

// earlyScan reads large files from the disk once all of them are written, while small ones are
// still being copied: the following scan reuses the result for those that have not changed since.
// It is used for that one scan only.
type earlyScan struct {
	receiver *Receiver
	stop     context.CancelFunc
	// settled is closed when reading begins, done when it has ended; nil: nothing is read.
	settled, done chan struct{}
	ok            bool
	read          atomic.Uint64
}

func (e *earlyScan) manifest() string { return e.receiver.Scratch.File("early.manifest") }

// start begins to read after the time in which the files must not change. If that time is long,
// nothing is read early: it would have to be read again.
func (e *earlyScan) start(ctx context.Context) {
	settling, err := tree.Settling(e.receiver.Volume)
	if err != nil || settling > maxSettling {
		return
	}
	ctx, e.stop = context.WithCancel(ctx)
	e.settled, e.done, e.ok = make(chan struct{}), make(chan struct{}), false
	go func() {
		defer close(e.done)
		select {
		case <-ctx.Done():
			return
		case <-time.After(settling + clockTick):
		}
		close(e.settled)
		if err := e.scan(ctx); err != nil {
			klog.FromContext(ctx).V(2).Info("Large files are not read early", "reason", err.Error())
			return
		}
		e.ok = true
	}()
}

func (e *earlyScan) scan(ctx context.Context) error {
	budget, err := e.receiver.Scratch.Budget()
	if err != nil {
		return err
	}
	_, err = tree.Scan(ctx, tree.Options{
		Root: e.receiver.Volume, Manifest: e.manifest(), Previous: e.receiver.manifestPath(), Scratch: e.receiver.Scratch.Path, Budget: budget,
		Cold: true, OnlyLarge: true, Workers: earlyReaders, Writer: e.receiver.Writer,
		Progress: func(p tree.Progress) { e.read.Store(p.ReadBytes) },
	})
	return err
}

// finish waits until all is read, if reading has begun, and returns the path of the manifest;
// empty: there is none. While it waits it reports the progress.
func (e *earlyScan) finish(report func(tree.Progress)) string {
	if e.done == nil {
		return ""
	}
	select {
	case <-e.settled:
		e.await(report)
	default:
	}
	e.cancel()
	if !e.ok {
		return ""
	}
	return e.manifest()
}

func (e *earlyScan) await(report func(tree.Progress)) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-e.done:
			return
		case <-ticker.C:
			report(tree.Progress{ReadBytes: e.read.Load()})
		}
	}
}

// cancel ends the reading.
func (e *earlyScan) cancel() {
	if e.done == nil {
		return
	}
	e.stop()
	<-e.done
	e.done = nil
}

// discard removes the result.
func (e *earlyScan) discard() {
	e.cancel()
	_ = os.Remove(e.manifest())
}
