package pool

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// Order is what is wanted of a new volume.
type Order struct {
	Name string
	// Nodes are where the volume may be, best first; empty: it has no place, and
	// can be reached everywhere.
	Nodes []string
	// Bytes is the least size, Limit the largest; 0 means any.
	Bytes, Limit int64
	// FromVolume or FromSnapshot is the ID of what to copy, if any. The copy is where
	// its source is.
	FromVolume, FromSnapshot string
	Parameters, Mutable      map[string]string
}

// Make makes a volume, or returns the one of that name if it is what is wanted.
// The error is ErrFull if none of the nodes has room, or none is that of the source.
func (p *Pool) Make(o Order) (Volume, error) {
	if err := checkName(o.Name); err != nil {
		return Volume{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v := Volume{
		ID: "vol-" + o.Name, Name: o.Name, Bytes: RoundUp(o.Bytes), Source: o.FromVolume + o.FromSnapshot,
		Parameters: o.Parameters, Mutable: o.Mutable,
	}
	if have, ok := p.volumes[v.ID]; ok {
		return have, sameVolume(have, v, o)
	}
	if o.Limit > 0 && v.Bytes > o.Limit {
		return Volume{}, fmt.Errorf("%w: sizes are whole mebibytes, and %d bytes is more than the limit of %d", ErrInvalid, v.Bytes, o.Limit)
	}
	source, err := p.sourceOf(o)
	if err != nil {
		return Volume{}, err
	}
	if source != nil {
		if v.Bytes < source.bytes {
			return Volume{}, fmt.Errorf("%w: a copy cannot be smaller than its source of %d bytes", ErrInvalid, source.bytes)
		}
		if p.Folders == "" {
			if len(o.Nodes) > 0 && !slices.Contains(o.Nodes, source.node) {
				return Volume{}, fmt.Errorf("%w: %s is on node %s, and a copy can only be there", ErrFull, v.Source, source.node)
			}
			o.Nodes = []string{source.node}
		}
	}
	if v.Node, err = p.place(o.Nodes, v.Bytes); err != nil {
		return Volume{}, err
	}
	return v, p.write(v, source)
}

// write makes the files of a volume.
func (p *Pool) write(v Volume, source *source) error {
	if source == nil {
		if err := makeImage(p.Image(v.ID), v.Bytes); err != nil {
			return err
		}
	} else if err := errors.Join(p.copy(p.Image(v.ID), source.image, v.Bytes), p.copyFolder(v.ID, v.Source)); err != nil {
		return err
	}
	return p.record(v)
}

func (p *Pool) copy(to, from string, bytes int64) error {
	if p.flush != nil {
		p.flush()
	}
	return copyImage(to, from, bytes)
}

func (p *Pool) record(v Volume) error {
	if err := writeRecord(p.in("volumes", v.ID), v); err != nil {
		return err
	}
	p.volumes[v.ID] = v
	return nil
}

// sameVolume is nil if a volume that exists is what is wanted now.
func sameVolume(have, want Volume, o Order) error {
	if have.Bytes < want.Bytes || (o.Limit > 0 && have.Bytes > o.Limit) || have.Source != want.Source ||
		!maps.Equal(have.Parameters, want.Parameters) || (len(o.Nodes) > 0 && !slices.Contains(o.Nodes, have.Node)) {
		return fmt.Errorf("%w: volume %s of %d bytes", ErrConflict, have.ID, have.Bytes)
	}
	return nil
}

// place returns the first node with room.
func (p *Pool) place(nodes []string, bytes int64) (string, error) {
	if len(nodes) == 0 {
		nodes = []string{""}
	}
	for _, node := range nodes {
		if p.free(node) >= bytes {
			return node, nil
		}
	}
	return "", fmt.Errorf("%w for %d bytes on %q", ErrFull, bytes, nodes)
}

// Delete removes a volume; one that is gone is no error.
func (p *Pool) Delete(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.volumes[id]; !ok {
		return nil
	}
	if err := errors.Join(remove(p.in("volumes", id)), p.removeFolder(id)); err != nil {
		return err
	}
	delete(p.volumes, id)
	return nil
}

// Grow makes a volume at least as large as bytes. It never makes it smaller. What
// can never be had is ErrInvalid, what cannot be had now ErrFull.
func (p *Pool) Grow(id string, bytes, limit int64) (Volume, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.volumes[id]
	if !ok {
		return Volume{}, fmt.Errorf("volume %s: %w", id, ErrNotFound)
	}
	want := RoundUp(bytes)
	if want <= v.Bytes {
		return v, nil
	}
	if limit > 0 && want > limit {
		return Volume{}, fmt.Errorf("%w: sizes are whole mebibytes, and %d bytes is more than the limit of %d", ErrInvalid, want, limit)
	}
	if want > p.perNode {
		return Volume{}, fmt.Errorf("%w: %d bytes is more than the %d that a whole node has", ErrInvalid, want, p.perNode)
	}
	if p.free(v.Node) < want-v.Bytes {
		return Volume{}, fmt.Errorf("%w to grow volume %s from %d to %d bytes", ErrFull, id, v.Bytes, want)
	}
	if err := growImage(p.Image(id), want); err != nil {
		return Volume{}, err
	}
	v.Bytes = want
	return v, p.record(v)
}

// Modify sets mutable parameters; others stay as they are.
func (p *Pool) Modify(id string, mutable map[string]string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.volumes[id]
	if !ok {
		return fmt.Errorf("volume %s: %w", id, ErrNotFound)
	}
	merged := maps.Clone(v.Mutable)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, mutable)
	v.Mutable = merged
	return p.record(v)
}

// Attach attaches a volume to a node, to one of which no other has it if one is said. A
// volume that is attached there stays so.
func (p *Pool) Attach(id, node string, one bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.volumes[id]
	switch {
	case !ok:
		return fmt.Errorf("volume %s: %w", id, ErrNotFound)
	case slices.Contains(v.Attached, node):
		return nil
	case one && len(v.Attached) > 0:
		return fmt.Errorf("volume %s: %w: %q", id, ErrInUse, v.Attached)
	}
	v.Attached = append(slices.Clone(v.Attached), node)
	return p.record(v)
}

// Detach detaches a volume from a node, or from all if none is said; one that is gone or is
// not attached there is no error.
func (p *Pool) Detach(id, node string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.volumes[id]
	if !ok || len(v.Attached) == 0 {
		return nil
	}
	v.Attached = slices.DeleteFunc(slices.Clone(v.Attached), func(has string) bool { return node == "" || has == node })
	return p.record(v)
}

// Volume returns a volume.
func (p *Pool) Volume(id string) (Volume, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.volumes[id]
	if !ok {
		return Volume{}, fmt.Errorf("volume %s: %w", id, ErrNotFound)
	}
	return v, nil
}

// Volumes returns all volumes, ordered by ID.
func (p *Pool) Volumes() []Volume {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedFunc(maps.Values(p.volumes), func(a, b Volume) int { return cmp.Compare(a.ID, b.ID) })
}

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
	return p.take(Snapshot{ID: id, Name: name, VolumeID: volumeID, Created: time.Now().UnixNano()}, v)
}

// take makes the files of a snapshot of a volume.
func (p *Pool) take(s Snapshot, v Volume) (Snapshot, error) {
	s.Node, s.Bytes = v.Node, v.Bytes
	if err := errors.Join(p.copy(p.snapshotImage(s.ID), p.Image(v.ID), v.Bytes), p.copyFolder(s.ID, v.ID)); err != nil {
		return Snapshot{}, err
	}
	if err := writeRecord(p.in("snapshots", s.ID), s); err != nil {
		return Snapshot{}, err
	}
	p.snapshots[s.ID] = s
	return s, nil
}

// DeleteSnapshot removes a snapshot; one that is gone is no error, one of a group goes with that only.
func (p *Pool) DeleteSnapshot(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if have, ok := p.snapshots[id]; !ok {
		return nil
	} else if have.Group != "" {
		return fmt.Errorf("%w: snapshot %s is one of group %s", ErrGrouped, id, have.Group)
	}
	return p.forget(id)
}

func (p *Pool) forget(id string) error {
	if err := errors.Join(remove(p.in("snapshots", id)), p.removeFolder(id)); err != nil {
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
