package tree

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A manifest may come from the other cluster: whatever is in it, reading it ends
// with an error or with entries, and never with a crash or without end.
func FuzzReadingAManifest(f *testing.F) {
	root := f.TempDir()
	must := func(err error) {
		if err != nil {
			f.Fatal(err)
		}
	}
	must(os.WriteFile(root+"/large", append([]byte("content"), make([]byte, 9*BlockSize)...), 0o644))
	must(os.WriteFile(root+"/small", []byte("small"), 0o644))
	must(os.Link(root+"/small", root+"/link"))
	must(os.Symlink("small", root+"/symlink"))
	good := filepath.Join(f.TempDir(), "manifest")
	_, err := Scan(f.Context(), Options{Root: root, Manifest: good, Scratch: f.TempDir()})
	must(err)
	content, err := os.ReadFile(good)
	must(err)
	f.Add(uint(20), byte(1), uint(len(content)))
	f.Add(uint(len(content)-20), byte(0xff), uint(len(content)))
	f.Add(uint(0), byte(0), uint(len(content)-1))
	f.Fuzz(func(t *testing.T, at uint, flip byte, length uint) {
		path := filepath.Join(t.TempDir(), "manifest")
		changed := append([]byte(nil), content...)
		changed[at%uint(len(changed))] ^= flip
		changed = changed[:length%uint(len(changed)+1)]
		require.NoError(t, os.WriteFile(path, changed, 0o600))
		m, err := Open(path)
		if err != nil {
			return
		}
		defer m.Close()
		original, err := Open(good)
		require.NoError(t, err)
		defer original.Close()
		for change, err := range Changes(original, m) {
			if err != nil {
				return
			}
			for _, err := range change.Ranges() {
				if err != nil {
					return
				}
			}
		}
	})
}

// A flipped bit in any byte of a kept manifest is found, or does not matter: reading
// it never gives other entries.
func TestASpoiltManifestIsNeverTakenForAnother(t *testing.T) {
	root := t.TempDir()
	write(t, string(append([]byte("content"), make([]byte, 9*BlockSize)...)), root, "large")
	write(t, "small", root, "small")
	path := filepath.Join(t.TempDir(), "manifest")
	original := scan(t, root, func(o *Options) { o.Manifest = path })
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	spoilt := filepath.Join(t.TempDir(), "spoilt")
	for bit := 0; bit < 8*len(content); bit += 9 {
		changed := append([]byte(nil), content...)
		changed[bit/8] ^= 1 << (bit % 8)
		require.NoError(t, os.WriteFile(spoilt, changed, 0o600))
		m, err := Open(spoilt)
		if err != nil {
			continue
		}
		for change, err := range Changes(original, m) {
			if err != nil {
				break
			}
			require.Failf(t, "a spoilt manifest was believed", "bit %d: %s", bit, change.Difference())
		}
		require.NoError(t, m.Close())
	}
}

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
