// Package tree describes what is in a volume, so that two copies of it can be compared and changes
// since an earlier state can be found. Read this file for the model, then scan.go.
//
// [Scan] walks a directory and writes a manifest: one record for each entry, in canonical order,
// with all that a copy must keep and the BLAKE3 hashes of the contents, block by block. The root of
// a manifest is a hash over everything in it that a copy must keep; docs/move-verification.md
// defines it to the byte, so that another program can compute it. Inode numbers and change times
// are in the manifest too, but not in the root: they differ at the target.
//
// With an earlier manifest, Scan reads again only what may have changed since. [Changes] lists how
// one manifest differs from an earlier one of the same volume, [Compare] how two copies differ, in
// words.
//
// No function keeps the tree in memory: entries stream, sorting spills into a scratch directory.
// The package is for Linux. A manifest and a scratch directory must not be inside the volume.
package tree

import (
	"encoding/hex"
	"fmt"
	"time"
)

// BlockSize is how many bytes of a file one block hash covers.
//
// Smaller blocks send less when pages of a database change at random, larger ones
// make smaller manifests. At 32 KiB a manifest takes 1 MiB for each GiB of content
// (0.1 %); docs/move-verification.md has the figures for other sizes.
const BlockSize = 32 << 10

// HashSize is the length of a hash in bytes.
const HashSize = 32

// Version is that of the root's definition.
const Version = 1

// Hash is a BLAKE3 hash of 256 bits.
type Hash [HashSize]byte

// Type is the type of an entry. Its values are part of the root's definition.
type Type byte

// The types of entries.
const (
	Directory   Type = 'd'
	File        Type = 'f'
	Symlink     Type = 'l'
	Fifo        Type = 'p'
	Socket      Type = 's'
	CharDevice  Type = 'c'
	BlockDevice Type = 'b'
)

// String names the type in words.
func (t Type) String() string {
	switch t {
	case Directory:
		return "directory"
	case File:
		return "file"
	case Symlink:
		return "symbolic link"
	case Fifo:
		return "named pipe"
	case Socket:
		return "socket"
	case CharDevice:
		return "character device"
	case BlockDevice:
		return "block device"
	}
	return "entry of unknown type"
}

// Time is a time stamp of a file system: seconds since 1970, which may be negative, and nanoseconds
// after it.
type Time struct {
	Sec  int64
	Nsec uint32
}

// Before reports whether t is earlier than u.
func (t Time) Before(u Time) bool {
	return t.Sec < u.Sec || t.Sec == u.Sec && t.Nsec < u.Nsec
}

// Xattr is an extended attribute. The manifest has the length and the hash of its value.
type Xattr struct {
	Name   string
	Length uint64
	Hash   Hash
}

// Entry is one name in the tree.
type Entry struct {
	// Path is the path from the root of the volume, with '/' between names; empty for the root
	// itself. It has the file system's bytes, which are not always UTF-8.
	Path string
	Type Type
	// Mode holds the lower 12 bits: permissions, setuid, setgid and sticky.
	Mode     uint32
	UID, GID uint32
	Mtime    Time
	// Size and Content are those of a file; Content is the hash of its block hashes.
	Size    uint64
	Content Hash
	// Target is that of a symbolic link.
	Target string
	// Major and Minor are the numbers of a device.
	Major, Minor uint32
	// Xattrs are sorted by name.
	Xattrs []Xattr

	// The following fields are not in the root: they show whether an entry has changed since an
	// earlier scan of the same volume.
	Inode uint64
	Ctime Time
	// Links is the number of names the inode has, also outside the volume's tree.
	Links uint32
	// Allocated is how many bytes the file takes on its file system.
	Allocated uint64
	// Ordinal is the entry's position in canonical order; the root has 0.
	Ordinal uint64

	// blocks is the position of the block hashes in the manifest; 0 if a file has fewer than two
	// blocks.
	blocks int64
}

// Blocks is how many block hashes the entry has.
func (e *Entry) Blocks() uint64 {
	if e.Type != File {
		return 0
	}
	return (e.Size + BlockSize - 1) / BlockSize
}

// comparePaths compares two paths in canonical order, negative where a comes before b: a
// directory comes before what is in it, and that before the directory's next sibling; names
// are compared byte by byte.
func comparePaths(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] == b[i] {
			continue
		}
		// No name holds '/', so it sorts as if it were the lowest byte.
		switch {
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		case a[i] < b[i]:
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}

// minus returns the time so many nanoseconds earlier.
func (t Time) minus(nanoseconds int64) Time {
	t.Sec -= nanoseconds / second
	rest := uint32(nanoseconds % second)
	if t.Nsec < rest {
		t.Sec--
		t.Nsec += uint32(second)
	}
	t.Nsec -= rest
	return t
}

// String is the time in UTC.
func (t Time) String() string {
	if t == (Time{}) {
		return "an unknown time"
	}
	return time.Unix(t.Sec, int64(t.Nsec)).UTC().Format(time.RFC3339Nano)
}

// String is the hash in hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes the hash in hexadecimal digits.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != 2*HashSize {
		return fmt.Errorf("read a hash: %d digits, not %d", len(text), 2*HashSize)
	}
	if _, err := hex.Decode(h[:], text); err != nil {
		return fmt.Errorf("read a hash: %w", err)
	}
	return nil
}
