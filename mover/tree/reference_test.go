package tree

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// reference computes a root from docs/move-verification.md alone, with the tree in
// memory and by paths, sharing no code with the scan.
func reference(t *testing.T, root string) Hash {
	t.Helper()
	paths := []string{""}
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		require.NoError(t, err)
		rel, err := filepath.Rel(root, path)
		require.NoError(t, err)
		if rel == "lost+found" {
			return filepath.SkipDir
		}
		if rel != "." {
			paths = append(paths, rel)
		}
		return nil
	}))
	slices.SortFunc(paths, func(a, b string) int {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	})
	entries, links := derive("entries"), derive("links")
	var ordinals, members uint64
	first := map[uint64]uint64{}
	for _, path := range paths {
		full := filepath.Join(root, path)
		var s syscall.Stat_t
		require.NoError(t, syscall.Lstat(full, &s))
		canonical := referenceEntry(t, full, path, &s)
		put(entries, uint32(len(canonical)), canonical)
		if s.Mode&syscall.S_IFMT != syscall.S_IFDIR && s.Nlink > 1 {
			if leader, ok := first[s.Ino]; ok {
				put(links, ordinals, leader)
				members++
			} else {
				first[s.Ino] = ordinals
			}
		}
		ordinals++
	}
	all := derive("root")
	put(all, ordinals, entries.Sum(nil), members, links.Sum(nil))
	return Hash(all.Sum(nil))
}

func derive(what string) *blake3.Hasher { return blake3.NewDeriveKey("lodestone.dev/tree/v1 " + what) }

// put writes values as the definition does: numbers big-endian, texts after their
// length, byte slices as they are.
func put(to interface{ Write([]byte) (int, error) }, values ...any) {
	for _, v := range values {
		switch v := v.(type) {
		case []byte:
			_, _ = to.Write(v)
		case string:
			put(to, uint32(len(v)), []byte(v))
		default:
			_ = binary.Write(writerOf{to}, binary.BigEndian, v)
		}
	}
}

type writerOf struct {
	to interface{ Write([]byte) (int, error) }
}

func (w writerOf) Write(b []byte) (int, error) { return w.to.Write(b) }

func referenceEntry(t *testing.T, full, path string, s *syscall.Stat_t) []byte {
	t.Helper()
	letters := map[uint32]byte{
		syscall.S_IFDIR: 'd', syscall.S_IFREG: 'f', syscall.S_IFLNK: 'l', syscall.S_IFIFO: 'p',
		syscall.S_IFSOCK: 's', syscall.S_IFCHR: 'c', syscall.S_IFBLK: 'b',
	}
	kind := letters[s.Mode&syscall.S_IFMT]
	b := &bytes.Buffer{}
	put(b, kind, path, s.Mode&0o7777, s.Uid, s.Gid, s.Mtim.Sec, uint32(s.Mtim.Nsec))
	switch kind {
	case 'f':
		content, err := os.ReadFile(full)
		require.NoError(t, err)
		blocks := derive("content")
		for block := range slices.Chunk(content, 32768) {
			hash := blake3.Sum256(block)
			put(blocks, hash[:])
		}
		put(b, uint64(len(content)), blocks.Sum(nil))
	case 'l':
		target, err := os.Readlink(full)
		require.NoError(t, err)
		put(b, target)
	case 'c', 'b':
		put(b, unix.Major(s.Rdev), unix.Minor(s.Rdev))
	}
	list := make([]byte, 1<<16)
	n, err := unix.Llistxattr(full, list)
	require.NoError(t, err)
	var kept []string
	for _, name := range strings.Split(string(list[:n]), "\x00") {
		if strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "trusted.") || name == "security.capability" ||
			strings.HasPrefix(name, "system.posix_acl_") {
			kept = append(kept, name)
		}
	}
	slices.Sort(kept)
	put(b, uint32(len(kept)))
	for _, name := range kept {
		value := make([]byte, 1<<16)
		n, err := unix.Lgetxattr(full, name, value)
		require.NoError(t, err)
		hash := blake3.Sum256(value[:n])
		put(b, name, uint64(n), hash[:])
	}
	return b.Bytes()
}

func TestTheRootIsWhatItsDefinitionSays(t *testing.T) {
	needRoot(t)
	root := rich(t)
	write(t, strings.Repeat("large", 2<<20), root, "large")
	write(t, "skipped", root, "lost+found", "at the root")
	write(t, "kept", root, "void", "lost+found", "nested")
	require.Equal(t, reference(t, root), scan(t, root).Summary().Root)
}

func TestTwoTreesMadeAlikeHaveTheSameRoot(t *testing.T) {
	needRoot(t)
	a, b := scan(t, rich(t)), scan(t, rich(t))
	require.Equal(t, a.Summary().Root, b.Summary().Root)
	d, err := Compare(a, b, 10)
	require.NoError(t, err)
	require.Zero(t, d.Count, d.First)
}

