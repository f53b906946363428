package tree

import (
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
)

// Aspect is something about an entry that can differ.
type Aspect uint

// The aspects, in the order in which they are told.
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

	// AspectMetadata is what can be changed without reading or writing content.
	AspectMetadata = AspectMode | AspectOwner | AspectMtime | AspectXattrs
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

// Change is an entry that two manifests have differently: Old is nil for one that
// was added, New for one that was deleted.
type Change struct {
	Old, New *Entry
	// Differs tells what differs when both are there.
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

// Changes gives each entry that differs from an earlier manifest of the same volume,
// or from that of another copy, in canonical order. It ends after the first error.
// What is below a deleted directory is told after it, name by name.
//
// What is not in the root (inode, change time) is not compared.
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

// differs compares what the root says of two entries with the same path.
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
