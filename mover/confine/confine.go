// Package confine runs programs that can touch nothing of the file system but what
// they need: a ruleset of Landlock, which needs no privilege and holds for all that
// a program starts. It is the second wall after the container's own file system,
// for a program that reads what the other end of a move sends.
package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights of Landlock: those of ABI 1, and those that later ones added.
const (
	execute  = unix.LANDLOCK_ACCESS_FS_EXECUTE
	readFile = unix.LANDLOCK_ACCESS_FS_READ_FILE
	readDir  = unix.LANDLOCK_ACCESS_FS_READ_DIR
	first    = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1
)

// Access is what a program may do below a path.
type Access struct {
	Path string
	// Write allows everything but execution; otherwise reading alone.
	Write bool
	// Execute allows to run what is there, and to read it.
	Execute bool
}

// ErrUnsupported means that the kernel has no Landlock, or that it is turned off.
var ErrUnsupported = errors.New("this kernel confines no program: Landlock is missing")

// Version is the kernel's version of Landlock.
func Version() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("%w (%w)", ErrUnsupported, errno)
	}
	return int(version), nil
}

// handled are the rights that this kernel can take away.
func handled(version int) uint64 {
	all := uint64(first)
	if version >= 2 {
		all |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		all |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	return all
}

// Exec replaces this process by a program that may do what access lists, and
// nothing else. It returns only with an error.
func Exec(program string, arguments, environment []string, access []Access) error {
	version, err := Version()
	if err != nil {
		return err
	}
	// A ruleset is a thread's; the new program has only this one.
	runtime.LockOSThread()
	all := handled(version)
	attribute := unix.LandlockRulesetAttr{Access_fs: all}
	// The size of ABI 1's attribute, which every kernel with Landlock takes.
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attribute)), unsafe.Sizeof(attribute.Access_fs), 0)
	if errno != 0 {
		return fmt.Errorf("make a ruleset: %w", errno)
	}
	for _, a := range access {
		if err := allow(int(ruleset), a, all); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
		return fmt.Errorf("confine the program: %w", errno)
	}
	_ = unix.Close(int(ruleset))
	if err := syscall.Exec(program, arguments, environment); err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	return nil
}

// allow adds a rule; a path that is not there needs none.
func allow(ruleset int, a Access, all uint64) error {
	fd, err := unix.Open(a.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", a.Path, err)
	}
	defer unix.Close(fd)
	rights := uint64(readFile | readDir)
	if a.Execute {
		rights |= execute
	}
	if a.Write {
		rights = all &^ execute
	}
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return fmt.Errorf("look at %s: %w", a.Path, err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		// The kernel refuses rights of directories for a file.
		rights &= execute | readFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
		rights &= all
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("allow %s: %w", a.Path, errno)
	}
	return nil
}
