package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// part is one segment of a large file, for one worker.
type part struct {
	file       *openedFile
	start, end int64
	sparse     bool
	blocks     []byte
	// zeros is how many blocks of a hole come before blocks.
	zeros uint64
	read  uint64
	err   error
	done  chan struct{}
}

func (p *part) hash(h *hasher) {
	direct := p.file.direct.Load()
	if !direct {
		// Segments are read side by side, which the kernel's read-ahead does not foresee.
		_ = unix.Fadvise(p.file.fd, p.start, p.end-p.start, unix.FADV_WILLNEED)
	}
	p.blocks, p.err = h.blocks(p.file, p.start, p.end-p.start, p.sparse, nil)
	if direct && errors.Is(p.err, unix.EINVAL) {
		p.file.through()
		p.blocks, p.err = h.blocks(p.file, p.start, p.end-p.start, p.sparse, nil)
	}
	p.read = h.read
	close(p.done)
}

// readLarge reads a large file: workers hash its segments, their hashes go into the
// manifest in order. Only a few segments are under way at any time, so that memory
// does not depend on the size of the file. The end is where the file really ends,
// should it grow or shrink meanwhile.
func (c *collector) readLarge(ctx context.Context, d *dir, name string, seen *sight) error {
	e := seen.entry
	if e.Size > sizeAtMost {
		return fmt.Errorf("it has %d bytes: %s", e.Size, reasons[FileTooLarge])
	}
	f, err := openFile(d, name, e, c.options.Cold)
	if err != nil {
		return err
	}
	defer f.close()
	if c.options.Cold {
		f.bypass()
	}
	total, err := c.hashParts(ctx, f, seen)
	if err != nil {
		return err
	}
	if c.options.Cold {
		// What nobody else has read leaves the memory to the application of this node.
		if err := f.drop(); err != nil {
			return err
		}
	}
	seen.unsettled, err = f.settle(e, total)
	return err
}

// hashParts hashes a file segment by segment, writes the hashes of its blocks, and
// tells how many bytes there were.
func (c *collector) hashParts(ctx context.Context, f *openedFile, seen *sight) (total uint64, err error) {
	e := seen.entry
	size := int64(e.Size)
	var under []*part
	// A file is never closed under a worker that reads it.
	defer func() {
		for _, p := range under {
			<-p.done
		}
	}()
	content := derived(contentContext)
	pending := c.writer.newBlocks()
	var start int64
	for start < size || len(under) > 0 {
		if start < size && len(under) < c.ahead {
			if hole := f.wholeSegments(start, size, seen.sparse); hole > 0 {
				under = append(under, holeOf(start, hole))
				start += hole
				continue
			}
			p := &part{
				file: f, start: start, end: min(start+segment, size), sparse: seen.sparse, done: make(chan struct{}),
			}
			select {
			case c.parts <- p:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			under = append(under, p)
			start = p.end
			continue
		}
		p := under[0]
		<-p.done
		under = under[1:]
		if p.err != nil {
			return 0, p.err
		}
		if total != uint64(p.start) {
			continue // The file shrank before this segment.
		}
		total += p.read
		if p.zeros > 0 {
			if err := writeZeros(ctx, content, p.zeros); err != nil {
				return 0, err
			}
			pending.addZeros(p.zeros)
		}
		_, _ = content.Write(p.blocks)
		if err := pending.add(p.blocks); err != nil {
			return 0, err
		}
		c.progress(p.read)
	}
	e.Content, seen.read = sum(content), total
	return total, pending.end()
}

// wholeSegments is how many bytes of segments, from start on, are one hole.
func (f *openedFile) wholeSegments(start, size int64, sparse bool) int64 {
	if !sparse {
		return 0
	}
	hole := min(holeAt(f.fd, start), size) - start
	return hole - hole%segment
}

// holeOf is a part that nobody has to read.
func holeOf(start, length int64) *part {
	p := &part{start: start, end: start + length, zeros: uint64(length / BlockSize), read: uint64(length), done: make(chan struct{})}
	close(p.done)
	return p
}

// zeroHashes are hashes of blocks of zeros, to be hashed many at once.
var zeroHashes = bytes.Repeat(zeroHash[:], 8<<10)

// writeZeros hashes the hashes of so many blocks of zeros.
func writeZeros(ctx context.Context, content *blake3.Hasher, blocks uint64) error {
	for blocks > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n := min(blocks, uint64(len(zeroHashes)/HashSize))
		_, _ = content.Write(zeroHashes[:n*HashSize])
		blocks -= n
	}
	return nil
}
