package send

import (
	"context"
	"fmt"

	"github.com/lodestone-storage/lodestone/mover/exchange"
	"github.com/lodestone-storage/lodestone/mover/stream"
	"github.com/lodestone-storage/lodestone/mover/tree"
)

// both looks at both volumes at once and returns their manifests. With full all of both
// is read again from their disks; else what changed since the last look, at the target
// from its disk.
func (r *run) both(ctx context.Context, conn *stream.Conn, full bool) (source, target *tree.Manifest, err error) {
	r.meter.begin("reading what has changed at both ends", 0, 0)
	scanned := make(chan error, 1)
	var there exchange.ScanAnswer
	go func() {
		var err error
		there, err = r.scanTarget(conn, full)
		scanned <- err
	}()
	_, sourceErr := r.scanSource(ctx, full, false)
	if sourceErr != nil {
		// The receiver's scan is of no use any more, and may take long.
		conn.Close()
	}
	targetErr := <-scanned
	if sourceErr != nil {
		return nil, nil, sourceErr
	}
	if targetErr != nil {
		return nil, nil, targetErr
	}
	if target, err = r.fetch(conn, there); err != nil {
		return nil, nil, err
	}
	if source, err = tree.Open(r.sender.sourceManifest()); err == nil {
		err = r.guard(source.Summary().Entries, there.Entries)
		if err == nil {
			err = r.sender.remember(source.Summary())
		}
		if err == nil {
			return source, target, nil
		}
		_ = source.Close()
	}
	_ = target.Close()
	return nil, nil, err
}

// guard refuses an empty source while the target holds something, if nothing is
// known of what the source was: it may be the wrong mount.
func (r *run) guard(source, target uint64) error {
	if r.expect != nil || source > 1 || target <= 1 {
		return nil
	}
	return fmt.Errorf("the source volume is empty, the target holds %d entries, and this mover has not seen the source before: "+
		"nothing is deleted at the target; prepare the move again", target-1)
}

// scanSource describes the source; quiet leaves the meter alone.
func (r *run) scanSource(ctx context.Context, full, quiet bool) (tree.Summary, error) {
	budget, err := r.sender.Scratch.Budget()
	if err != nil {
		return tree.Summary{}, err
	}
	options := tree.Options{
		Root: r.sender.Volume, Manifest: r.sender.sourceManifest(), Scratch: r.sender.Scratch.Path, Budget: budget, Expect: r.expect,
		// This machine is not told of what others wrote to a device, so nothing that it
		// remembers of one counts.
		Cold: full || r.sender.Block,
	}
	if !quiet {
		options.Progress = func(p tree.Progress) {
			r.meter.bytes.Store(int64(p.ReadBytes))
			r.meter.files.Store(int64(p.Entries))
		}
	}
	if r.sender.Block {
		return tree.ScanDevice(ctx, options)
	}
	return exchange.ScanVolume(ctx, options, full)
}

// scanNames describes all of the source but contents.
func (r *run) scanNames(ctx context.Context) (tree.Summary, error) {
	if r.sender.Block {
		size, err := tree.DeviceSize(r.sender.Volume)
		return tree.Summary{Device: true, Entries: 1, Inodes: 1, Bytes: size, Allocated: size, Hashes: tree.DeviceHashes(size)}, err
	}
	budget, err := r.sender.Scratch.Budget()
	if err != nil {
		return tree.Summary{}, err
	}
	return tree.Scan(ctx, tree.Options{
		Root: r.sender.Volume, Manifest: r.sender.namesManifest(), Scratch: r.sender.Scratch.Path, Budget: budget, Shallow: true, Expect: r.expect,
	})
}

func (r *run) scanTarget(conn *stream.Conn, full bool) (seen exchange.ScanAnswer, err error) {
	asked := exchange.ScanAsked{Full: full}
	if r.sender.Block {
		if asked.Length, err = tree.DeviceSize(r.sender.Volume); err != nil {
			return seen, err
		}
	}
	err = conn.Do(stream.Call{Op: exchange.Scan, Body: asked, Result: &seen})
	return seen, err
}
