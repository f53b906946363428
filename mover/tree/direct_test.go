package tree

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAColdScanOfLargeFilesFindsWhatAWarmOneDoes(t *testing.T) {
	folder, other := t.TempDir(), t.TempDir()
	content := make([]byte, 3*segment+aligned+7)
	for i := range content {
		content[i] = byte(i * i >> 7)
	}
	// Ends at, before and behind the borders of what is read at once, and holes.
	for name, n := range map[string]int{
		"whole": 2 * segment, "less": 2*segment - 1, "more": 2*segment + 1, "block": segment + BlockSize, "page": segment + aligned,
		"little": segment + 3, "buffers": segment + bufferSize, "all": len(content),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), content[:n], 0o600))
	}
	sparse, err := os.Create(filepath.Join(folder, "sparse"))
	require.NoError(t, err)
	for _, at := range []int64{5, 2*segment - 9, 4*segment + 100} {
		_, err = sparse.WriteAt(content[:200], at)
		require.NoError(t, err)
	}
	require.NoError(t, sparse.Truncate(6*segment+11))
	require.NoError(t, sparse.Close())
	var roots []Hash
	for _, cold := range []bool{false, true} {
		summary, err := Scan(context.Background(), Options{Root: folder, Manifest: filepath.Join(other, "manifest"), Scratch: other, Cold: cold})
		require.NoError(t, err)
		roots = append(roots, summary.Root)
	}
	assert.Equal(t, roots[0], roots[1])
}

func TestAFileIsReadThroughTheCacheWhereItsDiskTakesNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, make([]byte, BlockSize+9), 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	f := &openedFile{fd: int(file.Fd())}
	f.bypass()
	if !f.direct.Load() {
		t.Skip("this file system is read through the page cache only")
	}
	// A place that is no multiple of a block is refused as a disk with larger blocks refuses any.
	p := &part{file: f, start: 1, end: BlockSize + 9, done: make(chan struct{})}
	p.hash(&hasher{})
	require.NoError(t, p.err)
	assert.EqualValues(t, BlockSize+8, p.read)
	assert.False(t, f.direct.Load())
}
