package receive

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/tree"
)

const (
	// worthwhile is from how many bytes of large files on they are read early.
	worthwhile = 64 << 20
	// longestSettling is up to which time in which files must be left alone that is worthwhile,
	// tick what comes to it for the coarsest clock of a kernel.
	longestSettling, tick = 5 * time.Second, 100 * time.Millisecond
	// earlyReaders leave the processor to those who copy.
	earlyReaders = 2
)

// early reads large files from the disk once all of them are written, while small ones
// still come: the scan after that takes over what it found of those that have not changed
// since. It is of use only for that one scan.
type early struct {
	receiver *Receiver
	stop     context.CancelFunc
	// settled is closed when reading begins, done when it has ended; nil: nothing is read.
	settled, done chan struct{}
	ok            bool
	read          atomic.Uint64
}

func (e *early) manifest() string { return e.receiver.Scratch.File("early.manifest") }

// begin begins to read, after some time in which the files must not change. Where that is
// long, what is read early would be read again: nothing is.
func (e *early) begin(ctx context.Context) {
	settling, err := tree.Settling(e.receiver.Volume)
	if err != nil || settling > longestSettling {
		return
	}
	ctx, e.stop = context.WithCancel(ctx)
	e.settled, e.done, e.ok = make(chan struct{}), make(chan struct{}), false
	go func() {
		defer close(e.done)
		select {
		case <-ctx.Done():
			return
		case <-time.After(settling + tick):
		}
		close(e.settled)
		if err := e.scan(ctx); err != nil {
			klog.FromContext(ctx).V(2).Info("Large files are not read early", "reason", err.Error())
			return
		}
		e.ok = true
	}()
}

func (e *early) scan(ctx context.Context) error {
	budget, err := e.receiver.Scratch.Budget()
	if err != nil {
		return err
	}
	_, err = tree.Scan(ctx, tree.Options{
		Root: e.receiver.Volume, Manifest: e.manifest(), Previous: e.receiver.manifestPath(), Scratch: e.receiver.Scratch.Path, Budget: budget,
		Cold: true, OnlyLarge: true, Workers: earlyReaders, Progress: func(p tree.Progress) { e.read.Store(p.ReadBytes) },
	})
	return err
}

// take waits until all is read, if reading has begun, and returns the path of the
// manifest; empty: there is none. While it waits it tells how far that is.
func (e *early) take(tell func(tree.Progress)) string {
	if e.done == nil {
		return ""
	}
	select {
	case <-e.settled:
		e.await(tell)
	default:
	}
	e.cancel()
	if !e.ok {
		return ""
	}
	return e.manifest()
}

func (e *early) await(tell func(tree.Progress)) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-e.done:
			return
		case <-ticker.C:
			tell(tree.Progress{ReadBytes: e.read.Load()})
		}
	}
}

// cancel ends the reading.
func (e *early) cancel() {
	if e.done == nil {
		return
	}
	e.stop()
	<-e.done
	e.done = nil
}

// drop removes what was found.
func (e *early) drop() {
	e.cancel()
	_ = os.Remove(e.manifest())
}
