package pool

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// SnapGroup takes snapshots of several volumes at one moment, or returns those that were taken
// under that name: all, or none. A process that is killed meanwhile leaves some of them, which
// the next call replaces.
func (p *Pool) SnapGroup(name string, volumeIDs []string) (id string, taken []Snapshot, err error) {
	if err := checkName(name); err != nil {
		return "", nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id = "group-" + name
	wanted := slices.Sorted(slices.Values(volumeIDs))
	have := p.group(id)
	of := make([]string, 0, len(have))
	for _, s := range have {
		of = append(of, s.VolumeID)
	}
	slices.Sort(of)
	if slices.Equal(of, wanted) {
		return id, have, nil
	}
	for _, volume := range of {
		if !slices.Contains(wanted, volume) {
			return "", nil, fmt.Errorf("%w: group %s is of volumes %q", ErrConflict, id, of)
		}
	}
	room := map[string]int64{}
	for _, volume := range wanted {
		v, ok := p.volumes[volume]
		if !ok {
			return "", nil, fmt.Errorf("volume %s: %w", volume, ErrNotFound)
		}
		if room[v.Node] += v.Bytes; p.free(v.Node) < room[v.Node] {
			return "", nil, fmt.Errorf("%w for snapshots of %d bytes on %q", ErrFull, room[v.Node], v.Node)
		}
	}
	for _, s := range have {
		if err := p.forget(s.ID); err != nil {
			return "", nil, err
		}
	}
	thaw, err := p.freeze(wanted)
	if err != nil {
		return "", nil, err
	}
	defer thaw()
	now := time.Now().UnixNano()
	for _, volume := range wanted {
		of := name + "." + volume
		if _, err := p.take(Snapshot{ID: "snap-" + of, Name: of, VolumeID: volume, Created: now, Group: id}, p.volumes[volume]); err != nil {
			return "", nil, err
		}
	}
	return id, p.group(id), nil
}

// freeze locks the folders of volumes, or their images where there are no folders, until thaw is called, as a file system is frozen:
// programs that lock the same (flock) while they write wait, so that all copies are of one moment.
func (p *Pool) freeze(volumes []string) (thaw func(), err error) {
	var locked []*os.File
	thaw = func() {
		for _, file := range locked {
			_ = file.Close()
		}
	}
	for _, volume := range volumes {
		at := p.Image(volume)
		if p.Folders != "" {
			at = filepath.Join(p.Folders, volume)
			if err := os.MkdirAll(at, 0o755); err != nil {
				thaw()
				return nil, fmt.Errorf("make folder %s: %w", at, err)
			}
		}
		file, err := os.Open(at)
		if err == nil {
			locked = append(locked, file)
			err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		}
		if err != nil {
			thaw()
			return nil, fmt.Errorf("lock %s: %w", at, err)
		}
	}
	return thaw, nil
}

// Group returns the snapshots of a group, ordered by ID; none if there is no such group.
func (p *Pool) Group(id string) []Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.group(id)
}

func (p *Pool) group(id string) []Snapshot {
	var of []Snapshot
	for _, s := range p.snapshots {
		if s.Group == id {
			of = append(of, s)
		}
	}
	slices.SortFunc(of, func(a, b Snapshot) int { return cmp.Compare(a.ID, b.ID) })
	return of
}

// DeleteGroup removes all snapshots of a group; one that is gone is no error.
func (p *Pool) DeleteGroup(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.group(id) {
		if err := p.forget(s.ID); err != nil {
			return err
		}
	}
	return nil
}
