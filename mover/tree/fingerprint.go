package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// Fingerprint is a hash over the name, mode, inode number, size and times of each entry of a volume, as its file system says them: no
// content is read, and nothing is written. Whatever changes an entry changes its change time, which no program can set. So a volume with
// the fingerprint that it had has the content that it had, if all that was written before the first one had reached the disk, and was
// older than Settling says.
//
// It is none, the zero value, where that cannot be relied on: on a file system that is not known to keep inode numbers and change times
// when it is mounted again, or writes times late, where something else is mounted in the volume, and where something vanishes meanwhile.
// Of the Options it heeds Root, Scratch, Budget and Progress, which are the entries.
func Fingerprint(ctx context.Context, o Options) (Hash, error) {
	fd, err := unix.Open(o.Root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Hash{}, fmt.Errorf("open the volume at %s: %w", o.Root, err)
	}
	d := newDir(fd, "")
	defer d.release()
	s, err := statAt(fd, "")
	if err != nil {
		return Hash{}, fmt.Errorf("look at the volume at %s: %w", o.Root, err)
	}
	system, err := fileSystemOf(fd)
	if err != nil || !system.keepsTimes() {
		return Hash{}, err
	}
	if late, err := writesTimesLate(fd); err != nil || late {
		return Hash{}, err
	}
	f := &fingerprint{root: s, names: nameSorter{scratch: o.Scratch, budget: o.Budget}, hash: newHasher(fingerprintContext),
		progress: o.Progress}
	f.record = big.AppendUint64(f.record, uint64(system))
	f.add("", &s)
	if err := f.children(ctx, d); err != nil || f.unreliable {
		return Hash{}, err
	}
	f.flush()
	return sum(f.hash), nil
}

// keepsTimes says whether a file system is known to keep inode numbers and change times when it is mounted again, also elsewhere. F2FS
// writes times late unless it is told otherwise.
func (s fileSystem) keepsTimes() bool {
	return s.margin() == localMargin && s != unix.F2FS_SUPER_MAGIC || s == unix.NFS_SUPER_MAGIC || s == unix.CEPH_SUPER_MAGIC
}

// writesTimesLate says whether the file system of an open directory is mounted so that times may stay in memory for a day after what was
// written (lazytime).
func writesTimesLate(fd int) (bool, error) {
	var s unix.Statx_t
	if err := retry(func() error { return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &s) }); err != nil {
		return false, fmt.Errorf("look how the volume is mounted: %w", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, fmt.Errorf("look how the volume is mounted: %w", err)
	}
	for line := range bytes.Lines(mounts) {
		if fields := bytes.Fields(line); len(fields) > 5 && string(fields[0]) == strconv.FormatUint(s.Mnt_id, 10) {
			return slices.ContainsFunc([][]byte{fields[5], fields[len(fields)-1]}, func(options []byte) bool {
				return slices.ContainsFunc(bytes.Split(options, []byte{','}), func(one []byte) bool { return string(one) == "lazytime" })
			}), nil
		}
	}
	return true, nil // nobody knows
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
	entries    uint64
	progress   func(Progress)
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
	path := parent.join(name)
	if len(path) > maxPath {
		f.unreliable = true
		return nil
	}
	fd, err := openDirAt(parent.fd, name)
	if gone(err) || errors.Is(err, unix.EACCES) {
		// A mover that is not root is refused by Prepare, with what to do.
		f.unreliable = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("open directory %q: %w", path, err)
	}
	d := newDir(fd, path)
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
	if f.entries++; f.progress != nil && f.entries%1000 == 0 {
		f.progress(Progress{Entries: f.entries})
	}
	if len(f.record) >= 64<<10 {
		f.flush()
	}
}

func (f *fingerprint) flush() {
	_, _ = f.hash.Write(f.record)
	f.record = f.record[:0]
}
