package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Rescan scans a volume into the manifest at options.Manifest. A manifest that is there is used as
// the earlier one, unless full is set, or it is torn or that of another directory.
func Rescan(ctx context.Context, options Options, full bool) (Summary, error) {
	if previous, err := Open(options.Manifest); err == nil {
		before := previous.Summary()
		_ = previous.Close()
		same := before.Expect()
		same.AllowFewer = true
		if !full {
			incremental := options
			incremental.Previous = options.Manifest
			if incremental.Expect == nil {
				incremental.Expect = same
			}
			summary, err := Scan(ctx, incremental)
			var collapsed *CollapseError
			if err == nil || ctx.Err() != nil || options.Expect != nil || !errors.As(err, &collapsed) {
				return summary, err
			}
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		// It is written again; a torn one is no reason to fail.
		if err := os.Remove(options.Manifest); err != nil {
			return Summary{}, err
		}
	}
	options.Previous = ""
	return Scan(ctx, options)
}

// earlierManifest is a manifest of the same volume from which a scan copies unchanged entries.
type earlierManifest struct {
	manifest *Manifest
	// settled is the time before which its change times can be trusted.
	settled Time
}

// openEarlier opens an earlier manifest, of large files only or of everything; it returns nil
// without a path.
func openEarlier(path string, onlyLarge bool) (*earlierManifest, error) {
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
	return &earlierManifest{manifest: m, settled: s.Started.minus(s.Margin)}, nil
}

func (e *earlierManifest) close() {
	if e != nil {
		_ = e.manifest.Close()
	}
}

// read returns a reader of the entries; nil if there are none.
func (e *earlierManifest) read() *earlierReader {
	if e == nil {
		return nil
	}
	return &earlierReader{of: e, entries: e.manifest.Entries()}
}

// earlierReader reads an earlier manifest in step with the walk.
type earlierReader struct {
	of      *earlierManifest
	entries *Reader
	ahead   *Entry
}

// earlierEntry is the entry of an earlier manifest at a path; its entry is nil if there is none.
type earlierEntry struct {
	entry *Entry
	of    *earlierManifest
}

// find returns the earlier entry at a path, if there is one. It must be called in canonical order.
// Without an earlier manifest there are none.
func (r *earlierReader) find(path string) (earlierEntry, error) {
	if r == nil {
		return earlierEntry{}, nil
	}
	for r.entries != nil {
		if r.ahead == nil {
			next, err := r.entries.Next()
			if errors.Is(err, io.EOF) {
				r.entries = nil
				break
			}
			if err != nil {
				return earlierEntry{}, fmt.Errorf("read the earlier manifest: %w", err)
			}
			r.ahead = next
		}
		switch order := comparePaths(r.ahead.Path, path); {
		case order > 0:
			return earlierEntry{}, nil
		case order == 0:
			found := r.ahead
			r.ahead = nil
			return earlierEntry{entry: found, of: r.of}, nil
		}
		r.ahead = nil
	}
	return earlierEntry{}, nil
}

// unchanged reports whether an entry is still as in the earlier manifest. The change time decides:
// no program can set it. One that is not clearly older than the earlier scan proves nothing, since
// the entry may have changed again within the same tick of the file system's clock.
func (e earlierEntry) unchanged(now *Entry) bool {
	before := e.entry
	return before != nil && before.Type == now.Type && before.Inode == now.Inode && before.Size == now.Size &&
		before.Mtime == now.Mtime && before.Ctime == now.Ctime && now.Ctime.Before(e.of.settled)
}

const (
	second = int64(1e9)
	// localMargin covers the coarsest clock of local file systems: whole seconds, and
	// the tick of the kernel's clock.
	localMargin = 2 * second
	// remoteMargin also covers a server whose clock differs from ours.
	remoteMargin = 600 * second
	// never means that change times of this file system prove nothing.
	never = int64(1) << 62
)

// F2FS and ZFS are missing in the list of golang.org/x/sys.
const zfsMagic = 0x2fc12fc1

// fileSystem is a file system's magic number.
type fileSystem int64

func fileSystemOf(fd int) (fileSystem, error) {
	var s unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(fd, &s) }); err != nil {
		return 0, fmt.Errorf("ask what file system the volume has: %w", err)
	}
	return fileSystem(s.Type), nil
}

