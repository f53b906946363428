// This file reads what is at one name of a volume. It is long because it has the whole work of a worker, system call by system
// call, and every kind of file has calls of its own: it looks at the name, opens, reads and hashes what is there, large files in
// segments, small files of a cold scan together, past the page cache if the file system allows that.

package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// observation is what a worker found at a name.
type observation struct {
	// entry is nil if nothing is there any more, or if no copy can keep it.
	entry *Entry
	// before is the entry of an earlier manifest, if the content has not changed since.
	before earlierEntry
	// blocks are the block hashes of a file that was read.
	blocks []byte
	read   uint64
	// large says that the file is too large for one worker: its content is not read.
	large bool
	// open is a small file that will be read with others: its content is not read yet.
	open *openedFile
	// sparse says that the file probably has holes.
	sparse     bool
	attributes uint64
	unsettled  bool
	err        error
}

// worker examines names and hashes contents; several run at the same time.
type worker struct {
	root    *stat
	options *Options
	found   *findings
	hasher  hasher
	xattrs  []byte
	// small is used for cold scans only.
	small smallFiles
}

// serve examines batches and hashes segments until both channels are closed. After the end of the
// context it only releases them.
func (w *worker) serve(ctx context.Context, work <-chan *batch, parts <-chan *part) {
	defer func() { w.small.aio.close() }()
	for work != nil || parts != nil {
		select {
		case b, ok := <-work:
			if !ok {
				work = nil
				continue
			}
			w.examineBatch(b, func() bool { return ctx.Err() != nil })
			b.dir.release()
			close(b.done)
		case p, ok := <-parts:
			if !ok {
				parts = nil
				continue
			}
			p.hash(&w.hasher)
		}
	}
}

// examineBatch examines the names of a batch, or fewer if the scan ends.
func (w *worker) examineBatch(b *batch, ended func() bool) {
	for i := range b.names {
		if ended() {
			break
		}
		name := &b.names[i]
		name.seen = w.examine(b.dir, name.name, name.before)
		seen := &name.seen
		if seen.open == nil {
			continue
		}
		if !w.small.aio.hasRoom(seen.entry.Size) {
			w.readTogether()
		}
		w.small.aio.add(seen.open.fd, seen.entry.Size)
		w.small.waiting = append(w.small.waiting, waitingFile{file: seen.open, seen: seen})
		seen.open = nil
	}
	w.readTogether()
}

// examine reads what is at one name in a directory. It never follows a symbolic link.
func (w *worker) examine(d *dir, name string, before earlierEntry) (seen observation) {
	path := d.join(name)
	s, err := statAt(d.fd, name)
	if gone(err) {
		return observation{unsettled: true}
	}
	if err == nil && name != "" && s.foreign(w.root) {
		w.found.add(MountBelow, path)
		return observation{}
	}
	e := &Entry{Path: path}
	if err == nil {
		e.Type, err = s.kind()
	}
	if err != nil {
		return observation{err: fmt.Errorf("look at %q: %w", path, err)}
	}
	s.fill(e)
	if path == "" && w.options.Writer != nil {
		e.Mtime = Time{}
	}
	if w.options.OnlyLarge && (e.Type != File || e.Size < LargeFrom || before.unchanged(e)) {
		return observation{}
	}
	seen = observation{entry: e, attributes: s.Attributes, sparse: e.Allocated < e.Size}
	w.found.examine(e, s.Attributes)
	if before.unchanged(e) {
		e.Content, e.Target, e.Xattrs = before.entry.Content, before.entry.Target, before.entry.Xattrs
		seen.before = before
		return seen
	}
	err = w.read(d, name, &seen)
	if gone(err) {
		return observation{unsettled: true}
	}
	if err != nil {
		return observation{err: fmt.Errorf("read %q: %w", path, err)}
	}
	return seen
}

// gone reports whether an error means that a name vanished or was replaced.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ESTALE) ||
		errors.Is(err, unix.ENOTDIR)
}

