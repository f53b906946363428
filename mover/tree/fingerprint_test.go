package tree

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/e2e/mover/cases/disk"
)

func fingerprintOf(t *testing.T, root string) Hash {
	t.Helper()
	hash, err := Fingerprint(t.Context(), Options{Root: root, Scratch: t.TempDir()})
	require.NoError(t, err)
	return hash
}

// onDisk skips a test of the file system of temporary files, if that is none that keeps times.
func onDisk(t *testing.T, root string) {
	t.Helper()
	if fingerprintOf(t, root) == (Hash{}) {
		t.Skip("the file system of this machine's temporary files has no fingerprints")
	}
}

func TestEachChangeShowsInTheFingerprint(t *testing.T) {
	needRoot(t)
	for name, change := range map[string]func(root string) error{
		"a file has another content and the times that it had": func(root string) error {
			small := filepath.Join(root, "dir", "small")
			info, err := os.Stat(small)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(small, []byte("llams"), 0o644))
			return os.Chtimes(small, info.ModTime(), info.ModTime())
		},
		"a file is there":  func(root string) error { return os.WriteFile(filepath.Join(root, "dir", "new"), nil, 0o600) },
		"a file is gone":   func(root string) error { return os.Remove(filepath.Join(root, "empty")) },
		"a file is longer": func(root string) error { return os.Truncate(filepath.Join(root, "empty"), 1<<20) },
		"a file is another of its name": func(root string) error {
			return os.Rename(filepath.Join(root, "alone"), filepath.Join(root, "linked"))
		},
		"a folder has another name": func(root string) error {
			return os.Rename(filepath.Join(root, "void"), filepath.Join(root, "avoid"))
		},
		"a folder is elsewhere": func(root string) error {
			return os.Rename(filepath.Join(root, "void"), filepath.Join(root, "dir", "void"))
		},
		"an owner":         func(root string) error { return os.Lchown(filepath.Join(root, "symlink"), 7, 7) },
		"a mode":           func(root string) error { return os.Chmod(filepath.Join(root, "fifo"), 0o600) },
		"an attribute":     func(root string) error { return unix.Setxattr(filepath.Join(root, "dir"), "user.a", nil, 0) },
		"a hard link more": func(root string) error { return os.Link(filepath.Join(root, "alone"), filepath.Join(root, "alone2")) },
		"the root's mode":  func(root string) error { return os.Chmod(root, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			root := rich(t)
			onDisk(t, root)
			before := fingerprintOf(t, root)
			require.Equal(t, before, fingerprintOf(t, root), "nothing has changed")
			require.NoError(t, change(root))
			require.NotEqual(t, before, fingerprintOf(t, root))
		})
	}
}

// TestEntriesDoNotPassForOthers has trees whose names, one after another, are the same.
func TestEntriesDoNotPassForOthers(t *testing.T) {
	root := t.TempDir()
	onDisk(t, root)
	seen := map[Hash]bool{}
	require.NoError(t, os.MkdirAll(filepath.Join(root, "a", "b"), 0o755))
	for range 3 {
		for _, name := range []string{"a/b/c", "a/c", "c"} {
			require.NoError(t, os.WriteFile(filepath.Join(root, name), nil, 0o644))
			hash := fingerprintOf(t, root)
			require.False(t, seen[hash], name)
			seen[hash] = true
			require.NoError(t, os.Remove(filepath.Join(root, name)))
		}
	}
}

func TestWhatNoCopyHasIsInNoFingerprint(t *testing.T) {
	root := rich(t)
	onDisk(t, root)
	require.NoError(t, os.Mkdir(filepath.Join(root, lostFound), 0o700))
	before := fingerprintOf(t, root)
	write(t, "x", root, lostFound, "#12")
	require.Equal(t, before, fingerprintOf(t, root), "what is in lost+found")
	_, err := os.ReadFile(filepath.Join(root, "dir", "small"))
	require.NoError(t, err)
	require.Equal(t, before, fingerprintOf(t, root), "a file was read")
	write(t, "x", root, "dir", lostFound, "x")
	require.NotEqual(t, before, fingerprintOf(t, root), "it is one of that name at another place")
}

func TestThereIsNoFingerprintWhereItWouldProveNothing(t *testing.T) {
	root := rich(t)
	onDisk(t, root)
	below := filepath.Join(root, "void")
	if err := unix.Mount("tmpfs", below, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(below, unix.MNT_DETACH)) })
	require.Zero(t, fingerprintOf(t, root), "something is mounted below")
	require.Zero(t, fingerprintOf(t, below), "a store through a memory mapping may change no time there")
	_, err := Fingerprint(t.Context(), Options{Root: filepath.Join(root, "dir", "small"), Scratch: t.TempDir()})
	require.ErrorIs(t, err, unix.ENOTDIR)
}

func TestASnapshotOfADiskHasItsFingerprint(t *testing.T) {
	folder := t.TempDir()
	root, copied := filepath.Join(folder, "volume"), filepath.Join(folder, "copy")
	require.NoError(t, os.Mkdir(root, 0o755))
	require.NoError(t, os.Mkdir(copied, 0o755))
	mounted, err := disk.Mount(t.Context(), root, 32<<20)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { require.NoError(t, mounted.Unmount()) })
	write(t, "content", root, "dir", "file")
	write(t, "content", root, "file")
	scan(t, root) // That writes all to the disk.
	snapshot, err := mounted.Snapshot(t.Context(), copied)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, snapshot.Unmount()) })
	require.NotZero(t, fingerprintOf(t, root))
	require.Equal(t, fingerprintOf(t, root), fingerprintOf(t, copied))
	write(t, "tnetnoc", root, "file")
	require.NotEqual(t, fingerprintOf(t, root), fingerprintOf(t, copied))
	require.NoError(t, unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_LAZYTIME, ""))
	require.Zero(t, fingerprintOf(t, root), "times may be written a day later")
}

func TestHowFarAFingerprintIsIsTold(t *testing.T) {
	root := t.TempDir()
	onDisk(t, root)
	for i := range 2500 {
		require.NoError(t, os.WriteFile(filepath.Join(root, strconv.Itoa(i)), nil, 0o644))
	}
	var told []uint64
	note := func(p Progress) { told = append(told, p.Entries) }
	_, err := Fingerprint(t.Context(), Options{Root: root, Scratch: t.TempDir(), Progress: note})
	require.NoError(t, err)
	require.Equal(t, []uint64{1000, 2000}, told)
}
