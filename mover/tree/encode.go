package tree

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var big = binary.BigEndian

// appendCanonical appends what the root says of the entry. Its form is defined in
// docs/move-verification.md and must never change under the same version.
func appendCanonical(b []byte, e *Entry) []byte {
	b = append(b, byte(e.Type))
	b = appendString(b, e.Path)
	b = big.AppendUint32(b, e.Mode)
	b = big.AppendUint32(b, e.UID)
	b = big.AppendUint32(b, e.GID)
	b = appendTime(b, e.Mtime)
	switch e.Type {
	case File:
		b = big.AppendUint64(b, e.Size)
		b = append(b, e.Content[:]...)
	case Symlink:
		b = appendString(b, e.Target)
	case CharDevice, BlockDevice:
		b = big.AppendUint32(b, e.Major)
		b = big.AppendUint32(b, e.Minor)
	case Directory, Fifo, Socket:
	}
	b = big.AppendUint32(b, uint32(len(e.Xattrs)))
	for _, x := range e.Xattrs {
		b = appendString(b, x.Name)
		b = big.AppendUint64(b, x.Length)
		b = append(b, x.Hash[:]...)
	}
	return b
}

// appendPrivate appends what only the manifest keeps.
func appendPrivate(b []byte, e *Entry) []byte {
	b = big.AppendUint64(b, e.Inode)
	b = appendTime(b, e.Ctime)
	b = big.AppendUint32(b, e.Links)
	b = big.AppendUint64(b, e.Allocated)
	return big.AppendUint64(b, uint64(e.blocks))
}

func appendString(b []byte, s string) []byte {
	return append(big.AppendUint32(b, uint32(len(s))), s...)
}

func appendTime(b []byte, t Time) []byte {
	return big.AppendUint32(big.AppendUint64(b, uint64(t.Sec)), t.Nsec)
}

// decodeEntry reads a record of an entry: the length of its canonical part, that
// part, and the private part.
func decodeEntry(record []byte) (*Entry, error) {
	d := &decoder{rest: record}
	canonical := int(d.uint32())
	e := &Entry{Type: Type(d.take(1)[0])}
	e.Path = d.string()
	e.Mode, e.UID, e.GID = d.uint32(), d.uint32(), d.uint32()
	e.Mtime = d.time()
	switch e.Type {
	case File:
		e.Size = d.uint64()
		copy(e.Content[:], d.take(HashSize))
	case Symlink:
		e.Target = d.string()
	case CharDevice, BlockDevice:
		e.Major, e.Minor = d.uint32(), d.uint32()
	case Directory, Fifo, Socket:
	default:
		return nil, fmt.Errorf("read a manifest: unknown type %q of an entry", byte(e.Type))
	}
	for n := d.uint32(); n > 0 && d.err == nil; n-- {
		x := Xattr{Name: d.string(), Length: d.uint64()}
		copy(x.Hash[:], d.take(HashSize))
		e.Xattrs = append(e.Xattrs, x)
	}
	if d.err == nil && len(record)-len(d.rest) != 4+canonical {
		return nil, errors.New("read a manifest: an entry has another length than it says")
	}
	e.Inode = d.uint64()
	e.Ctime = d.time()
	e.Links = d.uint32()
	e.Allocated = d.uint64()
	e.blocks = int64(d.uint64())
	if d.err != nil {
		return nil, fmt.Errorf("read an entry of a manifest: %w", d.err)
	}
	return e, nil
}

// decoder takes fields from the front of a record; after the first that is not
// whole it gives zeros and keeps the error.
type decoder struct {
	rest []byte
	err  error
}

var errShort = errors.New("it ends early")

var zeros [HashSize]byte

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.rest) {
		d.err = errShort
		return zeros[:min(max(n, 0), len(zeros))]
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) uint32() uint32 { return big.Uint32(d.take(4)) }
func (d *decoder) uint64() uint64 { return big.Uint64(d.take(8)) }
func (d *decoder) string() string { return string(d.take(int(d.uint32()))) }
func (d *decoder) time() Time     { return Time{Sec: int64(d.uint64()), Nsec: d.uint32()} }
