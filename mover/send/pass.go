package send

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/lodestone-storage/lodestone/mover/content/blocks"
	"github.com/lodestone-storage/lodestone/mover/content/rsync"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/mover/wire"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// pass makes the target equal to the source. final says that nobody writes to the source.
func (r *run) pass(ctx context.Context, conn *wire.Conn, final bool) (*moverapi.Passed, error) {
	variant := rsync.Live
	if final {
		variant = rsync.All
	}
	passed, err := r.copy(ctx, conn, variant)
	if err != nil || final {
		// Verify reads what was written here, and pods wait: nothing is read twice.
		return passed, err
	}
	// What was written is read from the disk now, while no pods wait for it.
	r.meter.start("reading what was written", 0, 0)
	_, err = r.scanTarget(conn, false)
	return passed, err
}

// copy scans both ends and sends the differences.
func (r *run) copy(ctx context.Context, conn *wire.Conn, variant rsync.Variant) (*moverapi.Passed, error) {
	if first, there, err := r.targetIsEmpty(conn); err != nil {
		return nil, err
	} else if first {
		return r.copyAll(ctx, conn, variant, there)
	}
	source, target, err := r.scanBoth(ctx, conn, false)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	defer target.Close()
	return r.transfer(ctx, conn, source, target, variant)
}

// targetIsEmpty reports whether all of the source is to be sent, so that it need not be read to
// find the differences: the target is empty, and the source was not read yet.
func (r *run) targetIsEmpty(conn *wire.Conn) (first bool, there wire.ScanResponse, err error) {
	if r.sender.Block {
		return false, there, nil
	}
	if _, err := os.Stat(r.sender.sourceManifest()); !errors.Is(err, os.ErrNotExist) {
		return false, there, err
	}
	r.meter.start("looking at the target", 0, 0)
	there, err = r.scanTarget(conn, false)
	return there.Entries <= 1, there, err
}

// copyAll sends everything, and reads the source for its manifest at the same time: what one of the
// two has read, the other finds in the page cache. A change between both reads is found by the next
// scan, since its change time is later than the manifest.
func (r *run) copyAll(ctx context.Context, conn *wire.Conn, variant rsync.Variant, there wire.ScanResponse) (*moverapi.Passed, error) {
	r.meter.start("looking at the source", 0, 0)
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
			// The result of the transfer is useless then.
			conn.Close()
		}
		scanned <- err
	}()
	passed, err := r.transfer(ctx, conn, names, target, variant)
	if err != nil && !errors.Is(err, errScanAgain) {
		stop()
	}
	if scanErr := <-scanned; scanErr != nil && (err == nil || !errors.Is(scanErr, context.Canceled)) {
		return nil, scanErr
	}
	if err != nil && !errors.Is(err, errScanAgain) {
		return nil, err
	}
	// What was read here need not be read again by the next scan.
	return passed, errors.Join(err, r.sender.saveExpectation(summary))
}

// verify compares both ends. It repairs nothing: an unexplained difference means that something is
// wrong, and the source is intact.
func (r *run) verify(ctx context.Context, conn *wire.Conn, full bool) (*moverapi.Verified, error) {
	source, target, err := r.scanBoth(ctx, conn, full)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	defer target.Close()
	differences, err := tree.Compare(source, target, examples)
	if err != nil {
		return nil, err
	}
	from, to := source.Summary(), target.Summary()
	verified := &moverapi.Verified{
		Full: full, SourceRoot: from.Root.String(), TargetRoot: to.Root.String(), Equal: differences.Count == 0 && from.Root == to.Root,
		DifferencesLeftOff: int64(differences.Count) - int64(len(differences.First)),
	}
	for _, d := range differences.First {
		verified.Differences = append(verified.Differences, moverapi.Difference{Path: d.Path, What: d.What})
	}
	return verified, nil
}

// examples is the most differences that are listed.
const examples = 100

// transfer sends the differences between two manifests. If the target is full it first deletes
// there what is not at the source, and tries once more.
func (r *run) transfer(ctx context.Context, conn *wire.Conn, source, target *tree.Manifest, variant rsync.Variant) (*moverapi.Passed,
	error) {
	passed, err := r.transferOnce(ctx, conn, source, target, variant)
	if err == nil || !errors.Is(err, rsync.ErrNoSpace) || r.pruned {
		return passed, err
	}
	r.pruned = true
	if err := r.rsync(ctx, conn, rsync.Prune, nil); err != nil {
		return nil, err
	}
	return nil, errScanAgain
}