// read reads what stat does not return: attributes, a link's target, a file's content.
func (w *worker) read(d *dir, name string, seen *observation) (err error) {
	e := seen.entry
	content := e.Type == File && e.Size > 0 && !w.options.Shallow
	if e.Type == File && w.options.Shallow && os.Geteuid() != 0 {
		// A scan with contents will open it.
		if err := unix.Faccessat(d.fd, name, unix.R_OK, 0); err != nil {
			return err
		}
	}
	if content && e.Size < LargeFrom {
		return w.readFile(d, name, seen)
	}
	of := xattrsOfName(d.fd, name)
	if name == "" {
		of = xattrsOfFD(d.fd)
	}
	if e.Xattrs, err = xattrs(of, &w.xattrs); err != nil {
		return err
	}
	switch e.Type {
	case Symlink:
		e.Target, err = readlinkAt(d.fd, name)
	case File:
		seen.large = content
		e.Content = contentOf(nil)
	case Directory, Fifo, Socket, CharDevice, BlockDevice:
	}
	return err
}

// readFile opens a small file, and reads it unless it will be read with others.
func (w *worker) readFile(d *dir, name string, seen *observation) (err error) {
	e := seen.entry
	f, err := openFile(d, name, e, w.options.Cold)
	if err != nil {
		return err
	}
	defer func() {
		if seen.open == nil {
			f.close()
		}
	}()
	if e.Xattrs, err = xattrs(xattrsOfFD(f.fd), &w.xattrs); err != nil {
		return err
	}
	if w.options.Cold && w.small.accepts(f, e, seen.sparse) {
		seen.open = f
		return nil
	}
	return w.readAlone(seen, f)
}

// smallFiles collects small files of a batch that a cold scan reads together. It is useful only
// where [openedFile.bypassCache] is.
type smallFiles struct {
	aio     *aio
	waiting []waitingFile
	// unsupported says that the kernel has no such reads, or allows no more of them.
	unsupported bool
}

// waitingFile is an open file of a batch that is still to be read.
type waitingFile struct {
	file *openedFile
	seen *observation
}

// accepts reports whether an open file can be read with others; it will then be read past the page
// cache.
func (t *smallFiles) accepts(f *openedFile, e *Entry, sparse bool) bool {
	if t.unsupported || sparse || e.Size > maxSmallFile {
		return false
	}
	if t.aio == nil {
		var err error
		if t.aio, err = newAIO(); err != nil {
			t.unsupported = true
			return false
		}
	}
	f.bypassCache()
	return f.direct.Load()
}

const (
	// maxSmallFiles is how many small files a worker has open and reads at once.
	maxSmallFiles = 32
	// smallFilesBuffer is the size of the buffer that they share.
	smallFilesBuffer = 256 << 10
	// maxSmallFile is the largest file that is read in this way.
	maxSmallFile = 64 << 10
)

// aio reads several files that are opened past the page cache with one call, so that the disk gets
// all their positions together: it can merge neighbours into one request. It uses the kernel's
// interface of 2002 and not io_uring, which most container runtimes forbid.
type aio struct {
	context uintptr
	control [maxSmallFiles]iocb
	order   [maxSmallFiles]*iocb
	events  [maxSmallFiles]ioEvent
	buffer  []byte
	// queued and used are the number of files of the next call, and how much of the buffer they
	// take.
	queued, used int
}

// iocb is struct iocb of linux/aio_abi.h. Fields without a name are 0: a read, from the start of
// the file.
type iocb struct {
	data   uint64
	_      [3]uint32
	fd     uint32
	buffer uint64
	length uint64
	_      [3]uint64
}

// ioEvent is struct io_event of linux/aio_abi.h.
type ioEvent struct {
	data, object uint64
	result       int64
	_            int64
}

// newAIO returns an error if the kernel has no such reads, or allows no more of them.
func newAIO() (*aio, error) {
	a := &aio{buffer: AlignedBuffer(smallFilesBuffer)}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, maxSmallFiles, uintptr(unsafe.Pointer(&a.context)), 0); errno != 0 {
		return nil, errno
	}
	return a, nil
}

func (a *aio) close() {
	if a != nil {
		_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, a.context, 0, 0)
		a.context = 0
	}
}

// hasRoom reports whether there is room for a file of so many bytes.
func (a *aio) hasRoom(size uint64) bool {
	return a.queued < maxSmallFiles && a.used+int(wholeBlocks(size)) <= smallFilesBuffer
}

func wholeBlocks(size uint64) uint64 { return (size + DirectAlignment - 1) &^ (DirectAlignment - 1) }

