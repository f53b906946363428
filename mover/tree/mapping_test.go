package tree

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A store through a mapping into a page that is already dirty changes neither the
// modification nor the change time. The scan must see it all the same.
func TestAStoreThroughAMappingAfterAScanIsSeenByTheNext(t *testing.T) {
	root := t.TempDir()
	write(t, string(make([]byte, 10*BlockSize)), root, "mapped")
	f, err := os.OpenFile(filepath.Join(root, "mapped"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	pages, err := unix.Mmap(int(f.Fd()), 0, 10*BlockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(pages)) }()
	pages[3*BlockSize] = 1
	// The first store is settled long before the scan, as far as times tell.
	time.Sleep(time.Duration(localMargin) + 100*time.Millisecond)
	manifest := filepath.Join(t.TempDir(), "manifest")
	first := scan(t, root, func(o *Options) { o.Manifest = manifest })
	pages[3*BlockSize] = 2
	second := scan(t, root, func(o *Options) { o.Previous = manifest })
	require.NotEqual(t, first.Summary().Root, second.Summary().Root)
	require.Equal(t, reference(t, root), second.Summary().Root)
}