// plan is the work of a transfer, with its inputs.
type plan struct {
	passed moverapi.Passed
	// total is the size of all files that must be processed, large the size of those that package
	// blocks copies, redo of those in the list for rsync's Redo.
	total, large, redo int64
	list               string
}

func (r *run) transferOnce(ctx context.Context, conn *wire.Conn, source, target *tree.Manifest, variant rsync.Variant) (*moverapi.Passed,
	error) {
	if source.Summary().Root == target.Summary().Root {
		return &moverapi.Passed{}, nil
	}
	if carried, err := r.sendThroughStore(ctx, conn, source, target); err != nil {
		return nil, err
	} else if carried {
		return nil, errScanAgain
	}
	p, err := r.plan(source, target)
	if err != nil {
		return nil, err
	}
	r.meter.start("sending", p.total, p.passed.Changed)
	if p.large > 0 {
		if err := r.blocks(conn, source, target); err != nil {
			return nil, err
		}
	}
	if r.sender.Block {
		return &p.passed, nil
	}
	if p.redo > 0 {
		list, err := os.Open(p.list)
		if err != nil {
			return nil, fmt.Errorf("open the list of files to send again: %w", err)
		}
		err = r.rsync(ctx, conn, rsync.Redo, list)
		list.Close()
		if err != nil {
			return nil, err
		}
	}
	return &p.passed, r.rsync(ctx, conn, variant, nil)
}

// plan counts the changes, and lists the files that rsync would consider equal.
func (r *run) plan(source, target *tree.Manifest) (*plan, error) {
	p := &plan{list: r.sender.Scratch.File("redo.list")}
	list, err := os.Create(p.list)
	if err != nil {
		return nil, fmt.Errorf("list what to send: %w", err)
	}
	defer list.Close()
	budget, err := r.sender.Scratch.Budget()
	if err != nil {
		return nil, err
	}
	for c, err := range tree.Changes(target, source) {
		if err != nil {
			return nil, err
		}
		p.passed.Changed++
		if c.New == nil || c.New.Type != tree.File {
			continue
		}
		content := c.Old == nil || c.Differs&(tree.AspectType|tree.AspectContent|tree.AspectSize) != 0
		if content {
			p.passed.ChangedBytes += int64(c.New.Size)
		}
		switch {
		case blocks.Carries(c):
			p.large++
			p.total += int64(c.New.Size)
		case content:
			p.total += int64(c.New.Size)
		}
		if c.Old != nil && c.New.Size < blocks.LargeFrom && c.Differs&(tree.AspectContent|tree.AspectLink) != 0 &&
			c.Differs&(tree.AspectType|tree.AspectSize|tree.AspectMtime) == 0 {
			p.redo++
			if err := budget.Reserve(uint64(len(c.New.Path) + 1)); err != nil {
				return nil, err
			}
			if _, err := list.WriteString(c.New.Path + "\x00"); err != nil {
				return nil, fmt.Errorf("list what to send: %w", err)
			}
		}
	}
	return p, nil
}

// blocks sends the changes in large files.
func (r *run) blocks(conn *wire.Conn, source, target *tree.Manifest) error {
	var answer wire.BlocksResponse
	err := conn.Do(wire.Call{Op: wire.OpBlocks, Result: &answer, Send: func(send func([]byte) error) error {
		open := blocks.NewSender
		if r.sender.Block {
			open = blocks.NewDeviceSender
		}
		sender, err := open(r.sender.Volume, func(message []byte) error {
			r.meter.sent.Add(int64(len(message)))
			return send(message)
		}, func(n int64) { r.meter.bytes.Add(n) })
		if err != nil {
			return err
		}
		defer sender.Close()
		for c, err := range tree.Changes(target, source) {
			if err != nil {
				return err
			}
			if !blocks.Carries(c) {
				continue
			}
			if err := sender.Send(c); err != nil {
				return err
			}
			r.meter.files.Add(1)
		}
		return nil
	}})
	switch {
	case err != nil:
		return err
	case answer.Full:
		return fmt.Errorf("%w: %s", rsync.ErrNoSpace, answer.Error)
	case answer.Error != "":
		return errors.New(answer.Error)
	}
	return nil
}

// rsync runs one variant of rsync.
func (r *run) rsync(ctx context.Context, conn *wire.Conn, variant rsync.Variant, list *os.File) error {
	source := rsync.Source{Self: r.sender.Self, Volume: r.sender.Volume, Sent: func(n int) {
		r.meter.sent.Add(int64(n))
		if variant != rsync.Prune {
			r.meter.bytes.Add(int64(n))
		}
	}}
	if list == nil {
		return source.Send(ctx, conn, variant, nil)
	}
	return source.Send(ctx, conn, variant, list)
}