// add adds a whole file to the next call, and returns its number there.
func (a *aio) add(fd int, size uint64) int {
	n, length := a.queued, wholeBlocks(size)
	a.control[n] = iocb{
		data: uint64(n), fd: uint32(fd), length: length,
		buffer: uint64(uintptr(unsafe.Pointer(&a.buffer[a.used]))),
	}
	a.order[n] = &a.control[n]
	a.queued++
	a.used += int(length)
	return n
}

// read reads all files that were added, and returns the content of each, nil if its read failed.
// The contents are valid until the next call.
func (a *aio) read() (contents [maxSmallFiles][]byte) {
	asked := a.queued
	a.queued, a.used = 0, 0
	sent := 0
	for sent < asked {
		n, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, a.context, uintptr(asked-sent), uintptr(unsafe.Pointer(&a.order[sent])))
		if errno != 0 || n == 0 {
			break // Its caller reads the rest one by one.
		}
		sent += int(n)
	}
	start := uint64(uintptr(unsafe.Pointer(&a.buffer[0])))
	for got := 0; got < sent; {
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, a.context, uintptr(sent-got), uintptr(sent-got),
			uintptr(unsafe.Pointer(&a.events[0])), 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			// Closing waits for reads that still write to the buffer; from now on files are read
			// one by one.
			a.close()
			return [maxSmallFiles][]byte{}
		}
		for _, event := range a.events[:n] {
			if event.result >= 0 {
				from := a.control[event.data].buffer - start
				contents[event.data] = a.buffer[from : from+uint64(event.result)]
			}
		}
		got += int(n)
	}
	return contents
}

// readAlone hashes a small file at once.
func (w *worker) readAlone(seen *observation, f *openedFile) (err error) {
	seen.blocks, err = w.hasher.blocks(f, 0, int64(seen.entry.Size), seen.sparse, nil)
	if err != nil {
		return err
	}
	return w.hashed(seen, f, w.hasher.read)
}

// readTogether reads the waiting files. If one cannot be read in this way it is read alone, which
// returns its error, if any.
func (w *worker) readTogether() {
	if len(w.small.waiting) == 0 {
		return
	}
	contents := w.small.aio.read()
	for n, waiting := range w.small.waiting {
		seen := waiting.seen
		err := w.finishTogether(seen, waiting.file, contents[n])
		waiting.file.close()
		switch {
		case gone(err):
			*seen = observation{unsettled: true}
		case err != nil:
			*seen = observation{err: fmt.Errorf("read %q: %w", seen.entry.Path, err)}
		}
	}
	w.small.waiting = w.small.waiting[:0]
}

// finishTogether hashes the content of a file that was read with others; nil: it could not be read.
func (w *worker) finishTogether(seen *observation, f *openedFile, content []byte) error {
	if content == nil {
		f.useCache()
		return w.readAlone(seen, f)
	}
	content = content[:min(uint64(len(content)), seen.entry.Size)]
	seen.blocks = appendHashes(nil, content)
	return w.hashed(seen, f, uint64(len(content)))
}

// hashed completes the reading of a small file of which so many bytes were hashed.
func (w *worker) hashed(seen *observation, f *openedFile, read uint64) (err error) {
	seen.entry.Content, seen.read = contentOf(seen.blocks), read
	seen.unsettled, err = f.checkSettled(seen.entry, read)
	return err
}

// LargeFrom is the size in bytes from which on a file is large: several workers read it at the same
// time, a segment each.
const LargeFrom = 4 << 20

const (
	// segment is how much one worker reads of a large file.
	segment = 4 << 20
	// bufferSize is how much a worker reads in one call: whole blocks.
	bufferSize = 8 * BlockSize
)

var (
	zeroBlock = make([]byte, BlockSize)
	zeroHash  = hashOf(zeroBlock)
)

// openedFile is a file whose content is being read.
type openedFile struct {
	fd int
	// direct says that it is read past the page cache.
	direct atomic.Bool
}

