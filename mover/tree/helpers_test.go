package tree

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// scan scans a directory with an earlier manifest, if there is one, and opens what
// it wrote.
func scan(t *testing.T, root string, change ...func(*Options)) *Manifest {
	t.Helper()
	o := Options{Root: root, Manifest: filepath.Join(t.TempDir(), "manifest"), Scratch: t.TempDir()}
	for _, f := range change {
		f(&o)
	}
	summary, err := Scan(t.Context(), o)
	require.NoError(t, err)
	m, err := Open(o.Manifest)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	require.Equal(t, summary, m.Summary())
	return m
}

func write(t *testing.T, content string, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
	return name
}

func paths(t *testing.T, m *Manifest) (all []string) {
	t.Helper()
	for r := m.Entries(); ; {
		e, err := r.Next()
		if err != nil {
			return all
		}
		all = append(all, e.Path)
	}
}

// needRoot skips a test that makes devices, owners and the like.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes devices, owners and trusted attributes")
	}
}

// rich makes a tree with something of everything, always the same.
func rich(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "volume")
	write(t, "small", root, "dir", "small")
	write(t, string(make([]byte, 3*BlockSize+5)), root, "dir", "four blocks")
	write(t, "", root, "empty")
	write(t, "x", root, "not\xffutf8\n")
	write(t, "shared", root, "linked")
	require.NoError(t, os.Link(filepath.Join(root, "linked"), filepath.Join(root, "dir", "linked too")))
	write(t, "shared", root, "alone")
	require.NoError(t, os.Symlink("dir/small", filepath.Join(root, "symlink")))
	require.NoError(t, os.Mkdir(filepath.Join(root, "void"), 0o755))
	require.NoError(t, unix.Chmod(filepath.Join(root, "void"), 0o2755))
	require.NoError(t, unix.Mkfifo(filepath.Join(root, "fifo"), 0o640))
	require.NoError(t, unix.Mknod(filepath.Join(root, "socket"), unix.S_IFSOCK|0o600, 0))
	require.NoError(t, unix.Mknod(filepath.Join(root, "char"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	require.NoError(t, unix.Mknod(filepath.Join(root, "block"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))))
	small := filepath.Join(root, "dir", "small")
	require.NoError(t, unix.Setxattr(small, "user.note", []byte("value"), 0))
	require.NoError(t, unix.Setxattr(small, "trusted.note", []byte("value"), 0))
	require.NoError(t, unix.Setxattr(small, "security.capability", capability(1<<unix.CAP_NET_RAW), 0))
	require.NoError(t, unix.Setxattr(small, accessACL, acl(6, 4, 1000), 0))
	require.NoError(t, unix.Setxattr(filepath.Join(root, "void"), defaultACL, acl(7, 5, 1000), 0))
	require.NoError(t, unix.Lsetxattr(filepath.Join(root, "symlink"), "trusted.link", []byte("value"), 0))
	settle(t, root)
	return root
}

// settle gives every entry the same time.
func settle(t *testing.T, root string) {
	t.Helper()
	var all []string
	require.NoError(t, filepath.Walk(root, func(path string, _ os.FileInfo, err error) error {
		all = append(all, path)
		return err
	}))
	for _, path := range all {
		setTime(t, path, time.Unix(1500000000, 123456789))
	}
}

func setTime(t *testing.T, path string, at time.Time) {
	t.Helper()
	times := []unix.Timespec{unix.NsecToTimespec(at.UnixNano()), unix.NsecToTimespec(at.UnixNano())}
	require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW))
}

// capability is the value of security.capability for permitted capabilities.
func capability(permitted uint32) []byte {
	b := make([]byte, 20)
	binary.LittleEndian.PutUint32(b, 0x02000001)
	binary.LittleEndian.PutUint32(b[4:], permitted)
	return b
}

