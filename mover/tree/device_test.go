package tree

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

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