// openFile opens the file that was found at a name. If there is another object by now the error is
// ENOENT and nothing is read: the next scan will find it. With cold the file's pages are dropped
// first, so that the content is read from the disk.
func openFile(d *dir, name string, seen *Entry, cold bool) (*openedFile, error) {
	fd, err := openAt(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err != nil {
		if now, lookErr := statAt(d.fd, name); gone(lookErr) || lookErr == nil && !now.is(seen) {
			// Some pipes, sockets and devices cannot be opened.
			return nil, unix.ENOENT
		}
		return nil, err
	}
	f := &openedFile{fd: fd}
	var now unix.Stat_t
	if err := retry(func() error { return unix.Fstat(fd, &now) }); err != nil || now.Ino != seen.Inode ||
		now.Mode&unix.S_IFMT != unix.S_IFREG {
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

// is reports whether this is the file of an entry.
func (s *stat) is(e *Entry) bool { return s.Ino == e.Inode && s.Mode&unix.S_IFMT == unix.S_IFREG }

// drop drops the file's pages from memory. They are clean: the scan has begun with a sync of the
// whole file system, which costs one flush of the disk and not one per file.
func (f *openedFile) drop() error {
	if err := unix.Fadvise(f.fd, 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("drop its cached pages: %w", err)
	}
	return nil
}

// checkSettled completes the reading of a file of which so many bytes were read, and reports
// whether it changed since the entry was made.
func (f *openedFile) checkSettled(e *Entry, read uint64) (unsettled bool, err error) {
	s, err := statAt(f.fd, "")
	if err != nil {
		return false, err
	}
	unsettled = timeOf(s.Ctime) != e.Ctime || s.Size != e.Size || read != e.Size
	e.Size = read
	return unsettled, nil
}

func (f *openedFile) close() { _ = unix.Close(f.fd) }

// part is one segment of a large file, for one worker.
type part struct {
	file       *openedFile
	start, end int64
	sparse     bool
	blocks     []byte
	// zeros is how many blocks of a hole come before blocks.
	zeros uint64
	read  uint64
	err   error
	done  chan struct{}
}

func (p *part) hash(h *hasher) {
	direct := p.file.direct.Load()
	if !direct {
		// Segments are read in parallel, which the kernel's read-ahead does not expect.
		_ = unix.Fadvise(p.file.fd, p.start, p.end-p.start, unix.FADV_WILLNEED)
	}
	p.blocks, p.err = h.blocks(p.file, p.start, p.end-p.start, p.sparse, nil)
	if direct && errors.Is(p.err, unix.EINVAL) {
		p.file.useCache()
		p.blocks, p.err = h.blocks(p.file, p.start, p.end-p.start, p.sparse, nil)
	}
	p.read = h.read
	close(p.done)
}

// hasher hashes blocks; each worker has one.
type hasher struct {
	buffer []byte
	// read is how many bytes the last call covered.
	read uint64
}

// blocks appends the hashes of the blocks from start, a multiple of BlockSize, until length bytes
// were covered or the file ends. Holes are not read.
func (h *hasher) blocks(f *openedFile, start, length int64, sparse bool, to []byte) ([]byte, error) {
	if h.buffer == nil {
		h.buffer = AlignedBuffer(bufferSize)
	}
	fd := f.fd
	h.read = 0
	end := start + length
	for at := start; at < end; {
		if sparse {
			hole := min(DataFrom(fd, at), end) - at
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
		hash := hashOf(block)
		to = append(to, hash[:]...)
		content = content[len(block):]
	}
	return to
}

// DataFrom returns where the next data begins: at itself if there is no hole, or if the file system
// does not report holes.
func DataFrom(fd int, at int64) int64 {
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

// readError says where in a file reading failed.
type readError struct {
	at  int64
	err error
}

func (e *readError) Error() string { return fmt.Sprintf("read at byte %d: %v", e.at, e.err) }

func (e *readError) Unwrap() error { return e.err }

// DirectAlignment is the multiple that offsets, lengths and addresses of reads past the page cache
// must be of: at least what disks require.
const DirectAlignment = 4 << 10

// bypassCache makes reads of a file go past the page cache from now on, if its file system is known
// to support that: then every byte comes from the disk, and the pods of the node keep their pages
// in memory.
func (f *openedFile) bypassCache() {
	system, err := fileSystemOf(f.fd)
	if err != nil || system != unix.EXT4_SUPER_MAGIC && system != unix.XFS_SUPER_MAGIC {
		return
	}
	if _, err := unix.FcntlInt(uintptr(f.fd), unix.F_SETFL, unix.O_DIRECT); err == nil {
		f.direct.Store(true)
	}
}

// useCache makes reads of a file go through the page cache again, because its disk accepts no
// others.
func (f *openedFile) useCache() {
	_, _ = unix.FcntlInt(uintptr(f.fd), unix.F_SETFL, 0)
	f.direct.Store(false)
}

// AlignedBuffer returns a buffer whose address is aligned.
func AlignedBuffer(n int) []byte {
	whole := make([]byte, n+DirectAlignment)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(whole)))) & (DirectAlignment - 1)
	return whole[skip : skip+n]
}

// readTo reads until the buffer has n bytes or the file ends. With direct the buffer is aligned and
// has room for one more block after them.
func readTo(fd int, b []byte, n int, at int64, direct bool) (int, error) {
	if !direct {
		return readFull(fd, b[:n], at)
	}
	whole := (n + DirectAlignment - 1) &^ (DirectAlignment - 1)
	read := 0
	for read < n {
		var got int
		err := retry(func() (err error) {
			got, err = unix.Pread(fd, b[read:whole], at+int64(read))
			return err
		})
		if err != nil {
			return min(read, n), &readError{at: at + int64(read), err: err}
		}
		read += got
		if got == 0 || got%DirectAlignment != 0 {
			break // The file ends here: nothing can be read from within a block.
		}
	}
	return min(read, n), nil
}

// stat is what the kernel reports of one name.
type stat struct {
	unix.Statx_t
}

const statMask = unix.STATX_BASIC_STATS

// statAt reads the status of a name in a directory, and never follows a symbolic link. An empty
// name means the directory itself. For a network file system the server is asked: the cache of this
// machine may be older than a write by another one.
func statAt(dir int, name string) (s stat, err error) {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_FORCE_SYNC
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err = retry(func() error { return unix.Statx(dir, name, flags, statMask|unix.STATX_BTIME, &s.Statx_t) })
	return s, err
}

// openDirAt opens a directory without following a symbolic link.
func openDirAt(parent int, name string) (fd int, err error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	return openAt(parent, name, flags)
}

// openAt opens a name without changing its access time, if that is allowed.
func openAt(parent int, name string, flags int) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(parent, name, flags|unix.O_NOATIME, 0)
		if errors.Is(err, unix.EPERM) {
			fd, err = unix.Openat(parent, name, flags, 0)
		}
		return err
	})
	return fd, err
}

