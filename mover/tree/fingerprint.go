package tree

import (
	"context"
	"errors"
	"fmt"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/sandbox"
)

// Fingerprint is a hash over the name, mode, inode number, size and times of each entry of a volume, as its file system says them: no
// content is read, and nothing is written. Whatever changes an entry changes its change time, which no program can set. So a volume with
// the fingerprint that it had has the content that it had, if all that was written before the first one had reached the disk, and was
// older than Settling says.
//
// It is none, the zero value, where that cannot be relied on: on a file system that is not known to keep inode numbers and change times
// when it is mounted again, where something else is mounted in the volume, and where something vanishes meanwhile. Scratch is a directory
// for temporary files outside the volume.
func Fingerprint(ctx context.Context, root, scratch string, budget *sandbox.ScratchBudget) (Hash, error) {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Hash{}, fmt.Errorf("open the volume at %s: %w", root, err)
	}
	d := newDir(fd, "")
	defer d.release()
	s, err := statAt(fd, "")
	if err != nil {
		return Hash{}, fmt.Errorf("look at the volume at %s: %w", root, err)
	}
	system, err := fileSystemOf(fd)
	if err != nil || !system.keepsTimes() {
		return Hash{}, err
	}
	f := &fingerprint{root: s, names: nameSorter{scratch: scratch, budget: budget}, hash: newHasher(fingerprintContext)}
	f.record = big.AppendUint64(f.record, uint64(system))
	f.add("", &s)
	if err := f.children(ctx, d); err != nil || f.unreliable {
		return Hash{}, err
	}
	f.flush()
	return sum(f.hash), nil
}

// keepsTimes says whether a file system is known to keep inode numbers and change times when it is mounted again, also elsewhere.
func (s fileSystem) keepsTimes() bool {
	return s.margin() == localMargin || s == unix.NFS_SUPER_MAGIC || s == unix.CEPH_SUPER_MAGIC
}

// fingerprint is a fingerprint that is being taken.
type fingerprint struct {
	root  stat
	names nameSorter
	hash  *blake3.Hasher
	// record is what is to be hashed next.
	record []byte
	// unreliable says that there is none.
	unreliable bool
}

// children adds everything in a directory, in canonical order.
func (f *fingerprint) children(ctx context.Context, d *dir) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for n, err := range f.names.sorted(d) {
		switch {
		case gone(err):
			f.unreliable = true
			return nil
		case err != nil:
			return err
		case d.path == "" && n.name == lostFound:
			continue
		}
		s, err := statAt(d.fd, n.name)
		if gone(err) || err == nil && s.foreign(&f.root) {
			f.unreliable = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("look at %q: %w", d.join(n.name), err)
		}
		f.add(n.name, &s)
		if s.Mode&unix.S_IFMT == unix.S_IFDIR {
			err = f.descend(ctx, d, n.name)
		}
		if err != nil || f.unreliable {
			return err
		}
	}
	f.record = append(f.record, endOfDirectory)
	return nil
}

func (f *fingerprint) descend(ctx context.Context, parent *dir, name string) error {
	fd, err := openDirAt(parent.fd, name)
	if gone(err) || errors.Is(err, unix.EACCES) {
		// A mover that is not root is refused by Prepare, with what to do.
		f.unreliable = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("open directory %q: %w", parent.join(name), err)
	}
	d := newDir(fd, parent.join(name))
	defer d.release()
	return f.children(ctx, d)
}

// What comes before an entry, and after the last one of a directory.
const (
	beginOfEntry   = 'e'
	endOfDirectory = 'd'
)

// add adds what the file system says of a name.
func (f *fingerprint) add(name string, s *stat) {
	b := appendString(append(f.record, beginOfEntry), name)
	b = big.AppendUint32(b, uint32(s.Mode))
	b = big.AppendUint64(b, s.Ino)
	b = big.AppendUint64(b, s.Size)
	b = appendTime(b, timeOf(s.Mtime))
	f.record = appendTime(b, timeOf(s.Ctime))
	if len(f.record) >= 64<<10 {
		f.flush()
	}
}

func (f *fingerprint) flush() {
	_, _ = f.hash.Write(f.record)
	f.record = f.record[:0]
}
