package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Range is a part of a file in bytes.
type Range struct{ Offset, Length uint64 }

// Ranges gives the parts of the new file whose blocks differ from the old one, by
// rising offsets, neighbours joined; what lies behind the old file's end differs.
// The file's new size is New.Size. It gives the whole file if the old one is not
// there, and nothing if the new one is no file.
func (c *Change) Ranges() iter.Seq2[Range, error] {
	return func(yield func(Range, error) bool) {
		if c.New == nil || c.New.Type != File || c.New.Size == 0 {
			return
		}
		if c.Old == nil || c.Old.Type != File {
			yield(Range{Length: c.New.Size}, nil)
			return
		}
		if c.Old.Content == c.New.Content && c.Old.Size == c.New.Size {
			return
		}
		if c.Old.blocks == 0 || c.New.blocks == 0 {
			// A file of one block: its hash alone is not kept.
			yield(Range{Length: c.New.Size}, nil)
			return
		}
		if err := c.compareBlocks(yield); err != nil {
			yield(Range{}, fmt.Errorf("compare the blocks of %q: %w", c.New.Path, err))
		}
	}
}

func (c *Change) compareBlocks(yield func(Range, error) bool) error {
	old, now := c.old.blocksOf(c.Old), c.new.blocksOf(c.New)
	var found Range
	for at := uint64(0); at < c.New.Size; {
		hash, count, err := now.next()
		if err != nil {
			return err
		}
		was, before, err := old.next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if was != nil {
			count = min(count, before)
			old.skip(count)
		}
		equal := was != nil && bytes.Equal(was, hash)
		now.skip(count)
		length := min(count*BlockSize, c.New.Size-at)
		from := at
		at += length
		switch {
		case equal:
			continue
		case found.Length > 0 && found.Offset+found.Length == from:
			found.Length += length
			continue
		case found.Length > 0 && !yield(found, nil):
			return nil
		}
		found = Range{Offset: from, Length: length}
	}
	if found.Length > 0 {
		yield(found, nil)
	}
	return nil
}
