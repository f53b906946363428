package blocks

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/tree"
)

const (
	// piece is how much consecutive content is written at once past the page cache; writers is how
	// many goroutines write pieces of one file.
	piece, writers = 1 << 20, 3
	// aligned is the multiple that offsets, lengths and addresses of such writes must be of.
	aligned = tree.DirectAlignment
)

// direct writes consecutive content of one file past the page cache: nobody reads it before Verify
// does, from the disk, and the pods of the node keep their pages in the cache. Content that is
// shorter than a piece, or not aligned to one, is written through the page cache.
type direct struct {
	// fd is opened with O_DIRECT, cached without it.
	fd, cached int
	filling    *[piece]byte
	filled     int
	at         int64
	slots      chan struct{}
	writing    sync.WaitGroup
	refused    atomic.Bool
	failed     atomic.Pointer[error]
}

// newDirect returns the direct writer of a file that was opened at a name below a directory; nil if
// the file system is not known to write such content directly: others may compress or checksum only
// what goes through the page cache.
func newDirect(parent int, name string, cached int) *direct {
	var system unix.Statfs_t
	known := []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC}
	if err := unix.Fstatfs(cached, &system); err != nil ||
		!slices.Contains(known, int64(system.Type)) { //nolint:unconvert // not int64 everywhere
		return nil
	}
	fd, err := openBeneath(parent, name, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_DIRECT, 0)
	if err != nil {
		return nil
	}
	var one, other unix.Stat_t
	if unix.Fstat(fd, &one) != nil || unix.Fstat(cached, &other) != nil || one.Ino != other.Ino || one.Dev != other.Dev {
		_ = unix.Close(fd)
		return nil
	}
	return &direct{fd: fd, cached: cached, slots: make(chan struct{}, writers)}
}

// pieces are buffers of one piece each with an aligned address.
var pieces = sync.Pool{New: func() any {
	return (*[piece]byte)(tree.AlignedBuffer(piece))
}}

// write accepts content, which may be written only after write has returned; an error may be that
// of content from an earlier call.
func (d *direct) write(offset int64, content []byte) error {
	if err := d.failed.Load(); err != nil {
		return *err
	}
	if d.filled > 0 && offset != d.at+int64(d.filled) {
		if err := d.flush(); err != nil {
			return err
		}
	}
	for len(content) > 0 {
		if d.filled == 0 {
			if d.refused.Load() || offset%aligned != 0 {
				return writeAt(d.cached, content, offset)
			}
			if d.filling == nil {
				d.filling, _ = pieces.Get().(*[piece]byte)
			}
			d.at = offset
		}
		n := copy(d.filling[d.filled:], content)
		d.filled += n
		content, offset = content[n:], offset+int64(n)
		if d.filled == piece {
			d.writePiece()
		}
	}
	return nil
}

// writePiece starts the write of a full piece.
func (d *direct) writePiece() {
	full, at := d.filling, d.at
	d.filling, d.filled = nil, 0
	d.slots <- struct{}{}
	d.writing.Go(func() {
		err := writeAt(d.fd, full[:], at)
		if errors.Is(err, unix.EINVAL) {
			d.refused.Store(true)
			err = writeAt(d.cached, full[:], at)
		}
		if err != nil {
			d.failed.CompareAndSwap(nil, &err)
		}
		pieces.Put(full)
		<-d.slots
	})
}

// flush writes the rest that is no full piece.
func (d *direct) flush() error {
	n := d.filled
	d.filled = 0
	if n == 0 {
		return nil
	}
	return writeAt(d.cached, d.filling[:n], d.at)
}

// end waits until all is written, and returns the first error.
func (d *direct) end() error {
	err := d.flush()
	d.writing.Wait()
	if failed := d.failed.Load(); failed != nil {
		return *failed
	}
	return err
}

// close discards what is not written yet.
func (d *direct) close() {
	d.writing.Wait()
	if d.filling != nil {
		pieces.Put(d.filling)
	}
	_ = unix.Close(d.fd)
}

func writeAt(fd int, content []byte, offset int64) error {
	for len(content) > 0 {
		n, err := unix.Pwrite(fd, content, offset)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		content, offset = content[n:], offset+int64(n)
	}
	return nil
}
