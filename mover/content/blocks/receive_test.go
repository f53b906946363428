package blocks

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostile is a volume with links that lead out of it, beside a file that must not change.
func hostile(t *testing.T) (volume, outside string) {
	t.Helper()
	dir := t.TempDir()
	volume, outside = filepath.Join(dir, "volume"), filepath.Join(dir, "outside")
	require.NoError(t, os.Mkdir(volume, 0o755))
	require.NoError(t, os.Mkdir(outside, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o644))
	require.NoError(t, os.Symlink(outside, filepath.Join(volume, "way")))
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(volume, "file")))
	return volume, outside
}

func TestAHostileSenderReachesNothingOutsideTheVolume(t *testing.T) {
	for name, path := range map[string]string{
		"upwards":                       "../outside/secret",
		"upwards from below":            "a/../../outside/secret",
		"an absolute path":              "/etc/passwd",
		"through a link to a directory": "way/secret",
		"a link to a file":              "file",
		"a path with a NUL":             "a\x00b",
		"no path":                       "",
		"a path with an empty part":     "a//b",
		"the directory itself":          ".",
	} {
		t.Run(name, func(t *testing.T) {
			volume, outside := hostile(t)
			r, err := NewReceiver(volume)
			require.NoError(t, err)
			defer r.Close()
			message, err := encode(messageFile, header{Path: []byte(path), Size: 5, Names: 1})
			require.NoError(t, err)
			// A refused message is as good as one whose effect is inside the volume.
			if r.Apply(message) == nil {
				require.NoError(t, r.Apply(append(positioned(messageBytes, 0), []byte("spoil")...)))
				require.NoError(t, r.Apply([]byte{messageDone}))
			}
			link, err := encode(messageLink, header{Path: []byte("stolen"), Target: []byte(path)})
			require.NoError(t, err)
			linked := r.Apply(link)
			content, err := os.ReadFile(filepath.Join(outside, "secret"))
			require.NoError(t, err)
			assert.Equal(t, "secret", string(content))
			names, err := os.ReadDir(outside)
			require.NoError(t, err)
			assert.Len(t, names, 1)
			if linked == nil {
				stolen, err := os.ReadFile(filepath.Join(volume, "stolen"))
				require.NoError(t, err)
				assert.NotEqual(t, "secret", string(stolen))
			}
		})
	}
}

func TestALyingSenderIsRefused(t *testing.T) {
	file, err := encode(messageFile, header{Path: []byte("f"), Size: 10, Names: 1})
	require.NoError(t, err)
	for name, messages := range map[string][][]byte{
		"content behind the end":   {file, append(positioned(messageBytes, 8), 1, 2, 3)},
		"content before the start": {file, append(positioned(messageBytes, -1), 1)},
		"zeros behind the end":     {file, positioned(messageZeros, 8, 0, 0, 0, 0, 0, 0, 0, 9)},
		"content of no file":       {append(positioned(messageBytes, 0), 1)},
		"a file inside another":    {file, file},
		"an unknown message":       {file, {'?'}},
		"an empty message":         {{}},
		"an end without a file":    {{messageDone}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewReceiver(t.TempDir())
			require.NoError(t, err)
			defer r.Close()
			for i, message := range messages {
				err = r.Apply(message)
				if i < len(messages)-1 {
					require.NoError(t, err)
				}
			}
			assert.Error(t, err)
		})
	}
}