// Settling returns how long files must not have been written before a scan so that later scans can
// trust its result for them. On network file systems that is minutes, and on some in memory it is
// for ever.
func Settling(root string) (time.Duration, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open the volume at %s: %w", root, err)
	}
	defer unix.Close(fd)
	system, err := fileSystemOf(fd)
	return time.Duration(system.margin()), err
}

// margin returns by how much a change time must be earlier than the start of a scan so that the
// entry counts as settled by that scan.
func (s fileSystem) margin() int64 {
	switch s {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, zfsMagic:
		return localMargin
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.HUGETLBFS_MAGIC:
		// On this file system a store through a memory mapping changes no time after the first one.
		return never
	}
	return remoteMargin
}

// Identity identifies a directory. Device numbers are not part of it: they change when a volume is
// mounted again.
type Identity struct {
	// Inode is the root's. Many file systems give every root the same number.
	Inode uint64 `json:"inode"`
	// Born is the creation time of the root, if the file system reports it; else zero. No program
	// can set it.
	Born Time `json:"born"`
	// System is the file system's magic number.
	System int64 `json:"system"`
}

func identityOf(s *stat, system fileSystem) Identity {
	id := Identity{Inode: s.Ino, System: int64(system)}
	if s.Mask&unix.STATX_BTIME != 0 {
		id.Born = timeOf(s.Btime)
	}
	return id
}

// Expectation is what a later scan must find again of an earlier one.
type Expectation struct {
	Identity Identity `json:"identity"`
	// Entries is how many there were.
	Entries uint64 `json:"entries"`
	// AllowFewer allows that nearly all entries are gone.
	AllowFewer bool `json:"allowFewer,omitempty"`
	// Copied says that a copy of the volume was scanned, for example one from a snapshot: it has
	// another root and may be larger, so only the entries are compared.
	Copied bool `json:"copied,omitempty"`
	// Device is the size of a block volume in bytes; 0 for a directory.
	Device uint64 `json:"device,omitempty"`
}

// Expect returns the expectation for later scans of the same volume.
func (s Summary) Expect() *Expectation {
	e := &Expectation{Identity: s.Identity, Entries: s.Entries}
	if s.Device {
		e.Device = s.Bytes
	}
	return e
}

// checkSize refuses a block volume that has another size: it has no other identity.
func (e *Expectation) checkSize(now uint64) error {
	if e == nil || e.Copied || e.Device == now {
		return nil
	}
	return &CollapseError{reason: fmt.Sprintf("it has %d bytes, and had %d; check which device it is", now, e.Device)}
}

// CollapseError means that the volume is another one or nearly empty: copying it would wipe the
// target.
type CollapseError struct{ reason string }

func (e *CollapseError) Error() string {
	return "the volume is not what the first pass saw, and is not copied: " + e.reason
}

// checkIdentity refuses a root that is another directory than expected.
func (e *Expectation) checkIdentity(now Identity) error {
	if e == nil || e.Copied || e.Identity == now {
		return nil
	}
	return &CollapseError{reason: fmt.Sprintf(
		"its root is another directory (inode %d of file system %#x, made at %s; before: inode %d of %#x, made at %s); "+
			"check what is mounted", now.Inode, now.System, now.Born, e.Identity.Inode, e.Identity.System, e.Identity.Born)}
}

const (
	// collapseFrom is the number of entries from which on the loss of nearly all is a collapse.
	collapseFrom = 100
	// collapseFraction is the part of them that must be left: one in so many.
	collapseFraction = 10
)

// checkEntries refuses a tree that has lost all entries, or nearly all.
func (e *Expectation) checkEntries(now Summary) error {
	if e == nil || e.AllowFewer {
		return nil
	}
	if e.Entries > 1 && now.Entries <= 1 {
		return &CollapseError{reason: fmt.Sprintf("it is empty, and had %d entries", e.Entries-1)}
	}
	if e.Entries >= collapseFrom && now.Entries < e.Entries/collapseFraction {
		return &CollapseError{reason: fmt.Sprintf("it has %d entries, and had %d", now.Entries-1, e.Entries-1)}
	}
	return nil
}
