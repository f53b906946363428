package tree

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// settledManifest scans and lets the manifest say that its scan was later than it was, so that
// everything it saw counts as settled.
func settledManifest(t *testing.T, root string) string {
	t.Helper()
	manifest := filepath.Join(t.TempDir(), "manifest")
	local := system(0xef53).margin()
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

func TestARescanReadsOnlyWhatChanged(t *testing.T) {
	root := t.TempDir()
	write(t, "one", root, "one")
	write(t, "two", root, "two")
	large := string(bytes.Repeat([]byte("0123456789abcdef"), 1<<20))
	write(t, large, root, "large")
	write(t, large, root, "large too")
	manifest := settledManifest(t, root)
	write(t, "TWO", root, "two")
	flipByte(t, filepath.Join(root, "large too"), 5<<20)
	m := scan(t, root, func(o *Options) { o.Previous = manifest })
	require.Equal(t, uint64(2), m.Summary().ReadFiles)
	require.Equal(t, uint64(3+16<<20), m.Summary().ReadBytes)
	require.Equal(t, scan(t, root).Summary().Root, m.Summary().Root)

	again := scan(t, root, func(o *Options) { o.Previous = manifest })
	d, err := Compare(m, again, 1)
	require.NoError(t, err)
	require.Zero(t, d.Count)
}

func TestAFileRewrittenWithItsSizeAndTimeSetBackIsReadAgain(t *testing.T) {
	root := t.TempDir()
	path := write(t, "before", root, "file")
	at := time.Unix(1600000000, 5)
	require.NoError(t, os.Chtimes(path, at, at))
	manifest := settledManifest(t, root)
	old, err := Open(manifest)
	require.NoError(t, err)
	defer old.Close()
	write(t, "beforE", root, "file")
	require.NoError(t, os.Chtimes(path, at, at))
	m := scan(t, root, func(o *Options) { o.Previous = manifest })
	require.NotEqual(t, old.Summary().Root, m.Summary().Root)
	d, err := Compare(old, m, 1)
	require.NoError(t, err)
	require.Equal(t, []Difference{{Path: "file", What: "other content"}}, d.First)
}

// What changed just before the earlier scan may have changed again within the same
// tick: such files are read again although nothing tells of a change.
func TestAFileThatChangedJustBeforeTheEarlierScanIsReadAgain(t *testing.T) {
	root := t.TempDir()
	write(t, "file", root, "file")
	manifest := filepath.Join(t.TempDir(), "manifest")
	scan(t, root, func(o *Options) { o.Manifest = manifest })
	m := scan(t, root, func(o *Options) { o.Previous = manifest })
	require.Equal(t, uint64(1), m.Summary().ReadFiles)
}

func TestRangesTellWhichPartsOfAFileChanged(t *testing.T) {
	const blocks = 300
	content := make([]byte, blocks*BlockSize+100)
	for name, row := range map[string]struct {
		change func(t *testing.T, path string)
		want   []Range
	}{
		"one byte": {
			func(t *testing.T, path string) { flipByte(t, path, 7*BlockSize+3) },
			[]Range{{7 * BlockSize, BlockSize}},
		},
		"neighbours are joined": {
			func(t *testing.T, path string) {
				flipByte(t, path, 8*BlockSize-1)
				flipByte(t, path, 8*BlockSize)
				flipByte(t, path, 20*BlockSize)
			},
			[]Range{{7 * BlockSize, 2 * BlockSize}, {20 * BlockSize, BlockSize}},
		},
		"the last block is short": {
			func(t *testing.T, path string) { flipByte(t, path, blocks*BlockSize+99) },
			[]Range{{blocks * BlockSize, 100}},
		},
		"appended": {
			func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, (blocks+2)*BlockSize)) },
			[]Range{{blocks * BlockSize, 2 * BlockSize}},
		},
		"truncated within a block": {
			func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 10*BlockSize+1)) },
			[]Range{{10 * BlockSize, 1}},
		},
		"truncated at a block": {
			func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 10*BlockSize)) },
			nil,
		},
		"emptied": {func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := write(t, string(content), root, "file")
			old := scan(t, root)
			row.change(t, path)
			now := scan(t, root)
			var got []Range
			for change, err := range Changes(old, now) {
				require.NoError(t, err)
				if change.Path() != "file" {
					continue
				}
				for r, err := range change.Ranges() {
					require.NoError(t, err)
					got = append(got, r)
				}
			}
			require.Equal(t, row.want, got)
		})
	}
}