// acl is the value of a POSIX ACL with a named user.
func acl(owner, named uint16, user uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, owner, 1<<32 - 1}, {2, named, user}, {4, 4, 1<<32 - 1}, {16, 7, 1<<32 - 1}, {32, 4, 1<<32 - 1}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// flips are the smallest changes of everything a copy must keep.
var flips = map[string]func(t *testing.T, root string){
	"a bit of a small file":   func(t *testing.T, root string) { flipByte(t, root+"/dir/small", 0) },
	"the last bit of a file":  func(t *testing.T, root string) { flipByte(t, root+"/dir/four blocks", 3*BlockSize+4) },
	"a bit at a block's end":  func(t *testing.T, root string) { flipByte(t, root+"/dir/four blocks", BlockSize-1) },
	"a zero byte more":        func(t *testing.T, root string) { must(t, os.Truncate(root+"/dir/four blocks", 3*BlockSize+6)) },
	"a zero byte less":        func(t *testing.T, root string) { must(t, os.Truncate(root+"/dir/four blocks", 3*BlockSize+4)) },
	"a byte in an empty file": func(t *testing.T, root string) { must(t, os.Truncate(root+"/empty", 1)) },
	"a bit of a name":         func(t *testing.T, root string) { must(t, os.Rename(root+"/empty", root+"/empTy")) },
	"a byte that is no UTF-8": func(t *testing.T, root string) { must(t, os.Rename(root+"/not\xffutf8\n", root+"/not\xfeutf8\n")) },
	"a file moved up":         func(t *testing.T, root string) { must(t, os.Rename(root+"/dir/small", root+"/small")) },
	"a file less":             func(t *testing.T, root string) { must(t, os.Remove(root+"/empty")) },
	"an empty directory less": func(t *testing.T, root string) { must(t, os.Remove(root+"/void")) },
	"an entry more":           func(t *testing.T, root string) { must(t, os.Mkdir(root+"/void/more", 0o755)) },
	"a bit of a mode":         func(t *testing.T, root string) { must(t, os.Chmod(root+"/dir/small", 0o645)) },
	"setuid":                  func(t *testing.T, root string) { must(t, unix.Chmod(root+"/empty", 0o4644)) },
	"setgid of a directory":   func(t *testing.T, root string) { must(t, unix.Chmod(root+"/void", 0o755)) },
	"sticky":                  func(t *testing.T, root string) { must(t, unix.Chmod(root+"/void", 0o3755)) },
	"the root's mode":         func(t *testing.T, root string) { must(t, os.Chmod(root, 0o750)) },
	"the root's owner":        func(t *testing.T, root string) { must(t, os.Chown(root, 1, 0)) },
	"an owner":                func(t *testing.T, root string) { must(t, os.Lchown(root+"/empty", 1, 0)) },
	"a group":                 func(t *testing.T, root string) { must(t, os.Lchown(root+"/empty", 0, 1)) },
	"a symlink's owner":       func(t *testing.T, root string) { must(t, os.Lchown(root+"/symlink", 1, 0)) },
	"owner and group swapped": func(t *testing.T, root string) { must(t, os.Lchown(root+"/fifo", 0, 1)) },
	"a nanosecond":            func(t *testing.T, root string) { setTime(t, root+"/empty", time.Unix(1500000000, 123456788)) },
	"a symlink's nanosecond":  func(t *testing.T, root string) { setTime(t, root+"/symlink", time.Unix(1500000000, 123456788)) },
	"a directory's second":    func(t *testing.T, root string) { setTime(t, root+"/void", time.Unix(1500000001, 123456789)) },
	"a time before 1970":      func(t *testing.T, root string) { setTime(t, root+"/empty", time.Unix(-1500000000, 123456789)) },
	"a symlink's target": func(t *testing.T, root string) {
		must(t, os.Remove(root+"/symlink"))
		must(t, os.Symlink("dir/smalm", root+"/symlink"))
		must(t, unix.Lsetxattr(root+"/symlink", "trusted.link", []byte("value"), 0))
	},
	"a device's minor number": func(t *testing.T, root string) { remake(t, root+"/char", unix.S_IFCHR, 1, 2) },
	"a device's major number": func(t *testing.T, root string) { remake(t, root+"/char", unix.S_IFCHR, 3, 3) },
	"the kind of a device":    func(t *testing.T, root string) { remake(t, root+"/char", unix.S_IFBLK, 1, 3) },
	"a fifo for a socket":     func(t *testing.T, root string) { remake(t, root+"/socket", unix.S_IFIFO, 0, 0) },
	"a value":                 func(t *testing.T, root string) { xattr(t, root+"/dir/small", "user.note", []byte("valud")) },
	"a trusted value":         func(t *testing.T, root string) { xattr(t, root+"/dir/small", "trusted.note", []byte("valud")) },
	"an attribute more":       func(t *testing.T, root string) { xattr(t, root+"/empty", "user.empty", nil) },
	"an attribute less":       func(t *testing.T, root string) { must(t, unix.Removexattr(root+"/dir/small", "user.note")) },
	"a symlink's attribute": func(t *testing.T, root string) {
		must(t, unix.Lsetxattr(root+"/symlink", "trusted.link", []byte("valud"), 0))
	},
	"a capability":      func(t *testing.T, root string) { xattr(t, root+"/dir/small", capabilityXattr, capability(1)) },
	"an access ACL":     func(t *testing.T, root string) { xattr(t, root+"/dir/small", accessACL, acl(6, 4, 1001)) },
	"a default ACL":     func(t *testing.T, root string) { xattr(t, root+"/void", defaultACL, acl(7, 1, 1000)) },
	"a default ACL off": func(t *testing.T, root string) { must(t, unix.Removexattr(root+"/void", defaultACL)) },
	"a hard link broken": func(t *testing.T, root string) {
		must(t, os.Remove(root+"/linked"))
		write(t, "shared", root, "linked")
	},
	"a hard link to another of the same content": func(t *testing.T, root string) {
		must(t, os.Remove(root+"/dir/linked too"))
		must(t, os.Link(root+"/alone", root+"/dir/linked too"))
	},
}

