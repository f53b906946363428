package tree

import (
	"errors"
	"fmt"
	"io"
)

// earlier is a manifest of the same volume that a scan takes over from.
type earlier struct {
	manifest *Manifest
	// settled is the time before which a change time in it can be trusted.
	settled Time
}

// known is what an earlier manifest tells of a name; its entry is nil if it tells nothing.
type known struct {
	entry *Entry
	of    *earlier
}

// openEarlier opens an earlier manifest, of large files only or of everything; nil
// without a path.
func openEarlier(path string, onlyLarge bool) (*earlier, error) {
	if path == "" {
		return nil, nil
	}
	m, err := Open(path)
	if err != nil {
		return nil, fmt.Errorf("use the earlier manifest: %w", err)
	}
	s := m.Summary()
	switch {
	case s.Shallow:
		err = errors.New("use the earlier manifest: it knows nothing of contents")
	case s.OnlyLarge != onlyLarge:
		err = errors.New("use the earlier manifest: it tells of other files than are asked for")
	}
	if err != nil {
		_ = m.Close()
		return nil, err
	}
	return &earlier{manifest: m, settled: s.Started.minus(s.Margin)}, nil
}

func (e *earlier) close() {
	if e != nil {
		_ = e.manifest.Close()
	}
}

// read begins to read the entries; nil if there are none.
func (e *earlier) read() *previous {
	if e == nil {
		return nil
	}
	return &previous{of: e, entries: e.manifest.Entries()}
}

// previous reads an earlier manifest beside the walk.
type previous struct {
	of      *earlier
	entries *Reader
	ahead   *Entry
}

// find gives the earlier entry at a path, if there is one. Paths are asked for in
// canonical order. Without an earlier manifest there are none.
func (p *previous) find(path string) (known, error) {
	if p == nil {
		return known{}, nil
	}
	for p.entries != nil {
		if p.ahead == nil {
			next, err := p.entries.Next()
			if errors.Is(err, io.EOF) {
				p.entries = nil
				break
			}
			if err != nil {
				return known{}, fmt.Errorf("read the earlier manifest: %w", err)
			}
			p.ahead = next
		}
		switch order := comparePaths(p.ahead.Path, path); {
		case order > 0:
			return known{}, nil
		case order == 0:
			found := p.ahead
			p.ahead = nil
			return known{entry: found, of: p.of}, nil
		}
		p.ahead = nil
	}
	return known{}, nil
}
