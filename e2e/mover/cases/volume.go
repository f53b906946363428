package cases

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Volume is a directory that a case fills. Its methods do nothing after the first
// error, which Err keeps.
type Volume struct {
	Dir string
	Err error
}

// do runs one step.
func (v *Volume) do(what string, step func() error) {
	if v.Err != nil {
		return
	}
	if err := step(); err != nil {
		v.Err = fmt.Errorf("%s: %w", what, err)
	}
}

// at is the path of a name in the volume; "" is the root. It is not cleaned.
func (v *Volume) at(name string) string {
	if name == "" {
		return v.Dir
	}
	return v.Dir + "/" + name
}

// write writes a file and the directories above it.
func (v *Volume) write(name string, content []byte) {
	v.do("write "+name, func() error {
		if err := os.MkdirAll(filepath.Dir(v.at(name)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(v.at(name), content, 0o644)
	})
}

func (v *Volume) text(name, content string) { v.write(name, []byte(content)) }

func (v *Volume) mkdir(name string, mode uint32) {
	v.do("make directory "+name, func() error {
		if err := os.MkdirAll(v.at(name), 0o755); err != nil {
			return err
		}
		return unix.Chmod(v.at(name), mode)
	})
}

func (v *Volume) chmod(name string, mode uint32) {
	v.do("change the mode of "+name, func() error { return unix.Chmod(v.at(name), mode) })
}

func (v *Volume) chown(name string, uid, gid int) {
	v.do("change the owner of "+name, func() error { return os.Lchown(v.at(name), uid, gid) })
}

func (v *Volume) link(from, to string) {
	v.do("link "+to, func() error {
		if err := os.MkdirAll(filepath.Dir(v.at(to)), 0o755); err != nil {
			return err
		}
		return os.Link(v.at(from), v.at(to))
	})
}

func (v *Volume) symlink(target, name string) {
	v.do("make symbolic link "+name, func() error { return os.Symlink(target, v.at(name)) })
}

func (v *Volume) mknod(name string, mode uint32, major, minor uint32) {
	v.do("make node "+name, func() error { return unix.Mknod(v.at(name), mode, int(unix.Mkdev(major, minor))) })
}

func (v *Volume) xattr(name, attribute string, value []byte) {
	v.do("set "+attribute+" of "+name, func() error { return unix.Lsetxattr(v.at(name), attribute, value, 0) })
}

// mtime sets a modification time, also a symbolic link's.
func (v *Volume) mtime(name string, at time.Time) {
	v.do("set the time of "+name, func() error {
		t := unix.Timespec{Sec: at.Unix(), Nsec: int64(at.Nanosecond())}
		return unix.UtimesNanoAt(unix.AT_FDCWD, v.at(name), []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
	})
}

func (v *Volume) remove(name string) {
	v.do("remove "+name, func() error { return os.RemoveAll(v.at(name)) })
}

func (v *Volume) rename(from, to string) {
	v.do("rename "+from, func() error { return os.Rename(v.at(from), v.at(to)) })
}

// patch writes into a file at an offset, making it longer where needed.
func (v *Volume) patch(name string, offset int64, content []byte) {
	v.do("patch "+name, func() error {
		f, err := os.OpenFile(v.at(name), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt(content, offset)
		return err
	})
}

func (v *Volume) truncate(name string, size int64) {
	v.do("truncate "+name, func() error { return os.Truncate(v.at(name), size) })
}

// rewrite changes a file's content and keeps its size; with keepTime its time is set
// back as well.
func (v *Volume) rewrite(name string, keepTime bool) {
	v.do("rewrite "+name, func() error {
		info, err := os.Stat(v.at(name))
		if err != nil {
			return err
		}
		content, err := os.ReadFile(v.at(name))
		if err != nil {
			return err
		}
		content[len(content)/2] ^= 1
		v.patch(name, 0, content)
		if keepTime {
			v.mtime(name, info.ModTime())
		}
		return v.Err
	})
}

// expect fails unless a file has this content.
func (v *Volume) expect(name, content string) {
	v.do("check "+name, func() error {
		got, err := os.ReadFile(v.at(name))
		if err == nil && !bytes.Equal(got, []byte(content)) {
			err = fmt.Errorf("it has other content")
		}
		return err
	})
}

// absent fails if a name is there.
func (v *Volume) absent(name string) {
	v.do("check "+name, func() error {
		if _, err := os.Lstat(v.at(name)); err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
}

// noise is content that does not compress, the same for the same name and size.
func noise(name string, size int) []byte {
	seed := sha256.Sum256([]byte(name))
	random := rand.NewChaCha8(seed)
	b := make([]byte, size)
	_, _ = random.Read(b)
	return b
}

// acl is the value of a POSIX ACL that gives a named user these permissions.
func acl(user uint32, permissions uint16) []byte {
	const nobody = 1<<32 - 1
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, permissions uint16
		id               uint32
	}{{1, 7, nobody}, {2, permissions, user}, {4, 5, nobody}, {16, 7, nobody}, {32, 0, nobody}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.permissions)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// capability is the value of security.capability that permits one capability.
func capability(number uint) []byte {
	b := make([]byte, 20)
	binary.LittleEndian.PutUint32(b, 0x02000001)
	binary.LittleEndian.PutUint32(b[4:], 1<<number)
	return b
}

// age gives everything that was made within the last hour an earlier time, so that
// only cases about times within one second depend on them.
func (v *Volume) age(by time.Duration) {
	now := time.Now()
	var young []string
	v.do("look at all times", func() error {
		return filepath.WalkDir(v.Dir, func(path string, _ fs.DirEntry, err error) error {
			var info fs.FileInfo
			if err == nil {
				info, err = os.Lstat(path)
			}
			if errors.Is(err, unix.ENAMETOOLONG) {
				return nil
			}
			if err != nil {
				return err
			}
			if since := now.Sub(info.ModTime()); since >= 0 && since < time.Hour {
				name, err := filepath.Rel(v.Dir, path)
				if err != nil {
					return err
				}
				young = append(young, name)
			}
			return nil
		})
	})
	for _, name := range young {
		v.mtime(name, now.Add(-by))
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
