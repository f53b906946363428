package cases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/e2e/mover/cases/disk"
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

// All are the cases in the order of the list.
func All(scale Scale) []Case {
	var all []Case
	for _, group := range [][]Case{kinds(), shapes(scale), changes(), mounts()} {
		all = append(all, group...)
	}
	return all
}

const (
	accessACL  = "system.posix_acl_access"
	defaultACL = "system.posix_acl_default"
)

// kinds are the cases about what one entry can be.
func kinds() []Case {
	return []Case{
		{Number: "1", Name: "hard links, also across directories", Must: Kept, Source: func(v *Volume) {
			v.text("a/first", "shared")
			v.link("a/first", "a/second")
			v.link("a/first", "b/c/third")
			v.text("b/same content, not linked", "shared")
			v.symlink("somewhere", "symlink")
			v.link("symlink", "b/symlink too")
		}},
		{Number: "2", Name: "sparse files: holes, a trailing hole", Must: Kept, Source: func(v *Volume) {
			v.patch("holes", 0, noise("start", 5000))
			v.patch("holes", 40<<20, noise("middle", 5000))
			v.truncate("holes", 64<<20+123)
			v.hole("all hole", 32<<20)
		}, Holds: func(v *Volume) { v.allocatedAtMost("holes", 1<<20); v.allocatedAtMost("all hole", 1<<20) }},
		{Number: "3", Name: "user.* attributes on files and directories", Must: Kept, Source: func(v *Volume) {
			v.text("file", "x")
			v.mkdir("directory", 0o755)
			v.xattr("file", "user.note", []byte("value"))
			v.xattr("file", "user.empty", nil)
			v.xattr("file", "user.binary", []byte{0, 1, 255, 10})
			v.xattr("directory", "user.note", noise("value", 1500))
		}},
		{Number: "4a", Name: "trusted.*", Must: KeptOrRefused, Source: func(v *Volume) {
			v.text("file", "x")
			v.xattr("file", "trusted.note", []byte("value"))
			v.symlink("file", "symlink")
			v.xattr("symlink", "trusted.note", []byte("value"))
		}},
		{Number: "4b", Name: "security.capability", Must: KeptOrRefused, Source: func(v *Volume) {
			v.text("program", "x")
			v.chmod("program", 0o755)
			v.xattr("program", "security.capability", capability(unix.CAP_NET_BIND_SERVICE))
		}},
		{Number: "5", Name: "access ACL", Must: Kept, Source: func(v *Volume) {
			v.text("file", "x")
			v.xattr("file", accessACL, acl(12345, 5))
		}},
		{Number: "6", Name: "default ACL", Must: Kept, Source: func(v *Volume) {
			v.mkdir("directory", 0o755)
			v.xattr("directory", defaultACL, acl(12345, 6))
			v.text("directory/inherits", "x")
			v.mkdir("directory/inherits too", 0o700)
		}},
		{Number: "7", Name: "setuid, setgid, sticky", Must: Kept, Source: func(v *Volume) {
			v.text("program", "x")
			v.chown("program", 1234, 2345)
			v.chmod("program", 0o6755)
			v.mkdir("directory", 0o3777)
			v.mkdir("inherits the group", 0o2775)
			v.chown("inherits the group", 1234, 2345)
			v.chmod("inherits the group", 0o2775)
		}},
		{Number: "8", Name: "times in ns, before 1970, after 2038", Must: Kept, Source: func(v *Volume) {
			v.text("ns", "x")
			v.mtime("ns", time.Unix(1600000000, 123456789))
			v.text("before 1970", "x")
			v.mtime("before 1970", time.Unix(-1600000000, 987654321))
			v.text("after 2038", "x")
			v.mtime("after 2038", time.Unix(1<<32+5, 1))
			v.mkdir("directory", 0o755)
			v.mtime("directory", time.Unix(1500000000, 999999999))
		}},
		{Number: "9", Name: "symbolic link with its own time and owner", Must: Kept, Source: func(v *Volume) {
			v.text("file", "x")
			v.symlink("file", "symlink")
			v.chown("symlink", 4321, 5432)
			v.mtime("symlink", time.Unix(1400000000, 1))
		}},
		{Number: "10", Name: "dangling and absolute symbolic links", Must: Kept, Source: func(v *Volume) {
			v.symlink("nowhere/at/all", "dangling")
			v.symlink("/etc/hostname", "absolute")
			v.symlink("../../..", "out of the volume")
			v.symlink("loop", "loop")
			v.symlink(strings.Repeat("long/", 800), "long")
		}},
		{Number: "11", Name: "named pipe", Must: Kept, Source: func(v *Volume) { v.mknod("fifo", unix.S_IFIFO|0o640, 0, 0) }},
		{Number: "12", Name: "socket", Must: Kept, Source: func(v *Volume) { v.mknod("socket", unix.S_IFSOCK|0o660, 0, 0) }},
		{Number: "13", Name: "devices", Must: KeptOrRefused, Source: func(v *Volume) {
			v.mknod("null", unix.S_IFCHR|0o666, 1, 3)
			v.mknod("block", unix.S_IFBLK|0o660, 7, 200)
			v.mknod("large numbers", unix.S_IFCHR|0o600, 400, 70000)
		}},
		{Number: "14", Name: "names that are not UTF-8", Must: Kept, Source: func(v *Volume) {
			v.text("latin-\xe4\xf6\xfc", "x")
			v.text("\xff\xfe/\x80", "x")
		}},
		{Number: "15", Name: "newline, leading '-' and '#', space, backslash", Must: Kept, Source: func(v *Volume) {
			for _, name := range []string{
				"line\nbreak", "-rf", "--delete", "#hash", " leading", "trailing ", "back\\slash", "\\#012", "*", "tab\t", ";", ":", "a:b",
			} {
				v.text(name, name)
			}
		}},
	}
}

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

