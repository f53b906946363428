package tree

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScanGivesEntriesInCanonicalOrder(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"b", "a/z", "a/b/c", "a!", "a/b!", "lost+found/x", "a/lost+found/y"} {
		write(t, path, root, path)
	}
	m := scan(t, root)
	require.Equal(t, []string{"", "a", "a/b", "a/b/c", "a/b!", "a/lost+found", "a/lost+found/y", "a/z", "a!", "b"}, paths(t, m))
	require.Equal(t, uint64(10), m.Summary().Entries)
	require.Equal(t, uint64(6), m.Summary().Files)
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

func scanDevice(t *testing.T, path string) *Manifest {
	t.Helper()
	o := Options{Root: path, Manifest: filepath.Join(t.TempDir(), "manifest"), Scratch: t.TempDir(), Cold: true}
	summary, err := ScanDevice(t.Context(), o)
	require.NoError(t, err)
	m, err := Open(o.Manifest)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	require.Equal(t, summary, m.Summary())
	return m
}

func TestABlockVolumeIsDescribedByItsBlocks(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 700000) // Some segments, the last one short.
	device := write(t, string(content), t.TempDir(), "device")
	original, alike := scanDevice(t, device), scanDevice(t, write(t, string(content), t.TempDir(), "other"))
	require.Equal(t, original.Summary().Root, alike.Summary().Root)
	require.Equal(t, uint64(len(content)), original.Summary().Bytes)

	flipByte(t, device, 5<<20)
	changed := scanDevice(t, device)
	require.NotEqual(t, original.Summary().Root, changed.Summary().Root)
	var ranges []Range
	for change, err := range Changes(original, changed) {
		require.NoError(t, err)
		for r, err := range change.Ranges() {
			require.NoError(t, err)
			ranges = append(ranges, r)
		}
	}
	require.Equal(t, []Range{{5 << 20, BlockSize}}, ranges)
}

func TestABatchThatAStoppedWorkerLeftIsNotTakenForWhole(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	left := &batch{done: make(chan struct{})}
	close(left.done)
	for range 100 {
		require.ErrorIs(t, (&collector{}).await(ctx, left), context.Canceled)
	}
}
