package tree

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// LargeFrom is from how many bytes on a file is large: several workers read it at once, a
// segment each.
const LargeFrom = 4 << 20

const (
	// segment is what one worker reads of a large file.
	segment = 4 << 20
	// bufferSize is what a worker reads in one call: whole blocks.
	bufferSize = 8 * BlockSize
)

var (
	zeroBlock = make([]byte, BlockSize)
	zeroHash  = plain(zeroBlock)
)

// openedFile is a file whose content is being read.
type openedFile struct {
	fd int
	// direct says that it is read past the page cache.
	direct atomic.Bool
}

// openFile opens the file that was seen at a name. If the name means something else by
// now, of which nothing is read, the error is ENOENT: the next scan sees what it is.
// With cold its pages are dropped first, so that what is read comes from the disk.
func openFile(d *dir, name string, seen *Entry, cold bool) (*openedFile, error) {
	fd, err := openAt(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err != nil {
		if now, lookErr := statAt(d.fd, name); gone(lookErr) || lookErr == nil && !now.is(seen) {
			// Not every pipe, socket or device can be opened.
			return nil, unix.ENOENT
		}
		return nil, err
	}
	f := &openedFile{fd: fd}
	var now unix.Stat_t
	if err := retry(func() error { return unix.Fstat(fd, &now) }); err != nil || now.Ino != seen.Inode || now.Mode&unix.S_IFMT != unix.S_IFREG {
		f.close()
		return nil, cmp.Or(err, error(unix.ENOENT))
	}
	if !cold {
		return f, nil
	}
	if err := f.drop(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// drop drops the file's pages from memory. They are clean: the scan began with a sync
// of the whole file system, which costs one flush of the disk and not one a file.
func (f *openedFile) drop() error {
	if err := unix.Fadvise(f.fd, 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("drop its cached pages: %w", err)
	}
	return nil
}

// settle ends the reading of a file of which so many bytes were read, and says
// whether it changed since the entry was made.
func (f *openedFile) settle(e *Entry, read uint64) (unsettled bool, err error) {
	s, err := statAt(f.fd, "")
	if err != nil {
		return false, err
	}
	unsettled = timeOf(s.Ctime) != e.Ctime || s.Size != e.Size || read != e.Size
	e.Size = read
	return unsettled, nil
}

// is says whether this is the file that an entry was made of.
func (s *stat) is(e *Entry) bool { return s.Ino == e.Inode && s.Mode&unix.S_IFMT == unix.S_IFREG }

func (f *openedFile) close() { _ = unix.Close(f.fd) }

// hasher hashes blocks; each worker has one.
type hasher struct {
	buffer []byte
	// read is how many bytes the last call covered.
	read uint64
}

// blocks appends the hashes of the blocks from start, a multiple of BlockSize, on,
// until length bytes were covered or the file ends. Holes are not read.
func (h *hasher) blocks(f *openedFile, start, length int64, sparse bool, to []byte) ([]byte, error) {
	if h.buffer == nil {
		h.buffer = alignedBuffer(bufferSize)
	}
	fd := f.fd
	h.read = 0
	end := start + length
	for at := start; at < end; {
		if sparse {
			hole := min(holeAt(fd, at), end) - at
			if hole >= BlockSize {
				n := hole / BlockSize
				for range n {
					to = append(to, zeroHash[:]...)
				}
				at += n * BlockSize
				h.read += uint64(n * BlockSize)
				continue
			}
		}
		n, err := readTo(fd, h.buffer, int(min(bufferSize, end-at)), at, f.direct.Load())
		if err != nil {
			return nil, err
		}
		to = appendHashes(to, h.buffer[:n])
		at += int64(n)
		h.read += uint64(n)
		if n < bufferSize && at < end {
			return to, nil
		}
	}
	return to, nil
}

// appendHashes appends the hashes of the blocks of a content.
func appendHashes(to, content []byte) []byte {
	for len(content) > 0 {
		block := content[:min(len(content), BlockSize)]
		hash := plain(block)
		to = append(to, hash[:]...)
		content = content[len(block):]
	}
	return to
}

// holeAt is where data begins again; at itself if there is no hole, or if the file
// system does not tell.
func holeAt(fd int, at int64) int64 {
	data, err := unix.Seek(fd, at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		// Only a hole follows, up to the end.
		if s, err := statAt(fd, ""); err == nil && int64(s.Size) > at {
			return int64(s.Size)
		}
	}
	if err != nil || data < at {
		return at
	}
	return data
}

// readFull reads until the buffer is full or the file ends.
func readFull(fd int, b []byte, at int64) (n int, err error) {
	for n < len(b) {
		var got int
		err := retry(func() (err error) {
			got, err = unix.Pread(fd, b[n:], at+int64(n))
			return err
		})
		if err != nil {
			return n, &readError{at: at + int64(n), err: err}
		}
		if got == 0 {
			return n, nil
		}
		n += got
	}
	return n, nil
}

// readError tells where in a file reading failed.
type readError struct {
	at  int64
	err error
}

func (e *readError) Error() string { return fmt.Sprintf("read at byte %d: %v", e.at, e.err) }
func (e *readError) Unwrap() error { return e.err }