// retry repeats a call while a signal interrupts it.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR { //nolint:errorlint // The kernel's own number, wrapped by nobody.
			return err
		}
	}
}

// kind returns the entry's type, and an error for one that Linux does not have.
func (s *stat) kind() (Type, error) {
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return Directory, nil
	case unix.S_IFREG:
		return File, nil
	case unix.S_IFLNK:
		return Symlink, nil
	case unix.S_IFIFO:
		return Fifo, nil
	case unix.S_IFSOCK:
		return Socket, nil
	case unix.S_IFCHR:
		return CharDevice, nil
	case unix.S_IFBLK:
		return BlockDevice, nil
	}
	return 0, fmt.Errorf("unknown type %#o", s.Mode&unix.S_IFMT)
}

func (s *stat) device() uint64 { return unix.Mkdev(s.Dev_major, s.Dev_minor) }

// foreign reports whether something is mounted here, or the entry is on another file system.
func (s *stat) foreign(root *stat) bool {
	return s.device() != root.device() || s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

func timeOf(t unix.StatxTimestamp) Time { return Time{Sec: t.Sec, Nsec: t.Nsec} }

// fill writes the values of stat into an entry.
func (s *stat) fill(e *Entry) {
	e.Mode = uint32(s.Mode) & 0o7777
	e.UID, e.GID = s.Uid, s.Gid
	e.Mtime, e.Ctime = timeOf(s.Mtime), timeOf(s.Ctime)
	e.Inode, e.Links = s.Ino, s.Nlink
	switch e.Type {
	case File:
		e.Size, e.Allocated = s.Size, s.Blocks*512
	case CharDevice, BlockDevice:
		e.Major, e.Minor = s.Rdev_major, s.Rdev_minor
	case Directory, Symlink, Fifo, Socket:
		e.Allocated = s.Blocks * 512
	}
}

// readlinkAt returns the target of a symbolic link.
func readlinkAt(dir int, name string) (string, error) {
	for size := 256; ; size *= 4 {
		b := make([]byte, size)
		var n int
		err := retry(func() (err error) {
			n, err = unix.Readlinkat(dir, name, b)
			return err
		})
		if err != nil {
			return "", err
		}
		if n < size {
			return string(b[:n]), nil
		}
	}
}

// Names of attributes that are kept besides user.* and trusted.*. Others belong to the machine
// (security.selinux, security.ima) or to the file system (system.nfs4_acl, btrfs.*), and a copy
// need not keep them.
const (
	capabilityXattr = "security.capability"
	accessACL       = "system.posix_acl_access"
	defaultACL      = "system.posix_acl_default"
	trustedPrefix   = "trusted."
	userPrefix      = "user."
)

// KeptXattrs returns the attributes that a copy must keep, except ACLs: names, and prefixes, which
// end with a dot. A program that copies attributes must copy these and leave all others at both
// ends as they are.
func KeptXattrs() []string { return []string{userPrefix, trustedPrefix, capabilityXattr} }

// isKeptXattr reports whether a copy must keep an attribute of this name.
func isKeptXattr(name string) bool {
	return name == accessACL || name == defaultACL || slices.ContainsFunc(KeptXattrs(), func(kept string) bool {
		return name == kept || strings.HasSuffix(kept, ".") && strings.HasPrefix(name, kept)
	})
}

// xattrSource is an object with extended attributes: its functions are system calls of Linux.
type xattrSource struct {
	list func(to []byte) (int, error)
	get  func(name string, to []byte) (int, error)
}

// xattrsOfFD returns the source for a file or directory that is open for reading.
func xattrsOfFD(fd int) xattrSource {
	return xattrSource{
		list: func(to []byte) (int, error) { return unix.Flistxattr(fd, to) },
		get:  func(name string, to []byte) (int, error) { return unix.Fgetxattr(fd, name, to) },
	}
}

// xattrsOfName returns the source for a name in an open directory. The path goes through
// /proc/self/fd, the only way to read attributes of a name without opening it; a symbolic link at
// its end is not followed.
func xattrsOfName(dir int, name string) xattrSource {
	path := "/proc/self/fd/" + strconv.Itoa(dir) + "/" + name
	return xattrSource{
		list: func(to []byte) (int, error) { return unix.Llistxattr(path, to) },
		get:  func(name string, to []byte) (int, error) { return unix.Lgetxattr(path, name, to) },
	}
}

// xattrs returns the attributes that a copy must keep, sorted by name.
func xattrs(of xattrSource, buffer *[]byte) ([]Xattr, error) {
	names, err := readGrowing(buffer, of.list)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list extended attributes: %w", err)
	}
	if len(names) == 0 {
		return nil, nil
	}
	var found []Xattr
	for attribute := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if !isKeptXattr(attribute) {
			continue
		}
		value, err := readGrowing(buffer, func(b []byte) (int, error) { return of.get(attribute, b) })
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read extended attribute %s: %w", attribute, err)
		}
		found = append(found, Xattr{Name: attribute, Length: uint64(len(value)), Hash: hashOf(value)})
	}
	slices.SortFunc(found, func(a, b Xattr) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// maxXattr is the longest value or list that Linux returns.
const maxXattr = 64 << 10

// readGrowing repeats a call with a growing buffer until the answer fits.
func readGrowing(buffer *[]byte, call func([]byte) (int, error)) ([]byte, error) {
	if len(*buffer) == 0 {
		// With an empty buffer Linux returns only the length.
		*buffer = make([]byte, 1<<10)
	}
	for {
		var n int
		err := retry(func() (err error) {
			n, err = call(*buffer)
			return err
		})
		switch {
		case err == nil:
			return (*buffer)[:n], nil
		case errors.Is(err, unix.ERANGE) && len(*buffer) < maxXattr:
			*buffer = make([]byte, maxXattr)
		default:
			return nil, err
		}
	}
}

// kernelTime returns the time that the kernel writes as change time on local file systems.
func kernelTime() (Time, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &t); err != nil {
		return Time{}, fmt.Errorf("read the clock: %w", err)
	}
	return Time{Sec: t.Sec, Nsec: uint32(t.Nsec)}, nil
}

// seesTrusted reports whether this program can read attributes named trusted.*: only with
// CAP_SYS_ADMIN.
func seesTrusted() bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}
