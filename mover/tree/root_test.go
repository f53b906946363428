package tree

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
			// All times that the flip did not mean to change are as before: they are not
			// what gives it away.
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
