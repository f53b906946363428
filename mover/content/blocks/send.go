package blocks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/tree"
)

// Sender reads files of a volume and sends the changes in a list.
type Sender struct {
	root int
	// device says that root is a block device, the only file.
	device bool
	// send sends one message.
	send func([]byte) error
	// progress is called with the number of bytes of files that were done since the last call.
	progress func(n int64)
	// Ask sends a message and returns what the receiver answers, which is valid until the next call; nil: blocks that differ are
	// sent whole.
	Ask    func(message []byte) ([]byte, error)
	buffer []byte
	// sentNames has, for inodes with several names, the name under which they were sent first.
	sentNames map[uint64]string
}

// NewSender makes a sender of the volume at root. Progress may be called often.
func NewSender(root string, send func([]byte) error, progress func(n int64)) (*Sender, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the volume: %w", err)
	}
	return &Sender{root: fd, send: send, progress: progress, buffer: make([]byte, 9+maxChunk), sentNames: map[uint64]string{}}, nil
}

// NewDeviceSender makes a sender of a block device: the file with an empty path.
func NewDeviceSender(path string, send func([]byte) error, progress func(n int64)) (*Sender, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the block volume: %w", err)
	}
	return &Sender{root: fd, device: true, send: send, progress: progress, buffer: make([]byte, 9+maxChunk)}, nil
}

// Close closes the root of the volume.
func (s *Sender) Close() { _ = unix.Close(s.root) }

// carriedAspects are the aspects for which a file is sent.
const carriedAspects = tree.AspectType | tree.AspectContent | tree.AspectSize | tree.AspectMtime | tree.AspectLink | tree.AspectMode |
	tree.AspectOwner

// Carries reports whether Send sends a change.
func Carries(c *tree.Change) bool {
	if c.New == nil || c.New.Type != tree.File || c.New.Size < LargeFrom && c.New.Path != "" {
		return false
	}
	return c.Old == nil || c.Differs&carriedAspects != 0
}

// Send sends one change. A file that no longer exists is left to the next pass; one that changes
// meanwhile is sent as it is read, and the next pass sees that it differs.
func (s *Sender) Send(c *tree.Change) error {
	e := c.New
	if s.device {
		return s.file(s.root, c)
	}
	if first, ok := s.sentNames[e.Inode]; ok && e.Links > 1 {
		message, err := encode(messageLink, header{Path: []byte(e.Path), Target: []byte(first)})
		if err != nil {
			return err
		}
		s.progress(int64(e.Size))
		return s.send(message)
	}
	fd, err := openBeneath(s.root, e.Path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) {
		fd, err = openBeneath(s.root, e.Path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		s.progress(int64(e.Size))
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
		s.progress(int64(e.Size))
		return nil
	}
	if e.Links > 1 {
		s.sentNames[e.Inode] = e.Path
	}
	return s.file(fd, c)
}

// file sends the changes of an open file.
func (s *Sender) file(fd int, c *tree.Change) error {
	e := c.New
	// This is only a hint: mostly the file is read from beginning to end.
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
	if err := s.ranges(fd, c); err != nil {
		return err
	}
	return s.send([]byte{messageDone})
}

// ranges sends the parts of a file that differ; the bytes between them count as done.
func (s *Sender) ranges(fd int, c *tree.Change) error {
	var few []tree.Range // what is to be asked for
	counted, pages := uint64(0), 0
	for r, err := range c.Ranges() {
		if err != nil {
			return err
		}
		s.progress(int64(r.Offset - counted))
		counted = r.Offset + r.Length
		whole := s.Ask == nil || r.Length >= rewritten || c.Old == nil || c.Old.Type != tree.File || counted > c.Old.Size
		if whole || pages+pagesOf(r.Length) > maxPages {
			if err := s.pages(fd, c.New.Path, few, pages); err != nil {
				return err
			}
			few, pages = few[:0], 0
		}
		if whole {
			err = s.content(fd, c.New.Path, int64(r.Offset), int64(counted))
		} else {
			few, pages = append(few, r), pages+pagesOf(r.Length)
		}
		if err != nil {
			return err
		}
	}
	s.progress(int64(c.New.Size - counted))
	return s.pages(fd, c.New.Path, few, pages)
}

// pages asks which pages the receiver has in parts of a file, and sends those that differ.
func (s *Sender) pages(fd int, path string, parts []tree.Range, pages int) error {
	if pages == 0 {
		return nil
	}
	message := []byte{messageAsk}
	for _, part := range parts {
		message = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(message, part.Offset), uint32(part.Length))
	}
	hashes, err := s.Ask(message)
	if err != nil {
		return err
	}
	if len(hashes) != pages*pageHash {
		return fmt.Errorf("the receiver was asked for the hashes of %d pages of %q and answered with %d bytes", pages, path, len(hashes))
	}
	for _, part := range parts {
		here := pagesOf(part.Length) * pageHash
		if err := s.changed(fd, path, part, hashes[:here]); err != nil {
			return err
		}
		hashes = hashes[here:]
	}
	return nil
}

