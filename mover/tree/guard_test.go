package tree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAVolumeThatIsNotWhatItWasIsRefused(t *testing.T) {
	fill := func(t *testing.T, root string, n int) {
		for i := range n {
			write(t, "x", root, fmt.Sprint(i))
		}
	}
	empty := func(t *testing.T, root string, n int) {
		for i := range n {
			require.NoError(t, os.Remove(filepath.Join(root, fmt.Sprint(i))))
		}
	}
	for name, row := range map[string]struct {
		change func(t *testing.T, root string, e *Expectation)
		says   string
	}{
		"the same":         {change: func(*testing.T, string, *Expectation) {}},
		"half is gone":     {change: func(t *testing.T, root string, _ *Expectation) { empty(t, root, 100) }},
		"nearly all gone":  {change: func(t *testing.T, root string, _ *Expectation) { empty(t, root, 199) }, says: "it has 1 entries, and had 200"},
		"everything gone":  {change: func(t *testing.T, root string, _ *Expectation) { empty(t, root, 200) }, says: "it is empty, and had 200 entries"},
		"gone and allowed": {change: func(t *testing.T, root string, e *Expectation) { empty(t, root, 200); e.AllowFewer = true }},
		"another directory with as much": {change: func(t *testing.T, root string, _ *Expectation) {
			require.NoError(t, os.Rename(root, root+".away"))
			require.NoError(t, os.Mkdir(root, 0o755))
			fill(t, root, 200)
		}, says: "its root is another directory"},
		"another directory, of a copy": {change: func(t *testing.T, root string, e *Expectation) {
			e.Identity.Born.Sec, e.Copied = 1, true
			empty(t, root, 100)
		}},
		"nearly all gone since a copy": {change: func(t *testing.T, root string, e *Expectation) {
			e.Identity.Born.Sec, e.Copied = 1, true
			empty(t, root, 199)
		}, says: "it has 1 entries, and had 200"},
		"born at another time": {change: func(_ *testing.T, _ string, e *Expectation) { e.Identity.Born.Sec-- }, says: "check what is mounted"},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "volume")
			fill(t, root, 200)
			expect := scan(t, root).Summary().Expect()
			row.change(t, root, expect)
			manifest := filepath.Join(t.TempDir(), "manifest")
			_, err := Scan(t.Context(), Options{Root: root, Manifest: manifest, Scratch: t.TempDir(), Expect: expect})
			if row.says == "" {
				require.NoError(t, err)
				return
			}
			var collapse *CollapseError
			require.ErrorAs(t, err, &collapse)
			require.ErrorContains(t, err, row.says)
			_, err = os.Stat(manifest)
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

func TestWhatNoCopyKeepsIsFound(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	write(t, "x", root, "below", "file")
	if err := unix.Mount("tmpfs", filepath.Join(root, "below"), "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	defer func() { require.NoError(t, unix.Unmount(filepath.Join(root, "below"), 0)) }()
	write(t, "x", root, "below", "of another file system")
	bound := write(t, "x", root, "bound")
	require.NoError(t, unix.Mount(write(t, "y", root, "other"), bound, "", unix.MS_BIND, ""))
	defer func() { require.NoError(t, unix.Unmount(bound, 0)) }()
	deep := strings.Repeat(strings.Repeat("d", 199)+"/", 15)
	require.NoError(t, os.MkdirAll(filepath.Join(root, deep), 0o755))
	inner, err := os.OpenRoot(filepath.Join(root, deep))
	require.NoError(t, err)
	require.NoError(t, inner.MkdirAll(strings.Repeat(strings.Repeat("e", 199)+"/", 6), 0o755))
	require.NoError(t, inner.Close())
	m := scan(t, root)
	for _, path := range paths(t, m) {
		require.NotContains(t, path, "below")
		require.NotContains(t, path, "bound")
		require.LessOrEqual(t, len(path), pathAtMost+256)
	}
	found := m.Summary().Findings
	require.Len(t, found, 2)
	require.Equal(t, MountBelow, found[0].Kind)
	require.Equal(t, "below", found[0].Path)
	require.Equal(t, uint64(2), found[0].Count)
	require.Equal(t, PathTooLong, found[1].Kind)
	require.Contains(t, found[0].String(), "another file system is mounted there")
}

func TestAnImmutableFileIsFound(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	f, err := os.Open(write(t, "x", root, "file"))
	require.NoError(t, err)
	defer f.Close()
	const immutable = 0x10 // FS_IMMUTABLE_FL of linux/fs.h
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, immutable); err != nil {
		t.Skipf("the file system of this machine's temporary directory has no such flag: %v", err)
	}
	defer func() { require.NoError(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0)) }()
	found := scan(t, root).Summary().Findings
	require.Equal(t, []Finding{{Kind: Immutable, Count: 1, Path: "file"}}, found)
}

func TestAScanThatIsStoppedLeavesNoManifest(t *testing.T) {
	root := t.TempDir()
	write(t, "x", root, "file")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	manifest := filepath.Join(t.TempDir(), "manifest")
	_, err := Scan(ctx, Options{Root: root, Manifest: manifest, Scratch: t.TempDir()})
	require.ErrorIs(t, err, context.Canceled)
	left, err := os.ReadDir(filepath.Dir(manifest))
	require.NoError(t, err)
	require.Empty(t, left)
}
