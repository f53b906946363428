package cases

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/cases/disk"
)

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
