package blocks

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// link makes name another name of target, which was written before.
func (r *Receiver) link(name, target string) error {
	dir, base, err := split(name)
	if err != nil {
		return err
	}
	if _, _, err := split(target); err != nil {
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
