package tree

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// stat is what the kernel says of one name.
type stat struct {
	unix.Statx_t
}

const statMask = unix.STATX_BASIC_STATS

// statAt asks for a name in a directory, never following a symbolic link. An empty
// name asks for the directory itself. A file system of another machine is asked there:
// what this one remembers may be from before somebody wrote on a third.
func statAt(dir int, name string) (s stat, err error) {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_FORCE_SYNC
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err = retry(func() error { return unix.Statx(dir, name, flags, statMask|unix.STATX_BTIME, &s.Statx_t) })
	return s, err
}

// retry calls again while a signal interrupts.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR { //nolint:errorlint // The kernel's own number, wrapped by nobody.
			return err
		}
	}
}

// kind is the entry's type, and an error for one that is none of Linux.
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

func timeOf(t unix.StatxTimestamp) Time { return Time{Sec: t.Sec, Nsec: t.Nsec} }

// fill writes what stat knows into an entry.
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

// readlinkAt reads where a symbolic link points.
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