// changes are the cases about what happens between and during passes, and at the
// target.
func changes() []Case {
	return []Case{
		{Number: "25", Name: "file rewritten with its time set back", Must: Kept, Source: func(v *Volume) {
			v.write("file", noise("file", 100000))
			v.write("small", noise("small", 10))
		}, Between: func(v *Volume) {
			v.rewrite("file", true)
			v.rewrite("small", true)
		}},
		{Number: "25b", Name: "rewritten at once, of the same size", Must: Kept, Source: func(v *Volume) {
			v.write("file", noise("file", 100000))
			v.mtime("file", time.Unix(1600000000, 100))
		}, Between: func(v *Volume) {
			v.rewrite("file", false)
			v.mtime("file", time.Unix(1600000000, 200))
		}},
		{Number: "26", Name: "memory-mapped writer", Must: Kept, Source: func(v *Volume) {
			v.write("mapped", noise("mapped", 8<<20))
		}, During: mappedWriter},
		{Number: "27", Name: "append, truncate, rename during a pass", Must: Kept, Source: func(v *Volume) {
			for i := range 200 {
				v.write(fmt.Sprintf("d%d/f%d", i%10, i), noise(fmt.Sprint(i), 30000))
			}
		}, During: busyWriter},
		{Number: "28", Name: "deletion, file and directory change places", Must: Kept, Source: func(v *Volume) {
			v.text("file that becomes a directory", "x")
			v.text("directory that becomes a file/with/content", "x")
			v.text("directory that becomes a symlink/with", "content")
			v.text("deleted", "x")
			v.text("deleted directory/with", "content")
			v.text("moved/away", "x")
			v.text("linked", "x")
			v.link("linked", "linked too")
		}, Between: func(v *Volume) {
			v.remove("file that becomes a directory")
			v.text("file that becomes a directory/now", "y")
			v.remove("directory that becomes a file")
			v.text("directory that becomes a file", "y")
			v.remove("directory that becomes a symlink")
			v.symlink("moved", "directory that becomes a symlink")
			v.remove("deleted")
			v.remove("deleted directory")
			v.rename("moved/away", "here")
			v.remove("linked too")
			v.text("linked too", "y")
		}},
		{Number: "29", Name: "target nearly full", Must: KeptOrRefused, TargetBytes: 32 << 20, Source: func(v *Volume) {
			for i := range 12 {
				v.write(fmt.Sprintf("file%d", i), noise(fmt.Sprint(i), 4<<20))
			}
		}},
		{Number: "31", Name: "foreign files at the target", Must: KeptOrRefused, Source: func(v *Volume) {
			v.text("a/file", "x")
		}, Target: func(v *Volume) {
			v.text("foreign", "y")
			v.text("a/foreign too", "y")
			v.text("directory/foreign", "y")
		}},
		{Number: "31b", Name: "same size and time at the target, other content", Must: KeptOrRefused, Source: func(v *Volume) {
			v.text("file", "right")
			v.mtime("file", time.Unix(1600000000, 100))
		}, Target: func(v *Volume) {
			v.text("file", "wrong")
			v.mtime("file", time.Unix(1600000000, 100))
		}},
		{Number: "32a", Name: "a bit turned in the stream", Must: Kept, Source: func(v *Volume) {
			v.write("file", noise("file", 8<<20))
		}, SpoilStream: 3 << 20},
		{Number: "32b", Name: "a bit turned in a file of the target", Must: Noticed, Source: func(v *Volume) {
			v.write("file", noise("file", 1<<20))
			v.text("other", "x")
		}, Spoil: func(v *Volume) { v.rewrite("file", true) }},
		{Number: "32c", Name: "a bit turned on the target's disk, below its file system", Must: Noticed, Source: func(v *Volume) {
			v.write("file", noise("file", 1<<20))
			v.text("other", "x")
		}, Disk: true, SpoilDisk: func(d *disk.Disk) error { return d.Flip(noise("file", 1<<20)[5<<12:][:64]) }},
	}
}