// changed sends the pages of a part of a file that have other hashes than these.
func (s *Sender) changed(fd int, path string, part tree.Range, hashes []byte) error {
	for done := uint64(0); done < part.Length; {
		at := int64(part.Offset + done)
		n, err := readFull(fd, s.buffer[9:9+min(maxChunk, part.Length-done)], at)
		if err != nil {
			return fmt.Errorf("read %q at the source: %w", path, err)
		}
		if n == 0 {
			return nil // The file has become shorter.
		}
		var here []byte
		for page := range slices.Chunk(s.buffer[9:9+n], pageSize) {
			here = appendHash(here, page)
		}
		differs := func(from int) bool {
			page := here[from/pageSize*pageHash:][:pageHash]
			return !bytes.Equal(page, hashes[from/pageSize*pageHash:][:pageHash])
		}
		for from := 0; from < n; {
			to, send := from, differs(from)
			for to < n && differs(to) == send {
				to = min(to+pageSize, n)
			}
			if !send {
				s.progress(int64(to - from))
			} else if err := s.bytes(at, from, to); err != nil {
				return err
			}
			from = to
		}
		done += uint64(n)
		hashes = hashes[len(here):]
	}
	return nil
}

// content sends the bytes of a file from start to end.
func (s *Sender) content(fd int, path string, start, end int64) error {
	for at := start; at < end; {
		if zeros := min(tree.DataFrom(fd, at), end) - at; zeros >= holeUnit {
			if err := s.zeros(at, zeros); err != nil {
				return err
			}
			at += zeros
			continue
		}
		n, err := readFull(fd, s.buffer[9:9+min(maxChunk, end-at)], at)
		if err != nil {
			return fmt.Errorf("read %q at the source: %w", path, err)
		}
		if n == 0 {
			return nil // The file has become shorter.
		}
		if err := s.bytes(at, 0, n); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

var zeroBytes = make([]byte, holeUnit)

// bytes sends what the buffer has from start to end; runs of zeros become holes. Offset is where the buffer's first byte is in the file.
func (s *Sender) bytes(offset int64, start, end int) error {
	content := s.buffer[9 : 9+end]
	for from := start; from < end; {
		to := from
		zeros := isZero(content[from:min(from+holeUnit, end)])
		for to < end && isZero(content[to:min(to+holeUnit, end)]) == zeros {
			to = min(to+holeUnit, end)
		}
		if zeros {
			if err := s.zeros(offset+int64(from), int64(to-from)); err != nil {
				return err
			}
		} else {
			// The head of the message overwrites bytes that are sent, or equal at the target.
			message := s.buffer[from : 9+to]
			message[0] = messageBytes
			binary.BigEndian.PutUint64(message[1:], uint64(offset+int64(from)))
			if err := s.send(message); err != nil {
				return err
			}
			s.progress(int64(to - from))
		}
		from = to
	}
	return nil
}

func isZero(b []byte) bool { return bytes.Equal(b, zeroBytes[:len(b)]) }

func (s *Sender) zeros(offset, length int64) error {
	s.progress(length)
	return s.send(binary.BigEndian.AppendUint64(positioned(messageZeros, offset), uint64(length)))
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
