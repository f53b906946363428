package tree

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLargeFilesThatWereReadEarlyAreNotReadAgain(t *testing.T) {
	root, scratch := t.TempDir(), t.TempDir()
	content := string(someBytes(LargeFrom + BlockSize + 5))
	write(t, content, root, "a", "old")
	write(t, "little", root, "b")
	previous := settledManifest(t, root)
	path := write(t, content[5:], root, "a", "new")
	write(t, "little and new", root, "c")
	time.Sleep(time.Duration(localMargin) + 100*time.Millisecond)

	early := filepath.Join(scratch, "early")
	large := scan(t, root, func(o *Options) { o.Manifest, o.Previous, o.OnlyLarge, o.Cold = early, previous, true, true })
	require.Equal(t, uint64(1), large.Summary().Entries, "only what may have changed is told")
	require.Equal(t, uint64(1), large.Summary().ReadFiles)
	now := func(o *Options) { o.Previous, o.Early, o.Cold = previous, early, true }
	require.Equal(t, uint64(len("little and new")), scan(t, root, now).Summary().ReadBytes)
	m, truth := scan(t, root, now), scan(t, root)
	require.Equal(t, truth.Summary().Root, m.Summary().Root)
	differences, err := Compare(truth, m, 1)
	require.NoError(t, err)
	require.Zero(t, differences.Count)

	t.Log("One that has changed since then is read.")
	info, err := os.Stat(path)
	require.NoError(t, err)
	flipByte(t, path, LargeFrom)
	require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	m, truth = scan(t, root, now), scan(t, root)
	require.Equal(t, truth.Summary().Root, m.Summary().Root)
	require.Equal(t, uint64(len("little and new")+len(content)-5), m.Summary().ReadBytes)

	t.Log("One that changed just before it was read early is read, too.")
	write(t, content[1:], root, "a", "new")
	scan(t, root, func(o *Options) { o.Manifest, o.Previous, o.OnlyLarge, o.Cold = early, previous, true, true })
	m = scan(t, root, now)
	require.Equal(t, uint64(len("little and new")+len(content)-1), m.Summary().ReadBytes)

	t.Log("Neither manifest can stand for the other.")
	for _, o := range []Options{{Previous: early}, {Early: previous}} {
		o.Root, o.Manifest, o.Scratch = root, filepath.Join(scratch, "manifest"), scratch
		_, err := Scan(t.Context(), o)
		require.ErrorContains(t, err, "it tells of other files")
		require.NoFileExists(t, o.Manifest)
	}
}