func TestTheSmallestChangeOfAnythingChangesTheRoot(t *testing.T) {
	needRoot(t)
	for name, flip := range flips {
		t.Run(name, func(t *testing.T) {
			root := rich(t)
			original := scan(t, root)
			before := timesOf(t, root)
			flip(t, root)
			// All times that the flip was not meant to change are restored, so that they do not
			// show it.
			before.restore(t, name)
			copied := scan(t, root)
			require.NotEqual(t, original.Summary().Root, copied.Summary().Root)
			require.Equal(t, reference(t, root), copied.Summary().Root)
			d, err := Compare(original, copied, 10)
			require.NoError(t, err)
			require.NotZero(t, d.Count)
			t.Log(d.First)
		})
	}
}

// times are those of all entries of a tree.
type times map[string]syscall.Timespec

func timesOf(t *testing.T, root string) times {
	t.Helper()
	all := times{}
	require.NoError(t, filepath.Walk(root, func(path string, _ os.FileInfo, err error) error {
		require.NoError(t, err)
		var s syscall.Stat_t
		require.NoError(t, syscall.Lstat(path, &s))
		all[path] = s.Mtim
		return nil
	}))
	return all
}

// restore sets all times back, unless the flip is one of a time.
func (a times) restore(t *testing.T, flip string) {
	t.Helper()
	for _, word := range []string{"second", "1970"} {
		if strings.Contains(flip, word) {
			return
		}
	}
	for path, at := range a {
		if _, err := os.Lstat(path); err == nil {
			setTime(t, path, time.Unix(at.Sec, at.Nsec))
		}
	}
}

// Random trees with random changes: the root is that of the reference, and a rescan
// with the earlier manifest gives what a scan of everything gives.
func TestARescanGivesWhatAWholeScanGives(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	root := filepath.Join(t.TempDir(), "volume")
	require.NoError(t, os.Mkdir(root, 0o755))
	manifest := filepath.Join(t.TempDir(), "kept")
	use := func(o *Options) { o.Manifest = manifest }
	scan(t, root, use)
	for range 40 {
		for range 1 + random.IntN(12) {
			mutate(t, random, root)
		}
		old, err := Open(manifest)
		require.NoError(t, err)
		kept := scan(t, root, use, func(o *Options) { o.Previous = manifest })
		whole := scan(t, root)
		require.Equal(t, reference(t, root), whole.Summary().Root)
		require.Equal(t, whole.Summary().Root, kept.Summary().Root)
		d, err := Compare(whole, kept, 3)
		require.NoError(t, err)
		require.Zero(t, d.Count, d.First)
		changed, err := Compare(old, kept, 3)
		require.NoError(t, err)
		require.Equal(t, changed.Count == 0, old.Summary().Root == kept.Summary().Root)
		require.NoError(t, old.Close())
	}
}

// mutate does one random thing to a random entry.
func mutate(t *testing.T, random *rand.Rand, root string) {
	t.Helper()
	var all []string
	require.NoError(t, filepath.Walk(root, func(path string, _ os.FileInfo, err error) error {
		all = append(all, path)
		return err
	}))
	path := all[random.IntN(len(all))]
	info, err := os.Lstat(path)
	require.NoError(t, err)
	name := filepath.Join(path, string(rune('a'+random.IntN(6)))+string(slices.Repeat([]byte{byte(33 + random.IntN(13))}, 2)))
	content := make([]byte, random.IntN(4)*BlockSize+random.IntN(3))
	_, err = os.Lstat(name)
	fresh := os.IsNotExist(err)
	switch n := random.IntN(10); {
	case info.IsDir() && fresh && n < 4:
		require.NoError(t, os.WriteFile(name, content, 0o644))
	case info.IsDir() && fresh && n < 6 && strings.Count(path, "/") < 12:
		require.NoError(t, os.Mkdir(name, 0o755))
	case info.IsDir() && fresh && n < 7:
		require.NoError(t, os.Symlink("to/somewhere", name))
	case info.Mode().IsRegular() && n < 4 && info.Size() > 0:
		flipByte(t, path, random.Int64N(info.Size()))
		setTime(t, path, info.ModTime())
	case info.Mode().IsRegular() && n < 6:
		require.NoError(t, os.Truncate(path, random.Int64N(5*BlockSize)))
	case info.Mode().IsRegular() && n < 8:
		other := filepath.Join(root, "link"+string(rune('a'+random.IntN(26))))
		if _, err := os.Lstat(other); os.IsNotExist(err) {
			require.NoError(t, os.Link(path, other))
		}
	case path != root && n < 9 && random.IntN(3) == 0:
		require.NoError(t, os.RemoveAll(path))
	case info.Mode()&os.ModeSymlink == 0:
		require.NoError(t, os.Chmod(path, 0o700|os.FileMode(random.IntN(64))))
	}
}