// mounts are the cases about a volume that is not the one it should be, and a mover
// that cannot do what it should.
func mounts() []Case {
	fill := func(v *Volume) {
		for i := range 20 {
			v.text(fmt.Sprintf("d%d/f%d", i%3, i), fmt.Sprint("content ", i))
		}
	}
	still := func(v *Volume) { v.expect("d1/f1", "content 1") }
	return []Case{
		{Number: "33", Name: "empty source mount in the final pass", Must: Noticed, Source: fill, Holds: still,
			Replace: func(v *Volume) { v.swap(func(*Volume) {}) }},
		{Number: "34", Name: "wrong source mount in the final pass", Must: Noticed, Source: fill, Holds: still,
			Replace: func(v *Volume) {
				v.swap(func(v *Volume) {
					for i := range 30 {
						v.text(fmt.Sprintf("other%d/f%d", i%3, i), "of another volume")
					}
				})
			}},
		{Number: "35a", Name: "mover without CAP_MKNOD, devices", Must: KeptOrRefused, Without: []string{"CAP_MKNOD"},
			Source: func(v *Volume) { v.mknod("null", unix.S_IFCHR|0o666, 1, 3) }},
		{Number: "35b", Name: "mover without CAP_CHOWN, owners", Must: KeptOrRefused, Without: []string{"CAP_CHOWN"},
			Source: func(v *Volume) {
				v.text("file", "x")
				v.chown("file", 1234, 2345)
			}},
		{Number: "35c", Name: "mover without CAP_SETFCAP, capabilities", Must: KeptOrRefused,
			Without: []string{"CAP_SETFCAP"}, Source: func(v *Volume) {
				v.text("program", "x")
				v.xattr("program", "security.capability", capability(unix.CAP_NET_BIND_SERVICE))
			}},
		{Number: "35d", Name: "receiver without CAP_SYS_ADMIN, trusted.*", Must: KeptOrRefused,
			Without: []string{"CAP_SYS_ADMIN"}, Source: func(v *Volume) {
				v.text("file", "x")
				v.xattr("file", "trusted.note", []byte("value"))
			}},
	}
}

// Together is one case of all that only fill the source, and change it, and must be kept:
// each in a folder of its own. It is for engines that take long to start.
func Together(scale Scale) Case {
	var all []Case
	for _, c := range All(scale) {
		alone := c.Target != nil || c.During != nil || c.Replace != nil || c.Spoil != nil || len(c.Without) > 0 || c.TargetBytes > 0 || c.Disk ||
			c.SpoilStream > 0 || c.Holds != nil
		if c.Must == Kept && !c.Root && !alone && c.Source != nil {
			all = append(all, c)
		}
	}
	each := func(v *Volume, what func(Case) func(*Volume)) {
		for _, c := range all {
			do := what(c)
			if do == nil {
				continue
			}
			own := &Volume{Dir: filepath.Join(v.Dir, c.Number)}
			v.mkdir(c.Number, 0o755)
			do(own)
			v.Err = errors.Join(v.Err, own.Err)
		}
	}
	return Case{
		Number: "all", Name: "all that are in the source", Must: Kept,
		Source:  func(v *Volume) { each(v, func(c Case) func(*Volume) { return c.Source }) },
		Between: func(v *Volume) { each(v, func(c Case) func(*Volume) { return c.Between }) },
	}
}

// swap puts another directory at the volume's path, as another mount would.
func (v *Volume) swap(fill func(v *Volume)) {
	v.do("replace the volume", func() error {
		if err := os.Rename(v.Dir, v.Dir+".away"); err != nil {
			return err
		}
		if err := os.Mkdir(v.Dir, 0o755); err != nil {
			return err
		}
		fill(v)
		return v.Err
	})
}

// mappedWriter stores into a mapped file without a system call until it is stopped.
func mappedWriter(ctx context.Context, v *Volume) {
	v.do("write through a mapping", func() error {
		f, err := os.OpenFile(v.at("mapped"), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		pages, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		for n := 0; ctx.Err() == nil; n++ {
			pages[n*4099%len(pages)]++
			time.Sleep(10 * time.Microsecond)
		}
		return unix.Munmap(pages)
	})
}

// busyWriter appends, truncates, renames, replaces and deletes until it is stopped.
func busyWriter(ctx context.Context, v *Volume) {
	for n := 0; ctx.Err() == nil && v.Err == nil; n++ {
		file := func(i int) string { return fmt.Sprintf("d%d/f%d", i%10, i) }
		fresh := fmt.Sprintf("d%d/new%d", n%10, n)
		switch i := n * 7 % 150; n % 5 {
		case 0:
			v.patch(file(i), int64(30000+n), noise("more", 5000))
		case 1:
			v.truncate(file(i), int64(n%30000))
		case 2:
			v.write(fresh, noise("new", 3000))
			v.rename(fresh, file(i))
		case 3:
			v.write(fresh, noise("new", 3000))
		case 4:
			v.remove(fmt.Sprintf("d%d/new%d", (n-1)%10, n-1))
		}
		time.Sleep(time.Millisecond)
	}
}
