package tree

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// system is a file system's magic number.
type system int64

func systemOf(fd int) (system, error) {
	var s unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(fd, &s) }); err != nil {
		return 0, fmt.Errorf("ask what file system the volume has: %w", err)
	}
	return system(s.Type), nil
}

const (
	second = int64(1e9)
	// localMargin covers the coarsest clock of local file systems: whole seconds, and
	// the tick of the kernel's clock.
	localMargin = 2 * second
	// remoteMargin also covers a server whose clock differs from ours.
	remoteMargin = 600 * second
	// never means that change times of this file system prove nothing.
	never = int64(1) << 62
)

// F2FS and ZFS are missing in the list of golang.org/x/sys.
const zfsMagic = 0x2fc12fc1

// margin is how much older than the start of a scan a change time must be for the
// entry to count as settled by that scan.
func (s system) margin() int64 {
	switch s {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, zfsMagic:
		return localMargin
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.HUGETLBFS_MAGIC:
		// A store through a memory mapping leaves no trace here after the first one.
		return never
	}
	return remoteMargin
}

// Settling is how long what was written last in a volume must be left alone for a scan to
// be trusted with it by later ones. On file systems of other machines that is minutes, and
// on some in memory for ever.
func Settling(root string) (time.Duration, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open the volume at %s: %w", root, err)
	}
	defer unix.Close(fd)
	system, err := systemOf(fd)
	return time.Duration(system.margin()), err
}

// clock is the time that the kernel gives to changes on local file systems.
func clock() (Time, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &t); err != nil {
		return Time{}, fmt.Errorf("read the clock: %w", err)
	}
	return Time{Sec: t.Sec, Nsec: uint32(t.Nsec)}, nil
}

// minus is the time so many nanoseconds earlier.
func (t Time) minus(nanoseconds int64) Time {
	t.Sec -= nanoseconds / second
	rest := uint32(nanoseconds % second)
	if t.Nsec < rest {
		t.Sec--
		t.Nsec += uint32(second)
	}
	t.Nsec -= rest
	return t
}

// seesTrusted says whether this program may see attributes named trusted.*: only
// with CAP_SYS_ADMIN.
func seesTrusted() bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}
