package cases

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Scale says how large the two large cases are.
type Scale struct {
	// FileBytes is the size of the one large file; a list of cases says 10 GB.
	FileBytes int64
	// Files is the number of small files; a list of cases says a million.
	Files int
}

// Quick is a scale for every day, Whole is that of the list.
var (
	Quick = Scale{FileBytes: 256 << 20, Files: 5000}
	Whole = Scale{FileBytes: 10 << 30, Files: 1000000}
)

// shapes are the cases about names, sizes and the root.
func shapes(scale Scale) []Case {
	return []Case{
		{Number: "16a", Name: "name of 255 bytes, path of 4,000", Must: Kept, Source: func(v *Volume) {
			v.text(strings.Repeat("n", 255), "x")
			v.deep(4000)
		}},
		{Number: "16b", Name: "path over 4,096 bytes", Must: KeptOrRefused, Source: func(v *Volume) { v.deep(4500) }},
		{Number: "17", Name: "empty directory", Must: Kept, Source: func(v *Volume) { v.mkdir("a/b/empty", 0o710) }},
		{Number: "18", Name: "empty file", Must: Kept, Source: func(v *Volume) { v.text("empty", "") }},
		{Number: "19", Name: "one file of " + bytesInWords(scale.FileBytes), Must: Kept, Source: func(v *Volume) {
			const piece = 16 << 20
			for at := int64(0); at < scale.FileBytes; at += piece {
				v.patch("large", at, noise(fmt.Sprint(at), piece))
			}
		}, Between: func(v *Volume) { v.patch("large", scale.FileBytes/2+77, noise("changed", 9000)) }},
		{Number: "20", Name: fmt.Sprintf("%d small files", scale.Files), Must: Kept, Source: func(v *Volume) {
			for i := range scale.Files {
				v.text(fmt.Sprintf("d%03d/f%06d", i/1000, i), fmt.Sprint(i))
			}
		}, Between: func(v *Volume) { v.text("d000/f000007", "changed") }},
		{Number: "21", Name: "uid and gid without an account", Must: Kept, Source: func(v *Volume) {
			v.text("file", "x")
			v.chown("file", 3999999999, 3888888888)
			v.mkdir("directory", 0o700)
			v.chown("directory", 61234, 51234)
		}},
		{Number: "22", Name: "mode 000", Must: Kept, Source: func(v *Volume) {
			v.text("directory/file", "x")
			v.chmod("directory/file", 0)
			v.chown("directory/file", 1234, 1234)
			v.chmod("directory", 0)
			v.chown("directory", 1234, 1234)
		}},
		{Number: "23", Name: "mode, owner, time and attributes of the root", Must: Kept, Root: true, Source: func(v *Volume) {
			v.text("file", "x")
			v.chown("", 999, 998)
			v.chmod("", 0o2770)
			v.xattr("", "user.root", []byte("value"))
			v.xattr("", defaultACL, acl(12345, 7))
			v.mtime("", time.Unix(1300000000, 7))
		}},
		{Number: "24", Name: "lost+found at the root (left out), nested (kept)", Must: Kept, Source: func(v *Volume) {
			v.text("lost+found/#12", "found by a repair of this file system")
			v.text("a/lost+found/file", "of the application")
		}, Target: func(v *Volume) {
			v.text("lost+found/#34", "of the target")
		}, Holds: func(v *Volume) {
			v.absent("lost+found/#12")
			v.expect("lost+found/#34", "of the target")
		}},
		{Number: "30", Name: "empty volume", Must: Kept, Root: true, Source: func(v *Volume) { v.chmod("", 0o711) }},
	}
}

// deep makes a file whose path has so many bytes, directory by directory.
func (v *Volume) deep(length int) {
	v.do("make a deep directory", func() error {
		at, err := unix.Open(v.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(at) }()
		name := strings.Repeat("d", 199)
		for left := length; left > 250; left -= 200 {
			if err := unix.Mkdirat(at, name, 0o755); err != nil {
				return err
			}
			next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			_ = unix.Close(at)
			at = next
		}
		file, err := unix.Openat(at, strings.Repeat("f", 50), unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		_, err = unix.Write(file, []byte("deep"))
		return joinClose(err, unix.Close(file))
	})
}

func joinClose(err, closed error) error {
	if err != nil {
		return err
	}
	return closed
}

// hole makes a file that is one hole.
func (v *Volume) hole(name string, size int64) {
	v.text(name, "")
	v.truncate(name, size)
}

// allocatedAtMost fails if a file takes more on its file system.
func (v *Volume) allocatedAtMost(name string, most int64) {
	v.do("check "+name, func() error {
		var s unix.Stat_t
		if err := unix.Lstat(v.at(name), &s); err != nil {
			return err
		}
		if s.Blocks*512 > most {
			return fmt.Errorf("its holes are filled: it takes %s", bytesInWords(s.Blocks*512))
		}
		return nil
	})
}

func bytesInWords(n int64) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// isRoot says whether this program may make devices and the like.
func isRoot() bool { return os.Geteuid() == 0 }
