package tree

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Identity tells a directory from every other. Device numbers are not part of it:
// they change when a volume is mounted again.
type Identity struct {
	// Inode is the root's. Many file systems give every root the same number.
	Inode uint64 `json:"inode"`
	// Born is when the root was made, where the file system tells; else zero. No
	// program can set it.
	Born Time `json:"born"`
	// System is the file system's magic number.
	System int64 `json:"system"`
}

// Expectation is what an earlier scan saw and a later one must see again.
type Expectation struct {
	Identity Identity `json:"identity"`
	// Entries is how many there were.
	Entries uint64 `json:"entries"`
	// AllowFewer lets nearly all entries be gone.
	AllowFewer bool `json:"allowFewer,omitempty"`
	// Copied says that a copy of the volume was seen, as one that was made of a snapshot:
	// it has another root and may be larger, so only what is in it is compared.
	Copied bool `json:"copied,omitempty"`
	// Device is the size of a block volume in bytes; 0 for a directory.
	Device uint64 `json:"device,omitempty"`
}

// Expect makes the expectation for later scans of the same volume.
func (s Summary) Expect() *Expectation {
	e := &Expectation{Identity: s.Identity, Entries: s.Entries}
	if s.Device {
		e.Device = s.Bytes
	}
	return e
}

// sized refuses a block volume that has another size: nothing else tells it from
// others.
func (e *Expectation) sized(now uint64) error {
	if e == nil || e.Copied || e.Device == now {
		return nil
	}
	return &CollapseError{reason: fmt.Sprintf("it has %d bytes, and had %d; check which device it is", now, e.Device)}
}

// CollapseError says that the volume is not what it was: copying it would wipe the
// target.
type CollapseError struct{ reason string }

func (e *CollapseError) Error() string {
	return "the volume is not what the first pass saw, and is not copied: " + e.reason
}

// recognize refuses a root that is another directory than expected.
func (e *Expectation) recognize(now Identity) error {
	if e == nil || e.Copied || e.Identity == now {
		return nil
	}
	return &CollapseError{reason: fmt.Sprintf(
		"its root is another directory (inode %d of file system %#x, made at %s; before: inode %d of %#x, made at %s); "+
			"check what is mounted", now.Inode, now.System, now.Born, e.Identity.Inode, e.Identity.System, e.Identity.Born)}
}

const (
	// fewFrom is from how many entries on the loss of nearly all is a collapse.
	fewFrom = 100
	// fewPart is which part of them must be left.
	fewPart = 10
)

// check refuses a tree that has lost everything, or nearly.
func (e *Expectation) check(now Summary) error {
	if e == nil || e.AllowFewer {
		return nil
	}
	if e.Entries > 1 && now.Entries <= 1 {
		return &CollapseError{reason: fmt.Sprintf("it is empty, and had %d entries", e.Entries-1)}
	}
	if e.Entries >= fewFrom && now.Entries < e.Entries/fewPart {
		return &CollapseError{reason: fmt.Sprintf("it has %d entries, and had %d", now.Entries-1, e.Entries-1)}
	}
	return nil
}

func identityOf(s *stat, system system) Identity {
	id := Identity{Inode: s.Ino, System: int64(system)}
	if s.Mask&unix.STATX_BTIME != 0 {
		id.Born = timeOf(s.Btime)
	}
	return id
}

// String is the time in UTC.
func (t Time) String() string {
	if t == (Time{}) {
		return "an unknown time"
	}
	return time.Unix(t.Sec, int64(t.Nsec)).UTC().Format(time.RFC3339Nano)
}
