package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain lets the test's program confine itself, in a process of its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ConfineSubcommand {
		fmt.Fprintln(os.Stderr, RunConfineSubcommand(os.Args[2:]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestAConfinedProgramReachesTheVolumeAndNothingElse(t *testing.T) {
	if _, err := LandlockVersion(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	volume, outside := filepath.Join(dir, "volume"), filepath.Join(dir, "outside")
	require.NoError(t, os.Mkdir(volume, 0o755))
	require.NoError(t, os.Mkdir(outside, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(volume, "file"), []byte("file"), 0o644))
	require.NoError(t, os.Symlink(outside, filepath.Join(volume, "way")))
	self, err := os.Executable()
	require.NoError(t, err)
	for name, row := range map[string]struct {
		write   bool
		script  string
		allowed bool
	}{
		"it reads the volume":                      {true, "cat file", true},
		"it writes the volume":                     {true, "echo x >new && mkdir d && mv new d/ && rm -r d", true},
		"it reads nothing outside":                 {true, "cat ../outside/secret", false},
		"it reads nothing outside through a link":  {true, "cat way/secret", false},
		"it writes nothing outside":                {true, "echo x >../outside/new", false},
		"it writes nothing outside through a link": {true, "echo x >way/new", false},
		"it truncates nothing outside":             {true, ": >../outside/secret", false},
		"it deletes nothing outside":               {true, "rm ../outside/secret", false},
		"it links nothing from outside":            {true, "ln ../outside/secret stolen", false},
		"it makes no directory outside":            {true, "mkdir ../outside/d", false},
		"a reader reads the volume":                {false, "cat file", true},
		"a reader writes nothing in the volume":    {false, "echo x >file", false},
		"a reader deletes nothing in the volume":   {false, "rm file", false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := Command(t.Context(), self, []Access{{Path: volume, Write: row.write}}, "/bin/sh", "-c", row.script)
			cmd.Dir = volume
			output, err := cmd.CombinedOutput()
			if row.allowed {
				assert.NoError(t, err, string(output))
			} else {
				assert.Error(t, err, string(output))
			}
			content, err := os.ReadFile(filepath.Join(outside, "secret"))
			require.NoError(t, err)
			assert.Equal(t, "secret", string(content))
			names, err := os.ReadDir(outside)
			require.NoError(t, err)
			assert.Len(t, names, 1)
		})
	}
}
