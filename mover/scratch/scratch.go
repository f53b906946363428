// Package scratch bounds what a mover keeps on the disk of its node: manifests, and what
// is sorted for them. A node whose disk is full ends pods, and not only the mover.
package scratch

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Folder is where a mover keeps manifests.
type Folder struct {
	Path string
	// Limit is how many bytes it may hold; 0: what the disk has.
	Limit uint64
	// Whose names the mover in messages.
	Whose string
}

// File is the path of a file in the folder.
func (f Folder) File(name string) string { return filepath.Join(f.Path, name) }

// Room is how much a mover can keep.
type Room struct {
	Bytes uint64 `json:"bytes"`
	// Why is what bounds it, and what to do for more.
	Why string `json:"why"`
}

// more is what to do for a higher limit.
const more = "let movers keep more with --mover-scratch of the provisioner"

// Room is how much may be kept here altogether: as much as the limit says, and half of
// what the disk has free, so that the rest of the node can work on.
func (f Folder) Room() (Room, error) {
	used, err := f.used()
	if err != nil {
		return Room{}, err
	}
	var s unix.Statfs_t
	if err := unix.Statfs(f.Path, &s); err != nil {
		return Room{}, fmt.Errorf("ask how much room is on the disk of the node: %w", err)
	}
	half := (used + s.Bavail*uint64(s.Frsize)) / 2
	if f.Limit > 0 && f.Limit <= half {
		return Room{Bytes: f.Limit, Why: "its limit; " + more}, nil
	}
	return Room{Bytes: half, Why: "half of what is free on the disk of its node; free more there"}, nil
}

// used is how many bytes the files take.
func (f Folder) used() (used uint64, err error) {
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return 0, fmt.Errorf("look at the mover's scratch: %w", err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			used += uint64(info.Size())
		}
	}
	return used, nil
}

// Budget is what may be written now besides what is there. Nil, as where there is no
// limit, allows everything.
func (f Folder) Budget() (*Budget, error) {
	if f.Limit == 0 {
		return nil, nil
	}
	used, err := f.used()
	if err != nil {
		return nil, err
	}
	b := &Budget{folder: f}
	b.left.Store(int64(f.Limit) - int64(used))
	return b, nil
}

// Budget is how many bytes may be written. It may be used by several at once.
type Budget struct {
	folder Folder
	left   atomic.Int64
}

// Take takes bytes that will be written. The error is the sentence for the user; then
// nothing was taken.
func (b *Budget) Take(n uint64) error {
	if b == nil {
		return nil
	}
	if n <= 1<<62 && b.left.Add(-int64(n)) >= 0 {
		return nil
	}
	if n <= 1<<62 {
		b.left.Add(int64(n))
	}
	return fmt.Errorf("%s may keep %s on the disk of its node, and what it must remember of the files takes more; %s",
		b.folder.Whose, InWords(b.folder.Limit), more)
}

// Give gives back bytes that were written and removed again.
func (b *Budget) Give(n uint64) {
	if b != nil {
		b.left.Add(int64(n))
	}
}

// Needed is how much the movers of a volume keep at most, whose manifest takes so much
// for names and for hashes of blocks. The sender has the manifests of both ends, and a
// new one of the source while it looks; the receiver has its own, and a new one. Besides,
// names are sorted, and files listed.
func Needed(names, hashes uint64) (source, target uint64) {
	return 3*(names+hashes) + names, 2*(names+hashes) + names
}

// Refusal says why a mover cannot remember a volume; empty if it can.
func Refusal(whose string, needs uint64, room Room) string {
	if needs <= room.Bytes {
		return ""
	}
	return fmt.Sprintf("%s must remember up to %s of the files, and has room for %s (%s)", whose, InWords(needs), InWords(room.Bytes), room.Why)
}

// InWords is a number of bytes as a message shows it.
func InWords(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
