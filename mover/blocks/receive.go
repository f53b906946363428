package blocks

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Receiver writes files below the root of a volume as messages say.
type Receiver struct {
	root int
	// device is the size of the block device that root is; 0: it is a directory.
	device int64
	open   bool
	fd     int
	direct *direct
	file   header
	// Files and Bytes count what was written.
	Files, Bytes int64
}

// NewReceiver makes a receiver of the volume at root.
func NewReceiver(root string) (*Receiver, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the volume: %w", err)
	}
	return &Receiver{root: fd}, nil
}

// Close closes what is open. A file whose end has not come has no time of its own
// yet, so that it is seen to differ.
func (r *Receiver) Close() {
	if r.open {
		r.closeFile()
	}
	_ = unix.Close(r.root)
}

func (r *Receiver) closeFile() {
	if r.direct != nil {
		r.direct.close()
		r.direct = nil
	}
	_ = unix.Close(r.fd)
	r.open = false
}

// Complete says whether every file that was begun has its end.
func (r *Receiver) Complete() bool { return !r.open }

// Take does what one message says.
func (r *Receiver) Take(message []byte) error {
	if len(message) == 0 {
		return errors.New("the sender sent an empty message")
	}
	if err := r.take(message[0], message[1:]); err != nil {
		return fmt.Errorf("write %q at the target: %w", r.file.Path, err)
	}
	return nil
}

func (r *Receiver) take(kind byte, rest []byte) error {
	switch kind {
	case messageFile:
		if r.open {
			return errors.New("another file begins before it has ended")
		}
		r.file = header{}
		if err := json.Unmarshal(rest, &r.file); err != nil {
			return fmt.Errorf("decode its header: %w", err)
		}
		return r.begin()
	case messageLink:
		var link header
		if err := json.Unmarshal(rest, &link); err != nil || r.open {
			return errors.New("the sender's link cannot be made")
		}
		r.file = link
		if r.device > 0 {
			return errors.New("a block volume has no names")
		}
		return r.link(string(link.Path), string(link.Target))
	}
	if !r.open {
		return errors.New("content of no file")
	}
	switch {
	case kind == messageDone:
		return r.end()
	case kind == messageBytes && len(rest) >= 8:
		return r.bytes(int64(binary.BigEndian.Uint64(rest)), rest[8:])
	case kind == messageZeros && len(rest) == 16:
		return r.zeros(int64(binary.BigEndian.Uint64(rest)), int64(binary.BigEndian.Uint64(rest[8:])))
	}
	return fmt.Errorf("a message of kind %q and %d bytes", kind, len(rest))
}

// begin opens the file to write in place.
func (r *Receiver) begin() error {
	if r.device > 0 {
		return r.beginDevice()
	}
	dir, base, err := split(string(r.file.Path))
	if err != nil {
		return err
	}
	parent, err := openDir(r.root, dir)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if r.file.Size < 0 {
		return errors.New("its size is negative")
	}
	flags := unix.O_RDWR | unix.O_NONBLOCK
	fd, err := openBeneath(parent, base, flags, 0)
	var s unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &s)
		if err == nil && s.Mode&unix.S_IFMT == unix.S_IFREG && s.Nlink <= max(1, uint64(r.file.Names)) && (s.Nlink == 1 || r.file.Names > 1) {
			r.fd, r.open, r.direct = fd, true, directly(parent, base, fd)
			return nil
		}
	}
	old := -1
	if err == nil && s.Mode&unix.S_IFMT == unix.S_IFREG {
		// It has names that the source's file has not: those keep their content.
		old = fd
		defer unix.Close(old)
	} else if err == nil {
		_ = unix.Close(fd)
	}
	if err != nil && errors.Is(err, unix.EXDEV) {
		return err
	}
	if err == nil || !errors.Is(err, unix.ENOENT) {
		if err := remove(parent, base); err != nil {
			return err
		}
	}
	fd, err = openBeneath(parent, base, flags|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	r.fd, r.open, r.direct = fd, true, directly(parent, base, fd)
	if old >= 0 {
		return copyAll(old, fd, s.Size)
	}
	return nil
}

// copyAll copies the content of a file that is cut off from its other names.
func copyAll(from, to int, size int64) error {
	var in, out int64
	for in < size {
		n, err := unix.CopyFileRange(from, &in, to, &out, int(min(size-in, 1<<30)), 0)
		if err != nil {
			return fmt.Errorf("copy what it shares with another name: %w", err)
		}
		if n == 0 {
			return nil
		}
	}
	return nil
}

func (r *Receiver) bytes(offset int64, content []byte) error {
	if offset < 0 || offset > r.file.Size-int64(len(content)) {
		return errors.New("content behind its end")
	}
	r.Bytes += int64(len(content))
	if r.direct != nil {
		return r.direct.write(offset, content)
	}
	return writeAt(r.fd, content, offset)
}

// zeros makes a hole, or writes zeros where the file system has none.
func (r *Receiver) zeros(offset, length int64) error {
	if offset < 0 || length < 0 || offset > r.file.Size-length {
		return errors.New("zeros behind its end")
	}
	if r.device == 0 {
		var s unix.Stat_t
		if err := unix.Fstat(r.fd, &s); err != nil {
			return err
		}
		length = min(length, s.Size-offset)
	}
	if length <= 0 {
		return nil // The file grows over it in the end.
	}
	err := unix.Fallocate(r.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, length)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) && r.device == 0 {
		return err
	}
	for ; length > 0; length, offset = length-hole, offset+hole {
		if err := r.bytes(offset, zeroBytes[:min(length, hole)]); err != nil {
			return err
		}
	}
	return nil
}

// end gives the file its size, its owner and mode, and its time, which comes last.
func (r *Receiver) end() error {
	defer r.closeFile()
	if r.device > 0 {
		r.Files++
		return nil
	}
	if r.direct != nil {
		if err := r.direct.end(); err != nil {
			return err
		}
	}
	if err := unix.Ftruncate(r.fd, r.file.Size); err != nil {
		return err
	}
	r.Files++
	// The owner first: a new one takes setuid and setgid away.
	if err := unix.Fchown(r.fd, int(r.file.UID), int(r.file.GID)); err != nil {
		return err
	}
	if err := unix.Fchmod(r.fd, r.file.Mode&0o7777); err != nil {
		return err
	}
	modified := unix.Timespec{Sec: r.file.Sec, Nsec: int64(r.file.Nsec)}
	return unix.UtimesNanoAt(r.fd, "", []unix.Timespec{{Nsec: unix.UTIME_OMIT}, modified}, unix.AT_EMPTY_PATH)
}
