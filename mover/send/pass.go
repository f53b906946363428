package send

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/lodestone-storage/lodestone/mover/blocks"
	"github.com/lodestone-storage/lodestone/mover/engine"
	"github.com/lodestone-storage/lodestone/mover/exchange"
	"github.com/lodestone-storage/lodestone/mover/stream"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// pass brings the target to what the source holds. Final says that nobody writes to
// the source.
func (r *run) pass(ctx context.Context, conn *stream.Conn, final bool) (*movecontrol.Passed, error) {
	variant := engine.Live
	if final {
		variant = engine.All
	}
	passed, err := r.copy(ctx, conn, variant)
	if err != nil || final {
		// Verify reads what was written here, and pods wait: nothing is read twice.
		return passed, err
	}
	// What was written is read from the disk while there is time for it.
	r.meter.begin("reading what was written", 0, 0)
	_, err = r.scanTarget(conn, false)
	return passed, err
}

// copy looks at both ends and sends what differs.
func (r *run) copy(ctx context.Context, conn *stream.Conn, variant engine.Variant) (*movecontrol.Passed, error) {
	if first, there, err := r.first(conn); err != nil {
		return nil, err
	} else if first {
		return r.copyAll(ctx, conn, variant, there)
	}
	source, target, err := r.both(ctx, conn, false)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	defer target.Close()
	return r.transfer(ctx, conn, source, target, variant)
}

// verify compares both ends. It mends nothing: a difference that nobody knows the
// reason of is not to be trusted, and the source is whole.
func (r *run) verify(ctx context.Context, conn *stream.Conn, full bool) (*movecontrol.Verified, error) {
	source, target, err := r.both(ctx, conn, full)
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
	verified := &movecontrol.Verified{
		Full: full, SourceRoot: from.Root.String(), TargetRoot: to.Root.String(), Equal: differences.Count == 0 && from.Root == to.Root,
		DifferencesLeftOff: int64(differences.Count) - int64(len(differences.First)),
	}
	for _, d := range differences.First {
		verified.Differences = append(verified.Differences, movecontrol.Difference{Path: d.Path, What: d.What})
	}
	return verified, nil
}

// examples is how many differences are told.
const examples = 100

// transfer sends what differs between two manifests. If the target is full it makes
// room there by deletions first, and tries once more.
func (r *run) transfer(ctx context.Context, conn *stream.Conn, source, target *tree.Manifest, variant engine.Variant) (*movecontrol.Passed, error) {
	passed, err := r.transferOnce(ctx, conn, source, target, variant)
	if err == nil || !errors.Is(err, engine.ErrNoSpace) || r.pruned {
		return passed, err
	}
	r.pruned = true
	if err := r.rsync(ctx, conn, engine.Prune, nil); err != nil {
		return nil, err
	}
	return nil, errLookAgain
}

// plan is what a transfer has to do, and with what.
type plan struct {
	passed movecontrol.Passed
	// total is the size of all files that must be dealt with, large that of those
	// which package blocks carries; redo counts those in the list for rsync's Redo.
	total, large, redo int64
	list               string
}

func (r *run) transferOnce(ctx context.Context, conn *stream.Conn, source, target *tree.Manifest, variant engine.Variant) (*movecontrol.Passed, error) {
	if source.Summary().Root == target.Summary().Root {
		return &movecontrol.Passed{}, nil
	}
	if carried, err := r.throughStore(ctx, conn, source, target); err != nil {
		return nil, err
	} else if carried {
		return nil, errLookAgain
	}
	p, err := r.plan(source, target)
	if err != nil {
		return nil, err
	}
	r.meter.begin("sending", p.total, p.passed.Changed)
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
		err = r.rsync(ctx, conn, engine.Redo, list)
		list.Close()
		if err != nil {
			return nil, err
		}
	}
	return &p.passed, r.rsync(ctx, conn, variant, nil)
}

// plan counts the changes, and lists those files that rsync would take for equal.
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
			if err := budget.Take(uint64(len(c.New.Path) + 1)); err != nil {
				return nil, err
			}
			if _, err := list.WriteString(c.New.Path + "\x00"); err != nil {
				return nil, fmt.Errorf("list what to send: %w", err)
			}
		}
	}
	return p, nil
}

// blocks sends what has changed in large files.
func (r *run) blocks(conn *stream.Conn, source, target *tree.Manifest) error {
	var answer exchange.BlocksAnswer
	err := conn.Do(stream.Call{Op: exchange.Blocks, Result: &answer, Send: func(send func([]byte) error) error {
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
		return fmt.Errorf("%w: %s", engine.ErrNoSpace, answer.Error)
	case answer.Error != "":
		return errors.New(answer.Error)
	}
	return nil
}

// rsync runs one variant of rsync.
func (r *run) rsync(ctx context.Context, conn *stream.Conn, variant engine.Variant, list *os.File) error {
	source := engine.Source{Self: r.sender.Self, Volume: r.sender.Volume, Sent: func(n int) {
		r.meter.sent.Add(int64(n))
		if variant != engine.Prune {
			r.meter.bytes.Add(int64(n))
		}
	}}
	if list == nil {
		return source.Send(ctx, conn, variant, nil)
	}
	return source.Send(ctx, conn, variant, list)
}