func must(t *testing.T, err error) {
	t.Helper()
	require.NoError(t, err)
}

func xattr(t *testing.T, path, name string, value []byte) {
	t.Helper()
	require.NoError(t, unix.Setxattr(path, name, value, 0))
}

func remake(t *testing.T, path string, kind uint32, major, minor uint32) {
	t.Helper()
	var s syscall.Stat_t
	require.NoError(t, syscall.Lstat(path, &s))
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mknod(path, kind|s.Mode&0o7777, int(unix.Mkdev(major, minor))))
}

func flipByte(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
}

// settledManifest scans a directory and sets the start of the scan to a later time in the manifest,
// so that all its entries count as settled.
func settledManifest(t *testing.T, root string) string {
	t.Helper()
	manifest := filepath.Join(t.TempDir(), "manifest")
	local := fileSystem(0xef53).margin()
	scan(t, root, func(o *Options) { o.Manifest = manifest })
	rewriteSummary(t, manifest, func(s *Summary) {
		s.Started.Sec += 3600
		s.Margin = local
	})
	return manifest
}

// rewriteSummary replaces the summary of a manifest.
func rewriteSummary(t *testing.T, path string, change func(*Summary)) {
	t.Helper()
	m, err := Open(path)
	require.NoError(t, err)
	defer m.Close()
	s := m.Summary()
	change(&s)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, file.Truncate(m.end))
	w, err := newWriter(filepath.Join(t.TempDir(), "unused"), nil)
	require.NoError(t, err)
	w.file, w.at = file, m.end
	_, err = file.Seek(m.end, 0)
	require.NoError(t, err)
	w.buffer.Reset(file)
	require.NoError(t, w.finish(s, m.firstLink))
}

// sparse makes a file of a size with some content at each of some places.
func sparse(t *testing.T, path string, size int64, at ...int64) string {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, file.Truncate(size))
	for _, offset := range at {
		_, err := file.WriteAt([]byte("content"), offset)
		require.NoError(t, err)
	}
	return path
}

func rangesOf(t *testing.T, before, after *Manifest) (ranges []Range) {
	t.Helper()
	for change, err := range Changes(before, after) {
		require.NoError(t, err)
		for r, err := range change.Ranges() {
			require.NoError(t, err)
			ranges = append(ranges, r)
		}
	}
	return ranges
}

func lengthOf(t *testing.T, m *Manifest) int64 {
	t.Helper()
	s, err := m.file.Stat()
	require.NoError(t, err)
	return s.Size()
}

// someBytes are bytes that repeat nowhere near.
func someBytes(n int) []byte {
	content := make([]byte, n)
	for i := range content {
		content[i] = byte(i*i>>7 + i)
	}
	return content
}
