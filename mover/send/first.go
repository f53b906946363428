package send

import (
	"context"
	"errors"
	"os"

	"github.com/lodestone-storage/lodestone/mover/engine"
	"github.com/lodestone-storage/lodestone/mover/exchange"
	"github.com/lodestone-storage/lodestone/mover/stream"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// first says whether all of the source is to be sent, so that it need not be read to
// know what differs: the target is empty, and the source was not read yet.
func (r *run) first(conn *stream.Conn) (first bool, there exchange.ScanAnswer, err error) {
	if r.sender.Block {
		return false, there, nil
	}
	if _, err := os.Stat(r.sender.sourceManifest()); !errors.Is(err, os.ErrNotExist) {
		return false, there, err
	}
	r.meter.begin("looking at the target", 0, 0)
	there, err = r.scanTarget(conn, false)
	return there.Entries <= 1, there, err
}

// copyAll sends everything, and reads the source for its manifest meanwhile: what one of
// the two has read the other finds in memory. What changes between both is seen by the
// next look, for it has a later change time than the manifest.
func (r *run) copyAll(ctx context.Context, conn *stream.Conn, variant engine.Variant, there exchange.ScanAnswer) (*movecontrol.Passed, error) {
	r.meter.begin("looking at the source", 0, 0)
	if _, err := r.scanNames(ctx); err != nil {
		return nil, err
	}
	names, err := tree.Open(r.sender.namesManifest())
	if err != nil {
		return nil, err
	}
	// It is not needed again, and takes room.
	defer os.Remove(r.sender.namesManifest())
	defer names.Close()
	target, err := r.fetch(conn, there)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	scanning, stop := context.WithCancel(ctx)
	defer stop()
	var summary tree.Summary
	scanned := make(chan error, 1)
	go func() {
		var err error
		if summary, err = r.scanSource(scanning, false, true); err != nil && scanning.Err() == nil {
			// What is being sent is of no use any more.
			conn.Close()
		}
		scanned <- err
	}()
	passed, err := r.transfer(ctx, conn, names, target, variant)
	if err != nil && !errors.Is(err, errLookAgain) {
		stop()
	}
	if scanErr := <-scanned; scanErr != nil && (err == nil || !errors.Is(scanErr, context.Canceled)) {
		return nil, scanErr
	}
	if err != nil && !errors.Is(err, errLookAgain) {
		return nil, err
	}
	// What was read here need not be read again by who looks again.
	return passed, errors.Join(err, r.sender.remember(summary))
}
