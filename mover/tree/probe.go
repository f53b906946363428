package tree

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Abilities are what a target can take, tried out by the program that will write
// there with the capabilities that it has.
type Abilities struct {
	// Lacks names what cannot be kept, with the error that showed it.
	Lacks map[Ability]string `json:"lacks,omitempty"`
	// Bytes and Inodes are free for a program with root's reserve. Inodes is 0 where
	// the file system has no such limit.
	Bytes  uint64 `json:"bytes"`
	Inodes uint64 `json:"inodes"`
}

// probeName begins the name of the directory in which abilities are tried.
const probeName = ".lodestone-probe-"

// Probe tries in a new directory inside the target, which it removes again, what the
// file system and this program can keep. An error means that nothing could be tried.
func Probe(target string) (a Abilities, err error) {
	if err := unprobe(target); err != nil {
		return Abilities{}, err
	}
	dir, err := os.MkdirTemp(target, probeName+"*")
	if err != nil {
		return Abilities{}, fmt.Errorf("make a directory to try what the target can keep: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	a.Lacks = map[Ability]string{}
	for ability, try := range trials {
		place := filepath.Join(dir, string(ability))
		if err := os.WriteFile(place, nil, 0o600); err != nil {
			return Abilities{}, fmt.Errorf("make a file at the target: %w", err)
		}
		if err := try(place); err != nil {
			a.Lacks[ability] = strings.ReplaceAll(err.Error(), dir+"/", "")
		}
	}
	var s unix.Statfs_t
	if err := unix.Statfs(target, &s); err != nil {
		return Abilities{}, fmt.Errorf("ask how much space the target has: %w", err)
	}
	a.Bytes = s.Bfree * uint64(s.Frsize)
	if s.Files > 0 {
		a.Inodes = s.Ffree
	}
	return a, nil
}

// unprobe removes what a probe left that was killed.
func unprobe(target string) error {
	entries, err := os.ReadDir(target)
	if err != nil {
		return fmt.Errorf("read the target's root: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), probeName) && e.IsDir() {
			if err := os.RemoveAll(filepath.Join(target, e.Name())); err != nil {
				return fmt.Errorf("remove what an earlier try left: %w", err)
			}
		}
	}
	return nil
}

// trials try one ability each beside an empty file, and say why it is lacking.
var trials = map[Ability]func(file string) error{
	HardLinks: func(file string) error { return os.Link(file, file+".link") },
	Symlinks:  func(file string) error { return os.Symlink("somewhere", file+".symlink") },
	Fifos:     func(file string) error { return explain("make a named pipe", unix.Mkfifo(file+".fifo", 0o600)) },
	Sockets: func(file string) error {
		return explain("make a socket", unix.Mknod(file+".socket", unix.S_IFSOCK|0o600, 0))
	},
	Devices: func(file string) error {
		return explain("make a device", unix.Mknod(file+".device", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	},
	Owners: func(file string) error { return os.Chown(file, 54321, 65432) },
	SpecialBits: func(file string) error {
		if err := unix.Chmod(file, 0o6755); err != nil {
			return explain("set setuid and setgid", err)
		}
		return stays(file, func(s *unix.Stat_t) bool { return s.Mode&0o7777 == 0o6755 }, "setuid and setgid are dropped")
	},
	UserXattrs:    func(file string) error { return keepsXattr(file, userPrefix+"try", []byte("value")) },
	TrustedXattrs: func(file string) error { return keepsXattr(file, trustedPrefix+"try", []byte("value")) },
	Capabilities:  func(file string) error { return keepsXattr(file, capabilityXattr, probeCapability) },
	ACLs:          func(file string) error { return keepsXattr(file, accessACL, probeACL) },
	NonUTF8Names:  func(file string) error { return os.WriteFile(file+"-\xff\xfe", nil, 0o600) },
	UnusualNames:  func(file string) error { return os.WriteFile(file+"\n\\:*?\"<>| .", nil, 0o600) },
	LongNames: func(file string) error {
		return os.WriteFile(filepath.Join(filepath.Dir(file), strings.Repeat("n", 255)), nil, 0o600)
	},
	Holes: func(file string) error {
		const size = 1 << 20
		if err := os.Truncate(file, size); err != nil {
			return err
		}
		return stays(file, func(s *unix.Stat_t) bool { return s.Blocks*512 < size }, "holes are filled")
	},
	CaseSensitive: func(file string) error {
		_, err := os.Lstat(filepath.Join(filepath.Dir(file), strings.ToLower(filepath.Base(file))))
		if err == nil {
			return errors.New("names that differ only in upper and lower case are the same")
		}
		return nil
	},
	Nanoseconds:    func(file string) error { return keepsTime(file, time.Unix(1500000000, 123456789)) },
	TimeBefore1970: func(file string) error { return keepsTime(file, time.Unix(-1500000000, 0)) },
	TimeAfter2038:  func(file string) error { return keepsTime(file, time.Unix(1<<31+1e6, 0)) },
}

// Values that Linux accepts: one capability, and an ACL with a named user.
var (
	probeCapability = append([]byte{1, 0, 0, 2, 0, 4}, make([]byte, 14)...)
	probeACL        = []byte{
		2, 0, 0, 0,
		1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, // the owner
		2, 0, 5, 0, 0x31, 0xd4, 0, 0, // user 54321
		4, 0, 5, 0, 0xff, 0xff, 0xff, 0xff, // the group
		16, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, // the mask
		32, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, // others
	}
)

// explain says what failed.
func explain(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func stays(file string, as func(*unix.Stat_t) bool, otherwise string) error {
	var s unix.Stat_t
	if err := unix.Lstat(file, &s); err != nil {
		return fmt.Errorf("look at a file: %w", err)
	}
	if !as(&s) {
		return errors.New(otherwise)
	}
	return nil
}

func keepsXattr(file, name string, value []byte) error {
	if err := unix.Lsetxattr(file, name, value, 0); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	got := make([]byte, 1024)
	n, err := unix.Lgetxattr(file, name, got)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if !bytes.Equal(got[:n], value) {
		return fmt.Errorf("%s becomes another value", name)
	}
	return nil
}

func keepsTime(file string, at time.Time) error {
	t := unix.Timespec{Sec: at.Unix(), Nsec: int64(at.Nanosecond())}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, file, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set a time: %w", err)
	}
	return stays(file, func(s *unix.Stat_t) bool { return s.Mtim == t }, "a time becomes another one")
}
