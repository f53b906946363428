package blocks

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Receiver writes files below the root of a volume, as messages say.
type Receiver struct {
	root int
	// device is the size of the block device that root is; 0: it is a directory.
	device int64
	open   bool
	fd     int
	direct *direct
	file   header
	// Answer sends an answer to the sender; nil: there are no questions.
	Answer func([]byte) error
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

// NewDeviceReceiver makes a receiver of a block device, or of a file that is used as one: it
// accepts the file with an empty path and no other. The device keeps its size.
func NewDeviceReceiver(path string) (*Receiver, error) {
	device, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the block volume: %w", err)
	}
	defer device.Close()
	size, err := device.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return nil, errors.Join(errors.New("the block volume at the target has no size: use a claim that has one"), err)
	}
	fd, err := unix.FcntlInt(device.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the block volume: %w", err)
	}
	return &Receiver{root: fd, device: size}, nil
}

// Close closes what is open. A file that was not completed does not have its final time yet, so the
// next scan sees that it differs.
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

// Complete reports whether every file that was begun is complete.
func (r *Receiver) Complete() bool { return !r.open }

// Apply executes one message.
func (r *Receiver) Apply(message []byte) error {
	if len(message) == 0 {
		return errors.New("the sender sent an empty message")
	}
	if err := r.apply(message[0], message[1:]); err != nil {
		return fmt.Errorf("write %q at the target: %w", r.file.Path, err)
	}
	return nil
}

func (r *Receiver) apply(kind byte, rest []byte) error {
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
	if kind == messageAsk && r.Answer != nil && len(rest) > 0 && len(rest)%12 == 0 {
		return r.answer(rest)
	}
	return fmt.Errorf("a message of kind %q and %d bytes", kind, len(rest))
}

// answer answers with the hashes of the pages of some parts of the file. A page that is not there has the hash of nothing.
func (r *Receiver) answer(question []byte) error {
	var hashes []byte
	buffer := make([]byte, pageSize)
	for part := range slices.Chunk(question, 12) {
		offset, length := int64(binary.BigEndian.Uint64(part)), int64(binary.BigEndian.Uint32(part[8:]))
		if offset < 0 || length == 0 || length >= rewritten || offset > r.file.Size-length {
			return errors.New("a question about what is behind its end, or about too much")
		}
		if len(hashes)/pageHash+pagesOf(uint64(length)) > maxPages {
			return errors.New("a question about too many pages")
		}
		for end := offset + length; offset < end; offset += pageSize {
			n, err := readFull(r.fd, buffer[:min(pageSize, end-offset)], offset)
			if err != nil {
				return err
			}
			hashes = appendHash(hashes, buffer[:n])
		}
	}
	return r.Answer(hashes)
}

// begin opens the file to write in place.
func (r *Receiver) begin() error {
	if r.device > 0 {
		return r.beginDevice()
	}
	dir, base, err := splitPath(string(r.file.Path))
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
	if errors.Is(err, unix.EACCES) {
		// A receiver that is not root may not write its own read-only files. The mode is set again in the end.
		if err = makeWritable(parent, base); err == nil {
			fd, err = openBeneath(parent, base, flags, 0)
		}
	}
	var s unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &s)
		links := uint64(s.Nlink) //nolint:unconvert // it has 32 bits on arm64
		if err == nil && s.Mode&unix.S_IFMT == unix.S_IFREG && links <= max(1, uint64(r.file.Names)) && (links == 1 || r.file.Names > 1) {
			r.fd, r.open, r.direct = fd, true, newDirect(parent, base, fd)
			return nil
		}
	}
	old := -1
	if err == nil && s.Mode&unix.S_IFMT == unix.S_IFREG {
		// The file here has names that the source's file does not have: those keep their content.
		old = fd
		defer unix.Close(old)
	} else if err == nil {
		_ = unix.Close(fd)
	}
	if err != nil && (errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EACCES)) {
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
	r.fd, r.open, r.direct = fd, true, newDirect(parent, base, fd)
	if old >= 0 {
		return copyAll(old, fd, s.Size)
	}
	return nil
}

// makeWritable gives the owner of a file the right to read and write it.
func makeWritable(parent int, base string) error {
	fd, err := openBeneath(parent, base, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o600)
}

// copyAll copies the content of a file that is being separated from its other names.
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

