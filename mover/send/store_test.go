package send

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/tree"
)

func TestWhatIsWorthTheWayThroughTheObjectStore(t *testing.T) {
	source, target, scratch := t.TempDir(), t.TempDir(), t.TempDir()
	const large = 8 << 20
	content := bytes.Repeat([]byte("x"), large)
	changed := func(from, to int) []byte {
		other := bytes.Clone(content)
		for i := from; i < to; i++ {
			other[i] = 'y'
		}
		return other
	}
	put := func(dir, name string, content []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	for name, content := range map[string][]byte{"part": changed(0, large/8), "half": changed(0, large/2), "small": []byte("y"),
		"new": content, "empty": nil, "same": content} {
		put(source, name, content)
	}
	for name, was := range map[string][]byte{"part": content, "half": content, "small": []byte("x"), "same": content, "gone": content} {
		put(target, name, was)
	}
	require.NoError(t, os.Link(filepath.Join(source, "new"), filepath.Join(source, "newer")))
	require.NoError(t, os.Symlink("new", filepath.Join(source, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(source, "folder"), 0o700))
	put(source, "sparse", nil)
	require.NoError(t, os.Truncate(filepath.Join(source, "sparse"), 1<<30))

	scanned := func(root string) *tree.Manifest {
		path := filepath.Join(scratch, filepath.Base(root))
		_, err := tree.Scan(t.Context(), tree.Options{Root: root, Manifest: path, Scratch: scratch})
		require.NoError(t, err)
		manifest, err := tree.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = manifest.Close() })
		return manifest
	}
	there, here := scanned(target), scanned(source)
	chosen, err := newStoreSelection(source)
	require.NoError(t, err)
	defer chosen.close()
	var names []string
	for e, err := range chosen.files(there, here) {
		require.NoError(t, err)
		names = append(names, e.Path)
	}
	assert.ElementsMatch(t, []string{"half", "small", "new", "newer"}, names)
}
