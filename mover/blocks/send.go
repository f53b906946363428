package blocks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/tree"
)

// Sender reads files of a volume and sends what a list of changes says.
type Sender struct {
	root int
	// device says that root is a block device, the only file.
	device bool
	// send sends one message.
	send func([]byte) error
	// done is told how many bytes of files are dealt with.
	done   func(n int64)
	buffer []byte
	// first is where the first name of an inode with several was sent.
	first map[uint64]string
}

// NewSender makes a sender of the volume at root. Done may be called often.
func NewSender(root string, send func([]byte) error, done func(n int64)) (*Sender, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the volume: %w", err)
	}
	return &Sender{root: fd, send: send, done: done, buffer: make([]byte, 9+chunk), first: map[uint64]string{}}, nil
}

// NewDeviceSender makes a sender of a block device: the file with an empty path.
func NewDeviceSender(path string, send func([]byte) error, done func(n int64)) (*Sender, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the block volume: %w", err)
	}
	return &Sender{root: fd, device: true, send: send, done: done, buffer: make([]byte, 9+chunk)}, nil
}

// Close closes the volume.
func (s *Sender) Close() { _ = unix.Close(s.root) }

// carried are the aspects that a file is sent for.
const carried = tree.AspectType | tree.AspectContent | tree.AspectSize | tree.AspectMtime | tree.AspectLink | tree.AspectMode | tree.AspectOwner

// Carries says whether a change is one that Send carries.
func Carries(c *tree.Change) bool {
	if c.New == nil || c.New.Type != tree.File || c.New.Size < LargeFrom && c.New.Path != "" {
		return false
	}
	return c.Old == nil || c.Differs&carried != 0
}

// Send sends one change. A file that is gone by now is left to the next pass; one
// that changes meanwhile is sent as it is read, which the next pass sees too.
func (s *Sender) Send(c *tree.Change) error {
	e := c.New
	if s.device {
		return s.file(s.root, c)
	}
	if first, ok := s.first[e.Inode]; ok && e.Links > 1 {
		message, err := encode(messageLink, header{Path: []byte(e.Path), Target: []byte(first)})
		if err != nil {
			return err
		}
		s.done(int64(e.Size))
		return s.send(message)
	}
	fd, err := openBeneath(s.root, e.Path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) {
		fd, err = openBeneath(s.root, e.Path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		s.done(int64(e.Size))
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %q at the source: %w", e.Path, err)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("look at %q at the source: %w", e.Path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		s.done(int64(e.Size))
		return nil
	}
	if e.Links > 1 {
		s.first[e.Inode] = e.Path
	}
	return s.file(fd, c)
}

// file sends what has changed in an open file.
func (s *Sender) file(fd int, c *tree.Change) error {
	e := c.New
	// Only a hint: most of it is read from its beginning to its end.
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_SEQUENTIAL)
	message, err := encode(messageFile, header{
		Path: []byte(e.Path), Size: int64(e.Size), Names: e.Links, Mode: e.Mode, UID: e.UID, GID: e.GID,
		Sec: e.Mtime.Sec, Nsec: e.Mtime.Nsec,
	})
	if err != nil {
		return err
	}
	if err := s.send(message); err != nil {
		return err
	}
	if err := s.ranges(fd, e, c.Ranges()); err != nil {
		return err
	}
	return s.send([]byte{messageDone})
}

// ranges sends parts of a file; what is between them counts as dealt with.
func (s *Sender) ranges(fd int, e *tree.Entry, ranges iter.Seq2[tree.Range, error]) error {
	counted := int64(0)
	for r, err := range ranges {
		if err != nil {
			return err
		}
		s.done(int64(r.Offset) - counted)
		if err := s.content(fd, e.Path, int64(r.Offset), int64(r.Offset+r.Length)); err != nil {
			return err
		}
		counted = int64(r.Offset + r.Length)
	}
	s.done(int64(e.Size) - counted)
	return nil
}

// content sends the bytes of a file from start to end.
func (s *Sender) content(fd int, path string, start, end int64) error {
	for at := start; at < end; {
		if zeros := min(dataFrom(fd, at), end) - at; zeros >= hole {
			if err := s.zeros(at, zeros); err != nil {
				return err
			}
			at += zeros
			continue
		}
		n, err := readFull(fd, s.buffer[9:9+min(chunk, end-at)], at)
		if err != nil {
			return fmt.Errorf("read %q at the source: %w", path, err)
		}
		if n == 0 {
			return nil // It has shrunk.
		}
		if err := s.bytes(at, n); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

var zeroBytes = make([]byte, hole)

// bytes sends the n bytes that are in the buffer; runs of zeros become holes.
func (s *Sender) bytes(offset int64, n int) error {
	content := s.buffer[9 : 9+n]
	for from := 0; from < n; {
		to := from
		zeros := isZero(content[from:min(from+hole, n)])
		for to < n && isZero(content[to:min(to+hole, n)]) == zeros {
			to = min(to+hole, n)
		}
		if zeros {
			if err := s.zeros(offset+int64(from), int64(to-from)); err != nil {
				return err
			}
		} else {
			// The head is written over bytes that were sent already.
			message := s.buffer[from : 9+to]
			message[0] = messageBytes
			binary.BigEndian.PutUint64(message[1:], uint64(offset+int64(from)))
			if err := s.send(message); err != nil {
				return err
			}
			s.done(int64(to - from))
		}
		from = to
	}
	return nil
}

func isZero(b []byte) bool { return bytes.Equal(b, zeroBytes[:len(b)]) }

func (s *Sender) zeros(offset, length int64) error {
	s.done(length)
	return s.send(binary.BigEndian.AppendUint64(at(messageZeros, offset), uint64(length)))
}

// dataFrom is where data begins again; at itself where the file system does not tell.
func dataFrom(fd int, at int64) int64 {
	data, err := unix.Seek(fd, at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		var s unix.Stat_t
		if unix.Fstat(fd, &s) == nil {
			return max(at, s.Size)
		}
	}
	if err != nil {
		return at
	}
	return max(at, data)
}

func readFull(fd int, b []byte, at int64) (n int, err error) {
	for n < len(b) {
		got, err := unix.Pread(fd, b[n:], at+int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || got == 0 {
			return n, err
		}
		n += got
	}
	return n, nil
}
