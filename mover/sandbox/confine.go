// Package sandbox limits what a mover and the programs that it runs can do: which files they access
// (Command in confine.go), which processes they leave (WaitForGroup in process.go), and how much of
// the node's disk they fill (Scratch in scratch.go).
//
// Programs run under Landlock, which needs no privilege and applies to all processes that a program
// starts. In addition to the container's own file system it protects against a program that
// misreads what the other end of a move sends. The disk is limited because a node whose disk is
// full evicts pods, and not only the mover.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights of Landlock: those of ABI 1, and those that later ones added.
const (
	rightExecute  = unix.LANDLOCK_ACCESS_FS_EXECUTE
	rightReadFile = unix.LANDLOCK_ACCESS_FS_READ_FILE
	rightReadDir  = unix.LANDLOCK_ACCESS_FS_READ_DIR
	rightsOfABI1  = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1
)

// Access is what a program may do below a path.
type Access struct {
	Path string
	// Write allows everything but execution; without it, only reading is allowed.
	Write bool
	// Execute allows to run and read what is there.
	Execute bool
}

// ErrUnsupported means that the kernel has no Landlock, or that it is turned off.
var ErrUnsupported = errors.New("this kernel confines no program: Landlock is missing")

// LandlockVersion is the kernel's version of Landlock.
func LandlockVersion() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("%w (%w)", ErrUnsupported, errno)
	}
	return int(version), nil
}

// rightsHandled returns the rights that this kernel can restrict.
func rightsHandled(version int) uint64 {
	all := uint64(rightsOfABI1)
	if version >= 2 {
		all |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		all |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	return all
}

// execConfined replaces this process by a program that may do what access lists, and nothing else.
// It returns only with an error.
func execConfined(program string, arguments, environment []string, access []Access) error {
	version, err := LandlockVersion()
	if err != nil {
		return err
	}
	// A ruleset applies to a thread; the new program has only this one.
	runtime.LockOSThread()
	all := rightsHandled(version)
	attribute := unix.LandlockRulesetAttr{Access_fs: all}
	// This is the size of ABI 1's attribute, which every kernel with Landlock accepts.
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attribute)),
		unsafe.Sizeof(attribute.Access_fs), 0)
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

// allow adds a rule; a path that does not exist needs none.
func allow(ruleset int, a Access, all uint64) error {
	fd, err := unix.Open(a.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", a.Path, err)
	}
	defer unix.Close(fd)
	rights := uint64(rightReadFile | rightReadDir)
	if a.Execute {
		rights |= rightExecute
	}
	if a.Write {
		rights = all &^ rightExecute
	}
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return fmt.Errorf("look at %s: %w", a.Path, err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		// The kernel refuses directory rights for a file.
		rights &= rightExecute | rightReadFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
		rights &= all
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("allow %s: %w", a.Path, errno)
	}
	return nil
}

// ConfineSubcommand is the first argument that makes the mover's program confine itself
// and become another program.
const ConfineSubcommand = "confined"

// systemAccess allows programs and libraries, in an image and on a machine.
var systemAccess = []Access{
	{Path: "/usr", Execute: true}, {Path: "/lib", Execute: true}, {Path: "/lib64", Execute: true}, {Path: "/bin", Execute: true},
	{Path: "/etc"}, {Path: "/dev/null", Write: true}, {Path: "/proc/self", Write: false},
}

// Command makes a command that runs a program confined to access and the system's programs and
// libraries. Self is the path of the mover's own program. Without Landlock in the kernel, see
// LandlockVersion, the program has the whole file system of the container.
func Command(ctx context.Context, self string, access []Access, program string, arguments ...string) *exec.Cmd {
	if _, err := LandlockVersion(); err != nil {
		return exec.CommandContext(ctx, program, arguments...)
	}
	words := []string{ConfineSubcommand}
	for _, a := range access {
		mode := "r"
		if a.Write {
			mode = "w"
		} else if a.Execute {
			mode = "x"
		}
		words = append(words, mode+":"+a.Path)
	}
	words = append(words, "--", program)
	return exec.CommandContext(ctx, self, append(words, arguments...)...)
}

// RunConfineSubcommand executes the arguments that follow ConfineSubcommand, made by Command. It
// returns only with an error.
func RunConfineSubcommand(arguments []string) error {
	access := systemAccess
	for i, argument := range arguments {
		if argument == "--" && len(arguments) > i+1 {
			return execConfined(arguments[i+1], arguments[i+1:], os.Environ(), access)
		}
		mode, path, found := strings.Cut(argument, ":")
		if !found {
			break
		}
		access = append(access, Access{Path: path, Write: mode == "w", Execute: mode == "x"})
	}
	return fmt.Errorf("%s: expected rules, --, and a program", ConfineSubcommand)
}
