package tree

import (
	"context"
	"errors"
	"fmt"
)

// collector writes what workers saw into the manifest, in canonical order.
type collector struct {
	options *Options
	writer  *writer
	parts   chan<- *part
	// ahead is how many segments of a large file are under way at most.
	ahead    int
	summary  Summary
	linker   *linker
	found    *findings
	reported Progress
}

// run takes batches in order until the walk ends.
func (c *collector) run(ctx context.Context, ordered <-chan *batch) (err error) {
	for b := range ordered {
		if err == nil {
			err = c.await(ctx, b)
		}
		if err == nil {
			err = c.batch(ctx, b)
		}
		b.dir.release()
	}
	return err
}

func (c *collector) await(ctx context.Context, b *batch) error {
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *collector) batch(ctx context.Context, b *batch) error {
	for i := range b.found {
		seen := &b.found[i]
		if seen.err != nil {
			return seen.err
		}
		if seen.large {
			err := c.readLarge(ctx, b.dir, b.names[i], seen)
			if gone(err) {
				seen.entry, seen.unsettled = nil, true
				c.writer.firstBlocks = 0
			} else if err != nil {
				return fmt.Errorf("read %q: %w", seen.entry.Path, err)
			}
		}
		if seen.unsettled {
			c.summary.Unsettled++
		}
		if seen.entry == nil {
			continue
		}
		if err := c.entry(seen); err != nil {
			return err
		}
	}
	return nil
}

// entry writes one entry and counts it.
func (c *collector) entry(seen *sight) error {
	e := seen.entry
	switch {
	case seen.before.entry != nil:
		if err := c.writer.copyBlocks(seen.before.of.manifest, seen.before.entry); err != nil {
			return err
		}
	case len(seen.blocks) > HashSize:
		blocks := c.writer.newBlocks()
		if err := errors.Join(blocks.add(seen.blocks), blocks.end()); err != nil {
			return err
		}
	}
	if err := c.writer.entry(e); err != nil {
		return err
	}
	c.summary.Entries++
	c.summary.Inodes++
	c.summary.Allocated += e.Allocated
	if e.Type == File {
		c.summary.Files++
		c.summary.Bytes += e.Size
		c.summary.Hashes += hashesAtMost(e.Size, e.Allocated)
		if seen.before.entry == nil && !c.options.Shallow {
			c.summary.ReadFiles++
			c.summary.ReadBytes += seen.read
		}
	}
	c.found.need(e)
	if !seen.large {
		c.progress(seen.read)
	}
	return c.linker.see(e)
}

// progress tells how far the scan is, not for every entry.
func (c *collector) progress(read uint64) {
	c.reported.ReadBytes += read
	if c.options.Progress == nil {
		return
	}
	if c.summary.Entries-c.reported.Entries >= 1000 || read > 0 {
		c.reported.Entries = c.summary.Entries
		c.options.Progress(c.reported)
	}
}

// finish writes links and summary.
func (c *collector) finish() (Summary, error) {
	firstLink := c.writer.at
	if err := c.linker.finish(c.writer, &c.summary); err != nil {
		return Summary{}, fmt.Errorf("find hard links: %w", err)
	}
	c.summary.LinkMembers = c.writer.members
	c.summary.Root = c.writer.root()
	c.summary.Needs, c.summary.Findings = c.found.list()
	if err := c.writer.finish(c.summary, firstLink); err != nil {
		return Summary{}, err
	}
	return c.summary, nil
}

// serve looks at batches and hashes segments until neither comes any more. Once the
// context is done it only lets go of them.
func (l *looker) serve(ctx context.Context, work <-chan *batch, parts <-chan *part) {
	defer func() { l.together.aio.close() }()
	for work != nil || parts != nil {
		select {
		case b, ok := <-work:
			if !ok {
				work = nil
				continue
			}
			l.lookAll(b, func() bool { return ctx.Err() != nil })
			b.dir.release()
			close(b.done)
		case p, ok := <-parts:
			if !ok {
				parts = nil
				continue
			}
			p.hash(&l.hasher)
		}
	}
}
