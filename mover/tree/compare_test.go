package tree

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

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
