package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatAProcessHasDoneIsReadAlsoIfItsNameIsOdd(t *testing.T) {
	const counts = "rchar: 100\nwchar: 20\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 0\n"
	used, err := parseUsage([]byte(counts), []byte("7 (a) R 1) S 1 7 7 0 -1 4194304 90 0 0 0 150 50 9 9 20 0 1 0 55 1 2\n"))
	require.NoError(t, err)
	assert.Equal(t, Usage{Bytes: 120, CPU: 2 * time.Second}, used)
	for name, row := range map[string]struct{ counts, stat string }{
		"nothing":       {},
		"no counts":     {stat: "7 (a) S 1 7 7 0 -1 4194304 90 0 0 0 150 50 9"},
		"too few times": {counts: counts, stat: "7 (a) S 1 7 7 0 -1 4194304 90 0 0 0 150"},
		"no numbers":    {counts: "rchar: a\nwchar: 1\n", stat: "7 (a) S 1 7 7 0 -1 4194304 90 0 0 0 150 50 9"},
	} {
		_, err := parseUsage([]byte(row.counts), []byte(row.stat))
		assert.Error(t, err, name)
	}
}

func TestAProcessThatReadsHasMovedBytes(t *testing.T) {
	before, err := UsageOf(os.Getpid())
	require.NoError(t, err)
	from, err := os.Open("/dev/zero")
	require.NoError(t, err)
	defer from.Close()
	_, err = from.Read(make([]byte, 100_000))
	require.NoError(t, err)
	after, err := UsageOf(os.Getpid())
	require.NoError(t, err)
	assert.GreaterOrEqual(t, after.Bytes-before.Bytes, int64(100_000))
	assert.GreaterOrEqual(t, after.CPU, before.CPU)
}

func TestABudgetIsWhatTheLimitLeaves(t *testing.T) {
	f := Scratch{Path: t.TempDir(), Limit: 1000, Owner: "the mover at the source"}
	require.NoError(t, os.WriteFile(f.File("source.manifest"), make([]byte, 300), 0o600))
	b, err := f.Budget()
	require.NoError(t, err)
	require.NoError(t, b.Reserve(600))
	assert.EqualError(t, b.Reserve(101), "the mover at the source may keep 1000 bytes on the disk of its node, and what it must remember "+
		"of the files "+
		"takes more; let movers keep more with --mover-scratch of the provisioner")
	assert.Error(t, b.Reserve(1<<64-1))
	require.NoError(t, b.Reserve(100), "what was refused was not taken")
	assert.Error(t, b.Reserve(1))
	b.Release(50)
	assert.NoError(t, b.Reserve(50))

	b, err = Scratch{Path: f.Path}.Budget()
	require.NoError(t, err)
	assert.NoError(t, b.Reserve(1<<62), "without a limit")
}

func TestRoomIsTheLimitOrHalfOfTheDisk(t *testing.T) {
	f := Scratch{Path: t.TempDir(), Limit: 1}
	room, err := f.Space()
	require.NoError(t, err)
	assert.EqualValues(t, 1, room.Bytes)
	assert.Contains(t, room.Bound, "--mover-scratch")
	f.Limit = 0
	room, err = f.Space()
	require.NoError(t, err)
	assert.Greater(t, room.Bytes, uint64(1))
	assert.Contains(t, room.Bound, "disk of its node")
	assert.Empty(t, ScratchRefusal("the mover at the source", 10, ScratchSpace{Bytes: 10}))
	assert.Equal(t, "the mover at the source must remember up to 3.0 KiB of the files, and has room for 2.0 KiB (why)",
		ScratchRefusal("the mover at the source", 3<<10, ScratchSpace{Bytes: 2 << 10, Bound: "why"}))
}

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
