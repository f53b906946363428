package pool

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// source is what a new volume is a copy of.
type source struct {
	image, node string
	bytes       int64
}

// sourceOf finds what an order wants copied; nil if nothing.
func (p *Pool) sourceOf(o Order) (*source, error) {
	switch {
	case o.FromVolume != "":
		v, ok := p.volumes[o.FromVolume]
		if !ok {
			return nil, fmt.Errorf("source volume %s: %w", o.FromVolume, ErrNotFound)
		}
		return &source{image: p.Image(v.ID), node: v.Node, bytes: v.Bytes}, nil
	case o.FromSnapshot != "":
		s, ok := p.snapshots[o.FromSnapshot]
		if !ok {
			return nil, fmt.Errorf("source snapshot %s: %w", o.FromSnapshot, ErrNotFound)
		}
		return &source{image: p.snapshotImage(s.ID), node: s.Node, bytes: s.Bytes}, nil
	default:
		return nil, nil
	}
}

func (p *Pool) snapshotImage(id string) string { return p.in("snapshots", id+imageSuffix) }

// Snap makes a snapshot of a volume, or returns the one of that name if it is of
// that volume. It takes as much room as its volume.
func (p *Pool) Snap(name, volumeID string) (Snapshot, error) {
	if err := checkName(name); err != nil {
		return Snapshot{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := "snap-" + name
	if have, ok := p.snapshots[id]; ok {
		if have.VolumeID != volumeID {
			return Snapshot{}, fmt.Errorf("%w: snapshot %s is of volume %s", ErrConflict, id, have.VolumeID)
		}
		return have, nil
	}
	v, ok := p.volumes[volumeID]
	if !ok {
		return Snapshot{}, fmt.Errorf("volume %s: %w", volumeID, ErrNotFound)
	}
	if p.free(v.Node) < v.Bytes {
		return Snapshot{}, fmt.Errorf("%w for a snapshot of %d bytes on %q", ErrFull, v.Bytes, v.Node)
	}
	s := Snapshot{ID: id, Name: name, VolumeID: volumeID, Node: v.Node, Bytes: v.Bytes, Created: time.Now().UnixNano()}
	if err := p.copy(p.snapshotImage(id), p.Image(volumeID), v.Bytes); err != nil {
		return Snapshot{}, err
	}
	if err := writeRecord(p.in("snapshots", id), s); err != nil {
		return Snapshot{}, err
	}
	p.snapshots[id] = s
	return s, nil
}

// DeleteSnapshot removes a snapshot; one that is gone is no error.
func (p *Pool) DeleteSnapshot(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.snapshots[id]; !ok {
		return nil
	}
	if err := remove(p.in("snapshots", id)); err != nil {
		return err
	}
	delete(p.snapshots, id)
	return nil
}

// Snapshots returns all snapshots, ordered by ID.
func (p *Pool) Snapshots() []Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedFunc(maps.Values(p.snapshots), func(a, b Snapshot) int { return cmp.Compare(a.ID, b.ID) })
}

func growImage(path string, bytes int64) error {
	if err := os.Truncate(path, bytes); err != nil {
		return fmt.Errorf("grow the image: %w", err)
	}
	return nil
}
