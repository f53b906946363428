package app_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/harness"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// refusals are what Prepare says of a move to a target of its own file system.
func refusals(t *testing.T, source, options string) []movecontrol.Refusal {
	t.Helper()
	m := begin(t, source, false)
	m.Stop()
	if err := unix.Mount("tmpfs", m.Target, "tmpfs", 0, options); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(m.Target, unix.MNT_DETACH)) })
	again, err := harness.Start(m.ctx, harness.Setup{Program: m.Program, Folder: t.TempDir(), Source: m.Source, Target: m.Target})
	require.NoError(t, err)
	t.Cleanup(again.Stop)
	m.Move, m.expect = again, nil
	return m.do(movecontrol.Task{Kind: movecontrol.Prepare}).Prepared.Refusals
}

func TestWhatTheTargetHasNoRoomForIsRefusedInPrepare(t *testing.T) {
	many := t.TempDir()
	for i := range 500 {
		write(t, many, filepath.Join("d", strings.Repeat("f", i%20+1), string(rune('a'+i%26))+strings.Repeat("x", i/26)), []byte("x"))
	}
	for name, row := range map[string]struct{ source, options, want string }{
		"bytes":  {source: some(t), options: "size=4m", want: "the target is too small"},
		"inodes": {source: many, options: "size=64m,nr_inodes=200", want: "too few inodes"},
	} {
		t.Run(name, func(t *testing.T) {
			found := refusals(t, row.source, row.options)
			require.Len(t, found, 1)
			assert.Contains(t, found[0].String(), row.want)
			assert.Empty(t, found[0].Path)
		})
	}
}

func TestAPathThatIsTooLongIsRefusedInPrepare(t *testing.T) {
	source := some(t)
	at, err := unix.Open(source, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	part := strings.Repeat("d", 250)
	for range 17 {
		require.NoError(t, unix.Mkdirat(at, part, 0o755))
		next, err := unix.Openat(at, part, unix.O_PATH|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(at))
		at = next
	}
	require.NoError(t, unix.Close(at))
	m := begin(t, source, false)
	found := m.do(movecontrol.Task{Kind: movecontrol.Prepare}).Prepared.Refusals
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Reason, "more than 4,095 bytes")
	assert.NotEmpty(t, found[0].Path)
}
