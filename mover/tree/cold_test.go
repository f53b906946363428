package tree

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/cases/disk"
)

func TestAColdScanReadsTheDiskAndNotTheMemory(t *testing.T) {
	root := filepath.Join(t.TempDir(), "volume")
	require.NoError(t, os.Mkdir(root, 0o755))
	mounted, err := disk.Mount(t.Context(), root, 32<<20)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { require.NoError(t, mounted.Unmount()) })
	content := make([]byte, LargeFrom+5*BlockSize)
	_, err = rand.Read(content)
	require.NoError(t, err)
	write(t, string(content[:3*BlockSize]), root, "small")
	write(t, string(content[3*BlockSize:]), root, "large")
	cold := func(o *Options) { o.Cold = true }

	for _, row := range []struct {
		file string
		at   int64
	}{{"small", BlockSize + 77}, {"large", LargeFrom + BlockSize}} {
		path := filepath.Join(root, row.file)
		good := scan(t, root)
		inMemory, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, mounted.Flip(inMemory[row.at:row.at+64]))

		require.Equal(t, good.Summary().Root, scan(t, root).Summary().Root, "the file's pages are in memory, where nothing has changed")
		spoilt := scan(t, root, cold)
		differences, err := Compare(good, spoilt, 1)
		require.NoError(t, err)
		require.Equal(t, Differences{Count: 1, First: []Difference{{Path: row.file, What: "other content"}}}, differences)
	}
}
