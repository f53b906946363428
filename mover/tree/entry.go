package tree

// BlockSize is how many bytes of a file one block hash covers.
//
// Smaller blocks send less when pages of a database change at random, larger ones
// make smaller manifests. At 32 KiB a manifest takes 1 MiB for each GiB of content
// (0.1 %); docs/move-verification.md has the figures for other sizes.
const BlockSize = 32 << 10

// HashSize is the length of a hash in bytes.
const HashSize = 32

// Hash is a BLAKE3 hash of 256 bits.
type Hash [HashSize]byte

// Type is what an entry is. Its values are part of the root's definition.
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

// Time is an instant as a file system keeps it: seconds since 1970, which may be
// negative, and nanoseconds after it.
type Time struct {
	Sec  int64
	Nsec uint32
}

// Before says whether t is earlier than u.
func (t Time) Before(u Time) bool {
	return t.Sec < u.Sec || t.Sec == u.Sec && t.Nsec < u.Nsec
}

// Xattr is an extended attribute. Of its value the manifest keeps the length and
// the hash.
type Xattr struct {
	Name   string
	Length uint64
	Hash   Hash
}

// Entry is one name in the tree.
type Entry struct {
	// Path leads from the root of the volume, with '/' between names; empty for the
	// root itself. It is bytes as the file system has them, not always UTF-8.
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

	// The rest is not in the root: it tells whether an entry changed since an
	// earlier scan of the same volume.
	Inode uint64
	Ctime Time
	// Links is the number of names the inode has, also outside the volume's tree.
	Links uint32
	// Allocated is how many bytes the file takes on its file system.
	Allocated uint64
	// Ordinal is the entry's place in canonical order; the root has 0.
	Ordinal uint64

	// blocks is where the block hashes are in the manifest; 0 when a file has fewer
	// than two blocks.
	blocks int64
}

// Blocks is how many block hashes the entry has.
func (e *Entry) Blocks() uint64 {
	if e.Type != File {
		return 0
	}
	return (e.Size + BlockSize - 1) / BlockSize
}

// Less says whether path a comes before path b in canonical order: a directory
// comes before what is in it, and that before the directory's next sibling; names
// are compared byte by byte.
func Less(a, b string) bool { return comparePaths(a, b) < 0 }

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
