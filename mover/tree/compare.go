package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
)

// Aspect is a property of an entry in which it can differ.
type Aspect uint

// The aspects, in the order in which they are listed.
const (
	AspectType Aspect = 1 << iota
	AspectContent
	AspectSize
	AspectTarget
	AspectDevice
	AspectMode
	AspectOwner
	AspectMtime
	AspectXattrs
	AspectLink
)

var aspectNames = []string{
	"type", "content", "size", "target", "device numbers", "mode", "owner", "modification time",
	"extended attributes", "hard links",
}

// String lists the aspects in words.
func (a Aspect) String() string {
	var names []string
	for i, name := range aspectNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Change is an entry that differs between two manifests: Old is nil for one that was added, New for
// one that was deleted.
type Change struct {
	Old, New *Entry
	// Differs says in what the entry differs if it is in both.
	Differs  Aspect
	old, new *Manifest
}

// Path is the entry's path.
func (c *Change) Path() string {
	if c.New != nil {
		return c.New.Path
	}
	return c.Old.Path
}

// IsUnseen says whether it is a file that has another content though its size and modification time are the same.
func (c *Change) IsUnseen() bool {
	return c.Old != nil && c.New != nil && c.New.Type == File && c.Differs&AspectContent != 0 &&
		c.Differs&(AspectType|AspectSize|AspectMtime) == 0
}

// Changes returns each entry that differs from an earlier manifest of the same volume, or from that
// of another copy, in canonical order. It ends after the first error. Entries below a deleted
// directory follow it, each of them.
//
// Properties that are not in the root hash (inode, change time) are not compared.
func Changes(before, after *Manifest) iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		if err := merge(before, after, yield); err != nil {
			yield(nil, err)
		}
	}
}

// side is one of the two manifests while they are merged.
type side struct {
	entries *Reader
	links   *linkReader
	ahead   *Entry
	link    pathHash
}

func newSide(m *Manifest) (*side, error) {
	links, err := m.links()
	if err != nil {
		return nil, err
	}
	s := &side{entries: m.Entries(), links: links}
	return s, s.advance()
}

func (s *side) advance() (err error) {
	s.ahead, err = s.entries.Next()
	if errors.Is(err, io.EOF) {
		s.ahead = nil
		return nil
	}
	if err != nil {
		return err
	}
	s.link, err = s.links.of(s.ahead)
	return err
}

func merge(before, after *Manifest, yield func(*Change, error) bool) error {
	a, err := newSide(before)
	if err != nil {
		return err
	}
	b, err := newSide(after)
	if err != nil {
		return err
	}
	for a.ahead != nil || b.ahead != nil {
		change := &Change{Old: a.ahead, New: b.ahead, old: before, new: after}
		switch {
		case a.ahead == nil:
		case b.ahead == nil:
		default:
			if order := comparePaths(a.ahead.Path, b.ahead.Path); order < 0 {
				change.New = nil
			} else if order > 0 {
				change.Old = nil
			}
		}
		both := change.Old != nil && change.New != nil
		if both {
			change.Differs = differs(change.Old, change.New)
			if a.link != b.link {
				change.Differs |= AspectLink
			}
		}
		if change.Old != nil {
			err = a.advance()
		}
		if err == nil && change.New != nil {
			err = b.advance()
		}
		if err != nil {
			return err
		}
		if (!both || change.Differs != 0) && !yield(change, nil) {
			return nil
		}
	}
	return nil
}

// differs compares the properties in the root hash of two entries with the same path.
func differs(a, b *Entry) (d Aspect) {
	set := func(aspect Aspect, different bool) {
		if different {
			d |= aspect
		}
	}
	set(AspectType, a.Type != b.Type)
	if a.Type == File && b.Type == File {
		set(AspectContent, a.Content != b.Content)
		set(AspectSize, a.Size != b.Size)
	}
	if a.Type == b.Type {
		set(AspectTarget, a.Target != b.Target)
		set(AspectDevice, a.Major != b.Major || a.Minor != b.Minor)
	}
	set(AspectMode, a.Mode != b.Mode)
	set(AspectOwner, a.UID != b.UID || a.GID != b.GID)
	set(AspectMtime, a.Mtime != b.Mtime)
	set(AspectXattrs, !slices.Equal(a.Xattrs, b.Xattrs))
	return d
}

