package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Scratch is the directory in which a mover stores manifests.
type Scratch struct {
	Path string
	// Limit is how many bytes it may contain; 0: as many as the disk has.
	Limit uint64
	// Owner names the mover in messages.
	Owner string
}

// File is the path of a file in the directory.
func (f Scratch) File(name string) string { return filepath.Join(f.Path, name) }

// ScratchSpace is how much a mover can store.
type ScratchSpace struct {
	Bytes uint64 `json:"bytes"`
	// Bound says what limits it, and what to do for more.
	Bound string `json:"why"`
}

// howToRaise is the advice for a higher limit.
const howToRaise = "let movers keep more with --mover-scratch of the provisioner"

// Space returns how much may be stored in all: as much as the limit, and at most half of the disk's
// space that is free or taken by these files, so that the rest of the node can go on.
func (f Scratch) Space() (ScratchSpace, error) {
	used, err := f.used()
	if err != nil {
		return ScratchSpace{}, err
	}
	var s unix.Statfs_t
	if err := unix.Statfs(f.Path, &s); err != nil {
		return ScratchSpace{}, fmt.Errorf("ask how much room is on the disk of the node: %w", err)
	}
	half := (used + s.Bavail*uint64(s.Frsize)) / 2
	if f.Limit > 0 && f.Limit <= half {
		return ScratchSpace{Bytes: f.Limit, Bound: "its limit; " + howToRaise}, nil
	}
	return ScratchSpace{Bytes: half, Bound: "half of what is free on the disk of its node; free more there"}, nil
}

// used returns how many bytes the files take.
func (f Scratch) used() (used uint64, err error) {
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

// Budget returns what may be written now in addition to what is there. Nil, which is returned
// without a limit, allows everything.
func (f Scratch) Budget() (*ScratchBudget, error) {
	if f.Limit == 0 {
		return nil, nil
	}
	used, err := f.used()
	if err != nil {
		return nil, err
	}
	b := &ScratchBudget{scratch: f}
	b.left.Store(int64(f.Limit) - int64(used))
	return b, nil
}

// ScratchBudget is how many bytes may be written. It is safe for concurrent use.
type ScratchBudget struct {
	scratch Scratch
	left    atomic.Int64
}

// Reserve reserves bytes that will be written. After an error, which is a sentence for the user,
// nothing is reserved.
func (b *ScratchBudget) Reserve(n uint64) error {
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
		b.scratch.Owner, FormatBytes(b.scratch.Limit), howToRaise)
}

// Release releases bytes that were written and removed again.
func (b *ScratchBudget) Release(n uint64) {
	if b != nil {
		b.left.Add(int64(n))
	}
}

// ScratchNeeded returns the most bytes that the movers of a volume store, from the bytes of names
// and of block hashes in its manifest. The sender has the manifests of both ends, and during a scan
// a new one of the source; the receiver has its own, and a new one. In addition names are sorted,
// and files listed.
func ScratchNeeded(names, hashes uint64) (source, target uint64) {
	return 3*(names+hashes) + names, 2*(names+hashes) + names
}

// ScratchRefusal returns why a mover cannot store a volume's manifests; empty if it can.
func ScratchRefusal(whose string, needs uint64, room ScratchSpace) string {
	if needs <= room.Bytes {
		return ""
	}
	return fmt.Sprintf("%s must remember up to %s of the files, and has room for %s (%s)", whose, FormatBytes(needs), FormatBytes(room.Bytes),
		room.Bound)
}

// FormatBytes is a number of bytes as a message shows it.
func FormatBytes(n uint64) string {
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
