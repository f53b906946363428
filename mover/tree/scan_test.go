package tree

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// scan scans a directory with an earlier manifest, if there is one, and opens what
// it wrote.
func scan(t *testing.T, root string, change ...func(*Options)) *Manifest {
	t.Helper()
	o := Options{Root: root, Manifest: filepath.Join(t.TempDir(), "manifest"), Scratch: t.TempDir()}
	for _, f := range change {
		f(&o)
	}
	summary, err := Scan(t.Context(), o)
	require.NoError(t, err)
	m, err := Open(o.Manifest)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	require.Equal(t, summary, m.Summary())
	return m
}

func write(t *testing.T, content string, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
	return name
}

func paths(t *testing.T, m *Manifest) (all []string) {
	t.Helper()
	for r := m.Entries(); ; {
		e, err := r.Next()
		if err != nil {
			return all
		}
		all = append(all, e.Path)
	}
}

func TestScanGivesEntriesInCanonicalOrder(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"b", "a/z", "a/b/c", "a!", "a/b!", "lost+found/x", "a/lost+found/y"} {
		write(t, path, root, path)
	}
	m := scan(t, root)
	require.Equal(t, []string{"", "a", "a/b", "a/b/c", "a/b!", "a/lost+found", "a/lost+found/y", "a/z", "a!", "b"}, paths(t, m))
	require.Equal(t, uint64(10), m.Summary().Entries)
	require.Equal(t, uint64(6), m.Summary().Files)
}