// Range is a part of a file in bytes.
type Range struct{ Offset, Length uint64 }

// Ranges returns the parts of the new file whose blocks differ from the old one, by rising offsets,
// with neighbours joined; what lies behind the old file's end differs. The file's new size is
// New.Size. It returns the whole file if there is no old one, and nothing if the new entry is no
// file.
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
			// For a file of one block only the content hash is stored.
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

// Difference is how an entry of a copy differs from the original.
type Difference struct {
	// Path is in the form of messages.
	Path string `json:"path"`
	What string `json:"what"`
}

// String returns the difference in words.
func (d Difference) String() string { return d.Path + ": " + d.What }

// Differences are all differences of a copy from the original.
type Differences struct {
	// Count is how many entries differ; First are the first of them.
	Count uint64       `json:"count"`
	First []Difference `json:"first,omitempty"`
}

// Compare returns how a copy differs from the original, with at most so many examples. It returns
// an error if the root hashes are equal but entries differ, or the other way round.
func Compare(original, copied *Manifest, examples int) (Differences, error) {
	var d Differences
	for change, err := range Changes(original, copied) {
		if err != nil {
			return Differences{}, fmt.Errorf("compare two manifests: %w", err)
		}
		d.Count++
		if len(d.First) < examples {
			d.First = append(d.First, change.Difference())
		}
	}
	if equal := original.summary.Root == copied.summary.Root; equal != (d.Count == 0) {
		return Differences{}, fmt.Errorf("compare two manifests: their roots say equal=%t, their entries have %d differences",
			equal, d.Count)
	}
	return d, nil
}

// Difference is the change in words, the old side being the original.
func (c *Change) Difference() Difference {
	return Difference{Path: printable(c.Path()), What: c.words()}
}

// words returns what differs, with the values of both sides if they are short.
func (c *Change) words() string {
	switch {
	case c.New == nil:
		return "the " + c.Old.Type.String() + " is missing in the copy"
	case c.Old == nil:
		return "the " + c.New.Type.String() + " is only in the copy"
	}
	old, now := c.Old, c.New
	text := ""
	say := func(aspect Aspect, format string, values ...any) {
		if c.Differs&aspect == 0 {
			return
		}
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf(format, values...)
	}
	say(AspectType, "a %s became a %s", old.Type, now.Type)
	say(AspectSize, "%d bytes became %d", old.Size, now.Size)
	say(AspectContent, "other content")
	say(AspectTarget, "it points to %q instead of %q", now.Target, old.Target)
	say(AspectDevice, "device %d:%d became %d:%d", old.Major, old.Minor, now.Major, now.Minor)
	say(AspectMode, "mode %04o became %04o", old.Mode, now.Mode)
	say(AspectOwner, "owner %d:%d became %d:%d", old.UID, old.GID, now.UID, now.GID)
	say(AspectMtime, "modification time %s became %s", old.Mtime, now.Mtime)
	say(AspectXattrs, "extended attributes differ: %s", xattrsDiffer(old.Xattrs, now.Xattrs))
	say(AspectLink, "it is a hard link of another file than in the original")
	return text
}

// xattrsDiffer names the attributes that are missing, different or additional.
func xattrsDiffer(old, now []Xattr) string {
	text := ""
	say := func(name, what string) {
		if text != "" {
			text += ", "
		}
		text += printable(name) + " " + what
	}
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].Name < now[0].Name:
			say(old[0].Name, "is missing")
			old = old[1:]
		case len(old) == 0 || now[0].Name < old[0].Name:
			say(now[0].Name, "is only in the copy")
			now = now[1:]
		default:
			if old[0] != now[0] {
				say(old[0].Name, "has another value")
			}
			old, now = old[1:], now[1:]
		}
	}
	return text
}
