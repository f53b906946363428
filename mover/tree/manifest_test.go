package tree

import (
	"os"
	"path/filepath"
	"testing"

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