// beginDevice begins to write the device in place.
func (r *Receiver) beginDevice() error {
	if len(r.file.Path) > 0 {
		return errors.New("a block volume has no names")
	}
	if r.file.Size < 0 || r.file.Size > r.device {
		return fmt.Errorf("the volume has %d bytes, the target %d", r.file.Size, r.device)
	}
	fd, err := unix.FcntlInt(uintptr(r.root), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	r.fd, r.open = fd, true
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

// zeros makes a hole, or writes zeros if the file system has no holes.
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
		return nil // The file is extended over it in the end.
	}
	err := unix.Fallocate(r.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, length)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) && r.device == 0 {
		return err
	}
	for ; length > 0; length, offset = length-holeUnit, offset+holeUnit {
		if err := r.bytes(offset, zeroBytes[:min(length, holeUnit)]); err != nil {
			return err
		}
	}
	return nil
}

// end sets the file's size, its owner and mode, and its time, which comes last.
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
	// The owner is set first: a change of it removes setuid and setgid.
	if err := unix.Fchown(r.fd, int(r.file.UID), int(r.file.GID)); err != nil {
		return err
	}
	if err := unix.Fchmod(r.fd, r.file.Mode&0o7777); err != nil {
		return err
	}
	modified := unix.Timespec{Sec: r.file.Sec, Nsec: int64(r.file.Nsec)}
	return unix.UtimesNanoAt(r.fd, "", []unix.Timespec{{Nsec: unix.UTIME_OMIT}, modified}, unix.AT_EMPTY_PATH)
}

// link makes name another name of target, which was written before.
func (r *Receiver) link(name, target string) error {
	dir, base, err := splitPath(name)
	if err != nil {
		return err
	}
	if _, _, err := splitPath(target); err != nil {
		return err
	}
	file, err := openBeneath(r.root, target, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer unix.Close(file)
	parent, err := openDir(r.root, dir)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	var to, is unix.Stat_t
	if err := unix.Fstat(file, &to); err != nil {
		return err
	}
	err = unix.Fstatat(parent, base, &is, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && is.Ino == to.Ino && is.Dev == to.Dev {
		return nil
	}
	if err == nil {
		if err := remove(parent, base); err != nil {
			return err
		}
	}
	r.Files++
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", file), parent, base, unix.AT_SYMLINK_FOLLOW)
}

// openBeneath opens a path below the directory root: it follows no symbolic link,
// leaves no mount and does not climb above root. An empty path is root itself.
func openBeneath(root int, name string, flags int, mode uint32) (int, error) {
	if name == "" {
		name = "."
	}
	how := &unix.OpenHow{
		Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Mode: uint64(mode),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		fd, err := unix.Openat2(root, name, how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// splitPath checks a path of the other end and splits it into directory and name.
func splitPath(name string) (dir, base string, err error) {
	if name == "" || len(name) > unix.PathMax || strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) || path.Clean(name) != name {
		return "", "", fmt.Errorf("%q is no path inside the volume", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." || part == "." {
			return "", "", fmt.Errorf("%q is no path inside the volume", name)
		}
	}
	dir, base = path.Split(name)
	return strings.TrimSuffix(dir, "/"), base, nil
}

// openDir opens a directory below root, and creates it and its parents; what is in their way is
// removed.
func openDir(root int, name string) (int, error) {
	fd, err := openBeneath(root, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil || name == "" {
		return fd, err
	}
	at, err := openBeneath(root, "", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return 0, err
	}
	for part := range strings.SplitSeq(name, "/") {
		next, err := stepInto(at, part)
		_ = unix.Close(at)
		if err != nil {
			return 0, err
		}
		at = next
	}
	return at, nil
}

// stepInto opens a directory in a directory, and creates it if it does not exist.
func stepInto(parent int, name string) (int, error) {
	fd, err := openBeneath(parent, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		return fd, nil
	}
	if errors.Is(err, unix.EXDEV) {
		return 0, err
	}
	if !errors.Is(err, unix.ENOENT) {
		if err := remove(parent, name); err != nil {
			return 0, err
		}
	}
	// Rsync sets its mode and its owner; until then only root may use it.
	if err := unix.Mkdirat(parent, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return 0, err
	}
	return openBeneath(parent, name, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// remove removes a name and what is below it, without following symbolic links.
func remove(parent int, name string) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	dir, err := openBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	buffer := make([]byte, 32<<10)
	for {
		n, err := unix.ReadDirent(dir, buffer)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		_, _, names := unix.ParseDirent(buffer[:n], -1, nil)
		for _, below := range names {
			if err := remove(dir, below); err != nil {
				return err
			}
		}
	}
	return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
}
