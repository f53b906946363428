package receive

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/scratch"
	"github.com/lodestone-storage/lodestone/mover/tree"
)

func TestLargeFilesAreReadEarlyOnceNobodyWritesThemAnyMore(t *testing.T) {
	r := &Receiver{Volume: t.TempDir(), Scratch: scratch.Folder{Path: t.TempDir()}}
	e := &early{receiver: r}
	told := func(tree.Progress) {}
	assert.Empty(t, e.take(told), "nothing was written")
	_, err := tree.Scan(t.Context(), tree.Options{Root: r.Volume, Manifest: r.manifestPath(), Scratch: r.Scratch.Path})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(r.Volume, "large"), make([]byte, tree.LargeFrom+1), 0o600))

	t.Log("Who asks before reading has begun does not wait for it.")
	e.begin(t.Context())
	assert.Empty(t, e.take(told))
	assert.NoFileExists(t, e.manifest())

	t.Log("Who asks later is given what was read.")
	e.begin(t.Context())
	select {
	case <-e.settled:
	case <-time.After(time.Minute):
		require.Fail(t, "nothing is read")
	}
	path := e.take(told)
	m, err := tree.Open(path)
	require.NoError(t, err)
	assert.Equal(t, uint64(1), m.Summary().ReadFiles)
	require.NoError(t, m.Close())
	e.drop()
	assert.NoFileExists(t, path)
	assert.Empty(t, e.take(told), "it is of use once")

	t.Log("A lost connection ends it, and leaves nothing.")
	ctx, stop := context.WithCancel(t.Context())
	e.begin(ctx)
	stop()
	e.drop()
	assert.NoFileExists(t, path)

	t.Log("What cannot be read is read by the scan alone.")
	require.NoError(t, os.Remove(r.manifestPath()))
	e.begin(t.Context())
	<-e.settled
	assert.Empty(t, e.take(told))
}
