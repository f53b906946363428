package tree

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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
