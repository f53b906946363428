package tree

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHolesTakeNoRoomInAManifest(t *testing.T) {
	const size = 256 << 30
	root := t.TempDir()
	path := sparse(t, filepath.Join(root, "large"), size, 0, 100<<30+12345, size-7)
	manifest := settledManifest(t, root)
	m, err := Open(manifest)
	require.NoError(t, err)
	defer m.Close()
	assert.Less(t, lengthOf(t, m), int64(8<<10))
	assert.Equal(t, uint64(size), m.Summary().Bytes)

	// The unchanged content is copied with its holes, the changed content is found to the block.
	write(t, "other", root, "other")
	assert.Less(t, lengthOf(t, scan(t, root, func(o *Options) { o.Previous = manifest })), int64(8<<10))
	require.NoError(t, os.Remove(filepath.Join(root, "other")))
	flipByte(t, path, 200<<30)
	changed := scan(t, root)
	assert.Equal(t, []Range{{200 << 30, BlockSize}}, rangesOf(t, m, changed))
	assert.Equal(t, []Range{{200 << 30, BlockSize}}, rangesOf(t, changed, m))
}

func TestAHoleAndZerosAreTheSameContent(t *testing.T) {
	// Holes before, between and behind content, runs of all lengths, the last block short.
	const size = 40*BlockSize + 2*segment + 77
	places := []int64{3 * BlockSize, 5 * BlockSize, 12*BlockSize + 9, 13 * BlockSize, 40*BlockSize + 2*segment}
	root, filled := t.TempDir(), t.TempDir()
	path := sparse(t, filepath.Join(root, "file"), size, places...)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	copied := write(t, string(content), filled, "file")
	s, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Chtimes(copied, s.ModTime(), s.ModTime()))
	holes, zeros := scan(t, root), scan(t, filled)
	assert.Empty(t, rangesOf(t, holes, zeros))
	file := func(m *Manifest) *Entry {
		r := m.Entries()
		_, err := r.Next()
		require.NoError(t, err)
		e, err := r.Next()
		require.NoError(t, err)
		return e
	}
	want := newHasher(contentContext)
	for at := 0; at < len(content); at += BlockSize {
		hash := hashOf(content[at:min(at+BlockSize, len(content))])
		_, _ = want.Write(hash[:])
	}
	assert.Equal(t, sum(want), file(holes).Content)
	assert.Equal(t, sum(want), file(zeros).Content)

	// A manifest has every block, however its runs are stored.
	var hashes []byte
	r := holes.blocksOf(file(holes))
	for range file(holes).Blocks() {
		hash, _, err := r.next()
		require.NoError(t, err)
		hashes = append(hashes, hash...)
		r.skip(1)
	}
	assert.Equal(t, sum(want), contentOf(hashes))
	assert.True(t, bytes.Contains(hashes, zeroHash[:]))
}

func TestAFileLargerThanAnyScanEndsIsRefused(t *testing.T) {
	e := &Entry{Path: "huge", Type: File, Size: 1 << 62}
	found := &findings{}
	found.examine(e, 0)
	_, list := found.list()
	require.Len(t, list, 1)
	assert.Equal(t, "huge: it is larger than 256 TiB, its holes included; truncate it", list[0].String())
	// A file that has grown since is not read at all.
	err := (&collector{}).readLarge(t.Context(), nil, "huge", &observation{entry: e})
	assert.ErrorContains(t, err, "larger than 256 TiB")
}
