package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// refusals are what Prepare says of a move to a target of its own file system.
func refusals(t *testing.T, source, options string) []moverapi.Refusal {
	t.Helper()
	m := setUp(t, source, false)
	m.Stop()
	if err := unix.Mount("tmpfs", m.Target, "tmpfs", 0, options); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(m.Target, unix.MNT_DETACH)) })
	again, err := harness.Start(m.ctx, harness.Setup{Program: m.Program, Folder: t.TempDir(), Source: m.Source, Target: m.Target})
	require.NoError(t, err)
	t.Cleanup(again.Stop)
	m.Move, m.expect = again, nil
	return m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Refusals
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
	m := setUp(t, source, false)
	found := m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Refusals
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Reason, "more than 4,095 bytes")
	assert.NotEmpty(t, found[0].Path)
}

// limited restarts both movers with a limit of so many bytes each.
func limited(t *testing.T, m *move, bytes int) {
	t.Helper()
	require.NoError(t, m.KillSender(true))
	require.NoError(t, m.KillReceiver(true))
	m.More = []string{"--scratch-limit=" + strconv.Itoa(bytes)}
	require.NoError(t, m.StartReceiver(m.ctx))
	require.NoError(t, m.StartSender(m.ctx))
}

// files makes files whose names take about 350 bytes each in a manifest.
func files(t *testing.T, dir string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		write(t, dir, fmt.Sprintf("d/%s-%d", strings.Repeat("x", 200), i), nil)
	}
}

func TestWhatMoversCannotRememberIsRefusedBeforeAnythingStops(t *testing.T) {
	source := t.TempDir()
	files(t, source, 0, 300)
	m := setUp(t, source, false)
	limited(t, m, 200_000)
	prepared := m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared
	require.Len(t, prepared.Refusals, 2)
	for i, end := range []string{"source", "target"} {
		assert.Regexp(t, `^the mover at the `+end+` must remember up to \d+\.\d KiB of the files, and has room for 195\.3 KiB \(its limit; let `+
			`movers keep more with --mover-scratch of the provisioner\)$`, prepared.Refusals[i].Reason)
	}

	limited(t, m, 500_000)
	assert.Empty(t, m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Refusals)
	m.do(moverapi.Task{Kind: moverapi.Pass})
	// Files that are added afterwards fail a pass, and no mover stores more than its limit.
	files(t, source, 300, 2000)
	_, err := m.try(moverapi.Task{Kind: moverapi.Pass})
	require.ErrorContains(t, err, "the mover at the source may keep 488.3 KiB on the disk of its node, and what it must remember of the "+
		"files takes more")
	for _, verb := range []string{"send", "receive"} {
		var kept int64
		found, err := filepath.Glob(filepath.Join(m.Scratch(verb), "*"))
		require.NoError(t, err)
		for _, path := range found {
			info, err := os.Stat(path)
			require.NoError(t, err)
			kept += info.Size()
		}
		assert.LessOrEqual(t, kept, int64(500_000))
	}
}

func TestALargeSparseFileIsMovedWithLittleRoomOnTheNodes(t *testing.T) {
	const size = 200 << 30
	source := t.TempDir()
	image, err := os.Create(filepath.Join(source, "image"))
	require.NoError(t, err)
	defer image.Close()
	require.NoError(t, image.Truncate(size))
	for _, at := range []int64{0, 77 << 30, size - 4} {
		_, err := image.WriteAt([]byte("data"), at)
		require.NoError(t, err)
	}
	m := setUp(t, source, false)
	limited(t, m, 64<<10)
	assert.Empty(t, m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Refusals)
	m.do(moverapi.Task{Kind: moverapi.Pass})
	_, err = image.WriteAt([]byte("more"), 150<<30)
	require.NoError(t, err)
	passed := m.do(moverapi.Task{Kind: moverapi.Final}).Passed
	assert.Less(t, passed.BytesSent, int64(1<<20))
	m.verified(true)
	there, err := os.Open(filepath.Join(m.Target, "image"))
	require.NoError(t, err)
	defer there.Close()
	got := make([]byte, 4)
	_, err = there.ReadAt(got, 150<<30)
	require.NoError(t, err)
	assert.Equal(t, "more", string(got))
}
