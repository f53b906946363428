package tree

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheSorterSortsMoreThanItHolds(t *testing.T) {
	for _, limit := range []int{1, 100, 10000, 1 << 20} {
		t.Run(fmt.Sprintf("%d bytes held", limit), func(t *testing.T) {
			scratch := t.TempDir()
			s := newSorter(scratch, nil, limit)
			var want []string
			for range 1000 {
				record := fmt.Sprint(rand.IntN(500))
				want = append(want, record)
				require.NoError(t, s.add([]byte(record)))
			}
			slices.Sort(want)
			var got []string
			for record, err := range s.sorted() {
				require.NoError(t, err)
				got = append(got, string(record))
			}
			require.Equal(t, want, got)
			s.close()
			left, err := os.ReadDir(scratch)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// A directory whose names do not fit is sorted on disk, one inside it too.
func TestADirectoryOfManyNamesIsSortedOnDisk(t *testing.T) {
	root := t.TempDir()
	for i := range 300 {
		write(t, "x", root, fmt.Sprintf("%03d", 299-i))
		write(t, "x", root, "150x", fmt.Sprintf("%03d", i))
	}
	n := &nameSorter{scratch: t.TempDir(), memory: namesMemory}
	fd, err := openDirAt(-100, root)
	require.NoError(t, err)
	d := newDir(fd, "")
	defer d.release()
	var got []string
	for name, err := range n.sorted(d) {
		require.NoError(t, err)
		got = append(got, name.name)
	}
	require.Len(t, got, 301)
	require.True(t, slices.IsSorted(got))
	require.Equal(t, reference(t, root), scan(t, root).Summary().Root)
}
