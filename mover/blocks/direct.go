package blocks

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// piece is how much content in a row is written past the page cache at once, by so many
	// writers as are busy with one file.
	piece, writers = 1 << 20, 3
	// aligned is what places, lengths and addresses of such writes are multiples of.
	aligned = 4 << 10
)

// direct writes content in a row past the page cache of one file: nobody reads it before
// Verify does, from the disk, and pods of the node keep what the cache has of theirs. What
// is less than a piece, or lies between its borders, is left to the page cache.
type direct struct {
	// fd is opened with O_DIRECT, cached without.
	fd, cached int
	filling    *[piece]byte
	filled     int
	at         int64
	places     chan struct{}
	busy       sync.WaitGroup
	refused    atomic.Bool
	failed     atomic.Pointer[error]
}

// directly returns the direct writer of a file that was opened at a name below a directory;
// nil where the file system is not known to take such writes as they are: others may
// compress or keep checksums of what goes through the page cache only.
func directly(parent int, name string, cached int) *direct {
	var system unix.Statfs_t
	known := []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC}
	if err := unix.Fstatfs(cached, &system); err != nil || !slices.Contains(known, int64(system.Type)) { //nolint:unconvert // not int64 everywhere
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
	return &direct{fd: fd, cached: cached, places: make(chan struct{}, writers)}
}

// pieces are buffers for one piece each, of which the address is aligned.
var pieces = sync.Pool{New: func() any {
	whole := make([]byte, piece+aligned)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(whole)))) & (aligned - 1)
	return (*[piece]byte)(whole[skip:])
}}

// write takes content, which may still be on its way when write returns; an error may be
// that of content that was taken before.
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
			d.begin()
		}
	}
	return nil
}

// begin has a full piece written.
func (d *direct) begin() {
	full, at := d.filling, d.at
	d.filling, d.filled = nil, 0
	d.places <- struct{}{}
	d.busy.Go(func() {
		err := writeAt(d.fd, full[:], at)
		if errors.Is(err, unix.EINVAL) {
			d.refused.Store(true)
			err = writeAt(d.cached, full[:], at)
		}
		if err != nil {
			d.failed.CompareAndSwap(nil, &err)
		}
		pieces.Put(full)
		<-d.places
	})
}

// flush writes what is no full piece.
func (d *direct) flush() error {
	n := d.filled
	d.filled = 0
	if n == 0 {
		return nil
	}
	return writeAt(d.cached, d.filling[:n], d.at)
}

// end waits until all is written, and tells if something was not.
func (d *direct) end() error {
	err := d.flush()
	d.busy.Wait()
	if failed := d.failed.Load(); failed != nil {
		return *failed
	}
	return err
}

// close gives up what is not written yet.
func (d *direct) close() {
	d.busy.Wait()
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
