package cases

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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
