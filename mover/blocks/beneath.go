package blocks

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

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

// split checks a path of the other end and splits it into directory and name.
func split(name string) (dir, base string, err error) {
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

// openDir opens a directory below root to put something in, and makes it and what
// leads to it; what is in the way there is removed.
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

// stepInto opens a directory in a directory, and makes it if it is not there.
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
	// Rsync gives it its mode and its owner; until then it is nobody's.
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
