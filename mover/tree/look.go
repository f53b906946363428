package tree

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// sight is what a worker saw at a name.
type sight struct {
	// entry is nil if nothing is there any more, or if it cannot be kept.
	entry *Entry
	// before is what an earlier manifest tells of it, whose content still holds.
	before known
	// blocks are the hashes of a file's blocks that were read.
	blocks []byte
	read   uint64
	// large says that the file is too large for one worker: its content is not read.
	large bool
	// open is a small file that is read with others: its content is not read yet.
	open *openedFile
	// sparse says that the file has holes, probably.
	sparse     bool
	attributes uint64
	unsettled  bool
	err        error
}

// looker looks at names; each worker has one.
type looker struct {
	root    *stat
	options *Options
	found   *findings
	hasher  hasher
	xattrs  []byte
	// together is for cold scans only.
	together together
}

// gone says whether an error means that a name vanished or was replaced.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ESTALE) ||
		errors.Is(err, unix.ENOTDIR)
}

// look looks at one name in a directory. It never follows a symbolic link.
func (l *looker) look(d *dir, name string, before known) (seen sight) {
	path := d.join(name)
	s, err := statAt(d.fd, name)
	if gone(err) {
		return sight{unsettled: true}
	}
	if err == nil && name != "" && s.foreign(l.root) {
		l.found.add(MountBelow, path)
		return sight{}
	}
	e := &Entry{Path: path}
	if err == nil {
		e.Type, err = s.kind()
	}
	if err != nil {
		return sight{err: fmt.Errorf("look at %q: %w", path, err)}
	}
	s.fill(e)
	if l.options.OnlyLarge && (e.Type != File || e.Size < LargeFrom || before.holds(e)) {
		return sight{}
	}
	seen = sight{entry: e, attributes: s.Attributes, sparse: e.Allocated < e.Size}
	l.found.examine(e, s.Attributes)
	if before.holds(e) {
		e.Content, e.Target, e.Xattrs = before.entry.Content, before.entry.Target, before.entry.Xattrs
		seen.before = before
		return seen
	}
	err = l.read(d, name, &seen)
	if gone(err) {
		return sight{unsettled: true}
	}
	if err != nil {
		return sight{err: fmt.Errorf("read %q: %w", path, err)}
	}
	return seen
}

// holds says whether what the earlier manifest says of an entry is still true. The
// change time decides: no program can set it. One that is not clearly older than the
// earlier scan proves nothing, for the entry may have changed again within the same
// tick of the file system's clock.
func (k known) holds(now *Entry) bool {
	before := k.entry
	return before != nil && before.Type == now.Type && before.Inode == now.Inode && before.Size == now.Size &&
		before.Mtime == now.Mtime && before.Ctime == now.Ctime && now.Ctime.Before(k.of.settled)
}

// read reads what stat does not tell: attributes, a link's target, a file's content.
func (l *looker) read(d *dir, name string, seen *sight) (err error) {
	e := seen.entry
	content := e.Type == File && e.Size > 0 && !l.options.Shallow
	if content && e.Size < LargeFrom {
		return l.readFile(d, name, seen)
	}
	of := named(d.fd, name)
	if name == "" {
		of = opened(d.fd)
	}
	if e.Xattrs, err = xattrs(of, &l.xattrs); err != nil {
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

// readFile opens a small file, and reads it unless it is to be read with others.
func (l *looker) readFile(d *dir, name string, seen *sight) (err error) {
	e := seen.entry
	f, err := openFile(d, name, e, l.options.Cold)
	if err != nil {
		return err
	}
	defer func() {
		if seen.open == nil {
			f.close()
		}
	}()
	if e.Xattrs, err = xattrs(opened(f.fd), &l.xattrs); err != nil {
		return err
	}
	if l.options.Cold && l.together.takes(f, e, seen.sparse) {
		seen.open = f
		return nil
	}
	return l.readAlone(seen, f)
}

// readAlone hashes a small file at once.
func (l *looker) readAlone(seen *sight, f *openedFile) (err error) {
	seen.blocks, err = l.hasher.blocks(f, 0, int64(seen.entry.Size), seen.sparse, nil)
	if err != nil {
		return err
	}
	return l.hashed(seen, f, l.hasher.read)
}

// hashed ends the reading of a small file of which so many bytes were hashed.
func (l *looker) hashed(seen *sight, f *openedFile, read uint64) (err error) {
	seen.entry.Content, seen.read = contentOf(seen.blocks), read
	seen.unsettled, err = f.settle(seen.entry, read)
	return err
}
